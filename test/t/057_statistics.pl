# What pg_stat_* count is what they count without gpusort: each statement runs with gpusort and
# without, on tables that were made by the same statements, and every column that is not a time
# is compared.  What may differ: there are other temporary files, with no more bytes, and fewer values are fetched out of line.

use strict;
use warnings;

use GpusortTest;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# all blocks stay in the buffers, and no other process reads tables
my $node = new_node('statistics', order_by => 1, settings => <<'CONF');
gpusort.engine = cpu
autovacuum = off
shared_buffers = 256MB
log_min_messages = debug1
track_functions = all
max_parallel_workers = 8
min_parallel_table_scan_size = 0
parallel_setup_cost = 0
parallel_tuple_cost = 0
CONF
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');

# ---- two schemas with the same tables ----

foreach my $schema (qw(ours core))
{
	$node->safe_psql('postgres', <<"SQL");
SET gpusort.enabled = off;
CREATE SCHEMA $schema;
SET search_path = $schema, public;
CREATE FUNCTION $schema.half(i int) RETURNS int IMMUTABLE PARALLEL SAFE LANGUAGE plpgsql AS 'BEGIN RETURN i / 2; END';
-- HOT chains with and without room, dead tuples, redirected line pointers
CREATE TABLE torn (id int PRIMARY KEY, k int, h int DEFAULT 0, v text) WITH (fillfactor = 60);
INSERT INTO torn SELECT i, hashint4(i) % 1000, 0, md5(i::text) FROM generate_series(1, 40000) i;
UPDATE torn SET h = 1 WHERE id % 3 = 0;
DELETE FROM torn WHERE id % 7 = 0;
UPDATE torn SET h = 2 WHERE id % 6 = 0 AND id < 20000;
UPDATE torn SET k = k + 1 WHERE id % 5 = 0;
BEGIN; UPDATE torn SET h = -h WHERE id < 5000; ROLLBACK;
CREATE TABLE plain AS SELECT i AS id, hashint4(i) AS k, i % 100 AS g, md5(i::text) AS v FROM generate_series(1, 40000) i;
CREATE TABLE empty (k int);
CREATE TABLE wide AS SELECT i AS id, CASE WHEN i % 10 = 0 THEN (SELECT string_agg(md5((i * j)::text), '') FROM generate_series(1, 90) j) ELSE i::text END AS v
  FROM generate_series(1, 3000) i;
ALTER TABLE wide ALTER v SET STORAGE EXTERNAL;
UPDATE wide SET v = v || '';
CREATE TABLE parts (id int, k int) PARTITION BY RANGE (id);
CREATE TABLE part1 PARTITION OF parts FOR VALUES FROM (0) TO (10000);
CREATE TABLE part2 PARTITION OF parts FOR VALUES FROM (10000) TO (30000);
INSERT INTO parts SELECT i, hashint4(i) FROM generate_series(1, 20000) i;
CREATE TABLE small AS SELECT i AS id FROM generate_series(1, 20) i;
CREATE MATERIALIZED VIEW view AS SELECT k, v FROM plain;
CREATE INDEX view_k ON view (k);
ANALYZE torn, plain, empty, wide, parts, small;
SQL
}

# ---- the views ----

my $toast = q{coalesce((SELECT c.relname || ' toast' FROM pg_class c WHERE c.reltoastrelid = v.relid), v.relname)};
my $mine = q{(v.schemaname = 'SCHEMA' OR v.relid IN (SELECT reltoastrelid FROM pg_class WHERE relnamespace = 'SCHEMA'::regnamespace))};
# shared catalogs belong to no database
my $catalogs = q{relid < 16384 AND relid NOT IN (SELECT oid FROM pg_class WHERE relisshared)};
my %views = (
	(map { ($_ => "SELECT $toast AS name, to_jsonb(v) AS counts FROM $_ v WHERE $mine") } qw(pg_stat_all_tables pg_statio_all_tables)),
	(map { ($_ => "SELECT $toast || ' ' || CASE WHEN v.schemaname = 'SCHEMA' THEN v.indexrelname ELSE '' END AS name, to_jsonb(v) AS counts FROM $_ v WHERE $mine") }
		qw(pg_stat_all_indexes pg_statio_all_indexes)),
	pg_stat_user_functions => q{SELECT funcname AS name, to_jsonb(v) AS counts FROM pg_stat_user_functions v WHERE schemaname = 'SCHEMA'},
	# without what is read in catalogs, which gpusort asks, too
	pg_stat_database => qq{SELECT '' AS name, to_jsonb(v) || jsonb_build_object(
    'blks_hit', blks_hit - (SELECT sum(coalesce(heap_blks_hit, 0) + coalesce(idx_blks_hit, 0)) FROM pg_statio_all_tables WHERE $catalogs),
    'blks_read', blks_read - (SELECT sum(coalesce(heap_blks_read, 0) + coalesce(idx_blks_read, 0)) FROM pg_statio_all_tables WHERE $catalogs),
    'tup_returned', tup_returned - (SELECT sum(seq_tup_read) FROM pg_stat_all_tables WHERE $catalogs)
      - (SELECT sum(idx_tup_read) FROM pg_stat_all_indexes WHERE $catalogs),
    'tup_fetched', tup_fetched - (SELECT sum(coalesce(idx_tup_fetch, 0)) FROM pg_stat_all_tables WHERE $catalogs)) AS counts
    FROM pg_stat_database v WHERE datname = current_database()});
