# A session serves all kinds of interrupts while an engine sorts, not only those that end
# the query: process barriers, requests for a log line, messages of parallel workers, a lost
# client, timeouts of transactions, conflicts with recovery.  The engine goes on where it can.
#
# A C library whose strcoll() is slow (test/lying/collate.c) keeps the CPU engine's threads at work
# for half a minute.  The test counts the calls: those that are still to come when an interrupt has
# been served show that the engine was not awaited.  The stand-in device is held in a sort.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $words = 500000;
my $locales = locales_in_build('en_US.UTF-8');
my $library = built_file('lying.so');
my $node = new_node('served', order_by => 1, init => [ allows_streaming => 1, extra => [ '-E', 'UTF8', '--locale=C.UTF-8' ] ], settings => <<'CONF');
gpusort.min_rows = 1000
gpusort.engine = cpu
gpusort.device_memory_limit = 1GB
work_mem = 512MB
shared_buffers = 64MB
max_connections = 30
autovacuum = off
hot_standby_feedback = off
max_standby_streaming_delay = 0
CONF
my ($lie, $calls) = map { $node->basedir . "/$_" } 'lie', 'calls';

# Starts or restarts a server with the library.
sub start_slow
{
	my ($server) = @_;
	local @ENV{ 'LOCPATH', 'LD_PRELOAD', 'GPUSORT_LIE', 'GPUSORT_LIE_CALLS' } = ($locales, $library, $lie, $calls);
	restart_with($server);
	return;
}

sub calls_of_strcoll
{
	return (unpack 'QQ', slurp_file($calls))[1];
}

append_to_file($lie, "slow_order\n");
start_slow($node);
$node->safe_psql('postgres', <<"SQL");
CREATE EXTENSION gpusort;
CREATE TABLE t AS SELECT md5(i::text) COLLATE "C" AS w, hashint8(i) AS k FROM generate_series(1, $words) i;
CREATE TABLE gone AS SELECT i FROM generate_series(1, 100) i;
VACUUM ANALYZE t;
SQL
$node->safe_psql('postgres', q{CREATE COLLATION slow (provider = libc, locale = 'en_US.UTF-8')});

# The worker of a parallel query raises "late" as soon as there is a file of this name.  The leader
# reads on when the worker waits for that.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION late() RETURNS bool LANGUAGE plpgsql PARALLEL SAFE AS $$
BEGIN
  IF (SELECT backend_type FROM pg_stat_activity WHERE pid = pg_backend_pid()) = 'parallel worker' THEN
    WHILE pg_stat_file('late', true) IS NULL LOOP
      PERFORM pg_sleep(0.01);
    END LOOP;
    IF current_setting('gpusort_test.late', true) = 'error' THEN
      RAISE 'late';
    END IF;
    RAISE NOTICE 'late';
  ELSE
    WHILE (SELECT count(*) = 0 FROM pg_stat_activity WHERE leader_pid = pg_backend_pid() AND wait_event = 'PgSleep') LOOP
      PERFORM pg_stat_clear_snapshot();
    END LOOP;
  END IF;
  RETURN true;
END $$;
SQL

my $used = q{SELECT substring(detail FROM '(\d+) of \d+ extra threads') FROM gpusort_status() WHERE engine = 'cpu'};
my $version = $node->pg_version;

# The engines.  "reached" waits until one sorts, "sorts" tells whether it still does.
my $begun;
my %engines = (
	cpu => {
		query => 'SELECT count(*) FROM (SELECT w FROM t ORDER BY w COLLATE slow OFFSET 0) s',
		parallel => 'SELECT count(*) FROM (SELECT w COLLATE slow FROM t WHERE k % 1000 <> 0 OR late() GROUP BY 1 OFFSET 0) s',
		begin => sub { $begun = calls_of_strcoll(); },
		# proposing an order takes few calls
		reached => sub { return poll_until(sub { return calls_of_strcoll() > $begun + 5000; }); },
		sorts => sub { return calls_of_strcoll() < $begun + $words * 0.9; },
		end => sub { } },
	cuda => {
		query => 'SELECT count(*) FROM (SELECT k FROM t ORDER BY k OFFSET 0) s',
		parallel => 'SELECT count(*) FROM (SELECT k FROM t WHERE k % 1000 <> 0 OR late() GROUP BY k OFFSET 0) s',
		begin => sub { forget_trace($_[0]); hold_device($_[0], 'sort'); },
		reached => sub { return poll_trace($_[0], 'sort \d+'); },
		# the device is held
		sorts => sub { return 1; },
		# the device sees that, before the next test holds it again
		end => sub { release_device($_[0]); nothing_is_held(@_); } });

