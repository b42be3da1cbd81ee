# Rows that travel: the stand-in device (test/standin/device.c) puts the rows of a large sort
# in order and returns them window by window.  They come in core's order, with workers and
# without, whatever fails meanwhile, and nothing is left when they are not read to their end.

use strict;
use warnings;

use Errno;
use Fcntl qw(O_RDWR);
use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $locales = make_locales('en_US.UTF-8');
my $node = new_node('travel', order_by => 1,
	settings => "gpusort.min_rows = 1000\nsynchronize_seqscans = off\nshared_buffers = 256MB\nwork_mem = 1GB\n");
my $last = 'SELECT engine, reason FROM gpusort_last_sort()';

# The C library lies about one sort key of 100, so that rows are moved after the device has sorted.
sub restart
{
	my (%how) = @_;
	my %lie = (LOCPATH => $locales, LD_PRELOAD => built_file('lying.so'), GPUSORT_LIE => $node->basedir . '/lie');
	local %ENV = (%ENV, $locales ? %lie : ());
	restart_with($node, %how);
	return;
}

append_to_file($node->basedir . '/lie', "local\n");
restart(limit => '8GB');
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
skip_without_standin($node);
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION h(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT hashint4($1) & 1073741823';
-- "tied" has values with the same beginnings, which are longer than the keys, and equal values
CREATE TABLE t AS SELECT i AS id, CASE WHEN i % 50 <> 0 THEN hashint4(i) % 100000 END AS k, (i % 7)::smallint AS few,
	hashint8(i)::float8 / 3 AS f, md5((i % 1000)::text) || left(md5(h(i)::text), i % 30) AS tied,
	CASE WHEN i % 11 <> 0 THEN left(md5(i::text), 3 + i % 29) END AS word
FROM generate_series(1, 300000) AS i;
ALTER TABLE t SET (parallel_workers = 2);
VACUUM ANALYZE t;
-- few rows of 3 kB among many short ones
CREATE VIEW wide AS SELECT id, k, word, CASE WHEN id % 3000 = 7 THEN repeat('x', 3000 + id % 40) ELSE left(word, id % 9) END AS filler FROM t OFFSET 0;
SQL
$node->safe_psql('postgres', "CREATE COLLATION english (provider = libc, locale = 'en_US.UTF-8')") if $locales;

# A query for one number that depends on the contents and the sequence of all rows.
sub sequence
{
	my ($query) = @_;
	return "SELECT sum(hash_record_extended(s, place)::numeric), count(*) FROM (SELECT s, row_number() OVER () AS place FROM ($query OFFSET 0) AS s) AS s";
}

my %right;

sub right
{
	my ($query) = @_;
	$right{$query} //= $node->safe_psql('postgres', 'SET gpusort.enabled = off; SET max_parallel_workers_per_gather = 0; ' . sequence($query));
	return $right{$query};
}

my $icu = icu_collation($node, 'en-x-icu');
my $parallel = join '; ', map { "SET $_" } 'parallel_setup_cost = 0', 'parallel_tuple_cost = 0', 'min_parallel_table_scan_size = 0',
  'parallel_leader_participation = off', 'max_parallel_workers_per_gather = 2';

# ----------------------------------------------------------------
# Core's order
# ----------------------------------------------------------------

my %queries = (
	'a number' => 'SELECT * FROM t ORDER BY k, id',
	'a number, descending' => 'SELECT * FROM t ORDER BY k DESC NULLS LAST, id',
	'equal rows' => 'SELECT k, few FROM t ORDER BY k, few',
	'several words' => 'SELECT * FROM t ORDER BY few DESC, k NULLS FIRST, f, id',
	'rows of equal lengths' => 'SELECT id, f FROM t ORDER BY f, id',
	'text with ties' => 'SELECT tied, id, few FROM t ORDER BY tied COLLATE "C", id',
	'text with ties, descending' => 'SELECT tied, id, few FROM t ORDER BY tied COLLATE "C" DESC, id',
	'text under ICU' => "SELECT tied, id, few FROM t ORDER BY tied COLLATE $icu, id",
	'text and NULLs' => 'SELECT word, id FROM t ORDER BY word COLLATE "C" DESC NULLS FIRST, id',
	'nothing but text' => 'SELECT tied FROM t ORDER BY tied COLLATE "C"',
	'nothing but text, NULLs too' => 'SELECT word FROM t ORDER BY word COLLATE "C" DESC',
	'few rows of 3 kB' => 'SELECT * FROM wide ORDER BY k, id',
	$locales ? ('text under libc, which lies' => 'SELECT word, id FROM t ORDER BY word COLLATE english, id') : ());

foreach my $case (
	[ 'one process', '', qr/GpuSort/, sort keys %queries ],
	[ 'fed by workers', "$parallel; ", qr/GpuSort\).*GpuSort Feed/s, grep { !/3 kB/ } sort keys %queries ])
{
	my ($how, $settings, $plan, @names) = @$case;
	foreach my $name (@names)
	{
		my $query = sequence($queries{$name});
		like($node->safe_psql('postgres', "$settings EXPLAIN (COSTS OFF) $query"), $plan, "$name, $how: the plan");
		forget_trace($node);
		is($node->safe_psql('postgres', "SET gpusort.engine = 'cuda'; $settings$query"), right($queries{$name}), "$name, $how: in order");
		# more windows than wait for the session at a time
		cmp_ok(times_traced($node, 'gather \d+'), '>', 5, "$name, $how: the rows come in windows");
	}
}
nothing_is_held($node, 'in order');

