# All sorts of the cluster together use at most max_parallel_workers threads of
# the CPU engine, beside the backends' own ones.

use strict;
use warnings;

use GpusortTest;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $processors = `getconf _NPROCESSORS_ONLN`;
plan skip_all => 'one processor: every sort has one thread' if $processors < 2;

my $node = new_node('threads', settings => <<'CONF');
session_preload_libraries = 'gpusort'
gpusort.engine = cpu
max_parallel_workers = 1
max_parallel_workers_per_gather = 8
CONF
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE TABLE t AS SELECT array_agg(hashint4(i)) AS a FROM generate_series(1, 1000000) AS i;
CREATE FUNCTION sort_forever() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	a int[] := (SELECT t.a FROM t);
BEGIN
	LOOP PERFORM gpu_sort(a); END LOOP;
END $$;
SQL

my $used = q{SELECT substring(detail FROM '(\d+) of \d+ extra threads') FROM gpusort_status() WHERE engine = 'cpu'};
sub threads_of_a_sort
{
	ask($node, 'SELECT cardinality(gpu_sort(a)) FROM t');
	return ask($node, 'SELECT threads FROM gpusort_last_sort()');
}

is(ask($node, $used), 0, 'no thread is in use before the first sort');
is(threads_of_a_sort(), 2, 'a sort gets what max_parallel_workers allows');
is(ask($node, $used), 0, 'and gives it back');

# a session that sorts all the time, stopped in the middle of a sort
my ($stdout, $stderr);
my $psql = in_background($node, \$stdout, \$stderr, 'SELECT sort_forever()');
my $is_background = "application_name = 'background' AND query LIKE '%sort_forever%'";
ok(poll($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE $is_background"), 'another session sorts');
my $pid = ask($node, "SELECT pid FROM pg_stat_activity WHERE $is_background");
ok( poll_until(
		sub {
			kill 'STOP', $pid;
			return 1 if ask($node, $used) == 1;
			kill 'CONT', $pid;
			usleep(1000 * rand(10));
			return 0;
		}),
	'it is stopped while it uses the one extra thread');
is(threads_of_a_sort(), 1, 'a sort meanwhile gets no extra thread');
is(ask($node, $used), 1, 'and none is counted for it');
kill 'CONT', $pid;

# the count survives a cancel
ask($node, "SELECT pg_cancel_backend($pid)");
$psql->finish;
like($stderr, qr/canceling statement/, 'the other session is cancelled');
is(ask($node, $used), 0, 'which gives its thread back');
is(threads_of_a_sort(), 2, 'and the next sort gets it');

ask($node, 'SET max_parallel_workers = 0');
is(threads_of_a_sort(), 1, 'max_parallel_workers = 0: no extra thread');
end_session($node);
$node->stop;

done_testing();
