# Problems around a sort on the stand-in device (test/standin/device.c) other than
# errors of the device: backends that do not fetch, a driver or a device that hangs, and
# shared memory that cannot be mapped.  In each case the rows are right, no
# memory stays in use, and no process waits forever.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('hangs', order_by => 1, settings => "gpusort.min_rows = 1000\nshared_buffers = 512MB\nwork_mem = 1GB\n");

# Restarts the server with these settings, and with the defaults of those that this test changes.
sub restart
{
	my ($settings, %how) = @_;
	restart_with($node, %how,
		settings => "gpusort.pool_limit = 4GB\ngpusort.device_memory_limit = 0\ngpusort.service_idle_timeout = 60\n$settings");
	return;
}

my $last = 'SELECT engine, reason FROM gpusort_last_sort()';
my $cursor = 'BEGIN; SET LOCAL cursor_tuple_fraction = 1; DECLARE c NO SCROLL CURSOR FOR SELECT k FROM t WHERE k < %s ORDER BY k; FETCH c';

restart('');
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
skip_without_standin($node);

# 5 million keys of 8 bytes take three chunks of 16 MB on the way to the device and three on the way back
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t AS SELECT i * 7919::bigint % 5000000 AS k FROM generate_series(1, 5000000) AS i;
VACUUM ANALYZE t;
SQL

#
# A backend that does not fetch holds neither device memory nor the service
#
my $rest = 'SELECT count(*), sum(k * place %% 1000003) FROM rest(%s)';
$node->safe_psql('postgres', <<'SQL');
-- the remaining rows of cursor c and their positions; fetches row by row, as clients may
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
	restart("$settings\ngpusort.service_idle_timeout = 1");
	my $session = session($node);
	is(answer($session, sprintf($cursor, $rows)), 0, "$name: a row is fetched");
	ok(poll_trace($node, 'close 1'), "$name: the device memory is freed");
	ok(poll_services($node, 0), "$name: the service ends");
	is(answer($session, sprintf($rest, 1)), expected($rows), "$name: the other rows are right");
	is(answer($session, "COMMIT; $last"), 'cuda|', "$name: the device has sorted them");
	# at least once for each time that the device memory was freed, which is more often on a slow machine
	cmp_ok(times_traced($node, 'sort \d+'), '>=', $sorts, "$name: the device sorts again if it must");
	is($session->{err}, '', "$name: there is no message");
	leave($session);
	pool_is_free($node, $name);
}

# the same with a preloaded service, which does not end
restart("gpusort.pool_limit = 64MB\ngpusort.service_idle_timeout = 1\nshared_preload_libraries = 'gpusort'");
{
	my $session = session($node);
	answer($session, sprintf($cursor, 5000000));
	ok(poll_trace($node, 'close 1'), "a service that stays: the device memory is freed");
	is(answer($session, sprintf($rest, 1)), expected(5000000), 'a service that stays: the other rows are right');
	is(answer($session, "COMMIT; $last"), 'cuda|', "a service that stays: the device has sorted them");
	leave($session);
}
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");

# a backend that waits while it gathers
{
	restart('gpusort.service_idle_timeout = 1');
	my ($out, $err);
	hold($node, 1);
	my $psql = in_background($node, \$out, \$err, 'SELECT gpu_sort_agg(k) = (SELECT array_agg(i) FROM generate_series(-1, 4999999::bigint) AS i) FROM (SELECT k FROM t UNION ALL '
		  . late_row(1) . ') AS u', $last);
	ok(poll($node, waits_for(1)), "gathering: a backend waits for its last row");
	ok(poll_services($node, 0), "gathering: the service ends");
	let_go($node, 1);
	$psql->finish;
	is($out . $err, "t\ncuda|\n", "gathering: the result is right");
	pool_is_free($node, "gathering");
}

