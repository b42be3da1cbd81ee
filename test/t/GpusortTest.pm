# What the TAP tests share: servers on the stand-in device (test/standin/device.c),
# its trace and its holds, the GPU service's process, sessions in the background,
# rows that come late, and what must not be left behind.

package GpusortTest;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

our @EXPORT = qw(
  ordering_node restart_with start_by is_back skip_without_standin
  traced place_of poll_trace forget_trace hold_device release_device
  ask end_session poll_until poll
  service_pids poll_services
  in_background late_row hold let_go waits_for
  pool_is_free segments_of
);

my $timeout = $PostgreSQL::Test::Utils::timeout_default;

# The file that the device adds every call to.
sub trace_of
{
	my ($node) = @_;
	return $node->basedir . '/trace';
}

# One session for what a test asks again and again, and for the locks that it
# holds.  It is begun when it is needed, and ended before its server is.
my %sessions;

sub ask
{
	my ($node, $query) = @_;
	if (!$sessions{ $node->name })
	{
		$sessions{ $node->name } = $node->background_psql('postgres');
		$sessions{ $node->name }->set_query_timer_restart;
	}
	return $sessions{ $node->name }->query_safe($query);
}

sub end_session
{
	my ($node) = @_;
	my $session = delete $sessions{ $node->name };
	$session->quit if $session;
	return;
}

# Starts the server anew, with an empty trace and nothing held.  plan and slow
# are GPUSORT_STANDIN and GPUSORT_STANDIN_SLOW, limit is the device's memory.
sub restart_with
{
	my ($node, %how) = @_;
	my $holds = $node->basedir . '/holds';
	end_session($node);
	# the service may be deep in a slow sort
	$node->stop('immediate') if -e $node->data_dir . '/postmaster.pid';
	$node->append_conf('postgresql.conf', "gpusort.device_memory_limit = $how{limit}\n") if $how{limit};
	unlink trace_of($node);
	mkdir $holds;
	unlink glob("$holds/*");
	local $ENV{GPUSORT_STANDIN_TRACE} = trace_of($node);
	local $ENV{GPUSORT_STANDIN_HOLD} = $holds;
	local $ENV{GPUSORT_STANDIN} = $how{plan};
	local $ENV{GPUSORT_STANDIN_SLOW} = $how{slow};
	delete $ENV{GPUSORT_STANDIN} unless $how{plan};
	delete $ENV{GPUSORT_STANDIN_SLOW} unless $how{slow};
	$node->start;
	return;
}

# Starts the server by such a command; it is stopped whatever comes.
sub start_by
{
	my ($node, @command) = @_;
	my $started = run_log(\@command);
	$node->_update_pid(1) if $started;
	return $started;
}

# Waits until the server is back from a crash that began behind such a place of
# the log.  Before the postmaster knows of it, one may still connect, and be
# thrown out later.
sub is_back
{
	my ($node, $log) = @_;
	return poll_until(sub { return slurp_file($node->logfile, $log) =~ /all server processes terminated; reinitializing/; })
	  && $node->poll_query_until('postgres', 'SELECT true');
}

# Ends a test whose server has no stand-in device.
sub skip_without_standin
{
	my ($node) = @_;
	my $devices = $node->safe_psql('postgres', "SELECT count(*) FROM gpusort_status() WHERE device = 'stand-in device'");
	plan skip_all => 'this build has no stand-in device' if $devices != 1;
	return;
}

# A server that sorts t's 30,000 rows on the stand-in device wherever it can,
# with more settings if need be; the test is skipped without such a device.
sub ordering_node
{
	my ($name, $settings) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init;
	$node->append_conf('postgresql.conf', <<'CONF');
session_preload_libraries = 'gpusort'
gpusort.force = on
gpusort.min_rows = 1000
max_parallel_workers_per_gather = 0
max_connections = 30
work_mem = 1GB
fsync = off
jit = off
CONF
	$node->append_conf('postgresql.conf', $settings) if $settings;
	restart_with($node, limit => '8GB');
	$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
	skip_without_standin($node);
	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t AS SELECT i AS id, hashint8(i) AS k, md5(i::text) AS word FROM generate_series(1, 30000::bigint) AS i;
SQL
	return $node;
}

