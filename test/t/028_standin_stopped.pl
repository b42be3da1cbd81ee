# The GPU service is stopped by SIGSTOP, in each state of a request, and goes on by
# SIGCONT.  The sorts of one and of several sessions end on the CPU and are right;
# status, cancel and timeouts work meanwhile; and afterwards the device sorts again and
# nothing is left behind.  Needs the stand-in device.

use strict;
use warnings;

use GpusortTest;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $silent = qr/The GPU service has not responded for 5 seconds\./;

my $last = 'SELECT engine, reason FROM gpusort_last_sort()';
my $sort = 'SELECT gpu_sort_agg(k) = array_agg(k ORDER BY k) FROM t';
my $late_sort = 'SELECT cardinality(gpu_sort_agg(k)) FROM (SELECT k FROM t UNION ALL ' . late_row(1) . ') AS u';
my $order_by = in_order('SELECT k, word FROM t ORDER BY k');

# Every statement ends within this time, which a loaded machine does not reach.
my $bounded = "statement_timeout = '60s'\n";

# Stops a process.  The signal acts at once, but a process in a system call may still leave it.
sub stop
{
	my ($pid) = @_;
	kill('STOP', $pid);
	return poll_until(sub { return is_stopped($pid); });
}

sub is_stopped
{
	my ($pid) = @_;
	return `ps -o stat= -p $pid` =~ /^T/;
}