# a cursor holds all of the device's memory
restart("gpusort.pool_limit = 64MB\ngpusort.device_memory_limit = 120MB\ngpusort.service_idle_timeout = 0");
{
	my $session = session($node);
	answer($session, sprintf($cursor, 5000000));
	$node->append_conf('postgresql.conf', 'gpusort.pool_limit = 4GB');
	$node->reload;
	ok(poll_until(sub { answer($session, 'SHOW gpusort.pool_limit') eq '4GB' }), 'the pool now has room for another sort');
	is(times_traced($node, 'close 1'), 0, 'the device holds a result that is not fetched');
	answer($session, "SET LOCAL statement_timeout = '20s'");
	is( answer($session, 'SELECT gpu_sort_agg(k) = (SELECT array_agg(i) FROM generate_series(0, 3999999::bigint) AS i) FROM t WHERE k < 4000000'),
		't', 'the other sort gets its memory');
	is(answer($session, sprintf($rest, 1)), expected(5000000), 'the first sort is done again, and its rows are right');
	cmp_ok(times_traced($node, 'sort \d+'), '>=', 3, 'the device does all these sorts');
	leave($session);
}

#
# The report of a sort that is not read to its end, and a chunk that is exactly full
#
restart('gpusort.pool_limit = 64MB');
{
	my $session = session($node);
	answer($session, sprintf($cursor, 5000000));
	is( answer($session, 'CLOSE c; SELECT engine, rows, algorithm, copy_in_bytes, copy_out_bytes FROM gpusort_last_sort()'),
		'cuda|5000000|mppsort|40000000|16777216', 'a sort that is not read to its end reports what it did');
	leave($session);
}
restart('');
is( $node->safe_psql('postgres', "SELECT cardinality(gpu_sort(array_agg(k))) FROM t WHERE k < 2097152; $last"),
	"2097152\ncuda|", 'a chunk that is exactly full');

#
# A segment of the pool that cannot be mapped
#
sub remove_segments
{
	# the pool's segments have 64 MB
	return unlink grep { -s $_ == 64 * 1024 * 1024 } segments_of(child_pids($node));
}

restart('');
{
	my $query = "SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000) AS i; $last";
	my $first = session($node);
	is(answer($first, $query), "10000\ncuda|", 'the pool has a segment');
	is(remove_segments(), 1, 'the file of the segment is removed');
	my ($rc, $stdout, $stderr) = $node->psql('postgres', $query);
	like("$rc $stdout", qr/^0 10000\ncpu\|A segment of the chunk pool could not be mapped: could not open/, 'a backend cannot map it: the CPU sorts');
	like($stderr, qr/WARNING:.*could not be mapped/s, 'a backend cannot map it: a warning says so');
	is($node->safe_psql('postgres', $query), "10000\ncuda|", 'the next backend gets another segment');
	is(answer($first, $query), "10000\ncuda|", 'a backend that has mapped it gets another segment as well');
	is($node->safe_psql('postgres', 'SELECT max(pool_bytes) / 1048576 FROM gpusort_status()'), 64, 'it is gone from the pool');
	leave($first);
	pool_is_free($node, 'a backend cannot map it');
}
restart('');
{
	my ($out, $err);
	hold($node, 1);
	my $psql = in_background($node, \$out, \$err, 'SELECT cardinality(gpu_sort_agg(k)) FROM (SELECT k FROM t WHERE k < 10000 UNION ALL ' . late_row(1) . ') AS u', $last);
	ok(poll($node, waits_for(1)), 'a backend gathers');
	ok(poll_services($node, 1), 'the service runs');
	is(remove_segments(), 1, 'the file of the segment is removed before the service maps it');
	my @pids = service_pids($node);
	let_go($node, 1);
	$psql->finish;
	like($out, qr/^10001\ncpu\|A segment of the chunk pool could not be mapped: could not open/, 'the service cannot map it: the CPU sorts');
	like($err, qr/^WARNING:.*could not be mapped/s, 'the service cannot map it: a warning says so');
	is($node->safe_psql('postgres', "SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000) AS i; $last"),
		"10000\ncuda|", 'the service cannot map it: the device does the next sort');
	is_deeply([ service_pids($node) ], \@pids, 'the service cannot map it: the service goes on');
	pool_is_free($node, 'the service cannot map it');
}

#
# The library is loaded by its path and cannot be found by its name
#
my $library = `pg_config --pkglibdir` =~ s/\s+\z//r . '/gpusort';
restart("dynamic_library_path = ''\nsession_preload_libraries = '$library'");
is($node->safe_psql('postgres', "SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000) AS i; $last"),
	"10000\ncuda|", 'a library loaded by its path: the first sort starts the service');
