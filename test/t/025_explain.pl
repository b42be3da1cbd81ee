# EXPLAIN of queries that are still running (test/running/explain_test.c), with
# the stand-in device and with the CPU engine: it shows what GpuSort has done so
# far, and changes nothing.  The query returns all its rows, in core's order.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $module = built_file('running_test.so');

my $node = ordering_node('explain');
$node->safe_psql('postgres', <<"SQL");
CREATE FUNCTION explain_running(portal text) RETURNS text AS '$module' LANGUAGE C VOLATILE STRICT;
CREATE TABLE many AS SELECT hashint8extended(i, 1) AS k FROM generate_series(1, 2200000::bigint) AS i;
CREATE TABLE few AS SELECT i AS id, hashint8extended(i, 1) AS k, (repeat('the same ', 3) || hashint8extended(i, 2)) COLLATE "C" AS word
	FROM generate_series(1, 100000::bigint) AS i;
CREATE TABLE many_array AS SELECT array_agg(k) AS numbers FROM many;
CREATE TABLE few_array AS SELECT array_agg(k) AS numbers FROM few;
VACUUM ANALYZE;
SQL

# A number that tells whether all rows came, in their order.  At the places
# given, the query explains itself, and then sorts an array as large as its own
# result, which reuses that result's memory if EXPLAIN has freed it.
sub ordered
{
	my ($columns, $from, $order, $places) = @_;
	return "SELECT sum(hashint8extended(k, place)::numeric), string_agg(plan, E'\\n') FROM ("
	  . "SELECT k, place, CASE WHEN place IN ($places) THEN explain_running('') || "
	  . "(SELECT cardinality(gpu_sort(numbers)) + cardinality(gpu_argsort(numbers)) FROM ${from}_array WHERE place > 0) END AS plan FROM ("
	  . "SELECT k, row_number() OVER () AS place FROM (SELECT $columns FROM $from ORDER BY $order OFFSET 0) AS s OFFSET 0) AS s) AS s";
}