# Some sessions that each sort twice, first by $sort or the given query.  ended()
# checks that both sorts were done by the CPU for the given reason.
sub several
{
	my ($node, $count, $first) = @_;
	my @sessions;
	foreach my $i (1 .. $count)
	{
		my $session = {};
		$session->{psql} = in_background($node, \$session->{out}, \$session->{err}, $first // $sort, $last, $order_by, $last);
		push @sessions, $session;
	}
	return @sessions;
}

sub ended
{
	my ($name, $reason, @sessions) = @_;
	my $warnings = 0;
	foreach my $i (0 .. $#sessions)
	{
		$sessions[$i]->{psql}->finish;
		my $cpu = qr/cpu\|$reason/;
		like($sessions[$i]->{out}, qr/^t\n$cpu\n30000\|t\n$cpu\n\z/, "$name: the CPU sorts for session " . ($i + 1));
		$warnings += warnings_in($sessions[$i]->{err});
	}
	cmp_ok($warnings, '<=', 1, "$name: one session is warned, if none was before");
	return;
}

# After a session has given up, others do not wait, and the status functions answer and give the reason.
sub declined
{
	my ($node, $name, $reason) = @_;
	# this is less than a session waits that does not know yet
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "SET statement_timeout = '4s'; $sort; $last");
	like("$rc $stdout", qr/^0 t\ncpu\|$reason\z/, "$name: the next session does not wait");
	($rc, $stdout, $stderr) = $node->psql('postgres', "SET gpusort.engine = 'cuda'; $sort");
	like($stderr, qr/ERROR:.*DETAIL:  $reason/s, "$name: an error if gpusort.engine is cuda");
	is($node->safe_psql('postgres', 'SELECT count(*) > 1 FROM gpusort_status(); SELECT count(*) >= 0 FROM gpusort_activity'),
		"t\nt", "$name: the status functions answer");
	like( $node->safe_psql('postgres', "SELECT available, detail FROM gpusort_status() WHERE engine = 'cuda'"),
		qr/^f\|$reason\z/, "$name: gpusort_status() gives the reason");
	return;
}

# The process goes on: the device sorts, and nothing is left of the requests.
sub goes_on
{
	my ($node, $name, $pid, @services) = @_;
	release_device($node);
	kill('CONT', $pid);
	ok( poll_until(sub { return ($node->psql('postgres', "$sort; $last"))[1] eq "t\ncuda|"; }),
		"$name: the device sorts again");
	nothing_is_held($node, $name);
	is_deeply([ service_pids($node) ], \@services, "$name: the service is the same");
	return;
}

my $node = ordering_node('stopped', $bounded);
restart_with($node, limit => '8GB', patience => 5000);
$node->safe_psql('postgres', <<'SQL');
-- the service waits for the upload of these
CREATE TABLE medium AS SELECT hashint8(i)::bigint AS k, i AS id FROM generate_series(1, 600000::bigint) AS i;
VACUUM ANALYZE;
SQL
my $log = -s $node->logfile;

#
# Services that are starting and ending: backends wait 15 s for these, so other
# servers do that while the tests of the first server run.
#
my ($starting, $ending) = (ordering_node('starting', $bounded), ordering_node('ending', $bounded));
my $too_slow = qr/The GPU service takes too long to start\./;
my $too_slow_to_end = qr/The GPU service takes too long to end and start again\./;

restart_with($starting, limit => '8GB');
hold_device($starting, 'open');
my @at_start = several($starting, 1);
ok(poll_trace($starting, 'open 0'), 'starting: the service opens the device');
my ($starting_pid) = service_pids($starting);
ok(stop($starting_pid), 'starting: the service is stopped');

restart_with($ending, limit => '8GB', settings => 'gpusort.service_idle_timeout = 1');
hold_device($ending, 'close');
is($ending->safe_psql('postgres', "SELECT cardinality(gpu_sort_agg(k)) FROM t; $last"), "30000\ncuda|", 'ending: the device sorts');
ok(poll_trace($ending, 'close 0'), 'ending: the service closes the device');
my ($ending_pid) = service_pids($ending);
ok(stop($ending_pid), 'ending: the service is stopped');
my @at_end = several($ending, 2);

#
# The service of the first server in each state
#
sub service
{
	is($node->safe_psql('postgres', "$sort; $last"), "t\ncuda|", 'the device sorts');
	forget_trace($node);
	return (service_pids($node))[0];
}

{
	my $pid = service();
	ok(stop($pid), 'idle: the service is stopped');
	ended('idle', $silent, several($node, 1));
	declined($node, 'idle', $silent);
	goes_on($node, 'idle', $pid, $pid);
}
{
	my $pid = service();
	my %gathers;
	hold($node, 1);
	$gathers{psql} = in_background($node, \$gathers{out}, \$gathers{err}, $late_sort, $last);
	ok(poll($node, waits_for(1)), 'gathering: a session waits for its last row');
	ok(stop($pid), 'gathering: the service is stopped');
	my @others = several($node, 2);
	let_go($node, 1);
	$gathers{psql}->finish;
	like($gathers{out}, qr/^30001\ncpu\|$silent\n\z/, 'gathering: the CPU sorts what was gathered');
	ended('gathering', $silent, @others);
	declined($node, 'gathering', $silent);
	goes_on($node, 'gathering', $pid, $pid);
}

foreach my $call ('upload', 'sort', 'download')
{
	my $pid = service();
	my (%cancelled, %late);
	hold_device($node, $call);
	my @sessions = several($node, 1, $call eq 'upload' ? $sort =~ s/FROM t/FROM medium/r : undef);
	ok(poll_trace($node, "$call \\d+"), "$call: the device is busy");
	ok(poll($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'background' AND wait_event_type = 'Extension'"),
		"$call: the session waits for the service");
	$cancelled{psql} = in_background($node, \$cancelled{out}, \$cancelled{err}, "SET application_name = 'cancelled'", $sort);
	$late{psql} = in_background($node, \$late{out}, \$late{err}, "SET statement_timeout = '3s'", $sort);
	ok( poll($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'cancelled' AND wait_event_type = 'Extension'"),
		"$call: another session waits for the service");
	ok(stop($pid), "$call: the service is stopped");
	push @sessions, several($node, 2);
	ask($node, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'cancelled'");
	$_->{psql}->finish foreach \%cancelled, \%late;
	is($cancelled{err}, "ERROR:  canceling statement due to user request\n", "$call: a sort can be cancelled");
	is($late{err}, "ERROR:  canceling statement due to statement timeout\n", "$call: statement_timeout works");
	ended($call, $silent, @sessions);
	declined($node, $call, $silent);
	goes_on($node, $call, $pid, $pid);
}

# some rows have come back in order, and the others are on the device
{
	my $pid = service();
	my $cursor = session($node);
	answer($cursor, 'BEGIN', 'SET LOCAL cursor_tuple_fraction = 1', 'DECLARE c NO SCROLL CURSOR FOR SELECT k, id FROM medium ORDER BY k, id', 'MOVE 1 FROM c');
	like(ask($node, 'SELECT count(*) FROM gpusort_status(); SHOW gpusort.fault_report'), qr/ lanes=1$/, 'returning: the device has rows');
	ok(stop($pid), 'returning: the service is stopped');
	is(answer($cursor, 'MOVE 500000 FROM c'), '', 'returning: the cursor goes on');
	is(answer($cursor, 'FETCH c'), $node->safe_psql('postgres', 'SET gpusort.enabled = off; SELECT k, id FROM medium ORDER BY k, id OFFSET 500001 LIMIT 1'),
		'returning: at the right row');
	declined($node, 'returning', $silent);
	kill('CONT', $pid);
	is(answer($cursor, 'MOVE 99997 FROM c', 'FETCH c', 'FETCH c', 'COMMIT'),
		$node->safe_psql('postgres', 'SET gpusort.enabled = off; SELECT k, id FROM medium ORDER BY k DESC, id DESC LIMIT 1'), 'returning: to the last row');
	is(answer($cursor, $last), 'cuda|', 'returning: the device has sorted');
	leave($cursor);
	goes_on($node, 'returning', $pid, $pid);
}

#
# Services that were starting and ending
#
ended('starting', $too_slow, @at_start);
declined($starting, 'starting', $too_slow);
goes_on($starting, 'starting', $starting_pid, $starting_pid);

ended('ending', $too_slow_to_end, @at_end);
declined($ending, 'ending', $too_slow_to_end);
release_device($ending);
kill('CONT', $ending_pid);
ok(poll_until(sub { return ($ending->psql('postgres', "$sort; $last"))[1] eq "t\ncuda|"; }), 'ending: another service sorts');
nothing_is_held($ending, 'ending');

#
# No process has ended until now.  A service that is stopped can be killed, and the
# server stops at once although the service does not answer.
#
unlike(slurp_file($node->logfile, $log), qr/terminated by signal|reinitializing/, 'no process has ended');
{
	my $pid = service();
	ok(stop($pid), 'killed: the service is stopped');
	end_session($node);
	$node->append_conf('postgresql.conf', "restart_after_crash = on\n");
	$node->reload;
	$log = -s $node->logfile;
	kill('KILL', $pid);
	ok(is_back($node, $log), 'killed: the server comes back');
	$pid = service();
	ok(stop($pid), 'stopped, immediate: the service is stopped');
	end_session($node);
	$node->stop('immediate');
	is(kill(0, $pid), 0, 'stopped, immediate: the server has stopped, and no service is left');
}
end_session($_) foreach $node, $starting, $ending;

done_testing();