# What the device did, in order: "open 0: 0", "upload 1: 40000", ..., "sort 1: 40000", ... by lane.
sub traced
{
	my ($node) = @_;
	return -e trace_of($node) ? split(/\n/, slurp_file(trace_of($node))) : ();
}

# The place of the first line of the trace that begins so, or one behind its end.
sub place_of
{
	my ($what, @lines) = @_;
	foreach my $i (0 .. $#lines)
	{
		return $i if $lines[$i] =~ /^$what:/;
	}
	return scalar @lines;
}

# Waits until such a thing is so, or too long.
sub poll_until
{
	my ($is_so) = @_;
	my $end = time + $timeout;
	do
	{
		return 1 if $is_so->();
		usleep(20_000);
	} while (time < $end);
	return 0;
}

# Waits until a query returns true.
sub poll
{
	my ($node, $query) = @_;
	return poll_until(sub { return ask($node, $query) eq 't'; });
}

# Waits until the device has begun with such a thing: "upload 1", "sort \d+".
sub poll_trace
{
	my ($node, $what) = @_;
	return poll_until(sub { my @lines = traced($node); return place_of($what, @lines) < @lines; });
}

sub forget_trace
{
	my ($node) = @_;
	unlink trace_of($node);
	return;
}

# The device stops in every such call, open, upload, sort, download or close,
# or in those that it is held in already no longer.
sub hold_device
{
	my ($node, $call) = @_;
	append_to_file($node->basedir . "/holds/$call", '');
	return;
}

sub release_device
{
	my ($node) = @_;
	unlink glob($node->basedir . '/holds/*');
	return;
}

# The service has no row in pg_stat_activity: it is in no database.
sub service_pids
{
	my ($node) = @_;
	my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
	return map { /^\s*(\d+)/ } grep { /gpusort service/ } `ps -o pid=,args= --ppid $postmaster`;
}

# Waits until there are this many services.
sub poll_services
{
	my ($node, $count) = @_;
	return poll_until(sub { return scalar(service_pids($node)) == $count; });
}

# A psql in the background that runs each statement by itself, and goes on
# after errors.  Its output goes to $$stdout and $$stderr.
sub in_background
{
	my ($node, $stdout, $stderr, @statements) = @_;
	($$stdout, $$stderr) = ('', '');
	return IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') . ' application_name=background',
			map { ('-c', $_) } @statements ],
		'<', \'', '>', $stdout, '2>', $stderr, IPC::Run::timeout(4 * $timeout));
}

# A row that comes when a lock is let go, which this test holds until then.
sub late_row
{
	my ($lock) = @_;
	return "SELECT -$lock FROM (SELECT pg_advisory_lock_shared($lock) OFFSET 0) l";
}

sub hold
{
	my ($node, $lock) = @_;
	ask($node, "SELECT pg_advisory_lock($lock)");
	return;
}

sub let_go
{
	my ($node, $lock) = @_;
	ask($node, "SELECT pg_advisory_unlock($lock)");
	return;
}

# True while a backend waits for its late row.
sub waits_for
{
	my ($lock) = @_;
	return "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = $lock AND NOT granted";
}

sub pool_is_free
{
	my ($node, $name) = @_;
	return ok(poll($node, 'SELECT max(pool_used) = 0 FROM gpusort_status()'),
		"$name: nothing of the pool is held");
}

# The files in /dev/shm that a process has mapped, as far as they are still there.
sub segments_of
{
	my (@pids) = @_;
	my %files;
	foreach my $pid (@pids)
	{
		open(my $maps, '<', "/proc/$pid/maps") or next;
		while (my $line = <$maps>)
		{
			$files{$1} = 1 if $line =~ m{(/dev/shm/PostgreSQL\.\d+)$};
		}
		close($maps);
	}
	return sort keys %files;
}

1;
