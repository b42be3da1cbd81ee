# What can go wrong around a sort on the stand-in device (test/standin/device.c)
# that is no error of the device's: backends that do not fetch, a driver or a
# device that hangs, shared memory that cannot be mapped.  Whatever it is, the
# rows are right, and nothing is held or waited for without end.

use strict;
use warnings;

use GpusortTest qw(is_back);
use IPC::Run qw(start timeout pump);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = PostgreSQL::Test::Cluster->new('faults');
my $trace = $node->basedir . '/trace';
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
session_preload_libraries = 'gpusort'
gpusort.force = on
gpusort.min_rows = 1000
max_parallel_workers_per_gather = 0
shared_buffers = 512MB
work_mem = 1GB
fsync = off
jit = off
CONF

# Starts the server anew, with such settings and environment, and an empty trace.
sub restart_with
{
	my ($settings, %env) = @_;
	# the service may hang
	$node->stop('immediate') if -e $node->data_dir . '/postmaster.pid';
	$node->append_conf('postgresql.conf',
		"gpusort.pool_limit = 4GB\ngpusort.device_memory_limit = 0\ngpusort.service_idle_timeout = 60\n$settings\n");
	unlink $trace;
	local %ENV = (%ENV, GPUSORT_STANDIN_TRACE => $trace, %env);
	$node->start;
}

# Waits until what is asked is true.
sub poll
{
	my ($true) = @_;
	foreach (1 .. 20 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return 1 if $true->();
		usleep(50_000);
	}
	return 0;
}

# How often the device has done this so far: "upload 1", "sort 1", "close 2".
sub traced
{
	my ($what) = @_;
	my $times = () = (-e $trace ? slurp_file($trace) : '') =~ /^$what:/mg;
	return $times;
}

# The service has no row in pg_stat_activity: it is in no database.
sub service_pids
{
	my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
	return map { /^\s*(\d+)/ } grep { /gpusort service/ } `ps -o pid=,args= --ppid $postmaster`;
}

sub pool_is_free
{
	my ($name) = @_;
	ok($node->poll_query_until('postgres', "SELECT max(pool_used) = 0 FROM gpusort_status()"),
		"$name: nothing of the pool is held");
}

my $last = 'SELECT engine, pieces, reason FROM gpusort_last_sort()';
my $cursor = 'BEGIN; SET LOCAL cursor_tuple_fraction = 1; DECLARE c NO SCROLL CURSOR FOR SELECT k FROM t WHERE k < %s ORDER BY k; FETCH c';