# Begins a sort, and calls interrupt(pid of the session), which returns when that has been served.  The
# session's error must match $error; undef: there is none, and the test cancels the query.  $kind: which
# of the engine's queries.
sub served
{
	my ($server, $which, $name, $settings, $interrupt, $error, $kind) = @_;
	my $engine = $engines{$which};
	my $query = $engine->{ $kind // 'query' };
	my ($out, $err, $pid);

	$engine->{begin}->($server);
	my $psql = in_background($server, \$out, \$err, "SET gpusort.engine = $which",
		'SET max_parallel_workers_per_gather = ' . ($which eq 'cpu' ? 2 : 0), @$settings, $query, 'SELECT gpu_sort(ARRAY[3, 1, 2])');
	ok($engine->{reached}->($server), "$which, $name: the engine sorts");
	$pid = ask($server, "SELECT pid FROM pg_stat_activity WHERE application_name = 'background' AND backend_type = 'client backend'");
	my @threads = glob("/proc/$pid/task/*");
	cmp_ok(scalar(@threads), '>', 1, "$which, $name: by threads") if $which eq 'cpu' && `getconf _NPROCESSORS_ONLN` > 1;
	$interrupt->($server, $pid, $psql, \$err);
	ok($engine->{sorts}->($server), "$which, $name: it is served while the engine sorts");
	if (!defined $error)
	{
		is(ask($server, "SELECT state FROM pg_stat_activity WHERE pid = $pid AND query = '$query'"), 'active', "$which, $name: the query goes on");
		ask($server, "SELECT pg_cancel_backend($pid)");
		$error = qr/canceling statement due to user request/;
	}
	eval { $psql->finish; };
	like($err, $error, "$which, $name: the session's error");
	is($out, $err =~ /FATAL|^$/ ? '' : "{1,2,3}\n", "$which, $name: what the session does next");
	ok($engine->{sorts}->($server), "$which, $name: the engine has not sorted to the end");
	$engine->{end}->($server, "$which, $name");
	ok(poll($server, "SELECT ($used) = '0'"), "$which, $name: no thread is left");
	return;
}

# Returns when the session has ended its query, by an error or for good.
sub has_ended
{
	my ($server, $pid) = @_;
	return poll($server, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid AND query ~ 'FROM t'");
}

# Lets the worker raise its message, and waits until the client has it.
sub message_arrives
{
	my ($server, undef, $psql, $err) = @_;
	my $file = $server->data_dir . '/late';
	append_to_file($file, '');
	ok(poll_until(sub { $psql->pump_nb; return $$err =~ /late/; }), 'the message arrives');
	unlink $file;
	return;
}

my @parallel = ('SET max_parallel_workers_per_gather = 1', 'SET parallel_setup_cost = 0', 'SET enable_hashagg = off');
my @interrupts = (
	[ 'a process barrier', [], sub { $_[0]->safe_psql('postgres', 'CREATE DATABASE other'); $_[0]->safe_psql('postgres', 'DROP DATABASE other'); } ],
	[ 'a request for a log line', [],
		sub {
			my ($server, $pid) = @_;
			my $log = -s $server->logfile;
			ask($server, "SELECT pg_log_backend_memory_contexts($pid)");
			poll_until(sub { return slurp_file($server->logfile, $log) =~ /logging memory contexts of PID $pid/; });
		} ],
	[ "a worker's notice", \@parallel, \&message_arrives, undef, 'parallel' ],
	[ "a worker's error", [ @parallel, 'SET gpusort_test.late = error' ], \&message_arrives, qr/ERROR:  late/, 'parallel' ],
	[ 'a cancel', [], sub { ask($_[0], "SELECT pg_cancel_backend($_[1])"); has_ended(@_); }, qr/canceling statement due to user request/ ],
	[ 'a termination', [], sub { ask($_[0], "SELECT pg_terminate_backend($_[1])"); has_ended(@_); }, qr/FATAL:  terminating connection due to administrator command/ ],
	[ 'statement_timeout', [ "SET statement_timeout = '5s'" ], \&has_ended, qr/canceling statement due to statement timeout/ ],
	[ 'a lost client', [ "SET client_connection_check_interval = '100ms'" ], sub { $_[2]->kill_kill; has_ended(@_); }, qr/^$/ ]);
push @interrupts, [ 'transaction_timeout', [ "SET transaction_timeout = '5s'" ], \&has_ended, qr/FATAL:  terminating connection due to transaction timeout/ ]
  if $version >= 17;

my @engines = ('cpu');
push @engines, 'cuda' if $node->safe_psql('postgres', "SELECT count(*) FROM gpusort_status() WHERE device = 'stand-in device'") == 1;
foreach my $which (@engines)
{
	served($node, $which, @$_) foreach @interrupts;
}

# On a standby that does not wait, queries make way for what the primary does.
$node->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'copy', has_streaming => 1);
start_slow($standby);
$node->wait_for_catchup($standby, 'replay');
foreach my $which (@engines)
{
	served($standby, $which, 'a conflict with recovery', [],
		sub {
			$node->safe_psql('postgres', $_) foreach 'DELETE FROM gone', 'VACUUM gone';
			has_ended(@_);
		},
		qr/canceling statement due to conflict with recovery/);
	$node->safe_psql('postgres', 'INSERT INTO gone SELECT generate_series(1, 100)');
}

end_session($_) foreach $node, $standby;
$standby->stop('immediate');
$node->stop('immediate');
done_testing();
