# The view gpusort_activity (src/base/stat.c), called by test/spill/stat_test.c and
# by parallel queries: it shows a role only what that role may see, never shows a sort that
# has ended, and shows a sort once, however many processes gather its rows.

use strict;
use warnings;

use GpusortTest;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $module = built_file('spill_test.so');

my $node = new_node('activity');
$node->start;
$node->safe_psql('postgres', <<"SQL");
CREATE EXTENSION gpusort;
CREATE FUNCTION activity_begin(sort integer, age float8, estimated_rows float8 DEFAULT 1000) RETURNS void AS '$module' LANGUAGE C;
CREATE FUNCTION activity_report(sort integer, phase integer, rows bigint, bytes bigint, engine text) RETURNS void AS '$module' LANGUAGE C;
CREATE FUNCTION activity_end(sort integer) RETURNS void AS '$module' LANGUAGE C;
CREATE FUNCTION activity_take_places() RETURNS integer AS '$module' LANGUAGE C;
CREATE FUNCTION activity_fill_memory() RETURNS integer AS '$module' LANGUAGE C;
CREATE ROLE alice LOGIN;
CREATE ROLE bob LOGIN;
CREATE ROLE carol LOGIN IN ROLE pg_read_all_stats;
CREATE ROLE dave LOGIN IN ROLE alice;
SQL

my $count = 'SELECT count(*) FROM gpusort_activity';
my $mine = q{SELECT pid = pg_backend_pid(), phase, rows, bytes, engine, clock_timestamp() - started BETWEEN '10 s' AND '1 h' FROM gpusort_activity;};

my $superuser = $node->safe_psql('postgres', 'SELECT current_user');

# The output of the statements, without rows that contain only void values.  A transaction that they leave
# open ends before psql does: the server's process may live on for a while, and show its sorts to the next session.
sub result_of
{
	my ($sql, %options) = @_;
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "$sql;\nROLLBACK;", on_error_stop => 0, %options);
	return join("\n", grep { !/^\|*$/ } split(/\n/, $stdout));
}

sub check_report
{
	my ($name) = @_;
	is( result_of("SELECT activity_begin(0, 10), activity_report(0, 0, 100, 800, NULL); $mine"), '',
		"$name: a sort ends with its transaction");
	is( result_of("BEGIN; SELECT activity_begin(0, 10), activity_report(0, 0, 100, 800, NULL); $mine COMMIT; $count"),
		"t|gathering|100|800||t\n0", "$name: a sort is shown until its transaction ends");
}

is($node->safe_psql('postgres', $count), '0', 'at first the view is empty');
check_report('not preloaded');