# A background psql that gives its output to ${$_[1]} and ${$_[2]}.
sub in_background
{
	my ($query, $stdout, $stderr) = @_;
	return start [ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', $query, '-c', $last ],
	  '>', $stdout, '2>', $stderr, timeout(2 * $PostgreSQL::Test::Utils::timeout_default);
}

# A session that is told what to do line by line, and the answer to a line.
sub session
{
	my %session = (in => '', out => '', err => '');
	$session{psql} = start [ 'psql', '-XAtq', '-d', $node->connstr('postgres') ],
	  '<', \$session{in}, '>', \$session{out}, '2>', \$session{err},
	  timeout(4 * $PostgreSQL::Test::Utils::timeout_default);
	return \%session;
}

sub answer
{
	my ($session, $query) = @_;
	$session->{out} = '';
	$session->{in} .= "$query;\n\\echo done\n";
	pump $session->{psql} until $session->{out} =~ s/^done\n\z//m;
	chomp $session->{out};
	return $session->{out};
}

sub leave
{
	my ($session) = @_;
	$session->{in} .= "\\q\n";
	$session->{psql}->finish;
}

# A row that comes when the holder of a lock has gone; a holder; and its end.
sub late_row
{
	return 'SELECT -1 FROM (SELECT pg_advisory_lock_shared(1) OFFSET 0) AS l';
}

sub hold
{
	my $holder = session();
	answer($holder, 'SELECT pg_advisory_lock(1)');
	return $holder;
}

my $waits = "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";

restart_with('');
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
if ($node->safe_psql('postgres', "SELECT count(*) FROM gpusort_status() WHERE device = 'stand-in device'") != 1)
{
	plan skip_all => 'this build has no stand-in device';
}

# 5 million keys of 8 bytes: three chunks of 16 MB there, and three back
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t AS SELECT i * 7919::bigint % 5000000 AS k FROM generate_series(1, 5000000) AS i;
VACUUM ANALYZE t;
SQL

#
# A backend that does not fetch keeps neither the device's memory nor the service
#
my $rest = 'SELECT count(*), sum(k * place %% 1000003) FROM rest(%s)';
$node->safe_psql('postgres', <<'SQL');
-- the rest of cursor c, and where each row came; few rows at a time, as clients fetch
CREATE FUNCTION rest(already bigint, OUT k bigint, OUT place bigint) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
	c refcursor := 'c';
BEGIN
	place := already;
	LOOP
		FETCH c INTO k;
		EXIT WHEN NOT FOUND;
		place := place + 1;
		RETURN NEXT;
	END LOOP;
END $$;
SQL

sub expected
{
	my ($rows) = @_;
	return $node->safe_psql('postgres',
		"SELECT count(*), sum((k * (k + 1)) % 1000003) FROM generate_series(1, $rows - 1::bigint) AS k");
}

foreach my $case (
	[ 'all results are in their chunks', 'gpusort.pool_limit = 4GB', 1000000, 1 ],
	[ 'some results are still on the device', 'gpusort.pool_limit = 64MB', 5000000, 2 ])
{
	my ($name, $settings, $rows, $sorts) = @$case;
	restart_with("$settings\ngpusort.service_idle_timeout = 1");
	my $session = session();
	is(answer($session, sprintf($cursor, $rows)), 0, "$name: a row is fetched");
	ok(poll(sub { traced('close 1') }), "$name: the device's memory is given back");
	ok(poll(sub { !service_pids() }), "$name: the service ends");
	is(answer($session, sprintf($rest, 1)), expected($rows), "$name: the other rows are right");
	is(answer($session, "COMMIT; $last"), 'cuda|1|', "$name: and the device's");
	# as often as it was given back: once at least, and more if the machine is slow
	cmp_ok(traced('sort \d+'), '>=', $sorts, "$name: sorted again if need be");
	is($session->{err}, '', "$name: without a word");
	leave($session);
	pool_is_free($name);
}

# the same with a service that stays
restart_with("gpusort.pool_limit = 64MB\ngpusort.service_idle_timeout = 1\nshared_preload_libraries = 'gpusort'");
{
	my $session = session();
	answer($session, sprintf($cursor, 5000000));
	ok(poll(sub { traced('close 1') }), "a service that stays: the device's memory is given back");
	is(answer($session, sprintf($rest, 1)), expected(5000000), 'a service that stays: the other rows are right');
	is(answer($session, "COMMIT; $last"), 'cuda|1|', "a service that stays: and the device's");
	leave($session);
}
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");

# one that waits while it gathers: before the first piece of its run is sorted, and after
foreach my $case ([ 'whole', 'gpusort.device_memory_limit = 8GB', '1' ], [ 'in pieces', 'gpusort.device_memory_limit = 67MB', '3' ])
{
	my ($name, $settings, $pieces) = @$case;
	restart_with("$settings\ngpusort.service_idle_timeout = 1");
	my ($out, $err) = ('', '');
	my $holder = hold();
	my $psql = in_background('SELECT gpu_sort_agg(k) = (SELECT array_agg(i) FROM generate_series(-1, 4999999::bigint) AS i) FROM (SELECT k FROM t UNION ALL '
		  . late_row() . ') AS u', \$out, \$err);
	ok($node->poll_query_until('postgres', $waits), "gathering, $name: a backend waits for its last row");
	ok(poll(sub { !service_pids() }), "gathering, $name: the service ends");
	leave($holder);
	$psql->finish;
	is($out . $err, "t\ncuda|$pieces|\n", "gathering, $name: the result is right");
	pool_is_free("gathering, $name");
}

# one that holds all of the device for a cursor, and sorts again
restart_with("gpusort.pool_limit = 64MB\ngpusort.device_memory_limit = 120MB\ngpusort.service_idle_timeout = 0");
{
	my $session = session();
	answer($session, sprintf($cursor, 5000000));
	$node->append_conf('postgresql.conf', 'gpusort.pool_limit = 4GB');
	$node->reload;
	ok(poll(sub { answer($session, 'SHOW gpusort.pool_limit') eq '4GB' }), 'now there is room for another sort, but for the device');
	is(traced('close 1'), 0, 'which holds a result that is not fetched');
	answer($session, "SET LOCAL statement_timeout = '20s'");
	is( answer($session, 'SELECT gpu_sort_agg(k) = (SELECT array_agg(i) FROM generate_series(0, 3999999::bigint) AS i) FROM t WHERE k < 4000000'),
		't', 'the other sort gets its memory');
	is(answer($session, sprintf($rest, 1)), expected(5000000), 'and it is sorted again, and right');
	cmp_ok(traced('sort \d+'), '>=', 3, 'by the device');
	leave($session);
}

#
# Figures of a sort that is not read to its end, and chunks that are just full
#
restart_with('gpusort.pool_limit = 64MB');
{
	my $session = session();
	answer($session, sprintf($cursor, 5000000));
	is( answer($session, 'CLOSE c; SELECT engine, rows, algorithm, copy_in_bytes, copy_out_bytes FROM gpusort_last_sort()'),
		'cuda|5000000|mppsort|40000000|16777216', 'not read to its end: the figures so far');
	leave($session);
}
restart_with('gpusort.device_memory_limit = 67MB');
is( $node->safe_psql('postgres', "SELECT cardinality(gpu_sort_agg(k)) FROM t WHERE k < 2097152; $last"),
	"2097152\ncuda|1|", 'a chunk that is just full is one piece');

#
# A segment of the pool that cannot be mapped
#
sub remove_segments
{
	my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
	# those that the server's processes have mapped, and are as large as the pool's
	my %files = map { m{(/dev/shm/PostgreSQL\.\d+)} ? ($1 => 1) : () } map { split /\n/, (-r $_ ? slurp_file($_) : '') }
	  map { "/proc/$_/maps" } split ' ', `ps -o pid= --ppid $postmaster`;
	return unlink grep { -s $_ == 64 * 1024 * 1024 } keys %files;
}

restart_with('');
{
	my $query = "SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000) AS i; $last";
	my $first = session();
	is(answer($first, $query), "10000\ncuda|1|", 'the pool has a segment');
	is(remove_segments(), 1, 'which can no longer be mapped');
	my ($rc, $stdout, $stderr) = $node->psql('postgres', $query);
	like("$rc $stdout", qr/^0 10000\ncpu\|\|A segment of the chunk pool could not be mapped: could not open/, 'a backend cannot map it: the CPU sorts');
	like($stderr, qr/WARNING:.*could not be mapped/s, 'with a warning');
	is($node->safe_psql('postgres', $query), "10000\ncuda|1|", 'the next one is not offered it');
	is(answer($first, $query), "10000\ncuda|1|", 'nor who has mapped it');
	is($node->safe_psql('postgres', 'SELECT max(pool_bytes) / 1048576 FROM gpusort_status()'), 64, 'it is gone from the pool');
	leave($first);
	pool_is_free('a backend cannot map it');
}
restart_with('');
{
	my ($out, $err) = ('', '');
	my $holder = hold();
	my $psql = in_background('SELECT cardinality(gpu_sort_agg(k)) FROM (SELECT k FROM t WHERE k < 10000 UNION ALL ' . late_row() . ') AS u', \$out, \$err);
	ok($node->poll_query_until('postgres', $waits), 'a backend gathers');
	ok(poll(sub { service_pids() }), 'and there is a service');
	is(remove_segments(), 1, 'which cannot map the segment');
	my @pids = service_pids();
	leave($holder);
	$psql->finish;
	like($out, qr/^10001\ncpu\|\|A segment of the chunk pool could not be mapped: could not open/, 'the CPU sorts');
	like($err, qr/^WARNING:.*could not be mapped/s, 'with a warning');
	is($node->safe_psql('postgres', "SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000) AS i; $last"),
		"10000\ncuda|1|", 'the next sort is the device\'s');
	is_deeply([ service_pids() ], \@pids, 'and the service goes on');
	pool_is_free('the service cannot map it');
}

#
# A library that is loaded by its path, and is not found by its name
#
my $library = `pg_config --pkglibdir` =~ s/\s+\z//r . '/gpusort';
restart_with("dynamic_library_path = ''\nsession_preload_libraries = '$library'");
is($node->safe_psql('postgres', "SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000) AS i; $last"),
	"10000\ncuda|1|", 'a service that is started on demand');
restart_with("dynamic_library_path = ''\nsession_preload_libraries = ''\nshared_preload_libraries = '$library'");
ok(poll(sub { service_pids() }), 'a service that is started with the server');
is($node->safe_psql('postgres', "SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000) AS i; $last"),
	"10000\ncuda|1|", 'and serves');
$node->append_conf('postgresql.conf', "dynamic_library_path = '\$libdir'\nsession_preload_libraries = 'gpusort'\nshared_preload_libraries = ''");

#
# A driver that hangs when the service starts costs one sort its patience, and others nothing
#
restart_with('', GPUSORT_STANDIN => 'open:hang');
{
	my $query = "SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000) AS i; $last";
	is($node->safe_psql('postgres', $query), "10000\ncpu||The GPU service takes too long to start.",
		'a driver that hangs: the CPU sorts');
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "SET statement_timeout = '10s'; $query");
	is("$rc $stdout", "0 10000\ncpu||The GPU service takes too long to start.", 'and the next sort does not wait');
	like($stderr, qr/WARNING:.*takes too long to start/s, 'but warns');
	is( $node->safe_psql('postgres', "SELECT available, detail FROM gpusort_status() WHERE engine = 'cuda'"),
		'f|The GPU service takes too long to start.', 'and gpusort_status() says why');
	pool_is_free('a driver that hangs');
}

