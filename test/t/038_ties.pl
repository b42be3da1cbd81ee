# Strings that share their words are sorted in core's order, by threads and by the
# backend, in tie groups of all sizes.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('ties', settings => <<'CONF');
session_preload_libraries = 'gpusort'
gpusort.engine = cpu
gpusort.min_rows = 0
gpusort.force = on
work_mem = 256MB
max_parallel_workers = 3
min_parallel_table_scan_size = 1TB
synchronize_seqscans = off
CONF
$node->start;

# The values of column "few" begin alike, with up to 9,000 rows in a tie group, and many are
# equal.  Those of "wide" differ after 300 bytes or are longer than a thread compares.
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE TABLE t (id int, k int2, few text COLLATE "C", padded char(40) COLLATE "C", bytes bytea, wide text COLLATE "C");
ALTER TABLE t ALTER wide SET STORAGE EXTERNAL;
INSERT INTO t SELECT i, hashint4(i) % 100,
	'a common beginning ' || (CASE i % 5 WHEN 0 THEN hashint4(i) % 3 WHEN 1 THEN hashint4(i) % 40 ELSE hashint4(i) % 9000 END)
		|| ' and a long rest ' || i % 3 || ' of some words ' || hashint4(-i) % 70,
	'a common beginning ' || hashint4(i + 7) % 5000 || repeat(' ', i % 3),
	decode('00ff00ff00ff00ff00ff00ff00ff00ff', 'hex') || int4send(hashint4(i) % 50000) || substr('\x000000'::bytea, 1, i % 4),
	CASE WHEN i % 1000 < 990 THEN repeat('x', 300 + i % 3) || hashint4(i) % 500 WHEN i % 1000 < 995 THEN repeat('x', 9000) || i % 7 END
FROM generate_series(1, 150000) AS i;
ALTER TABLE t ADD late text COLLATE "C" DEFAULT 'a default that is longer than words';
INSERT INTO t SELECT i, NULL, NULL, NULL, NULL, NULL, 'a default that is longer than ' || i % 90 FROM generate_series(150001, 153000) AS i;
ANALYZE t;
SQL

my @lists = (
	'few, id', 'few', 'few DESC', 'few DESC NULLS LAST, k, id DESC', 'k, few, id', 'k DESC, few DESC', 'padded, id', 'padded DESC',
	'bytes', 'bytes DESC, few', 'few, padded, bytes', 'wide, id', 'wide DESC, few', 'late, id DESC', 'late DESC, few, k');

# The rows in the order of a query: of rows that are equal by it, the multiset
sub rows_in_order
{
	my ($list) = @_;
	my $columns = join ', ', $list =~ /(\w+)(?: DESC)?(?: NULLS LAST)?(?:,|$)/g;
	return ask($node, qq{SELECT md5(string_agg(hash, '' ORDER BY r)), count(*) FROM (
		SELECT row_number() OVER () AS r, md5(row($columns)::text) AS hash FROM (
			SELECT * FROM t ORDER BY $list OFFSET 0) s) x});
}

foreach my $list (@lists)
{
	ask($node, 'SET gpusort.enabled = off');
	my $core = rows_in_order($list);
	ask($node, 'SET gpusort.enabled = on');
	like(ask($node, "EXPLAIN SELECT * FROM t ORDER BY $list"), qr/GpuSort/, "ORDER BY $list is a GpuSort");
	foreach my $workers (0, 3)
	{
		ask($node, "SET max_parallel_workers_per_gather = $workers");
		is(rows_in_order($list), $core, "ORDER BY $list, up to " . ($workers + 1) . ' threads');
	}
}

# Rows that are equal by the whole list come in the order of the table.
is( ask($node, q{SELECT count(*) FROM (SELECT few, place, lag(few) OVER w AS few_before, lag(place) OVER w AS place_before
		FROM (SELECT few, place, row_number() OVER () AS r FROM (SELECT few, ctid AS place FROM t ORDER BY few OFFSET 0) s) x
		WINDOW w AS (ORDER BY r)) y
	WHERE few = few_before AND place < place_before}),
	0,
	'equal rows keep their order');
end_session($node);
$node->stop;

done_testing();