# Sorts whose rows stay where they are
foreach my $case (
	[ 'a result that is read back and forth', 'BEGIN; DECLARE c SCROLL CURSOR FOR SELECT * FROM t ORDER BY k, id; MOVE 300000 FROM c; MOVE BACKWARD 299999 FROM c; '
		  . 'FETCH 2 FROM c; COMMIT', 'SELECT * FROM t ORDER BY k, id OFFSET 1 LIMIT 2' ],
	[ 'a LIMIT', sequence('SELECT * FROM t ORDER BY k, id LIMIT 270000'), sequence('SELECT * FROM t ORDER BY k, id LIMIT 270000') ],
	[ 'few rows', sequence('SELECT * FROM t WHERE id <= 250000 ORDER BY k, id'), sequence('SELECT * FROM t WHERE id <= 250000 ORDER BY k, id') ],
	[ 'wide rows', sequence("SELECT id, k, repeat('x', 420) FROM t ORDER BY k, id"), sequence("SELECT id, k, repeat('x', 420) FROM t ORDER BY k, id") ])
{
	my ($name, $query, $expected) = @$case;
	forget_trace($node);
	is($node->safe_psql('postgres', "SET gpusort.engine = 'cuda'; $query"), $node->safe_psql('postgres', "SET gpusort.enabled = off; $expected"), "$name: in order");
	is(times_traced($node, 'rows \d+'), 0, "$name: the rows stay where they are");
}

# sorts that are done again before they are read to their end
my $again = 'SELECT g, s.* FROM generate_series(1, 3) g, LATERAL (SELECT * FROM (SELECT id, k, word FROM t WHERE id <> g * 1000 ORDER BY k, id OFFSET 0) s WHERE k >= g * 30000 LIMIT 3) s';
forget_trace($node);
is($node->safe_psql('postgres', "SET gpusort.engine = 'cuda'; $again"), $node->safe_psql('postgres', "SET gpusort.enabled = off; $again"), 'sorted again: in order');
cmp_ok(times_traced($node, 'gather \d+'), '>', 12, 'sorted again: the rows come in windows');

# the device has room for the keys only
restart(limit => '20MB');
is($node->safe_psql('postgres', "SET gpusort.engine = 'cuda'; " . sequence($queries{'text with ties'})), right($queries{'text with ties'}), 'no room for the rows: in order');
is(times_traced($node, 'rows \d+'), 0, 'no room for the rows: they stay where they are');

# ----------------------------------------------------------------
# Faults, fed by workers (005_standin_faults.pl injects them into a sort of one process)
# ----------------------------------------------------------------