#
# Memory that takes long to be given back does not hold up others
#
restart_with('gpusort.service_idle_timeout = 1', GPUSORT_STANDIN => 'unregister:hang');
{
	my $query = 'SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000) AS i';
	is($node->safe_psql('postgres', $query), 10000, 'the service has memory to give back');
	ok(poll(sub { traced('unregister \d+') }), 'which takes long');
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "SET statement_timeout = '2s'; $query", timeout => 20);
	like($stderr, qr/canceling statement due to statement timeout/, 'a sort that has to wait for it can be cancelled');
}

#
# A device that hangs: its service ends, and nothing else does
#
foreach my $plan ('sort:hang', 'uploaded:busy')
{
	restart_with('', GPUSORT_STANDIN => $plan, GPUSORT_STANDIN_PATIENCE => 5000);
	my $log = -s $node->logfile;
	my $session = session();
	my $reason = 'The device did not finish what it was at within 5 seconds.';
	is(answer($session, "SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000) AS i; $last"),
		"10000\ncpu||$reason", "$plan: the CPU sorts");
	like($session->{err}, qr/WARNING:.*\Q$reason\E/s, "$plan: with a warning");
	ok(poll(sub { !service_pids() }), "$plan: the service has ended");
	is(answer($session, 'SELECT 1'), 1, "$plan: and no other process has");
	like($node->safe_psql('postgres', "SELECT available, detail FROM gpusort_status() WHERE engine = 'cuda'"),
		qr/^f\|\Q$reason\E/, "$plan: gpusort_status() says why");
	like(slurp_file($node->logfile, $log), qr/LOG:  gpusort service .*is ending.*\Q$reason\E/s, "$plan: and so does the log");
	leave($session);
	pool_is_free($plan);
	# were a slot or a lock left behind, this would not end
	$node->stop('fast');
}

#
# One that hangs with a lock that the service needs to end: the kernel ends it
#
restart_with('restart_after_crash = on', GPUSORT_STANDIN => 'sort:stuck', GPUSORT_STANDIN_PATIENCE => 1000);
{
	my $log = -s $node->logfile;
	my ($rc, $stdout, $stderr) = $node->psql('postgres', 'SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000) AS i',
		timeout => $PostgreSQL::Test::Utils::timeout_default, timed_out => \my $late);
	like($stderr, qr/server closed the connection|connection to server was lost/, 'stuck for good: a crash for all');
	ok(is_back($node, $log), 'stuck for good: the server comes back');
	like(slurp_file($node->logfile, $log), qr/LOG:  gpusort service .*is ending: The device did not finish what it was at within 1 second.*Alarm clock/s,
		'stuck for good: the log says why');
	$node->stop('fast');
}

done_testing();
