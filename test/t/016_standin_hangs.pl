# Problems around a sort on the stand-in device (test/standin/device.c) other than
# errors of the device: backends that do not fetch, and a driver or a device that hangs.  In each case the rows are right, no
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
		settings => "gpusort.device_memory_limit = 0\ngpusort.service_idle_timeout = 60\n$settings");
	return;
}

my $last = 'SELECT engine, reason FROM gpusort_last_sort()';
my $cursor = 'BEGIN; SET LOCAL cursor_tuple_fraction = 1; DECLARE c NO SCROLL CURSOR FOR SELECT k, word FROM t ORDER BY k; FETCH c';

restart('');
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
skip_without_standin($node);

# enough rows to come back in order
my $rows = 500000;
$node->safe_psql('postgres', <<"SQL");
CREATE TABLE t AS SELECT i * 7919::bigint % $rows AS k, 'row ' || i * 7919::bigint % $rows AS word FROM generate_series(1, $rows) AS i;
VACUUM ANALYZE t;
SQL

#
# A backend that does not fetch holds neither device memory nor the service
#
$node->safe_psql('postgres', <<'SQL');
-- the remaining rows of cursor c: their number, and how many are not those that come next; fetches row by row, as clients may
CREATE FUNCTION rest(INOUT place bigint, OUT wrong bigint) LANGUAGE plpgsql AS $$
DECLARE
	c refcursor := 'c';
	r record;
BEGIN
	wrong := 0;
	LOOP
		FETCH c INTO r;
		EXIT WHEN NOT FOUND;
		IF r.k <> place OR r.word <> 'row ' || place THEN
			wrong := wrong + 1;
		END IF;
		place := place + 1;
	END LOOP;
END $$;
SQL

# a service that is started for the sort, and one that stays
foreach my $preload ('', 'gpusort')
{
	my $name = $preload ? 'a cursor, a service that stays' : 'a cursor';
	restart("gpusort.service_idle_timeout = 1\nshared_preload_libraries = '$preload'");
	my $session = session($node);
	is(answer($session, $cursor), '0|row 0', "$name: a row is fetched");
	ok(poll_trace($node, 'close 1'), "$name: the device memory is freed");
	ok(poll_services($node, 0), "$name: the service ends") if !$preload;
	is(answer($session, 'SELECT * FROM rest(1)'), "$rows|0", "$name: the other rows are right");
	is(answer($session, "COMMIT; $last"), 'cuda|', "$name: the device has sorted them");
	is(times_traced($node, 'sort \d+'), 1, "$name: once");
	is($session->{err}, '', "$name: there is no message");
	leave($session);
	nothing_is_held($node, $name);
}
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");

# a cursor has most of the device's memory, which another sort needs
restart("gpusort.device_memory_limit = 50MB\ngpusort.service_idle_timeout = 0");
{
	my $session = session($node);
	answer($session, $cursor);
	is(times_traced($node, 'close 1'), 0, 'the device holds rows that are not fetched');
	is( $node->safe_psql('postgres', "SET gpusort.engine = 'cuda'; SET statement_timeout = '60s'; "
		  . 'SELECT gpu_sort_agg(-i) = (SELECT array_agg(i) FROM generate_series(-1800000, -1::bigint) AS i) FROM generate_series(1, 1800000::bigint) AS i'),
		't', 'another sort gets its memory');
	my @lines = traced($node);
	cmp_ok(place_of('close 1', @lines), '<', place_of('upload 2', @lines), 'the device has given up the rows for it');
	is(answer($session, 'SELECT * FROM rest(1)'), "$rows|0", 'the rows of the first sort are right');
	is(times_traced($node, 'sort \d+'), 2, 'the device sorts each once');
	leave($session);
}

#
# The report of a sort that is not read to its end
#
restart('');
{
	my $session = session($node);
	answer($session, $cursor);
	like( answer($session, 'CLOSE c; SELECT engine, rows, algorithm, copy_in_bytes > 8 * rows, copy_out_bytes BETWEEN 4 * rows AND 30 * rows FROM gpusort_last_sort()'),
		qr/^cuda\|$rows\|mppsort\|t\|t$/, 'a sort that is not read to its end reports what it did');
	leave($session);
	nothing_is_held($node, 'not read to its end');
}

#
# The service cannot map the session's files (005_standin_faults.pl has all such faults): what says so
#
{
	my $reason = "The GPU service cannot open the session's memory.";
	my $query = 'SELECT cardinality(gpu_sort_agg(k)) FROM t';
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "SET gpusort.fault = 'map:1+:refused'; $query; $last; EXPLAIN (ANALYZE, VERBOSE) SELECT k, word FROM t ORDER BY k");
	like("$rc $stdout", qr/^0 $rows\ncpu\|\Q$reason\E\n.*^ *Engine: cpu\n.*^ *Reason: \Q$reason\E/ms, 'the service cannot map files: the CPU sorts, and EXPLAIN says why');
	like($stderr, qr/WARNING:.*DETAIL:  \Q$reason\E/s, 'the service cannot map files: a warning says so');
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
	my ($rc, $stdout, $stderr) = $node->psql('postgres', $query);
	is($stdout, "10000\ncpu|The GPU service takes too long to start.", 'a driver that hangs: the CPU sorts');
	like($stderr, qr/WARNING:.*takes too long to start/s, 'a driver that hangs: and a warning says so');
	($rc, $stdout, $stderr) = $node->psql('postgres', "SET statement_timeout = '10s'; $query");
	is("$rc $stdout", "0 10000\ncpu|The GPU service takes too long to start.", 'a driver that hangs: the next sort does not wait');
	is($stderr, '', 'a driver that hangs: the next sort does not warn again');
	is( $node->safe_psql('postgres', "SELECT available, detail FROM gpusort_status() WHERE engine = 'cuda'"),
		'f|The GPU service takes too long to start.', 'a driver that hangs: gpusort_status() gives the reason');
	nothing_is_held($node, 'a driver that hangs');
}

#
# Giving memory back takes long, and other sorts can be cancelled meanwhile
#
restart('', plan => 'unregister:hang');
{
	my $query = 'SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000) AS i';
	is($node->safe_psql('postgres', $query), 10000, 'the service has pinned memory of a session that ends');
	ok(poll_trace($node, 'unregister \d+'), 'the service begins to unpin it');
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "SET statement_timeout = '2s'; $query", timeout => 20);
	like($stderr, qr/canceling statement due to statement timeout/, 'a sort that has to wait for it can be cancelled');
}

#
# The device hangs: the service ends, and no other process does.  It ends in its own thread, where other modules
# expect to be called.
#
my $module = built_file('extension_test.so');
foreach my $plan ('sort:hang', 'uploaded:busy')
{
	# the service waits for the upload only of 4 MB and more
	my $rows = $plan eq 'uploaded:busy' ? 1100000 : 10000;
	restart("shared_preload_libraries = '$module'\nlog_min_messages = debug3", plan => $plan, patience => 5000);
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
	my ($thread) = slurp_file($node->logfile, $log) =~ /shmem_exit\(\) runs in (.*)/;
	is($thread, "the service's first thread", "$plan: which thread ends it");
	leave($session);
	nothing_is_held($node, $plan);
	# the stop would not end if a slot or a lock were left behind
	end_session($node);
	$node->stop('fast');
}

#
# The device hangs with a lock that the service needs to end: the kernel ends the service
#
restart("shared_preload_libraries = ''\nlog_min_messages = warning\nrestart_after_crash = on", plan => 'sort:stuck', patience => 1000);
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
