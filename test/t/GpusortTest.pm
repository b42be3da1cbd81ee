# GpusortTest.pm - functions that several TAP tests use.
#
# They start servers, also on the stand-in device (test/standin/device.c), wait for
# states, read the trace of the device and hold its calls, find the processes of a
# server, run sessions in the background, write the queries that compare an
# order with core's, and check that a sort has freed everything.

package GpusortTest;

use strict;
use warnings;

use Carp qw(confess);
use Cwd qw(getcwd);
use File::Basename qw(dirname);
use Exporter 'import';
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

our @EXPORT = qw(
  new_node ordering_node restart_with private_program start_private start_by start_with_little_room is_back
  skip_without_standin built_file make_locales locales_in_build has_icu icu_collation
  traced times_traced place_of poll_trace forget_trace hold_device release_device
  ask end_session poll_until poll
  session answer leave in_background late_row hold let_go waits_for
  running child_pids service_pids poll_services shared_files
  tables_behind order_number in_order warnings_in nothing_is_held nothing_is_mapped
);

my $timeout = $PostgreSQL::Test::Utils::timeout_default;

# A psql that waits for a server that hangs has no timeout.  A test that takes this long shows
# the server's processes and the line where it waits, and fails.
$SIG{ALRM} = sub {
	diag(`ps -o pid,ppid,etimes,stat,wchan:20,args -u $>`);
	confess('the test hangs');
};
alarm(10 * $timeout);

# ----------------------------------------------------------------
# Servers
# ----------------------------------------------------------------