restart("dynamic_library_path = ''\nsession_preload_libraries = ''\nshared_preload_libraries = '$library'");
ok(poll_services($node, 1), 'a library loaded by its path: the service starts with the server');
is($node->safe_psql('postgres', "SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000) AS i; $last"),
	"10000\ncuda|", 'a library loaded by its path: the device sorts');
$node->append_conf('postgresql.conf', "dynamic_library_path = '\$libdir'\nsession_preload_libraries = 'gpusort'\nshared_preload_libraries = ''");

#
# A driver hangs when the service starts: one sort waits for the timeout, others do not
#
restart('', plan => 'open:hang');
{
	my $query = "SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000) AS i; $last";
	is($node->safe_psql('postgres', $query), "10000\ncpu|The GPU service takes too long to start.",
		'a driver that hangs: the CPU sorts');
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "SET statement_timeout = '10s'; $query");
	is("$rc $stdout", "0 10000\ncpu|The GPU service takes too long to start.", 'a driver that hangs: the next sort does not wait');
	like($stderr, qr/WARNING:.*takes too long to start/s, 'a driver that hangs: the next sort warns');
	is( $node->safe_psql('postgres', "SELECT available, detail FROM gpusort_status() WHERE engine = 'cuda'"),
		'f|The GPU service takes too long to start.', 'a driver that hangs: gpusort_status() gives the reason');
	pool_is_free($node, 'a driver that hangs');
}

#
# Giving memory back takes long, and other sorts can be cancelled meanwhile
#
restart('gpusort.service_idle_timeout = 1', plan => 'unregister:hang');
{
	my $query = 'SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000) AS i';
	is($node->safe_psql('postgres', $query), 10000, 'the service has pinned memory');
	ok(poll_trace($node, 'unregister \d+'), 'the service begins to unpin it');
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "SET statement_timeout = '2s'; $query", timeout => 20);
	like($stderr, qr/canceling statement due to statement timeout/, 'a sort that has to wait for it can be cancelled');
}

#
# The device hangs: the service ends, and no other process does
#
foreach my $plan ('sort:hang', 'uploaded:busy')
{
	# the service waits for the upload only of 4 MB and more
	my $rows = $plan eq 'uploaded:busy' ? 1100000 : 10000;
	restart('', plan => $plan, patience => 5000);
	my $log = -s $node->logfile;
	my $session = session($node);
	my $reason = 'The device did not finish its work within 5 seconds.';
	is(answer($session, "SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, $rows) AS i; $last"),
		"$rows\ncpu|$reason", "$plan: the CPU sorts");
	like($session->{err}, qr/WARNING:.*\Q$reason\E/s, "$plan: a warning gives the reason");
	ok(poll_services($node, 0), "$plan: the service has ended");
	is(answer($session, 'SELECT 1'), 1, "$plan: the session goes on");
	like($node->safe_psql('postgres', "SELECT available, detail FROM gpusort_status() WHERE engine = 'cuda'"),
		qr/^f\|\Q$reason\E/, "$plan: gpusort_status() gives the reason");
	like(slurp_file($node->logfile, $log), qr/LOG:  gpusort service .*is ending.*\Q$reason\E/s, "$plan: the log gives the reason");
	leave($session);
	pool_is_free($node, $plan);
	# the stop would not end if a slot or a lock were left behind
	end_session($node);
	$node->stop('fast');
}

#
# The device hangs with a lock that the service needs to end: the kernel ends the service
#
restart('restart_after_crash = on', plan => 'sort:stuck', patience => 1000);
{
	my $log = -s $node->logfile;
	my ($rc, $stdout, $stderr) = $node->psql('postgres', 'SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000) AS i',
		timeout => $PostgreSQL::Test::Utils::timeout_default, timed_out => \my $late);
	like($stderr, qr/server closed the connection|connection to server was lost/, 'stuck for good: all sessions end as in a crash');
	ok(is_back($node, $log), 'stuck for good: the server comes back');
	like(slurp_file($node->logfile, $log), qr/LOG:  gpusort service .*is ending: The device did not finish its work within 1 second.*Alarm clock/s,
		'stuck for good: the log gives the reason');
	end_session($node);
	$node->stop('fast');
}

done_testing();