restart(limit => '8GB', settings => 'gpusort.service_idle_timeout = 0');
{
	my %codes = (arena => ['refused'], map => ['refused'], lane => ['no_memory'], register => ['no_memory'], (map { $_ => [ 'no_memory', 'fault' ] } qw(reserve upload arrange gather download)),
		sort => [ 'no_memory', 'unsorted', 'fault' ], uploaded => ['fault'], downloaded => ['fault']);
	my $query = sequence($queries{'several words'});
	foreach my $site (sort keys %codes)
	{
		foreach my $fault (map { "$site:" . ($site =~ /load|gather/ ? '3+' : '1') . ":$_" } @{ $codes{$site} })
		{
			my $session = session($node);
			my ($found, $report) = (answer($session, $parallel, "SET client_min_messages = error", "SET gpusort.fault = '$fault'", $query, 'SHOW gpusort.fault_report') =~ /^(.*)\n(passes=\d+)/);
			is($found, right($queries{'several words'}), "$fault, with workers: in order");
			cmp_ok($report =~ s/passes=//r, '>=', $fault =~ /:(\d)/ ? $1 : 0, "$fault, with workers: it fails");
			leave($session);
		}
	}
	nothing_is_held($node, 'faults, with workers');
}

# ----------------------------------------------------------------
# The service, or the session, ends or waits while rows come
# ----------------------------------------------------------------

my $cursor = "SET application_name = 'reader'; BEGIN; DECLARE c NO SCROLL CURSOR FOR $queries{'a number'}; MOVE 10 FROM c";
my $waits = "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'reader' AND wait_event_type = 'Extension'";

# A session that has read some rows, and waits for more, which the device does not send.
sub waiting_reader
{
	my ($name) = @_;
	restart(limit => '8GB', settings => 'gpusort.service_idle_timeout = 0');
	my $session = session($node);
	answer($session, $cursor);
	hold_device($node, 'download');
	$session->{out} = '';
	$session->{in} .= "MOVE 249990 FROM c;\nFETCH 2 FROM c;\n\\echo done\n\\warn done\n";
	$session->{psql}->pump_nb;
	ok(poll_until(sub { $session->{psql}->pump_nb; return ask($node, $waits) eq 't'; }), "$name: a session waits for rows");
	return $session;
}

# What it says then
sub rest_of
{
	my ($session) = @_;
	$session->{psql}->pump until ($session->{out} =~ /^done\n\z/m && $session->{err} =~ /^done\n\z/m) || !$session->{psql}->pumpable;
	return $session->{out} =~ s/\n?done\n\z//r;
}

my $middle = $node->safe_psql('postgres', "SET gpusort.enabled = off; $queries{'a number'} OFFSET 250000 LIMIT 2");
{
	my $session = waiting_reader('SIGTERM');
	kill 'TERM', service_pids($node);
	is(rest_of($session), $middle, 'SIGTERM: the rows are right');
	is(answer($session, "COMMIT; $last"), 'cuda|', 'SIGTERM: the device has sorted');
	release_device($node);
	leave($session);
	nothing_is_held($node, 'SIGTERM');
}
foreach my $how ('cancel', 'terminate')
{
	my $session = waiting_reader($how);
	ask($node, "SELECT pg_${how}_backend(pid) FROM pg_stat_activity WHERE application_name = 'reader'");
	rest_of($session);
	like($session->{err}, $how eq 'cancel' ? qr/canceling statement/ : qr/terminating connection/, "$how: the session gets the error while the device is held");
	release_device($node);
	is(answer($session, 'ROLLBACK; ' . sequence($queries{'a number'})), right($queries{'a number'}), "$how: the session sorts again") if $how eq 'cancel';
	nothing_is_held($node, $how);
	leave($session);
}
# a cursor that is closed, and a transaction that ends
foreach my $end ('CLOSE c', 'ROLLBACK', 'SELECT 1 / 0')
{
	my $session = session($node);
	answer($session, $cursor, $end);
	nothing_is_held($node, $end);
	leave($session);
}
# a device that is faster than the session, and one that is slower
{
	my $session = session($node);
	answer($session, $cursor, 'MOVE 149990 FROM c');
	hold_device($node, 'download');
	$session->{out} = '';
	$session->{in} .= "MOVE 100000 FROM c;\nFETCH 2 FROM c;\n\\echo done\n\\warn done\n";
	$session->{psql}->pump_nb;
	ok(poll_until(sub { $session->{psql}->pump_nb; return ask($node, $waits) eq 't'; }), 'a slow device: the session waits');
	release_device($node);
	is(rest_of($session), $middle, 'a slow device: the rows are right');
	leave($session);
}

# ----------------------------------------------------------------
# The files of a session
# ----------------------------------------------------------------

# the service keeps what the session keeps
my $mapped = "SELECT max(mapped_bytes) > 0 FROM gpusort_status()";
{
	my $session = session($node);
	my $pid = answer($session, 'SELECT pg_backend_pid()');
	my ($service) = service_pids($node);
	nothing_is_mapped($node, 'before');
	is(answer($session, sequence($queries{'a number'})), right($queries{'a number'}), 'a sort');
	is(ask($node, $mapped), 't', "the service keeps the session's memory");
	is_deeply([ shared_files($service) ], [ shared_files($pid) ], 'it has mapped the files that the session has');
	my @files = shared_files($pid);
	forget_trace($node);
	is(answer($session, sequence($queries{'a number'})), right($queries{'a number'}), 'another sort');
	is_deeply([ shared_files($service) ], \@files, 'it uses the same files');

	# neither a session nor the service can be ended by a file that becomes shorter
	my ($file) = grep { (readlink($_) // '') =~ /memfd:gpusort/ } glob "/proc/$pid/fd/*";
	ok(sysopen(my $handle, $file, O_RDWR), 'a process of the same user can open a file') or diag("$file: $!");
	ok(!truncate($handle, 4096) && $!{EPERM}, 'but not make it shorter');
	close($handle);

	nothing_is_mapped($node, 'an idle session, after some seconds');
	is(join(' ', shared_files($pid, $service)), '', 'neither process has a file then');
	is(answer($session, sequence($queries{'a number'})), right($queries{'a number'}), 'the session sorts again');
	leave($session);
}

# a session that is terminated while its rows are on the device
{
	my $session = session($node);
	my $pid = answer($session, 'SELECT pg_backend_pid()');
	my ($service) = service_pids($node);
	answer($session, $cursor);
	cmp_ok(scalar(shared_files($service)), '>', 0, "terminated: the service has the session's memory");
	my $begin = time;
	ask($node, "SELECT pg_terminate_backend($pid)");
	nothing_is_mapped($node, 'terminated');
	cmp_ok(time - $begin, '<', 6, 'terminated: soon, and not after the time for which memory is kept');
	is(join(' ', shared_files($service)), '', 'terminated: it has no file');
	nothing_is_held($node, 'terminated');
	$session->{psql}->finish;
}

unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal|leak/, 'the log shows no crash and no leak');
end_session($node);
$node->stop;
done_testing();
