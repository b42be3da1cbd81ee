# Large sorts on the stand-in device (test/standin/device.c), and device memory that is
# short: the CPU does the sorts that do not fit, and those that fit wait for their turn.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('memory', settings => "gpusort.min_rows = 1000\nshared_buffers = 512MB\nwork_mem = 1GB\n");

my $last = 'SELECT engine, reason FROM gpusort_last_sort()';

restart_with($node, limit => '150MB');
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
skip_without_standin($node);
$node->safe_psql('postgres', <<'SQL');
SELECT setseed(0.25);
CREATE TABLE t AS SELECT i,
	CASE WHEN i % 100 <> 0 THEN (random() * 4e9 - 2e9)::int END i4,
	CASE WHEN i % 100 <> 1 THEN (random() * 1.8e19 - 9e18)::bigint END i8,
	CASE i % 100 WHEN 2 THEN 'NaN' WHEN 3 THEN '-0' WHEN 4 THEN '-Infinity' ELSE random() - 0.5 END::real f4,
	(i * 7919::bigint % 10)::smallint few
FROM generate_series(1, 5000000) i;
CREATE TABLE arrays (i8 bigint[], few bigint[], sorted bigint[], positions int[]);
ALTER TABLE arrays ALTER i8 SET STORAGE EXTERNAL, ALTER few SET STORAGE EXTERNAL,
	ALTER sorted SET STORAGE EXTERNAL, ALTER positions SET STORAGE EXTERNAL;
INSERT INTO arrays SELECT array_agg(i8 ORDER BY i), array_agg(few::bigint ORDER BY i),
	array_agg(i8 ORDER BY i8), array_agg(i ORDER BY few, i) FROM t;
SQL

#
# Sorts that fit: results are right, without a warning
#
foreach my $case (
	[ 'integer', 'gpu_sort_agg(i4) = array_agg(i4 ORDER BY i4) FROM t' ],
	[ 'an array', 'gpu_sort(i8) = sorted FROM arrays' ],
	[ 'descending', 'gpu_sort(array_agg(f4), true) = array_agg(f4 ORDER BY f4 DESC) FROM t' ],
	[ 'positions of ties', 'gpu_argsort(few) = positions FROM arrays' ],
	[ 'positions, descending', 'gpu_argsort(few, true) = (SELECT array_agg(i ORDER BY few DESC, i) FROM t) FROM arrays' ])
{
	my ($name, $query) = @$case;
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "SELECT $query; $last");
	is("$rc $stdout$stderr", "0 t\ncuda|", "$name: in core's order");
}
is( $node->safe_psql('postgres', 'SELECT cardinality(gpu_argsort(few)) FROM arrays;'
	  . 'SELECT copy_in_bytes, copy_out_bytes FROM gpusort_last_sort()'),
	"5000000\n40000000|20000000", 'positions are copied without their keys');
nothing_is_held($node, 'sorts that fit');

#
# Sorts that do not fit, which need at least twice their keys
#
my $too_large = 'The device has too little memory for this sort (gpusort.device_memory_limit).';
foreach my $case (
	[ 'its size is known', 'SELECT gpu_sort(i8) = sorted FROM arrays' ],
	[ 'its size is not known', 'SELECT gpu_sort_agg(i8) = array_agg(i8 ORDER BY i8) FROM t' ],
	[ 'positions', 'SELECT gpu_argsort(few) = positions FROM arrays' ])
{
	my ($name, $query) = @$case;
	restart_with($node, limit => '67MB');
	$node->safe_psql('postgres', 'SELECT * FROM gpusort_status()');
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "$query; $last");
	is("$rc $stdout", "0 t\ncpu|$too_large", "too large, $name: the CPU sorts");
	is(warnings_in($stderr), 1, "too large, $name: one warning");
	is(times_traced($node, 'upload \d+'), 0, "too large, $name: nothing is copied");
	is(times_traced($node, 'sort \d+'), 0, "too large, $name: the device sorts nothing");
	($rc, $stdout, $stderr) = $node->psql('postgres', "SET gpusort.engine = 'cuda'; $query");
	like($stderr, qr/ERROR:.*DETAIL:  \Q$too_large\E/s, "too large, $name: an error if gpusort.engine is cuda");
	is( $node->safe_psql('postgres', "SELECT cardinality(gpu_sort(i8[1:2000000])) FROM arrays; $last"),
		"2000000\ncuda|", "too large, $name: the device does the next sort, which fits");
	nothing_is_held($node, "too large, $name");
}

# the device has less than it says
restart_with($node, limit => '150MB', plan => 'sort:no_memory:1-1');
is($node->safe_psql('postgres', "SET client_min_messages = error; SELECT gpu_argsort(few) = positions FROM arrays; $last"),
	"t\ncpu|$too_large", 'the sort finds no memory: the CPU sorts');
nothing_is_held($node, 'the sort finds no memory');

#
# Sorts that fit only one after the other
#
restart_with($node, limit => '150MB');
$node->pgbench('--no-vacuum --client=8 --jobs=2 --transactions=1', 0, [qr{processed: 8/8}], [qr{^$}],
	'8 backends with more than the device holds', {
		'001_memory' => q{
SET gpusort.engine = 'cuda';
SELECT 1 / (gpu_sort(i8) = sorted)::int FROM arrays;
SELECT 1 / (gpu_argsort(few) = positions)::int FROM arrays;
SELECT 1 / (cardinality(gpu_sort_agg(i8)) = 5000000)::int FROM t;
}});
nothing_is_held($node, '8 backends');
$node->stop;

done_testing();
