# A sort that parallel workers feed (src/node/feed.c) is stopped in each phase, and memory
# and temporary files fail at each place.  Each time the answer is right, or the error is the
# expected one, nothing is left, and the next sort works.
#
# Segments of shared memory are files in the data directory here, so the test sees
# those that no process has mapped any more.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('standin_parallel', settings => <<'CONF');
shared_preload_libraries = 'gpusort'
dynamic_shared_memory_type = mmap
restart_after_crash = on
max_worker_processes = 20
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
max_parallel_workers_per_gather = 3
parallel_leader_participation = off
synchronize_seqscans = off
gpusort.force = on
gpusort.engine = cpu
autovacuum = off
work_mem = 1GB
CONF
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE TABLE p AS SELECT i AS id, hashint8(i) AS k, repeat('pad', 60 + i % 20) AS pad FROM generate_series(1, 20000) AS i;
ALTER TABLE p SET (parallel_workers = 3);
VACUUM ANALYZE p;
-- does to the process that reads row test.row, or to the leader, what test.trouble says
CREATE FUNCTION trouble(i int) RETURNS bool LANGUAGE plpgsql PARALLEL SAFE AS $$
DECLARE
	place int := current_setting('test.row');
	hit bool := i = place;
BEGIN
	IF place = 0 AND i % 100 = 0 THEN
		SELECT backend_type = 'client backend' INTO hit FROM pg_stat_activity WHERE pid = pg_backend_pid();
	END IF;
	IF hit AND current_setting('test.trouble') = 'error' THEN
		PERFORM 1 / (i - i);
	ELSIF hit AND current_setting('test.trouble') = 'sleep' THEN
		PERFORM pg_sleep(3600);
	END IF;
	RETURN true;
END $$;
CREATE FUNCTION stops_at(place bigint) RETURNS bool LANGUAGE plpgsql PARALLEL RESTRICTED AS $$
BEGIN
	IF place = 10 AND current_setting('test.row') = '-1' THEN PERFORM pg_sleep(3600); END IF;
	RETURN true;
END $$;
SQL
skip_without_standin($node);

# Queries that count their rows and tell whether these are in order
my %queries = (
	rows => 'SELECT count(*), bool_and(up), sum(length(pad)), bool_and(stops_at(place)) FROM (SELECT k >= lag(k) OVER () IS NOT false AS up, '
	  . 'pad, row_number() OVER () AS place FROM (SELECT k, pad FROM p WHERE trouble(id) ORDER BY k OFFSET 0) AS s) AS s',
	'bare rows' => 'SELECT count(*), bool_and(up), sum(k), bool_and(stops_at(place)) FROM (SELECT k >= lag(k) OVER () IS NOT false AS up, '
	  . 'k, row_number() OVER () AS place FROM (SELECT k::numeric AS k FROM p WHERE trouble(id) ORDER BY 1 OFFSET 0) AS s) AS s',
	values => 'SELECT count(*), bool_and(up), sum(k), bool_and(stops_at(place)) FROM (SELECT k >= lag(k) OVER () IS NOT false AS up, '
	  . 'k, row_number() OVER () AS place FROM (SELECT k FROM p, generate_series(1, 5) WHERE trouble(id) ORDER BY k OFFSET 0) AS s) AS s');
my $quiet = "SET test.row = -2; SET test.trouble = 'none'";
my %right = map { $_ => $node->safe_psql('postgres', "SET gpusort.enabled = off; $quiet; $queries{$_}") } keys %queries;
like($right{$_}, qr/^(?:20000|100000)\|t\|/, "core sorts $_") foreach sort keys %right;
like($node->safe_psql('postgres', "EXPLAIN (COSTS OFF) $queries{$_}"), qr/GpuSort Feed/, "workers feed the sort of $_") foreach sort keys %right;

sub segments
{
	return map { s{.*/}{}r } glob $node->data_dir . '/pg_dynshmem/mmap.*';
}

sub temporary_files
{
	my $dir = $node->data_dir . '/base/pgsql_tmp';
	my @files = glob("$dir/* $dir/*.fileset/*");
	return @files;
}

