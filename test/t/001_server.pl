# gpusort works with and without preload, after cancelled sorts, after crashes, and
# without room for the GPU service.  The test suits every build and every machine.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', settings => "gpusort.min_rows = 1000\nshared_buffers = 256MB\nwork_mem = 1GB\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t AS SELECT (i * 7919::bigint % 3000000)::int k FROM generate_series(0, 2999999) i;
CREATE TABLE big (a int[], down int[]);
ALTER TABLE big ALTER a SET STORAGE EXTERNAL, ALTER down SET STORAGE EXTERNAL;
INSERT INTO big SELECT array_agg(k), array_agg(k ORDER BY k DESC) FROM t, generate_series(1, 10);
SQL

sub check_sort
{
	my ($name) = @_;
	my ($rc, $stdout, $stderr) = $node->psql('postgres',
		"SELECT gpu_sort_agg(k) = (SELECT array_agg(i) FROM generate_series(0, 2999999) i) FROM t;"
		. "SELECT record_image_eq(ROW(gpu_sort(a, true)), ROW(down)) FROM big");
	my $warnings = warnings_in($stderr);
	is("$rc $stdout", "0 t\nt", "$name: the order is right");
	cmp_ok($warnings, '<=', 1, "$name: there is at most one warning");
	like($stderr, $warnings ? qr/DETAIL:  \S+/ : qr/^$/, "$name: the warning gives a reason");
}

check_sort('not preloaded');

# a timeout in each kind of sort, also while the device works; without it no query would end
foreach my $query ('SELECT cardinality(gpu_sort(a)) FROM big, generate_series(1, 100000)',
	'SELECT cardinality(gpu_argsort(a)) FROM big, generate_series(1, 100000)',
	'SELECT cardinality(gpu_sort_agg(k)) FROM t, generate_series(1, 100000)')
{
	foreach my $engine ('auto', 'cpu')
	{
		my ($rc, $stdout, $stderr) =
		  $node->psql('postgres', "SET gpusort.engine = $engine; SET statement_timeout = '400ms'; $query");
		like($stderr, qr/canceling statement due to statement timeout/, "$engine: $query is cancelled");
	}
}

my ($rc, $stdout, $stderr) = $node->psql('postgres', 'SELECT cardinality(gpu_sort_agg(10 / (2000000 - k))) FROM t');
like($stderr, qr/division by zero/, 'an error while gathering reaches the client');

$node->psql('postgres', "SET gpusort.engine = 'auto'; SELECT pg_terminate_backend(pg_backend_pid()), cardinality(gpu_sort(a)) FROM big");

nothing_is_held($node, 'after timeouts, an error and a termination');
end_session($node);
check_sort('after timeouts, an error and a termination');

# after a backend is killed, the server restarts all its processes
$node->append_conf('postgresql.conf', "restart_after_crash = on\n");
$node->reload;
my $log = -s $node->logfile;
($rc, $stdout, $stderr) = $node->psql('postgres',
	"DO LANGUAGE plpgsql \$\$ BEGIN EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', "
	. "format('cat >/dev/null; (sleep 0.5; kill -9 %s) >/dev/null 2>&1 &', pg_backend_pid())); END \$\$;"
	. 'SELECT cardinality(gpu_sort(a)) FROM big, generate_series(1, 100)');
like($stderr, qr/server closed the connection|connection to server was lost/, 'killing a sorting backend ends its session');
ok(is_back($node, $log), 'the server comes back after the kill');
check_sort('after the kill');

# less device memory than the array needs
$node->append_conf('postgresql.conf', "gpusort.device_memory_limit = 67MB\n");
$node->restart;
check_sort('little device memory');
is( $node->safe_psql('postgres', 'SELECT cardinality(gpu_argsort(a)), cardinality(gpu_sort(a)) FROM big;'
	  . "SELECT engine FROM gpusort_last_sort()"),
	"30000000|30000000\ncpu", 'little device memory: the CPU sorts');
$node->append_conf('postgresql.conf', "gpusort.device_memory_limit = 0\n");

# no memory can be shared: files cannot grow beyond 48 MB
$node->stop;
my @limited = ('sh', '-c', 'ulimit -f 98304; exec "$@"', 'sh',
	'pg_ctl', '-w', '-D', $node->data_dir, '-l', $node->logfile, 'start');
start_by($node, @limited) or die 'could not start the server with limited file sizes';
check_sort('no shared memory');
$node->stop;
$node->start;

# no background worker slot for the GPU service
$node->append_conf('postgresql.conf', "max_worker_processes = 0\n");
$node->restart;
check_sort('no worker slot');

$node->append_conf('postgresql.conf', "max_worker_processes = 8\nshared_preload_libraries = 'gpusort'\n");
$node->restart;
check_sort('preloaded');
$node->stop('fast');
$node->start;
check_sort('restarted');
$node->stop('immediate');
$node->start;
check_sort('after a crash');
$node->stop;

done_testing();