foreach my $engine ('cuda', 'cpu')
{
	foreach my $case (
		[ 'rows', 'k, id', 'few', 'k, id', '' ],
		[ 'many values', 'k', 'many', 'k', '' ],
		[ 'rows after tie-breaking', 'k, word', 'few', 'word, k', '' ],
		[ 'spilled rows', 'k, id', 'few', 'k, id', "SET gpusort.memory_limit = '4MB'; " ],
		[ 'rows of core', 'k, id', 'few', 'k, id', 'PREPARE' ])
	{
		my ($name, $columns, $from, $order, $settings) = @$case;
		my $algorithm = $engine eq 'cuda' ? '\w+' : 'vqsort';
		my $expected = "Engine: $engine\n *Algorithm: $algorithm\n *Key Bits: \\d+\n *Memory: \\d+ kB\n";
		$expected .= ' *Disk: \d+ kB\n *Runs: \d+\n' if $name eq 'spilled rows';

		my $right = $node->safe_psql('postgres', 'SET gpusort.enabled = off; ' . ordered($columns, $from, $order, '-1'));
		my $query = ordered($columns, $from, $order, '1, 1000, 90000');
		if ($settings eq 'PREPARE')
		{
			# a plan that is older than the setting
			$query = "SET plan_cache_mode = force_generic_plan; PREPARE p AS $query; EXPLAIN EXECUTE p; SET gpusort.enabled = off; EXECUTE p";
			$expected = 'Engine: core\n *Reason: gpusort.enabled is off\n';
			$settings = '';
		}
		my ($rc, $stdout, $stderr) = $node->psql('postgres', "SET gpusort.engine = $engine; $settings$query");
		my ($sum, $plans) = $stdout =~ /^(-?\d+)\|(.*)/ms;
		is(($sum // "none: $stderr") . '|', $right, "$name, $engine: all rows came in order");
		my @found = ($plans // '') =~ /\(GpuSort\).*?$expected/gs;
		is(scalar @found, 3, "$name, $engine: explained in the middle of them") or diag($stdout);
	}

	# before the first row is returned, there is less to tell
	foreach my $case ([ 'gathering', '', 'none' ], [ 'spilling', "SET gpusort.memory_limit = '4MB'; ", $engine ])
	{
		my ($name, $settings, $told) = @$case;
		my $result = $node->safe_psql('postgres', "SET gpusort.engine = $engine; $settings" . <<'SQL');
SELECT count(*) = 100000 AND bool_and(k >= before OR before IS NULL), string_agg(plan, '')
FROM (SELECT k, plan, lag(k) OVER () AS before
	FROM (SELECT k, plan FROM (SELECT k, CASE WHEN id = 99000 THEN explain_running('') END AS plan FROM few OFFSET 0) AS s
		ORDER BY k OFFSET 0) AS s) AS s
SQL
		like($result, qr/^t\|.*\(GpuSort\).*Engine: $told\n/s, "$name, $engine: explained meanwhile, and in order");
	}

	# a cursor that is idle
	my $last = $node->safe_psql('postgres', 'SET gpusort.enabled = off; SELECT k FROM many ORDER BY k OFFSET 2199995');
	foreach my $read (10, 2150000)
	{
		my $rest = 2199995 - $read;
		my $result = $node->safe_psql('postgres', <<"SQL");
SET gpusort.engine = $engine;
BEGIN;
DECLARE c NO SCROLL CURSOR FOR SELECT k FROM many ORDER BY k;
MOVE $read FROM c;
SELECT explain_running('c');
SELECT explain_running('c');
MOVE $rest FROM c;
FETCH ALL FROM c;
COMMIT;
SQL
		like($result, qr/(?:\(GpuSort\).*Engine: $engine\n *Algorithm: \w+\n.*){2}^$last$/sm, "a cursor behind $read rows, $engine: explained, and goes on");
	}

	# EXPLAIN ANALYZE, of a result that is read to its end and of one that is not
	foreach my $limit ('', 'LIMIT 5000')
	{
		my $lines = $node->safe_psql('postgres',
			"SET gpusort.engine = $engine; EXPLAIN (ANALYZE, COSTS OFF) SELECT id, k FROM few WHERE id <= 12000 ORDER BY k $limit");
		my $copies = $engine eq 'cuda' ? ' *Copy In Time: [\d.]+ ms\n *Copy Out Time: [\d.]+ ms\n' : '';
		like($lines, qr/Engine: $engine\n *Algorithm: \w+\n *Key Bits: \d+\n *Memory: \d+ kB\n *Gather Time: [\d.]+ ms\n$copies *Sort Time: [\d.]+ ms\n *Return Time: [\d.]+ ms\n/,
			"EXPLAIN ANALYZE, $engine, $limit: shows everything");
	}
}

# each format has the same fields, in the same order
foreach my $case (
	[ 'rows', '', 'SELECT id, k FROM few ORDER BY k' ],
	[ 'the device', 'SET gpusort.engine = cuda', 'SELECT id, k FROM few ORDER BY k' ],
	[ 'spilled rows', "SET gpusort.memory_limit = '2MB'", 'SELECT id, k FROM few ORDER BY k' ],
	[ 'a LIMIT', '', 'SELECT id, k FROM few ORDER BY k LIMIT 5' ],
	[ 'groups', '', 'SELECT DISTINCT ON (g) g, id FROM (SELECT id % 7 AS g, id FROM few OFFSET 0) s ORDER BY g, id' ],
	[ 'a reason', "SET gpusort.engine = auto; SET gpusort.fault = 'request:1+:refused'", 'SELECT id, k FROM few ORDER BY k' ],
	[ 'rows of core', 'SET enable_material = off', 'SELECT id, k FROM few ORDER BY k' ])
{
	my ($name, $settings, $query) = @$case;
	my %fields;
	foreach my $format ('TEXT', 'JSON', 'XML', 'YAML')
	{
		my $run = "EXPLAIN (ANALYZE, VERBOSE, BUFFERS OFF, FORMAT $format)";
		$run = $name eq 'rows of core' ? "SET plan_cache_mode = force_generic_plan; PREPARE p AS $query; EXPLAIN EXECUTE p; SET gpusort.enabled = off; $run EXECUTE p" : "$run $query";
		my ($plan) = $node->safe_psql('postgres', "SET gpusort.engine = cpu; $settings; $run") =~ /.*GpuSort(.*)/s;
		my $pattern = { TEXT => qr/^ +([A-Z][\w ]+): /, JSON => qr/^ +"([\w ]+)":/, XML => qr/^ +<([\w-]+)>/, YAML => qr/^ +([A-Z][\w ]+):/ }->{$format};
		my @found = map { /$pattern/ ? $1 =~ tr/-/ /r : () } split /\n/, $plan;
		my ($begin) = grep { $found[$_] eq 'Sort Key' } 0 .. $#found;
		my ($end) = grep { $_ > $begin && $found[$_] =~ /^(Output|Plans|Planning Time)$/ } 0 .. $#found;
		$fields{$format} = join(', ', grep { $_ ne 'Item' } @found[ $begin .. $end - 1 ]);
	}
	like($fields{TEXT}, qr/^Sort Key, Engine/, "EXPLAIN of $name has fields: $fields{TEXT}");
	is($fields{$_}, $fields{TEXT}, "EXPLAIN of $name: the same fields in $_") foreach 'JSON', 'XML', 'YAML';
}

like($node->safe_psql('postgres', "SET gpusort.memory_limit = '9MB'; SET gpusort.min_rows = 12345; EXPLAIN (SETTINGS) SELECT 1"),
	qr/^Settings:.*gpusort\.memory_limit = '9MB', gpusort\.min_rows = '12345'/m, 'EXPLAIN (SETTINGS) shows settings of gpusort');

nothing_is_held($node, 'at the end');
$node->stop;
done_testing();
