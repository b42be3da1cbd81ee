# A backend damages its requests to the GPU service (test/damage/damage_test.c): the
# service goes on, and the sorts of other backends are right.  Needs the stand-in
# device.
#
#   SEED=n    repeats the damage of an earlier run, which printed its seed
#   CASES=n   500 by default

use strict;
use warnings;

use IPC::Run qw(start timeout);
use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $module = built_file('damage_test.so');
my $seed = $ENV{SEED} // int(rand(1_000_000_000));
my $cases = $ENV{CASES} // 500;
note("SEED=$seed CASES=$cases");

my $node = new_node('damage', settings => <<'CONF');
gpusort.min_rows = 1000
gpusort.service_idle_timeout = 0
max_connections = 20
log_statement = none
CONF
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
skip_without_standin($node);
$node->safe_psql('postgres', <<"SQL");
CREATE FUNCTION damage_request(seed bigint, damage integer) RETURNS text AS '$module' LANGUAGE C;
CREATE TABLE t AS SELECT (i * 7919 % 100003)::int AS k FROM generate_series(1, 100000::bigint) i;
CREATE TABLE sorted AS SELECT array_agg(k ORDER BY k) AS a FROM t;
SQL
my $service = $node->safe_psql('postgres', "SELECT service_pid FROM gpusort_status() WHERE device = 'stand-in device'");
my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');

# without damage, the service serves these requests
like($node->safe_psql('postgres', 'SELECT DISTINCT damage_request(i, 0) FROM generate_series(1, 30) i'),
	qr/^finished$/m, 'a request that is not damaged is served');

# the next request in the slot of a damaged one is served
my $in_slot = "SET gpusort.engine = 'cuda'; SELECT (SELECT gpu_sort_agg(k) FROM t) = a FROM sorted";
for my $case (1 .. 10)
{
	$node->safe_psql('postgres', "SELECT damage_request($case, -1)");
	$node->poll_query_until('postgres', 'SELECT max(pool_used) = 0 FROM gpusort_status()');
	is(($node->psql('postgres', $in_slot))[1], 't', "damaged report $case: the next sort is right");
}

# other backends sort meanwhile
my $script = PostgreSQL::Test::Utils::tempdir() . '/sorts.sql';
append_to_file($script, "SET gpusort.engine = 'cuda';\nSELECT 1 / ((SELECT gpu_sort_agg(k) FROM t) = a)::int FROM sorted;\n");
my ($out, $err) = ('', '');
my $others = start [ 'pgbench', '-n', '-c', '2', '-T', '600', '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ],
  '>', \$out, '2>', \$err, timeout(4 * $PostgreSQL::Test::Utils::timeout_default);
ok($node->poll_query_until('postgres', "SELECT count(*) = 2 FROM pg_stat_activity WHERE query LIKE 'SELECT 1 / ((SELECT%'"),
	'other backends sort');

my $outcomes = $node->safe_psql('postgres',
	"SELECT outcome, count(*) FROM (SELECT damage_request($seed + i, 1 + i % 4) AS outcome FROM generate_series(1, $cases) i) s GROUP BY outcome");
note($outcomes);
like($outcomes, qr/^damaged\|\d+$/m, 'the service notices damage');
my $of_others = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
is($node->safe_psql('postgres', "SELECT count(*) $of_others"), '2', 'the other backends still sort');
$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) $of_others");
$others->finish;
unlike($err, qr/division by zero|could not sort|WARNING/, 'the results of the other backends were right') or diag($err);

is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'the server has not restarted');
is($node->safe_psql('postgres', "SELECT service_pid FROM gpusort_status() WHERE engine = 'cuda'"), $service, 'the service has not restarted');
unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC|TRAP|gpusort service/, 'the log shows no crash');
ok($node->poll_query_until('postgres', 'SELECT max(pool_used) = 0 FROM gpusort_status()'), 'all chunks of the pool are free');
is($node->safe_psql('postgres', "SET gpusort.engine = 'cuda'; SELECT (SELECT gpu_sort_agg(k) FROM t) = a FROM sorted; SELECT engine FROM gpusort_last_sort()"),
	"t\ncuda", 'the service still sorts');

$node->stop;
done_testing();