# Checks that a sort has left nothing.  $before are the segments before it, $during those
# in the middle of it.
sub nothing_is_left
{
	my ($name, $crashed, $before, $during) = @_;
	my %allowed = map { $_ => 1 } @$before;
	my @left;
	poll_until(sub {
		@left = grep { !$allowed{$_} } $crashed ? grep { -e $node->data_dir . "/pg_dynshmem/$_" } @$during : segments();
		push @left, temporary_files();
		return !@left;
	});
	is("@left", '', "$name: no segment and no temporary file is left");
	ok(poll($node, 'SELECT count(*) = 0 FROM gpusort_activity'), "$name: gpusort_activity is empty");
	ok(poll($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'parallel worker'"), "$name: no worker is left");
	is($node->safe_psql('postgres', "$quiet; $queries{rows}"), $right{rows}, "$name: the next sort works");
	return;
}

# ----------------------------------------------------------------
# Stopped in each phase
# ----------------------------------------------------------------

my $asleep = "FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND backend_type";
my @phases = (
	{ name => 'a worker gathers rows', query => 'rows', row => 5000, asleep => 'parallel worker' },
	{ name => 'a worker gathers values', query => 'values', row => 5000, asleep => 'parallel worker' },
	{ name => 'a worker spills rows', query => 'rows', row => 19900, asleep => 'parallel worker', memory => '64kB', files => 1 },
	{ name => 'a worker spills values', query => 'values', row => 19900, asleep => 'parallel worker', memory => '64kB' },
	{ name => 'the leader gathers its own part', query => 'rows', row => 0, asleep => 'client backend', leader => 1 },
	{ name => 'the leader returns rows', query => 'rows', row => -1, asleep => 'client backend', segments => 1 },
	{ name => 'the leader returns rows of spilled runs', query => 'rows', row => -1, asleep => 'client backend', memory => '64kB', files => 1 });

sub settings_of
{
	my ($phase, $trouble) = @_;
	return map { "SET $_" } 'parallel_leader_participation = ' . ($phase->{leader} ? 'on' : 'off'), "test.row = $phase->{row}", "test.trouble = $trouble",
	  "gpusort.memory_limit = '" . ($phase->{memory} // '-1') . "'";
}

my %ways = (
	'an error' => { error => qr/ERROR:  division by zero/ },
	'cancelled' => { error => qr/ERROR:  canceling statement due to user request/, sql => 'pg_cancel_backend', victim => 'client backend' },
	'timed out' => { error => qr/ERROR:  canceling statement due to statement timeout/ },
	'the worker terminated' => { error => qr/terminating (?:background worker|connection)/, sql => 'pg_terminate_backend', victim => 'parallel worker' },
	'the leader terminated' => { error => qr/terminating connection/, sql => 'pg_terminate_backend', victim => 'client backend', ended => 1 },
	'the worker killed' => { error => qr/server closed|connection to server was lost/, victim => 'parallel worker', kill => 1, ended => 1 },
	'the leader killed' => { error => qr/server closed|connection to server was lost/, victim => 'client backend', kill => 1, ended => 1 });

foreach my $phase (@phases)
{
	foreach my $way (sort keys %ways)
	{
		my ($error, $sql, $victim, $kill, $ended) = @{ $ways{$way} }{ 'error', 'sql', 'victim', 'kill', 'ended' };
		my $name = "$phase->{name}, $way";
		my $by_worker = $phase->{asleep} eq 'parallel worker';
		my @before = segments();
		my @during;
		my ($out, $err);

		next if ($way eq 'an error' || ($victim // '') eq 'parallel worker') && !$by_worker;
		my @settings = settings_of($phase, $way eq 'an error' ? 'error' : 'sleep');
		push @settings, "SET statement_timeout = '2s'" if $way eq 'timed out';
		my $psql = in_background($node, \$out, \$err, join('; ', @settings) . "; $queries{$phase->{query}}", "$quiet; RESET gpusort.memory_limit; $queries{rows}");
		if ($victim || $kill)
		{
			ok(poll($node, "SELECT count(*) > 0 $asleep = '$phase->{asleep}'"), "$name: the phase is reached");
			@during = segments();
			cmp_ok(scalar(@during), '>', scalar(@before), "$name: there are segments") if $phase->{segments} || $by_worker;
			ok(poll_until(sub { return temporary_files() > 0; }), "$name: there are temporary files") if $phase->{files};
			my $which = $victim eq $phase->{asleep} ? "$asleep = '$victim'" : "FROM pg_stat_activity WHERE application_name = 'background' AND backend_type = '$victim'";
			my $pid = ask($node, "SELECT min(pid) $which");
			if ($kill)
			{
				my $log = -s $node->logfile;
				end_session($node);
				kill 'KILL', $pid;
				ok(is_back($node, $log), "$name: the server comes back");
			}
			else
			{
				ask($node, "SELECT $sql($pid)");
			}
		}
		$psql->finish;
		like($err, $error, "$name: the session gets the error");
		is($out, "$right{rows}\n", "$name: the session goes on") if !$ended;
		nothing_is_left($name, $kill, \@before, \@during);
	}
}

# a LIMIT that ends the query early, and a cursor that is closed
{
	my @before = segments();
	is($node->safe_psql('postgres', "$quiet; SELECT count(*) FROM (SELECT * FROM (SELECT k, pad FROM p WHERE trouble(id) ORDER BY k OFFSET 0) s WHERE k % 2 = 0 LIMIT 3) s"),
		'3', 'a LIMIT above ends the query');
	nothing_is_left('a LIMIT above', 0, \@before);
}

# ----------------------------------------------------------------
# No memory, and no room for files
# ----------------------------------------------------------------

my $session = session($node);
$session->{in} .= "\\set VERBOSITY sqlstate\n$quiet;\n";
# the first parallel query of a session makes a segment for the session
answer($session, $queries{rows});
# nothing happens at a row here, and the functions that would see to it take most of the time
my %plain = map { $_ => $queries{$_} =~ s/ WHERE trouble\(id\)//r =~ s/bool_and\(stops_at\(place\)\)/true/r } keys %queries;
like($node->safe_psql('postgres', "EXPLAIN (COSTS OFF) $plain{$_}"), qr/GpuSort Feed/, "workers feed the sort of plain $_") foreach sort keys %plain;

# Injects faults into a sort: the first pass of a site fails, then the second, and so on,
# alone and with all later ones.  $errors are the SQLSTATEs with which the query may end.
sub inject
{
	my ($name, $query, $memory, $fault, $code, $errors) = @_;
	# workers allocate the tables of what they publish last
	my $slower = $fault eq 'arena' ? 12 : 2;
	my @wrong;
	my $fired = 0;
	my @before = segments();
	foreach my $later ('', '+')
	{
		for (my ($nth, $last) = (1, 0); !$last && $nth < 5000; $nth += $nth < 12 ? 1 : int($nth / $slower))
		{
			$session->{err} = '';
			my ($got, $report) = split /\n/, answer($session, "SET gpusort.memory_limit = '$memory'", "SET gpusort.fault = '$fault:$nth$later:$code'",
				$plain{$query}, 'SHOW gpusort.fault_report', 'RESET gpusort.fault');
			my ($error) = $session->{err} =~ /ERROR:  (\w+)/;
			($report, $got) = ($got, "ERROR $error") if defined $error;
			my ($passes) = $report =~ /^passes=(\d+)/;
			$last = !defined $passes || $passes < $nth;
			$fired++ if !$last;
			push @wrong, "$nth$later: $got" if $got ne $right{$query} && ($last || !grep { $got eq "ERROR $_" } @$errors);
			push @wrong, "$nth$later: $_ is left" foreach temporary_files();
		}
	}
	is(join("\n", @wrong), '', "$name, $query, $memory: $fired faults $code at $fault");
	nothing_is_left("$name, $query, $memory, $code", 0, \@before);
	return $fired;
}

foreach my $query ('rows', 'bare rows', 'values')
{
	# all in memory, and most in spilled runs; for rows also a few of them
	foreach my $memory ('256MB', '64kB', $query eq 'rows' ? '256kB' : ())
	{
		cmp_ok(inject('an arena is full', $query, $memory, 'arena', 'refused', []), '>', 0, "$query, $memory: arenas are used");
		cmp_ok(inject('a worker cannot map its file', $query, $memory, 'map', 'refused', []), '>', 0, "$query, $memory: workers map files");
		inject('no memory', $query, $memory, 'memory', '53200', ['53200']);
		inject('no memory for rows', $query, $memory, 'rowstore', '53200', ['53200']);
		inject('no memory for the sort', $query, $memory, 'scratch', 'refused', ['53200']);
	}
}
cmp_ok(inject('a file cannot be made', 'rows', '64kB', 'spill_file', '53100', ['53100']), '>', 0, 'the leader spills');
inject('a disk is full', 'rows', '64kB', 'spill_write', '53100', ['53100']);
inject('a file cannot be read', 'rows', '64kB', 'spill_read', '58030', ['58030']);
leave($session);

# temp_file_limit holds for each process.  One worker has all rows: a third of the values, which are
# sorted below the join with generate_series(), may fit in its memory.
foreach my $query ('rows', 'values')
{
	my @before = segments();
	my ($rc, $out, $err) = $node->psql('postgres', "$quiet; SET max_parallel_workers_per_gather = 1; SET gpusort.memory_limit = '64kB'; SET temp_file_limit = '8kB'; $queries{$query}");
	like($err, qr/ERROR:  temporary file size exceeds "?temp_file_limit"? \(8kB\)/, "$query: temp_file_limit ends the query while workers spill");
	nothing_is_left("$query, temp_file_limit", 0, \@before);
}

is($node->safe_psql('postgres', "$quiet; SET max_parallel_workers = 0; $queries{$_}"), $right{$_}, "no worker starts, $_") foreach sort keys %right;

end_session($node);
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|signal 11|signal 6|leak/, 'the log shows no crash and no leak');
$node->stop;
done_testing();
