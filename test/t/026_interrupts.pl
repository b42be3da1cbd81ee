# gpu_argsort() checks for interrupts at least once in 65536 rows of each of its
# loops over rows, so that a cancel of 134 million rows takes effect at once
# (test/running/interrupts_test.c counts the checks).

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $module = built_file('running_test.so');

my $node = PostgreSQL::Test::Cluster->new('interrupts');
$node->init(extra => [ '-E', 'UTF8', '--locale=C.UTF-8' ]);
$node->append_conf('postgresql.conf', "fsync = off\ngpusort.min_rows = 200000\n");
$node->start;
$node->safe_psql('postgres', "CREATE FUNCTION argsort_checks(anyarray) RETURNS bigint AS '$module' LANGUAGE C STRICT");

# 20 times 65536 rows
my $rows = 1310720;
foreach my $case (
	# one loop numbers the rows
	[ 'no NULL', 'i::integer', 20 ],
	# before it, another splits the positions
	[ 'a NULL', "CASE WHEN i <> 3 THEN i END::bigint", 40 ],
	[ 'half NULLs', "CASE WHEN i % 2 = 0 THEN i END::float8", 30 ],
	[ 'NULLs only', "NULL::integer", 20 ])
{
	my ($name, $value, $checks) = @$case;
	my $counted = $node->safe_psql('postgres', "SELECT argsort_checks(ARRAY(SELECT $value FROM generate_series(1, $rows) AS i))");
	cmp_ok($counted, '>=', $checks, "$name: checks in gpu_argsort()");
}

$node->stop;
done_testing();
