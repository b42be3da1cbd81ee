# The views gpusort_stat and gpusort_stat_reasons (src/base/stat.c): each kind of work is
# counted once, with its figures and the reason that it had, whether gpusort is preloaded or
# not; everybody may read the views, and their texts name nothing of a user's.
# test/spill/stat_test.c counts reasons that no sort has.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $module = built_file('spill_test.so');

my $node = new_node('stat', order_by => 1, settings => "gpusort.engine = cpu\nautovacuum = off\n");
$node->start;
$node->safe_psql('postgres', <<"SQL");
CREATE EXTENSION gpusort;
CREATE FUNCTION stat_reason(engine text, reason text) RETURNS void AS '$module' LANGUAGE C;
CREATE FUNCTION stat_first_warning(reason text) RETURNS boolean AS '$module' LANGUAGE C;
CREATE FUNCTION activity_fill_memory() RETURNS integer AS '$module' LANGUAGE C;
CREATE ROLE alice LOGIN;
CREATE TABLE t AS SELECT i AS id, hashint4(i) AS k, md5(i::text) AS word, to_jsonb(i) AS js, i % 2 AS g FROM generate_series(1, 10000) AS i;
ALTER TABLE t SET (parallel_workers = 2);
CREATE TYPE pair AS (a jsonb);
CREATE TYPE other_pair AS (a jsonb);
CREATE FUNCTION fails(n int) RETURNS int LANGUAGE plpgsql AS 'BEGIN IF n = 9000 THEN RAISE EXCEPTION \$\$fails\$\$; END IF; RETURN n; END';
VACUUM ANALYZE t;
SQL

# Returns the rows of both views to which the statements have added something.
sub added
{
	my ($sql, $columns) = @_;
	$columns //= 'count, rows';
	$node->safe_psql('postgres', 'SELECT gpusort_stat_reset()');
	my ($rc, $stdout, $stderr) = $node->psql('postgres', $sql, on_error_stop => 0);
	return $node->safe_psql('postgres', "SELECT kind, engine, $columns FROM gpusort_stat WHERE count > 0; SELECT * FROM gpusort_stat_reasons");
}

