# A sort can be stopped in each phase and in each way, also while the device is busy:
# the session answers at once, and the sort leaves no request, no temporary file and no
# row in gpusort_activity.  A session that survives can sort again.  To
# stop a sort in a phase, the test holds a call of the stand-in device or makes
# a row come late.

use strict;
use warnings;

use GpusortTest;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = ordering_node('interrupts');
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION stops_at(place bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	IF place = 10 THEN PERFORM pg_advisory_lock_shared(1); END IF;
	RETURN true;
END $$;
VACUUM ANALYZE t;
SQL

my $agg = 'SELECT cardinality(gpu_sort_agg(k)) FROM t';
# a query for the positions in a sorted result; it waits at the tenth row
sub read_slowly
{
	my ($columns, $from) = @_;
	return "SELECT count(stops_at(place)) FROM (SELECT row_number() OVER () AS place FROM (SELECT $columns FROM $from ORDER BY k OFFSET 0) AS s) AS s";
}

# True if a session can sort, on the device or not.
my $sorts = 'SELECT gpu_sort_agg(k) = array_agg(k ORDER BY k) FROM t';
my $files = 'SELECT count(*) FROM pg_ls_tmpdir()';
my $is_background = "application_name = 'background'";

sub reaches
{
	my ($query) = @_;
	return sub { return poll($node, $query); };
}

# Waits until $count backends wait for the service.
sub waits_for_service
{
	my ($count) = @_;
	return reaches("SELECT count(*) = $count FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND application_name = 'background'");
}

sub nothing_is_left
{
	my ($name) = @_;
	release_device($node);
	nothing_is_held($node, $name);
	return is(ask($node, "$files; SELECT count(*) FROM gpusort_activity"), "0\n0",
		"$name: no temporary file and no row in gpusort_activity is left");
}

# Phases.  "held" is the call of the device that is held, "lock" says that a row
# waits for lock 1, and "reached" waits until the query is in this phase.
# lock_timeout can stop a query that waits for a lock.
my @phases = (
	{ name => 'gathering keys', lock => 1, reached => reaches(waits_for(1)),
		query => 'SELECT cardinality(gpu_sort_agg(k)) FROM (SELECT k FROM t UNION ALL ' . late_row(1) . ') AS u' },
	{ name => 'gathering rows', lock => 1, reached => reaches(waits_for(1)),
		query => 'SELECT count(*) FROM (SELECT k, word FROM (SELECT k, word FROM t UNION ALL SELECT k, NULL FROM ('
		  . late_row(1) . ') AS l (k)) AS u ORDER BY k OFFSET 0) AS s' },
	{ name => 'gathering without end', reached => reaches("SELECT count(*) = 1 FROM gpusort_activity WHERE phase = 'gathering'"),
		query => 'SELECT count(*) FROM (SELECT generate_series(1, 2000000000) AS k ORDER BY 1 OFFSET 0) AS s' },
	{ name => 'waiting in line', held => 'sort', other => $agg, query => $agg, reached => waits_for_service(2) },
	# the service waits for the upload only of 4 MB and more
	{ name => 'copying in', held => 'upload', query => 'SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 600000::bigint) AS i',
		reached => sub { return poll_trace($node, 'upload \d+'); } },
	{ name => 'sorting', held => 'sort', query => $agg, reached => sub { return poll_trace($node, 'sort \d+'); } },
	{ name => 'copying out', held => 'download', query => $agg, reached => sub { return poll_trace($node, 'download \d+'); } },
	{ name => 'returning rows', lock => 1, reached => reaches(waits_for(1)), query => read_slowly('k, word', 't') },
	{ name => 'spilling', lock => 1, settings => "gpusort.memory_limit = '1MB'", files => 1, reached => reaches(waits_for(1)),
		query => 'SELECT count(*) FROM (SELECT k, word FROM (SELECT k, word FROM t UNION ALL SELECT k, NULL FROM ('
		  . late_row(1) . ') AS l (k)) AS u ORDER BY k OFFSET 0) AS s' },
	{ name => 'sorting a run that is spilled', held => 'sort', settings => "gpusort.memory_limit = '1MB'",
		query => 'SELECT count(*) FROM (SELECT k, word FROM t ORDER BY k OFFSET 0) AS s',
		reached => sub { return poll_trace($node, 'sort \d+'); } },
	{ name => 'merging runs', lock => 1, settings => "gpusort.memory_limit = '1MB'", files => 1, reached => reaches(waits_for(1)),
		query => read_slowly('k, word', 't') });

# The backend to stop: the youngest one.
my $victim = "(SELECT pid FROM pg_stat_activity WHERE $is_background ORDER BY backend_start DESC LIMIT 1)";

# Stops a query in a phase, and checks that nothing of it is left.
sub stop_in_phase
{
	my ($phase, $how) = @_;
	my $name = "$phase->{name}, $how";
	my @settings = $phase->{settings} ? ("SET $phase->{settings}") : ();
	my $query = $phase->{query};
	my ($out, $err, $other);

	forget_trace($node);
	hold($node, 1) if $phase->{lock};
	hold_device($node, $phase->{held}) if $phase->{held};
	if ($phase->{other})
	{
		$other = in_background($node, \my $other_out, \my $other_err, $phase->{other});
		poll_trace($node, 'sort \d+');
	}

	my @statements;
	# the transaction goes on after rolling back to the savepoint
	@statements = ('BEGIN', 'SAVEPOINT s', $query, 'ROLLBACK TO s', $files, 'SELECT pg_advisory_lock_shared(2)', $sorts, 'COMMIT')
	  if $how eq 'cancelled';
	@statements = (<<"SQL", $sorts) if $how eq 'caught' || $how eq 'lock_timeout';
DO \$\$
BEGIN
	BEGIN
		EXECUTE \$q\$$query\$q\$;
		RAISE 'not reached';
	EXCEPTION WHEN query_canceled OR lock_not_available THEN
		RAISE NOTICE 'caught: % files', ($files);
	END;
	SET LOCAL lock_timeout = 0;
	PERFORM pg_advisory_lock_shared(2);
END \$\$
SQL
	@statements = ("SET lock_timeout = '300ms'", @statements) if $how eq 'lock_timeout';
	@statements = ("SET statement_timeout = '700ms'", $query, 'RESET statement_timeout', $files,
		'SELECT pg_advisory_lock_shared(2)', $sorts) if $how eq 'statement_timeout';
	@statements = ($query, $sorts) if $how eq 'terminated';

	hold($node, 2);
	my $psql = in_background($node, \$out, \$err, @settings, @statements);
	# a timeout needs no signal from here
	if ($how !~ /timeout/)
	{
		ok($phase->{reached}->(), "$name: the query reaches the phase");
		cmp_ok(ask($node, $files), '>', 0, "$name: there are temporary files") if $phase->{files};
		my $function = $how eq 'terminated' ? 'pg_terminate_backend' : 'pg_cancel_backend';
		ask($node, "SELECT $function($victim)");
	}

	# the answer comes while the device or the row is still held
	if ($how ne 'terminated')
	{
		ok(poll($node, waits_for(2)), "$name: the session answers");
		let_go($node, 1) if $phase->{lock};
		if ($other)
		{
			release_device($node);
			$other->finish;
		}
		nothing_is_left("$name, in its transaction");
		let_go($node, 2);
		$psql->finish;
	}
	else
	{
		$psql->finish;
		let_go($node, 2);
		let_go($node, 1) if $phase->{lock};
		if ($other)
		{
			release_device($node);
			$other->finish;
		}
	}

	my %expected = (
		'cancelled' => [ qr/^0\n\nt\n$/, qr/^ERROR:  canceling statement due to user request\n$/ ],
		'caught' => [ qr/^t\n$/, qr/^NOTICE:  caught: 0 files\n$/ ],
		'lock_timeout' => [ qr/^t\n$/, qr/^NOTICE:  caught: 0 files\n$/ ],
		'statement_timeout' => [ qr/^0\n\nt\n$/, qr/^ERROR:  canceling statement due to statement timeout\n$/ ],
		'terminated' => [ qr/^$/, qr/FATAL:  terminating connection due to administrator command/ ]);
	# psql adds context lines about the lock
	$err =~ s/^CONTEXT:.*\n(?:PL\/pgSQL.*\n)*//mg;
	like($out, $expected{$how}[0], "$name: the session's answers are right");
	like($err, $expected{$how}[1], "$name: the session gets the error");
	nothing_is_left($name);
	return;
}

foreach my $phase (@phases)
{
	stop_in_phase($phase, 'cancelled');
	stop_in_phase($phase, 'terminated');
	stop_in_phase($phase, 'caught') if $phase->{held} || $phase->{files};
	stop_in_phase($phase, 'lock_timeout') if $phase->{lock};
	stop_in_phase($phase, 'statement_timeout') if $phase->{held} && !$phase->{other};
}

#
# While the service starts and while it ends
#
restart_with($node);
hold_device($node, 'open');
my ($out, $err);
my $psql = in_background($node, \$out, \$err, $agg, $sorts);
ok(poll_trace($node, 'open 0'), 'the service starts');
ok(waits_for_service(1)->(), 'a backend waits for the starting service');
ask($node, "SELECT pg_cancel_backend($victim)");
ok(poll($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%= array_agg%' AND $is_background"),
	'cancelled while the service starts: the session answers');
release_device($node);
$psql->finish;
is($out, "t\n", 'cancelled while the service starts: the session sorts again');
nothing_is_left('cancelled while the service starts');

# while an idle service ends
$node->append_conf('postgresql.conf', "gpusort.service_idle_timeout = 1\n");
foreach my $how ('served', 'cancelled', 'terminated')
{
	restart_with($node);
	$node->safe_psql('postgres', $sorts);
	hold_device($node, 'close');
	ok(poll_trace($node, 'close 0'), 'an idle service ends');
	$psql = in_background($node, \$out, \$err, $agg, 'SELECT engine, reason FROM gpusort_last_sort()');
	ok(waits_for_service(1)->(), "$how while an idle service ends: a backend waits");
	is(scalar(service_pids($node)), 1, "$how while an idle service ends: the service still runs");
	ask($node, 'SELECT pg_' . ($how eq 'cancelled' ? 'cancel' : 'terminate') . "_backend($victim)")
	  if $how ne 'served';
	if ($how eq 'served')
	{
		release_device($node);
	}
	$psql->finish;
	is($out, $how eq 'served' ? "30000\ncuda|\n" : $how eq 'cancelled' ? "|\n" : '', "$how while an idle service ends: the answer is right");
	like($err, $how eq 'served' ? qr/^$/ : $how eq 'cancelled' ? qr/canceling statement/ : qr/terminating connection/,
		"$how while an idle service ends: the error is right");
	nothing_is_left("$how while an idle service ends");
	is($node->safe_psql('postgres', "$sorts; SELECT engine FROM gpusort_last_sort()"), "t\ncuda", "$how while an idle service ends: sorts go on");
}
$node->append_conf('postgresql.conf', "gpusort.service_idle_timeout = 60\n");

#
# A cursor of an idle session: at the end of its rows, and in the middle of a
# result of the device, and of spilled runs
#
restart_with($node);
foreach my $case (
	[ 'rows', '', 'SELECT k, word FROM t ORDER BY k', 'FETCH 10 FROM c' ],
	[ 'its end', '', 'SELECT k, word FROM t ORDER BY k', 'MOVE ALL FROM c' ],
	[ 'runs', "SET gpusort.memory_limit = '1MB'; ", 'SELECT k, word FROM t ORDER BY k', 'FETCH 10 FROM c' ])
{
	my ($name, $settings, $query, $read) = @$case;
	my $idle = "SELECT count(*) = 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND application_name = 'background'";
	my $gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'background'";
	foreach my $how ('cancelled', 'rolled back', 'closed', 'terminated', 'timeout')
	{
		my $in = "$settings BEGIN; SAVEPOINT s; DECLARE c NO SCROLL CURSOR FOR $query; $read;\n";
		my $log = -s $node->logfile;
		($out, $err) = ('', '');
		$in .= "SET idle_in_transaction_session_timeout = '200ms';\n" if $how eq 'timeout';
		$in .= "\\echo ready\n";
		$psql = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') . ' application_name=background' ],
			'<', \$in, '>', \$out, '2>', \$err, IPC::Run::timeout(4 * $PostgreSQL::Test::Utils::timeout_default));
		$psql->pump until $out =~ /ready/;
		if ($how ne 'timeout')
		{
			is(ask($node, $idle), 't', "idle in $name, $how: the session is idle");
			like(ask($node, 'SELECT count(*) FROM gpusort_status(); SHOW gpusort.fault_report'), qr/ requests=0 /,
				"idle in $name, $how: it holds no request");
		}
		if ($how eq 'cancelled')
		{
			# an idle session ignores a cancel, and the cursor goes on
			ask($node, "SELECT pg_cancel_backend($victim)");
			$in .= "MOVE ALL FROM c; FETCH 1 FROM c; SELECT 'end'; $sorts; COMMIT;\n";
		}
		$in .= "ROLLBACK TO s; SELECT 'end'; SELECT pg_advisory_lock_shared(2); $sorts; COMMIT;\n" if $how eq 'rolled back';
		$in .= "CLOSE c; SELECT 'end'; SELECT pg_advisory_lock_shared(2); $sorts; COMMIT;\n" if $how eq 'closed';
		ask($node, "SELECT pg_terminate_backend($victim)") if $how eq 'terminated';
		if ($how eq 'rolled back' || $how eq 'closed')
		{
			hold($node, 2);
			$psql->pump until $in eq '';
			ok(poll($node, waits_for(2)), "idle in $name, $how: the session answers");
			nothing_is_left("idle in $name, $how, in its transaction");
			let_go($node, 2);
		}
		ok(poll($node, $gone), "idle in $name, $how: the session has ended") if $how eq 'terminated' || $how eq 'timeout';
		$psql->finish;
		like($out, qr/(?:^|\n)end\n\n?t\n$/, "idle in $name, $how: the session sorts again") if $how ne 'terminated' && $how ne 'timeout';
		like(slurp_file($node->logfile, $log), qr/FATAL:  terminating connection due to idle-in-transaction timeout/,
			"idle in $name, $how: the log gives the reason") if $how eq 'timeout';
		nothing_is_left("idle in $name, $how");
	}
}

$node->stop;
done_testing();