is( result_of(<<"SQL"), <<"RESULT" =~ s/\n$//r, 'the view shows each phase and engine, and the end of a sort');
BEGIN;
SELECT activity_begin(0, 10), activity_report(0, 1, 4294967296, 8589934592, 'cpu'); $mine
SELECT activity_report(0, 2, 0, 0, 'cuda'); $mine
SELECT activity_report(0, 3, 1, 2, 'core'); $mine
SELECT activity_end(0), activity_end(0); $count;
SELECT activity_report(0, 3, 1, 2, 'cpu'); $mine
SELECT activity_begin(0, 11); $count;
SELECT activity_report(0, 0, 5, 6, NULL); $mine
SELECT activity_begin(0, 0); $count;
COMMIT;
SQL
t|sorting|4294967296|8589934592|cpu|t
t|merging|0|0|cuda|t
t|returning|1|2|core|t
0
t|returning|1|2|cpu|t
0
t|gathering|5|6||t
0
RESULT

is( result_of("BEGIN; SELECT activity_begin(0, -3600), activity_report(0, 0, 1, 2, NULL); $count; SELECT activity_end(0)"),
	'0', 'a sort that has run for less than a second is not shown');
is( result_of("BEGIN; SELECT activity_begin(0, 10), activity_report(0, 0, 1, 2, NULL), activity_begin(1, 10), "
	  . "activity_report(1, 1, 3, 4, 'cpu'); SELECT pid = pg_backend_pid(), phase FROM gpusort_activity ORDER BY 2; SELECT activity_end(0); $mine"),
	"t|gathering\nt|sorting\nt|sorting|3|4|cpu|t", 'two sorts of one process are shown');

foreach my $case ([ 0, 100, 1000, 10 ], [ 0, 3, 1000, 0 ], [ 0, 2000, 1000, 100 ], [ 0, 5, 0, '' ], [ 1, 100, 1000, '' ], [ 3, 100, 1000, '' ])
{
	my ($phase, $rows, $estimated, $percent) = @$case;
	is(result_of("BEGIN; SELECT activity_begin(0, 10, $estimated), activity_report(0, $phase, $rows, 8, NULL); SELECT rows, percent FROM gpusort_activity; SELECT activity_end(0)"),
		"$rows|$percent", "percentage of $rows of $estimated rows in phase $phase");
}
is( result_of("BEGIN; SELECT activity_begin(0, 10, 1e100), activity_report(0, 0, 1, 2, NULL); SELECT participants, estimated_rows FROM gpusort_activity; "
	  . "SELECT leader_pid IS NULL, sort_number > 0, estimated_rows FROM gpusort_activity_list()"),
	"1|1000000000000000000\nt|t|1000000000000000000", 'the greatest estimate is shown as 10^18');

# a sort ends by an error and by the end of its process
is( result_of("BEGIN; SELECT activity_begin(0, 10), activity_report(0, 0, 1, 2, NULL); $count; SELECT 1 / 0; ROLLBACK; $count"),
	"1\n0", 'an error ends a sort');
is( result_of("BEGIN; SELECT activity_begin(0, 10), activity_report(0, 0, 1, 2, NULL), activity_begin(1, 10), "
	  . "activity_report(1, 0, 1, 2, NULL); $count"),
	'2', 'two sorts are shown before their session ends');
ok($node->poll_query_until('postgres', "$count", '0'), 'the end of a session ends its sorts');
result_of("BEGIN; SELECT activity_begin(0, 10), activity_report(0, 0, 1, 2, NULL); SELECT pg_terminate_backend(pg_backend_pid())");
ok($node->poll_query_until('postgres', "$count", '0'), 'the termination of a session ends its sorts');

# roles and what they see
my %sessions;
my %engines = (alice => 'cpu', bob => 'cuda');
foreach my $role ('alice', 'bob')
{
	my ($in, $out) = ('', '');
	$sessions{$role} = IPC::Run::start(
		[ 'psql', '-qXAt', '-d', $node->connstr('postgres') . " user=$role application_name=$role",
			'-c', 'BEGIN', '-c', "SELECT activity_begin(0, 10), activity_report(0, 0, 1, 2, '$engines{$role}')",
			'-c', 'SELECT pg_sleep(600)' ], \$in, \$out);
}
ok($node->poll_query_until('postgres', "$count", '2'), 'sorts of two users are shown');
my $seen = "SELECT count(*), count(phase), count(rows), count(bytes), count(started), string_agg(engine, ' ' ORDER BY engine), "
  . "bool_and(pid IN (SELECT pid FROM pg_stat_activity)) FROM gpusort_activity";
foreach my $case (
	[ $superuser, '2|2|2|2|2|cpu cuda|t', 'a superuser' ],
	[ 'carol', '2|2|2|2|2|cpu cuda|t', 'a member of pg_read_all_stats' ],
	[ 'alice', '2|1|1|1|1|cpu|t', 'the owner of one sort' ],
	[ 'dave', '2|1|1|1|1|cpu|t', 'a member of that owner\'s role' ],
	[ $superuser, '2|1|1|1|1|cpu|t', 'a superuser who became another role', "SET ROLE alice; $seen" ],
	[ 'alice', '2|1|1|1|1|cpu|t', 'by the function of the view, the owner of one sort', $seen =~ s/gpusort_activity$/gpusort_activity_list()/r ])
{
	my ($role, $expected, $name, $query) = @$case;
	is(result_of($query // $seen, extra_params => [ '-U', $role ]), $expected, "$name sees the details that it may see, and of other sorts the process");
}
result_of('SELECT pg_terminate_backend(pid) FROM gpusort_activity');
$_->finish foreach values %sessions;
ok($node->poll_query_until('postgres', "$count", '0'), 'both sorts have ended');

# a sort for which three processes gather rows, or two while the leader waits
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION dawdles(n int) RETURNS int LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
	IF n % 100 = 0 THEN PERFORM pg_sleep(0.01); END IF;
	RETURN n;
END $$;
CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 1000000) AS g;
ALTER TABLE t SET (parallel_workers = 2);
GRANT SELECT ON t TO alice;
VACUUM ANALYZE t;
SQL
foreach my $case ([ 'on', 3 ], [ 'off', 2 ])
{
	my ($participation, $participants) = @$case;
	my ($in, $out, $err) = ('', '', '');
	my $sort = IPC::Run::start([ 'psql', '-qXAt', '-d', $node->connstr('postgres') . ' user=alice',
			'-c', 'SELECT gpu_sort(ARRAY[2, 1])',
			'-c', "SET gpusort.force = on; SET parallel_setup_cost = 0; "
			  . "SET parallel_leader_participation = $participation",
			'-c', 'SELECT id FROM t WHERE dawdles(id) IS NOT NULL ORDER BY id' ], \$in, \$out, \$err);
	my $name = "leader participation $participation";
	ok( $node->poll_query_until('postgres', "SELECT count(*) = $participants FROM gpusort_activity_list() WHERE rows > 0"),
		"$name: $participants processes gather rows");
	my $leader = "pid IN (SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend')";
	is( result_of("SELECT count(*), bool_and($leader), min(participants), min(phase), bool_and(estimated_rows BETWEEN 990000 AND 1010000) FROM gpusort_activity"),
		"1|t|$participants|gathering|t", "$name: the sort is shown once, with the leader's pid and the estimate of all rows");
	is( result_of("SELECT sum(rows) AS rows, sum(bytes) AS bytes, max(rows) AS most, min(started) AS started FROM gpusort_activity_list() \\gset\n"
		  . "SELECT rows >= :rows AND bytes >= :bytes AND rows > :most, started = :'started' FROM gpusort_activity"),
		't|t', "$name: its rows and bytes are the sums");
	is( result_of('SELECT count(*), count(phase), count(rows), count(participants), count(estimated_rows) FROM gpusort_activity', extra_params => [ '-U', 'bob' ]),
		"$participants|0|0|0|0", "$name: another user sees the processes only");
	result_of('SELECT pg_cancel_backend(pid) FROM gpusort_activity');
	$sort->finish;
	like($err, qr/canceling statement due to user request/, "$name: the pid is that of the process to cancel");
	ok($node->poll_query_until('postgres', "$count", '0'), "$name: the sort has ended");
}

# a sort whose rows were slow to come, and are being returned
my $cursor = 'BEGIN; DECLARE c CURSOR FOR SELECT id FROM (SELECT id, CASE WHEN id = 7 THEN pg_sleep(1.2) END FROM t WHERE id < 100 OFFSET 0) s ORDER BY id; MOVE 1 FROM c; '
  . 'SELECT phase, rows, engine FROM gpusort_activity';
is(result_of("SET gpusort.force = on; SET gpusort.engine = cpu; SELECT gpu_sort(ARRAY[2, 1]); $cursor"), "{1,2}\nreturning|99|cpu", 'a sort that returns rows is shown with its engine');
is(result_of("SET plan_cache_mode = force_generic_plan; SET gpusort.force = on; SELECT gpu_sort(ARRAY[2, 1]); PREPARE p AS SELECT 1; "
	  . ($cursor =~ s/MOVE 1/SET gpusort.enabled = off; MOVE 1/r)), "{1,2}\nreturning|0|core", 'and so is one that was left to core');

# all places are taken
is( result_of("BEGIN; SELECT activity_take_places(); SELECT activity_begin(0, 10), activity_report(0, 0, 1, 2, NULL); SELECT count(*) FROM gpusort_activity_list()"),
	"128\n128", 'no free place: a sort that cannot be shown goes on');
ok($node->poll_query_until('postgres', "$count", '0'), 'the places become free with the end of their process');
$node->restart;

# no shared memory is left, and shared memory was requested at the server's start
my ($rc, $stdout, $stderr) = $node->psql('postgres', <<"SQL");
SELECT activity_fill_memory();
SELECT activity_begin(0, 10), activity_report(0, 0, 1, 2, NULL);
$count;
SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(5);
SQL
like("$rc|$stdout", qr/^3\|\d+\n\|\n0$/, 'no shared memory left: a sort goes on');
my ($left) = $stdout =~ /^(\d+)/;
like($stderr, qr/WARNING:  gpusort cannot count what it does\nDETAIL:  There is no shared memory left.*shared_preload_libraries/,
	'no shared memory left: a warning says why the view is empty');
like($stderr, qr/ERROR:  canceling statement due to user request/, 'no shared memory left: the session can be cancelled');
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'gpusort'\n");
$node->restart;
# a preloaded library has requested 16 kB more; the rounding of the whole shared memory may hide a part of it
cmp_ok($node->safe_psql('postgres', 'SELECT activity_fill_memory()'), '>', $left, 'preloaded: more shared memory is left');
$node->restart;
check_report('preloaded');

$node->stop;
done_testing();