is($node->safe_psql('postgres', q(SELECT attrelid::regclass, string_agg(attname, ' ') FROM (SELECT * FROM pg_attribute ORDER BY attrelid, attnum) a
	WHERE attrelid IN ('gpusort_stat'::regclass, 'gpusort_stat_reasons'::regclass) GROUP BY 1)), <<'RESULT' =~ s/\n$//r, 'the columns of the views');
gpusort_stat|kind engine count checked failures rows bytes disk_bytes runs workers gather_ms copy_in_ms sort_ms arrange_ms copy_out_ms wait_ms stats_reset
gpusort_stat_reasons|kind engine reason count
RESULT
is($node->safe_psql('postgres', 'SELECT gpusort_stat_reset(); SELECT kind, engine, count, rows, disk_bytes, wait_ms FROM gpusort_stat'), "\n" . <<'RESULT' =~ s/\n$//r,
sort|core|0|||
sort|cpu|0|0|0|0
sort|cuda|0|0|0|0
index|core|0|||
index|cpu|0|0|0|0
index|cuda|0|0|0|0
function|cpu|0|0|0|0
function|cuda|0|0|0|0
aggregate||0|0||
RESULT
	'after a reset there are rows of zeros, and NULLs where nothing is known');

sub check_counts
{
	my ($when) = @_;
	my $prepared = 'PREPARE p AS SELECT id FROM t ORDER BY k; SET plan_cache_mode = force_generic_plan; EXPLAIN EXECUTE p; SET gpusort.enabled = off; EXECUTE p';
	foreach my $case (
		[ 'a sort of rows', 'SELECT id FROM t ORDER BY k', 'sort|cpu|1|10000' ],
		[ 'its figures', 'SELECT id FROM t ORDER BY k', 'sort|cpu|t|0|0|0|t|t|0', 'bytes BETWEEN 200000 AND 2000000, disk_bytes, runs, workers, gather_ms > 0, sort_ms > 0, copy_in_ms + copy_out_ms + arrange_ms + wait_ms' ],
		[ 'a sort that spills', "SET gpusort.memory_limit = '64kB'; SELECT id FROM t ORDER BY k, word", 'sort|cpu|1|10000|t|t|t', 'count, rows, bytes BETWEEN 40000 AND 70000, disk_bytes > 400000, runs > 4' ],
		[ 'a sort of values', 'SELECT nullif(g, 1) FROM t ORDER BY 1', 'sort|cpu|1|10000' ],
		[ 'a sort of no rows', 'SELECT id FROM t WHERE id < 0 ORDER BY k', 'sort|cpu|1|0' ],
		[ 'a sort with a LIMIT', 'SELECT id FROM t ORDER BY k LIMIT 10', 'sort|cpu|1|10000' ],
		[ 'a sort for each outer row', 'SELECT count(*) FROM (VALUES (10), (20), (40)) o(n), LATERAL (SELECT id FROM t WHERE id <= n ORDER BY k OFFSET 1) s', 'sort|cpu|3|70' ],
		[ 'the times of these', 'SELECT count(*) FROM (VALUES (10), (20), (40)) o(n), LATERAL (SELECT id FROM t WHERE CASE WHEN id = n THEN pg_sleep(0.1) IS NOT NULL END ORDER BY k OFFSET 1) s',
			'sort|cpu|t|t', 'gather_ms >= 300, gather_ms <= 1000 * extract(epoch FROM clock_timestamp() - stats_reset)' ],
		[ 'a sort that is read twice', 'BEGIN; DECLARE c SCROLL CURSOR FOR SELECT id FROM t ORDER BY k; MOVE ALL FROM c; MOVE ABSOLUTE 0 FROM c; MOVE ALL FROM c; COMMIT', 'sort|cpu|1|10000' ],
		[ 'a sort that fails', 'SELECT fails(id) FROM t ORDER BY k, 1', '' ],
		[ 'a sort that workers feed', 'SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = off; SELECT id FROM t ORDER BY k', 'sort|cpu|1|10000|2', 'count, rows, workers' ],
		[ 'a sort that core does', $prepared, "sort|core|1|\nsort|core|gpusort.enabled is off|1" ],
		[ 'functions', q(SELECT gpu_sort('{2,1}'::int[]), gpu_argsort('{3,1,2}'::int[]); SELECT gpu_sort_agg(k) FROM t; SELECT g, gpu_sort_agg(id) FROM t WHERE id < 5 GROUP BY g),
			"aggregate||2|10004\nfunction|cpu|3|10005" ],
		[ 'an aggregate', 'SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY k) FROM t', 'aggregate||1|10000' ],
		[ 'an aggregate by groups', 'SELECT g, count(DISTINCT k) FROM t WHERE id <= 5000 GROUP BY g', 'aggregate||1|5000' ],
		[ 'a build of an index', 'CREATE INDEX i ON t (k); DROP INDEX i', 'index|cpu|1|10000|t|t', 'count, rows, bytes > 80000, gather_ms > 0' ],
		[ 'a build of an index by core', 'CREATE INDEX i ON t (js); DROP INDEX i', "index|core|1|\nindex|core|type jsonb is not supported|1" ],
		[ 'planned for core', 'SET gpusort.force = off; EXPLAIN SELECT id FROM t WHERE id < 10 ORDER BY k; EXPLAIN SELECT id FROM t WHERE id < 20 ORDER BY k',
			q(plan|core|core's sort is expected to be faster|2) ],
		[ 'types that are not supported', 'EXPLAIN SELECT js FROM t ORDER BY js; EXPLAIN SELECT ROW(js)::pair FROM t ORDER BY 1; EXPLAIN SELECT ROW(js)::other_pair FROM t ORDER BY 1',
			qq(plan|core|type jsonb is not supported|1\nplan|core|type "..." is not supported|2) ])
	{
		my ($name, $sql, $expected, $columns) = @$case;
		is(join("\n", sort split /\n/, added($sql, $columns)), join("\n", sort split /\n/, $expected), "$when: $name");
	}
}

check_counts('not preloaded');

# texts of reasons
my $texts = added(q(SELECT stat_reason('cpu', 'collation "a" of column 1 and "b" of column 17 is 1st of 20'), stat_reason('cpu', 'collation "x" of column 2 is 1st of 8'),
	stat_reason('cpu', 'collation "yy" of column 22 is 1st of 8'), stat_reason('core', 'a " b 4'), stat_reason('cuda', '12 of lib.so.1 in v0.2.0, 5 s'),
	stat_reason('cpu', repeat('long ', 50))));
is($texts, join("\n", 'plan|cpu|collation "..." of column N is 1st of N|3', 'plan|core|a " b N|1', 'plan|cuda|12 of lib.so.1 in v0.2.0, N s|1',
	'plan|cpu|' . substr('long ' x 50, 0, 102) . '|1'), 'names and numbers are taken out of a reason, and a long one is cut');
is($node->safe_psql('postgres', q(SELECT stat_first_warning('one'), stat_first_warning('one'), stat_first_warning('two'))), 't|f|t', 'each reason warns once');
is($node->safe_psql('postgres', q(SELECT stat_first_warning('one'), stat_first_warning('two'), stat_first_warning('three'))), 'f|f|t', 'and not again in another session');
like(added(q(SELECT stat_reason('cpu', repeat('x', i)) FROM generate_series(1, 100) AS i; SELECT stat_reason('cpu', repeat('x', i)) FROM generate_series(1, 100) AS i)),
	qr/\|x\|2\n.*\n\|\|all other reasons\|\d+$/s, 'a table that is full has a place for all others');
is($node->safe_psql('postgres', 'SELECT count(*) < 64, sum(count) FROM gpusort_stat_reasons'), 't|200', 'and none is lost');

# reset, and privileges
is($node->safe_psql('postgres', "BEGIN; SELECT gpusort_stat_reset(); SELECT count(DISTINCT stats_reset), max(stats_reset) > now(), sum(count), sum(rows), sum(gather_ms) FROM gpusort_stat; SELECT count(*) FROM gpusort_stat_reasons"),
	"\n1|t|0|0|0\n0", 'a reset sets all to zero, and stats_reset to its time');
my ($rc, $stdout, $stderr) = $node->psql('postgres', 'SELECT count(*) FROM gpusort_stat; SELECT count(*) FROM gpusort_stat_reasons; SELECT gpusort_stat_reset()',
	extra_params => [ '-U', 'alice' ]);
is($stdout, "9\n0", 'everybody may read the views');
like($stderr, qr/ERROR:  permission denied for function gpusort_stat_reset/, 'and not reset them');
$node->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION gpusort_stat_reset() TO alice');
is($node->safe_psql('postgres', 'SELECT gpusort_stat_reset() IS NULL', extra_params => [ '-U', 'alice' ]), 'f', 'unless that is granted');
is($node->safe_psql('postgres', q(SELECT count(*) FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND extname = 'gpusort'
	WHERE d.deptype = 'e' AND d.classid IN ('pg_proc'::regclass, 'pg_class'::regclass) AND obj_description(d.objid, d.classid::regclass::text) IS NULL)), '0',
	'each function and view has a comment');

# no shared memory is left
$node->restart;
($rc, $stdout, $stderr) = $node->psql('postgres', q(SET client_min_messages = error; SELECT activity_fill_memory() > 0; SET client_min_messages = warning;
SELECT count(*) FROM (SELECT id FROM t ORDER BY k OFFSET 1) s; SELECT count(*) FROM gpusort_stat; SELECT count(*) FROM gpusort_stat_reasons; SELECT gpusort_stat_reset();
SELECT stat_first_warning('one'), stat_first_warning('two')));
is("$rc|$stdout", "0|t\n9999\n0\n0\n\nt|f", 'no shared memory left: a sort goes on, and a session warns once');
is(warnings_in($stderr), 2, 'no shared memory left: the views warn');
like($stderr, qr/WARNING:  gpusort cannot count what it does\nDETAIL:  There is no shared memory left.*shared_preload_libraries/, 'no shared memory left: and say why');

$node->append_conf('postgresql.conf', "shared_preload_libraries = 'gpusort'\n");
$node->restart;
check_counts('preloaded');

$node->stop;
done_testing();