# Initialises a server without starting it.  $how{order_by} makes gpusort do every
# ORDER BY that it can, without parallel workers; $how{settings} are lines for
# postgresql.conf; $how{init} is a list of arguments for init(), whose {extra} may name
# another encoding and locale than UTF8 and C.UTF-8.
sub new_node
{
	my ($name, %how) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	my %init = @{ $how{init} // [] };
	# of the same option initdb takes the last one
	$node->init(%init, extra => [ '-E', 'UTF8', '--locale=C.UTF-8', @{ $init{extra} // [] } ]);
	# by default the GPU service would measure, and the machine's speed would decide which engine sorts
	$node->append_conf('postgresql.conf', "fsync = off\njit = off\ngpusort.min_rows = 200000\nstatement_timeout = 10min\n");
	$node->append_conf('postgresql.conf', <<'CONF') if $how{order_by};
session_preload_libraries = 'gpusort'
gpusort.force = on
max_parallel_workers_per_gather = 0
CONF
	$node->append_conf('postgresql.conf', $how{settings}) if $how{settings};
	# SETTINGS="a=1 b=2" in the environment
	$node->append_conf('postgresql.conf', "$1 = '$2'") while ($ENV{SETTINGS} // '') =~ /(\S+?)=(\S+)/g;
	return $node;
}

# Starts a server that sorts the 30,000 rows of table t on the stand-in device
# wherever it can.  $settings are more lines for postgresql.conf.  Skips the test
# if the build has no such device.
sub ordering_node
{
	my ($name, $settings) = @_;
	my $node = new_node($name, order_by => 1,
		settings => "gpusort.min_rows = 1000\nmax_connections = 30\nwork_mem = 1GB\n" . ($settings // ''));
	restart_with($node, limit => '8GB');
	$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
	skip_without_standin($node);
	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t AS SELECT i AS id, hashint8(i) AS k, md5(i::text) AS word FROM generate_series(1, 30000::bigint) AS i;
SQL
	return $node;
}

# The file to which the device adds a line for every call.
sub trace_of
{
	my ($node) = @_;
	return $node->basedir . '/trace';
}

# Restarts the server with an empty trace and nothing held.  $how{settings} are
# lines for postgresql.conf, $how{limit} is gpusort.device_memory_limit, and plan,
# slow and patience are GPUSORT_STANDIN, GPUSORT_STANDIN_SLOW and
# GPUSORT_STANDIN_PATIENCE of test/standin/device.c.
sub restart_with
{
	my ($node, %how) = @_;
	my $holds = $node->basedir . '/holds';
	my %env = (GPUSORT_STANDIN => $how{plan}, GPUSORT_STANDIN_SLOW => $how{slow}, GPUSORT_STANDIN_PATIENCE => $how{patience});
	end_session($node);
	# the service may hang or be in a slow sort
	$node->stop('immediate') if -e $node->data_dir . '/postmaster.pid';
	$node->append_conf('postgresql.conf', "$how{settings}\n") if $how{settings};
	$node->append_conf('postgresql.conf', "gpusort.device_memory_limit = $how{limit}\n") if $how{limit};
	unlink trace_of($node);
	mkdir $holds;
	unlink glob("$holds/*");
	local %ENV = (%ENV, GPUSORT_STANDIN_TRACE => trace_of($node), GPUSORT_STANDIN_HOLD => $holds);
	foreach my $name (keys %env)
	{
		delete $ENV{$name};
		$ENV{$name} = $env{$name} if $env{$name};
	}
	$node->start;
	return;
}

# Makes a copy of the server's programs (test/private_server.sh), whose extension scripts and
# libraries a test may change.  Returns the {program} and the folders {extensions} and
# {libraries}, which contain links to the installed files.
sub private_program
{
	my $root = PostgreSQL::Test::Utils::tempdir();
	my $config = `bash @{[ dirname(__FILE__) ]}/../private_server.sh $root` or die 'could not copy the server';
	chomp $config;
	my ($sharedir, $libdir) = map { my ($dir) = run_command([ $config, "--$_" ]); $dir } 'sharedir', 'pkglibdir';
	return { program => dirname($config) . '/postgres', extensions => "$sharedir/extension", libraries => $libdir };
}

# Starts the server with such a program.
sub start_private
{
	my ($node, $private) = @_;
	start_by($node, 'pg_ctl', '-w', '-p', $private->{program}, '-D', $node->data_dir, '-l', $node->logfile, 'start')
	  or die 'could not start the private server program';
	return;
}

# Starts the server by a shell command.  The test's end stops it.
sub start_by
{
	my ($node, @command) = @_;
	my $started = run_log(\@command);
	$node->_update_pid(1) if $started;
	return $started;
}

# Starts the server with a file system of $mb MB at $dir, in a mount namespace of
# its own, and returns 'mounted'.  If this user may not mount, starts the server
# with files of at most $file_mb MB and returns 'limited'.  Returns '' if the server
# did not start.
sub start_with_little_room
{
	my ($node, $dir, $mb, $mode, $file_mb) = @_;
	my $start = 'exec pg_ctl -w -D "$0" -l "$1" start >/dev/null';
	my $id = "--map-user=$> --map-group=" . ($) + 0);
	my $mount = "mount -t tmpfs -o size=${mb}m,mode=$mode gpusort '$dir'";
	my @server = ($node->data_dir, $node->logfile);
	my $blocks = $file_mb * 2048;
	return 'mounted'
	  if system("unshare -Urm sh -c \"$mount && unshare $id true\" >/dev/null 2>&1") == 0
	  && start_by($node, 'unshare', '-Urm', 'sh', '-c', "$mount && exec unshare $id sh -c '$start' \"\$0\" \"\$1\"", @server);
	return start_by($node, 'sh', '-c', "ulimit -f $blocks; $start", @server) ? 'limited' : '';
}

# Waits until the server is back from a crash that began after position $log of
# its log.  Before the postmaster notices the crash, one can still connect and
# is thrown out later.  Without a query, because a psql that cannot connect may end
# before the test has written one, which IPC::Run takes for an error ("ack Broken pipe").
sub is_back
{
	my ($node, $log) = @_;
	return poll_until(sub { return slurp_file($node->logfile, $log) =~ /all server processes terminated; reinitializing/; })
	  && $node->poll_query_until('postgres', undef, '');
}

# Skips the test if the server has no stand-in device.
sub skip_without_standin
{
	my ($node) = @_;
	my $devices = $node->safe_psql('postgres', "SELECT count(*) FROM gpusort_status() WHERE device = 'stand-in device'");
	plan skip_all => 'this build has no stand-in device' if $devices != 1;
	return;
}

# The path of a file that test/modules.mk builds for the tests.  PGXS runs prove in
# the source folder.  It names the folder of the build in TESTDIR, until PostgreSQL 15,
# and the folder tmp_check in it in TESTDATADIR, from 16 on.
my $build = ($ENV{TESTDIR} // "$ENV{TESTDATADIR}/..") . '/build';

sub built_file
{
	my ($name) = @_;
	my $file = "$build/$name";
	die "$file is missing; run make prove_installcheck" if !-e $file;
	return $file;
}

# Makes locales of the C library (test/locales.sh) and returns their folder, for
# LOCPATH in the environment of a server; undef where they cannot be made.
sub make_locales
{
	my (@names) = @_;
	my $status = system('bash', dirname(__FILE__) . '/../locales.sh', "$build/locales", @names);
	return undef if $status >> 8 == 3;
	die "could not make the locales @names" if $status != 0;
	return "$build/locales";
}

# The same, but skips the test where they cannot be made.
sub locales_in_build
{
	return make_locales(@_) // plan skip_all => "localedef or Debian's package locales is missing";
}

# True if the server was built with ICU; one collation of that provider is there in any build.
sub has_icu
{
	my ($node) = @_;
	return $node->safe_psql('postgres', "SELECT count(*) > 0 FROM pg_collation WHERE collname = 'en-x-icu'") eq 't';
}

# The quoted name of an ICU collation, or of "C" on a server without ICU.
sub icu_collation
{
	my ($node, $name) = @_;
	return has_icu($node) ? "\"$name\"" : '"C"';
}

# ----------------------------------------------------------------
# The stand-in device
# ----------------------------------------------------------------

# The lines of the trace in the order of the calls: "open 0: 0", "upload 1: 40000",
# "sort 1: 40000" and so on; the first number is the lane's, the second counts bytes.
sub traced
{
	my ($node) = @_;
	return -e trace_of($node) ? split(/\n/, slurp_file(trace_of($node))) : ();
}

# How often the device has done this: "upload 1", "sort \d+".
sub times_traced
{
	my ($node, $what) = @_;
	return scalar grep { /^$what:/ } traced($node);
}

# The index of the first line that begins with $what, or the number of lines.
sub place_of
{
	my ($what, @lines) = @_;
	foreach my $i (0 .. $#lines)
	{
		return $i if $lines[$i] =~ /^$what:/;
	}
	return scalar @lines;
}

# Waits until the device has begun this: "upload 1", "sort \d+".
sub poll_trace
{
	my ($node, $what) = @_;
	return poll_until(sub { return times_traced($node, $what) > 0; });
}

sub forget_trace
{
	my ($node) = @_;
	unlink trace_of($node);
	return;
}

# Makes the device stop in every call of a kind: open, upload, sort, download or
# close; or makes device 0 disappear: lost0.  release_device() undoes all of it.
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

# ----------------------------------------------------------------
# Waiting
# ----------------------------------------------------------------

# A session of each server for queries that a test repeats and for the locks that
# it holds.  ask() begins it.  It must be ended before its server is stopped.
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

# Waits until a function returns true.  Returns false after the timeout.
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

# ----------------------------------------------------------------
# Sessions
# ----------------------------------------------------------------

# Starts a psql that answer() gives statements to, in the database postgres or another.
# leave() ends it.
sub session
{
	my ($node, $database) = @_;
	my %session = (in => '', out => '', err => '');
	$session{psql} = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr($database // 'postgres') ],
		'<', \$session{in}, '>', \$session{out}, '2>', \$session{err}, IPC::Run::timeout(10 * $timeout));
	return \%session;
}

# Runs statements in a session and returns their output.  Messages are added to
# $session->{err}.
sub answer
{
	my ($session, @statements) = @_;
	$session->{out} = '';
	$session->{in} .= join('', map { "$_;\n" } @statements) . "\\echo done\n\\warn done\n";
	$session->{psql}->pump
	  until ($session->{out} =~ /^done\n\z/m && $session->{err} =~ /^done\n\z/m) || !$session->{psql}->pumpable;
	s/^done\n\z//m foreach $session->{out}, $session->{err};
	chomp $session->{out};
	return $session->{out};
}

sub leave
{
	my ($session) = @_;
	$session->{in} .= "\\q\n";
	$session->{psql}->finish;
	return;
}

# Starts a psql that runs each statement by itself, and goes on after errors.  The
# output goes to $$stdout and $$stderr.  The first statement may be { dbname => name }.
sub in_background
{
	my ($node, $stdout, $stderr, @statements) = @_;
	my $how = ref $statements[0] ? shift @statements : {};
	($$stdout, $$stderr) = ('', '');
	return IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr($how->{dbname} // 'postgres') . ' application_name=background',
			map { ('-c', $_) } @statements ],
		'<', \'', '>', $stdout, '2>', $stderr, IPC::Run::timeout(4 * $timeout));
}

# A query for one row that comes late: when the test lets go of a lock that it holds.
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

# A query that is true while a backend waits for its late row.
sub waits_for
{
	my ($lock) = @_;
	return "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = $lock AND NOT granted";
}

# ----------------------------------------------------------------
# Processes
# ----------------------------------------------------------------

# The pids and names, in one line each, of the server's processes without the postmaster.
sub children
{
	my ($node) = @_;
	my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
	return `ps -o pid=,args= --ppid $postmaster`;
}

# Those of these processes that have not ended.  One that has stays as a zombie until its parent waits for it, which
# PID 1 of a container may never do for the children of a postmaster that was killed.
sub running
{
	my (@pids) = @_;
	return grep { `ps -o stat= -p $_` =~ /^[^Z\s]/ } @pids;
}

sub child_pids
{
	my ($node) = @_;
	return map { /^\s*(\d+)/ } children($node);
}

# The GPU service's pids.  It uses no database and has no row in pg_stat_activity.
sub service_pids
{
	my ($node) = @_;
	return map { /^\s*(\d+)/ } grep { /gpusort service/ } children($node);
}

# Waits until there are $count GPU services.
sub poll_services
{
	my ($node, $count) = @_;
	return poll_until(sub { return scalar(service_pids($node)) == $count; });
}

# The files in memory that processes have mapped for sorts, by their inodes.
sub shared_files
{
	my (@pids) = @_;
	my %files;
	foreach my $pid (@pids)
	{
		open(my $maps, '<', "/proc/$pid/maps") or next;
		while (my $line = <$maps>)
		{
			$files{$1} = 1 if $line =~ m{(\d+)\s+/memfd:gpusort };
		}
		close($maps);
	}
	my @found = sort keys %files;
	return @found;
}

# ----------------------------------------------------------------
# Checks
# ----------------------------------------------------------------

# The SQL of tables whose columns lie behind values of variable length.  It needs a function h(int).
sub tables_behind
{
	return <<'SQL';
-- columns behind values of any length: short, long, compressed, out of line, dropped; some rows have NULLs in front or behind
CREATE TABLE behind AS SELECT i % 50 AS few, i AS id,
  CASE WHEN i % 400 = 7 THEN (SELECT string_agg(md5((i * j)::text), '') FROM generate_series(1, 90) j) WHEN i % 90 = 0 THEN repeat('x', 3000)
    WHEN i % 37 = 0 THEN repeat('y', 126 + i % 7) WHEN i BETWEEN 5000 AND 5400 AND i % 9 = 0 THEN NULL ELSE left(md5(i::text), i % 25) END AS name,
  hashint8(i)::int8 * 1000 AS amount, timestamptz '2024-01-01' + h(i) * interval '1 second' AS at, (h(i) % 9)::"char" AS c, (h(i) % 99)::int2 AS i2,
  repeat('gone', i % 40) AS gone, h(i) AS k, (i % 50)::text::char(9) AS bp, h(i) % 2 = 0 AS b, ('n' || i % 99)::name AS nm, (h(i) % 1000)::numeric / 8 AS num,
  CASE WHEN i % 60 = 0 THEN repeat('z', 2100) ELSE left(md5((i % 2500)::text), i % 25) END AS txt, md5((i % 3000)::text)::uuid AS u,
  CASE WHEN i BETWEEN 5300 AND 5700 AND i % 5 = 0 THEN NULL ELSE h(i)::float8 / 3 END AS f8 FROM generate_series(1, 9000) i;
ALTER TABLE behind DROP COLUMN gone;
-- the later ones of these columns are missing in the first rows
CREATE TABLE added AS SELECT i AS id, left(md5(i::text), i % 25) AS name, h(i) AS k FROM generate_series(1, 5000) i;
ALTER TABLE added ADD COLUMN late int8 DEFAULT 77, ADD COLUMN more text DEFAULT 'more', ADD COLUMN i2 int2 DEFAULT 5;
INSERT INTO added SELECT i, left(md5(i::text), i % 25), h(i), i % 200, left(md5(i::text), i % 9), i % 10 FROM generate_series(5001, 10000) i;
-- more columns than a walk goes over
SELECT format('CREATE TABLE broad AS SELECT left(md5(i::text), i %% 9) AS t, %s FROM generate_series(1, 5000) i',
  string_agg(format('(h(i + %s) %% 30000)::%s AS c%s', n, CASE n % 3 WHEN 0 THEN 'int2' WHEN 1 THEN 'int4' ELSE 'int8' END, n), ', ')) FROM generate_series(1, 80) n \gexec
SQL
}

# A query for one number that depends on the sequence of rows of $query, which has a
# column id: two sequences with the same number are the same.
sub order_number
{
	my ($query) = @_;
	return "SELECT sum(hashint8extended(id, place)::numeric) FROM (SELECT id, row_number() OVER () AS place FROM ($query) AS s) AS s";
}

# A query that counts the rows of $query and tells whether column k ascends.
sub in_order
{
	my ($query) = @_;
	return "SELECT count(*), bool_and(up) FROM (SELECT k >= lag(k) OVER () IS NOT false AS up FROM ($query OFFSET 0) AS s) AS s";
}

sub warnings_in
{
	my ($stderr) = @_;
	my $warnings = () = $stderr =~ /WARNING:/g;
	return $warnings;
}

# No sort has a request or a lane of the device, as far as the build tells.
sub nothing_is_held
{
	my ($node, $name) = @_;
	my $report = "SELECT count(*) FROM gpusort_status(); SELECT coalesce(current_setting('gpusort.fault_report', true), 'requests=0 of_these=0 lanes=0')";
	return ok(poll_until(sub { return ask($node, $report) =~ /requests=0 of_these=0 lanes=0$/; }), "$name: no request and no lane is left");
}

# The service has unmapped the files of all sessions, which keep them for ten seconds after a sort.
sub nothing_is_mapped
{
	my ($node, $name) = @_;
	return ok(poll($node, 'SELECT max(mapped_bytes) = 0 FROM gpusort_status()'), "$name: the service has no session's memory");
}

1;