# what of it is in the ring of a scan or a build, and temporary tables
$views{pg_stat_io} = q{SELECT backend_type || ' ' || object || ' ' || context AS name, to_jsonb(v) AS counts FROM pg_stat_io v
  WHERE (backend_type LIKE 'client%' OR backend_type LIKE 'background worker%') AND (context <> 'normal' OR object <> 'relation') AND object <> 'wal'}
  if $node->safe_psql('postgres', "SELECT to_regclass('pg_stat_io') IS NOT NULL") eq 't';

# Numbers that belong to a relation, not to what has been done; columns of times; and transactions, because that of a
# parallel worker counts when its process ends, which may be in the next query
my $no_count = qr/relid|oid|^datid$|^funcid$|numbackends|stats_reset|^last_|time|^op_bytes$|sessions|^xact_commit$/;

# The counters of a schema: view, name and column => number
sub counters
{
	my ($out, $begin) = @_;
	my %counters;

	while ($out =~ /^$begin\t(\S+)\t(.*?)\t(\{.*\})$/mg)
	{
		my ($view, $name, $counts) = ($1, $2, decode_json($3));

		foreach my $column (grep { !/$no_count/ } keys %$counts)
		{
			$counters{"$view $name: $column"} = $counts->{$column} if defined $counts->{$column} && $counts->{$column} =~ /^-?\d+$/;
		}
	}
	return %counters;
}

# What a statement adds to the counters, in a schema.
sub added
{
	my ($schema, $settings, $statement, $cleanup) = @_;
	my $show = sub {
		my ($begin) = @_;
		return map { (my $query = $views{$_}) =~ s/SCHEMA/$schema/g; "SELECT '$begin' || E'\\t$_\\t' || name || E'\\t' || counts FROM ($query) s;\n" } sort keys %views;
	};
	my $enabled = $schema eq 'ours' ? 'on' : 'off';
	my $log = -s $node->logfile;
	my ($rc, $out, $err) = $node->psql('postgres', join('', "SET search_path = $schema, public; SET gpusort.enabled = $enabled; SET stats_fetch_consistency = none;\n",
			"SELECT pg_stat_force_next_flush();\n", $show->('before'), "$settings\n\\o /dev/null\n$statement\n\\o\nRESET max_parallel_workers_per_gather; SELECT pg_stat_force_next_flush();\n", $show->('after'), $cleanup));
	die "$statement: $rc $err" if $rc != 0 || $err =~ /ERROR/;
	my %before = counters($out, 'before');
	my %after = counters($out, 'after');
	my %added = map { ($_ => $after{$_} - ($before{$_} // 0)) } keys %after;

	return (\%added, slurp_file($node->logfile, $log));
}

# A statement counts with gpusort what it counts without.  $how{done} is what the log says of gpusort.
sub same
{
	my ($statement, %how) = @_;
	my $settings = $how{settings} // '';
	my $workers = $settings =~ /workers\w* = (\d)/ ? $1 : 0;
	my ($ours, $log) = added('ours', $settings, $statement, $how{cleanup} // '');
	my ($core) = added('core', $settings, $statement, $how{cleanup} // '');
	my @differ;

	foreach my $counter (sort keys %{ { %$ours, %$core } })
	{
		my ($mine, $theirs) = ($ours->{$counter} // 0, $core->{$counter} // 0);

		next if $mine == $theirs;
		# there may be another number of files; each aggregate with an order has files of its own
		next if $counter =~ /temp_/ && ($mine == 0 || ($theirs > 0 && ($counter =~ /files/ || $mine <= $theirs || ($statement =~ /array_agg/ && $mine < 1.1 * $theirs))));
		# core fetches values out of line for each comparison
		next if $statement =~ /FROM wide/ && $mine < $theirs && $counter =~ /database|toast|tidx/;
		# each process that fetches values out of line looks at the metapage of their index
		next if $workers > 0 && $counter =~ /blks_hit/ && $counter =~ /database|toast|tidx/ && $statement =~ /wide/ && abs($mine - $theirs) <= $workers;
		push @differ, "$counter: $mine, by core $theirs";
	}
	ok(!@differ, "$statement $settings") or diag(join("\n", @differ));
	like($log, $how{done}, "$statement $settings: gpusort has done it") if $how{done};
	return;
}

# blocks are in the buffers then
$node->safe_psql('postgres', "SET gpusort.enabled = off; CREATE INDEX ON $_.torn (k); DROP INDEX $_.torn_k_idx; SELECT * FROM pg_stat_user_tables") foreach qw(ours core);

# ---- builds ----

my $built = qr/gpusort has built index/;

foreach my $settings ('', 'SET maintenance_work_mem = 1024;', 'SET max_parallel_maintenance_workers = 3; SET maintenance_work_mem = \'256MB\';',
	'SET max_parallel_maintenance_workers = 3; SET maintenance_work_mem = \'1MB\';', 'SET max_parallel_maintenance_workers = 3; SET max_parallel_workers = 1;')
{
	my $workers = $settings =~ /workers/ ? 3 : 0;

	$node->safe_psql('postgres', join('', map { "ALTER TABLE $_ SET (parallel_workers = $workers);" } map { ("ours.$_", "core.$_") } qw(torn plain wide)));
	same("$_;", settings => $settings, done => $built, cleanup => 'DROP INDEX i;')
	  foreach map { "CREATE INDEX i ON $_" } 'torn (k)', 'torn (id, h)', 'torn (v)', 'torn (k) WHERE h = 1', 'torn (half(k))', 'plain (k)', 'plain (v) INCLUDE (id)', 'wide (left(v, 10))';
	same('CREATE UNIQUE INDEX i ON torn (id) INCLUDE (k);', settings => $settings, done => $built, cleanup => 'DROP INDEX i;');
}
$node->safe_psql('postgres', join('', map { "ALTER TABLE $_ SET (parallel_workers = 0);" } map { ("ours.$_", "core.$_") } qw(torn plain wide)));
same("$_;", done => $built, cleanup => 'DROP INDEX i;') foreach 'CREATE INDEX i ON empty (k)', 'CREATE INDEX CONCURRENTLY i ON torn (k)', 'CREATE INDEX CONCURRENTLY i ON plain (half(k)) WHERE g < 50';
same("$_;", done => $built) foreach 'REINDEX INDEX torn_pkey', 'REINDEX TABLE torn', 'REINDEX INDEX CONCURRENTLY torn_pkey', 'REFRESH MATERIALIZED VIEW view',
  'CLUSTER torn USING torn_pkey', 'VACUUM FULL torn', 'ALTER TABLE torn ALTER h TYPE int8; ALTER TABLE torn ALTER h TYPE int4';
same("BEGIN; CREATE TABLE fresh AS SELECT * FROM plain; UPDATE fresh SET g = 0 WHERE id % 3 = 0; CREATE INDEX i ON fresh (k); COMMIT;", done => $built, cleanup => 'DROP TABLE fresh;');

# ---- sorts and aggregates ----

foreach my $settings ('', 'SET work_mem = 64;', 'SET max_parallel_workers_per_gather = 2;', 'SET max_parallel_workers_per_gather = 2; SET parallel_leader_participation = off;')
{
	my $workers = $settings =~ /gather/ ? 2 : 0;

	$node->safe_psql('postgres', join('', map { "ALTER TABLE $_ SET (parallel_workers = $workers);" } map { ("ours.$_", "core.$_") } qw(torn plain)));
	same("$_;", settings => "SET enable_hashagg = off; SET enable_hashjoin = off; $settings") foreach
	  'SELECT * FROM torn ORDER BY k', 'SELECT k FROM plain ORDER BY k', 'SELECT * FROM plain ORDER BY v LIMIT 10', 'SELECT * FROM torn WHERE h = 1 ORDER BY v',
	  'SELECT * FROM torn WHERE h % 2 = 1 ORDER BY v OFFSET 100 LIMIT 100', 'SELECT count(DISTINCT k) FROM torn', 'SELECT g, count(DISTINCT v), array_agg(id ORDER BY k) FROM plain GROUP BY g',
	  'SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY k), mode() WITHIN GROUP (ORDER BY h) FROM torn', 'SELECT DISTINCT h FROM torn', 'SELECT h, count(*) FROM torn GROUP BY h',
	  'SELECT id, row_number() OVER (PARTITION BY g ORDER BY k) FROM plain', 'SELECT * FROM parts ORDER BY k', 'SELECT * FROM wide ORDER BY v',
	  'SELECT * FROM small s, LATERAL (SELECT k FROM plain p WHERE p.g = s.id ORDER BY p.v LIMIT 3) l',
	  'SELECT * FROM (SELECT * FROM plain UNION ALL SELECT id, k, h, v FROM torn) u ORDER BY k LIMIT 50', 'SELECT * FROM plain ORDER BY g, v', 'SELECT half(k) FROM plain ORDER BY half(k)',
	  'BEGIN; DECLARE c SCROLL CURSOR FOR SELECT * FROM torn ORDER BY v; FETCH 10 FROM c; FETCH BACKWARD 5 FROM c; CLOSE c; COMMIT',
	  'SELECT gpu_sort_agg(k) FROM plain';
	# a worker that gets no rows of one side does not read the other one
	same("$_;", settings => "SET enable_hashjoin = off; $settings") foreach $workers > 0 ? () :
	  ('SELECT count(*) FROM plain a JOIN torn b ON a.k = b.k', 'SELECT * FROM torn WHERE EXISTS (SELECT FROM plain p WHERE p.k = torn.k ORDER BY p.v) ORDER BY h, id');
}

done_testing();
