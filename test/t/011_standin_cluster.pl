# gpusort in the life of a cluster: sorts in two databases, DROP EXTENSION and
# ALTER EXTENSION UPDATE while sorts run, dump and restore, a hot standby with
# conflicts and promotion, and pg_upgrade.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $settings = <<'CONF';
gpusort.min_rows = 1000
max_connections = 30
hot_standby_feedback = off
max_standby_streaming_delay = 0
autovacuum = off
CONF
my $node = new_node('cluster', order_by => 1, settings => $settings, init => [ allows_streaming => 1 ]);
restart_with($node);
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
skip_without_standin($node);
my $version = $node->safe_psql('postgres', q(SELECT extversion FROM pg_extension WHERE extname = 'gpusort'));
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t AS SELECT i AS id, hashint8(i) AS k, md5(i::text) AS word FROM generate_series(1, 30000::bigint) AS i;
CREATE TABLE arrays AS SELECT i AS id, array_agg(hashint8(i * 10 + j)) AS a FROM generate_series(1, 100::bigint) AS i, generate_series(1, 10) AS j GROUP BY i;
CREATE INDEX arrays_sorted ON arrays ((gpu_sort(a)));
CREATE VIEW groups AS SELECT id % 10 AS g, gpu_sort_agg(k) AS a FROM t GROUP BY 1;
CREATE MATERIALIZED VIEW sorted AS SELECT row_number() OVER () AS place, k, word FROM (SELECT k, word FROM t ORDER BY k, id) AS s;
CREATE ROLE measures;
REVOKE EXECUTE ON FUNCTION gpusort_stat_list() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION gpusort_stat_list() TO measures;
VACUUM ANALYZE;
SQL

my $last = 'SELECT engine, reason FROM gpusort_last_sort()';
my $sort = "SELECT gpu_sort_agg(k) = array_agg(k ORDER BY k) FROM t; $last";
my $spilled = "SET gpusort.memory_limit = '1MB'; " . in_order('SELECT k, word FROM t ORDER BY k');
# the contents of objects that use gpusort, and the privileges on its functions
my $contents = <<'SQL';
SELECT md5(string_agg(g::text, ' ' ORDER BY g::text)) FROM groups AS g;
SELECT md5(string_agg(s::text, ' ' ORDER BY place)) FROM sorted AS s;
SET enable_seqscan = off;
SELECT count(*) FROM arrays AS x WHERE gpu_sort(x.a) = (SELECT gpu_sort(y.a) FROM arrays AS y WHERE y.id = 7);
SELECT md5(string_agg(p.oid::regprocedure::text || coalesce((SELECT string_agg(acl::text, ',' ORDER BY acl::text) FROM unnest(p.proacl) AS acl), ''), ' ' ORDER BY p.oid::regprocedure::text))
FROM pg_proc AS p, pg_depend AS d, pg_extension AS e WHERE d.objid = p.oid AND d.refobjid = e.oid AND d.deptype = 'e' AND e.extname = 'gpusort';
SELECT has_function_privilege('measures', 'gpusort_stat_list()', 'EXECUTE'), count(obj_description(oid)) = count(*) FROM pg_proc WHERE proname LIKE 'gpu%sort%';
SELECT extversion FROM pg_extension WHERE extname = 'gpusort';
SQL
my $held = $node->safe_psql('postgres', $contents);
like($held, qr/^\w{32}\n\w{32}\n1\n\w{32}\nt\|t\n\Q$version\E$/, 'objects that use gpusort have contents');

#
# Sorts in two databases at the same time
#
$node->safe_psql('postgres', 'CREATE DATABASE other TEMPLATE postgres');
{
	hold_device($node, 'sort');
	my ($out, $err, $other_out, $other_err);
	my $psql = in_background($node, \$out, \$err, $sort);
	my $other = in_background($node, \$other_out, \$other_err, { dbname => 'other' }, $sort, $last);
	ok(poll($node, "SELECT count(DISTINCT datname) = 2 FROM pg_stat_activity WHERE application_name = 'background' AND wait_event_type = 'Extension'"),
		'two databases: both sorts wait for the device');
	is(scalar(service_pids($node)), 1, 'two databases: there is one service');
	release_device($node);
	$_->finish foreach $psql, $other;
	is($out . $other_out, "t\ncuda|\nt\ncuda|\ncuda|\n", 'two databases: the device does both sorts');
	nothing_is_held($node, 'two databases');
}

#
# The extension is dropped in one of the databases while its functions sort
#
{
	forget_trace($node);
	hold_device($node, 'sort');
	my ($out, $err);
	my $psql = in_background($node, \$out, \$err, 'PREPARE p AS SELECT count(*) FROM (SELECT k, word FROM t ORDER BY k OFFSET 0) AS s', 'SELECT gpu_sort_agg(k) = array_agg(k ORDER BY k) FROM t');
	ok(poll_trace($node, 'sort \d+'), 'dropped: a sort runs');
	like(($node->psql('postgres', 'DROP EXTENSION gpusort'))[2], qr/cannot drop extension gpusort because other objects depend on it/, 'dropped: not while other objects depend on the extension');
	$node->safe_psql('postgres', 'DROP VIEW groups; DROP INDEX arrays_sorted; DROP EXTENSION gpusort');
	release_device($node);
	$psql->finish;
	is("$out$err", "t\n", 'dropped while it sorts: the sort succeeds');
	like($node->safe_psql('postgres', 'EXPLAIN (COSTS OFF) SELECT k, word FROM t ORDER BY k'), qr/GpuSort/, 'dropped: ORDER BY still uses GpuSort');
	like(($node->psql('postgres', $sort))[2], qr/function gpu_sort_agg\(.*\) does not exist/, 'dropped: the functions are gone');
	end_session($node);
	is($node->safe_psql('other', $sort), "t\ncuda|", 'dropped: the other database still has the extension');
	$node->safe_psql('postgres', "CREATE SCHEMA s; CREATE EXTENSION gpusort SCHEMA s; SET search_path = s, public; $sort");
	$node->safe_psql('postgres', 'ALTER EXTENSION gpusort SET SCHEMA public');
	is($node->safe_psql('postgres', $sort), "t\ncuda|", 'dropped: the extension can be created again and moved to another schema');
	nothing_is_held($node, 'dropped');
}

#
# Dump and restore of database other, which still has all objects
#
{
	my $dump = $node->basedir . '/dump';
	$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('other') ], 'pg_dump succeeds');
	my ($sql) = run_command([ 'pg_restore', '-f', '-', $dump ]);
	unlike($sql, qr/CREATE (?:FUNCTION|AGGREGATE) /, 'the dump does not contain the extension\'s own objects');
	$node->safe_psql('postgres', 'CREATE DATABASE restored TEMPLATE template0');
	$node->command_ok([ 'pg_restore', '-d', $node->connstr('restored'), $dump ], 'pg_restore succeeds');
	is($node->safe_psql('restored', $contents), $held, 'restored: the contents are the same');
	$node->safe_psql('restored', 'REFRESH MATERIALIZED VIEW sorted; REINDEX INDEX arrays_sorted');
	is($node->safe_psql('restored', $contents), $held, 'refreshed: the contents are the same');
	$node->safe_psql('postgres', 'DROP DATABASE restored');
}

#
# A hot standby
#
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
restart_with($standby);
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is($standby->safe_psql('other', "SELECT pg_is_in_recovery(); $sort"), "t\nt\ncuda|", 'standby: the device sorts');
is($standby->safe_psql('other', $spilled), '30000|t', 'standby: ORDER BY can spill');
is($standby->safe_psql('other', $contents), $held, 'standby: the contents are those of the primary');

# a sort of a table that the primary drops conflicts with replay, and is cancelled
foreach my $case (
	[ 'on the device', 'sort', 'SELECT cardinality(gpu_sort_agg(k)) FROM gone%d' ],
	[ 'with spilled rows', '', "SET gpusort.memory_limit = '1MB'; SELECT count(pg_sleep(3600)) FROM (SELECT k, word FROM gone%d ORDER BY k OFFSET 0) AS s" ])
{
	my ($name, $hold, $query) = @$case;
	my $table = $hold ? 1 : 2;
	$node->safe_psql('other', "CREATE TABLE gone$table AS SELECT * FROM t");
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	hold_device($standby, $hold) if $hold;
	my ($out, $err);
	my $psql = in_background($standby, \$out, \$err, { dbname => 'other' }, sprintf($query, $table), 'SELECT count(*) FROM pg_ls_tmpdir()');
	ok(poll($standby, "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'background' AND wait_event IN ('Extension', 'PgSleep')"),
		"standby: a sort $name runs");
	$node->safe_psql('other', "DROP TABLE gone$table");
	$psql->finish;
	like($err, qr/ERROR:  canceling statement due to conflict with recovery/, "standby: a sort $name is cancelled by a conflict with replay");
	is($out, "0\n", "standby: a sort $name leaves no temporary file");
	release_device($standby);
	nothing_is_held($standby, "standby: a sort $name");
}

# promoted while a sort is on the device
{
	hold_device($standby, 'sort');
	forget_trace($standby);
	my ($out, $err);
	my $psql = in_background($standby, \$out, \$err, "BEGIN; $sort; COMMIT", 'SELECT pg_is_in_recovery()');
	ok(poll_trace($standby, 'sort \d+'), 'standby: a sort runs before the promotion');
	end_session($standby);
	my @service = service_pids($standby);
	$standby->promote;
	release_device($standby);
	$psql->finish;
	is($out . $err, "t\ncuda|\nf\n", 'promoted: the sort succeeds');
	is(join(' ', service_pids($standby)), "@service", 'promoted: the same service goes on');
	is($standby->safe_psql('other', "CREATE TABLE copy AS SELECT * FROM t; REFRESH MATERIALIZED VIEW sorted; $contents"), $held, 'promoted: the server sorts and writes, and the contents are the same');
	nothing_is_held($standby, 'promoted');
	end_session($standby);
	$standby->stop;
}

#
# An update script of a later version.  It lies in a private share directory, which
# a copy of the server program finds by its own place.
#
{
	my $private = private_program();
	append_to_file("$private->{extensions}/gpusort--$version--9.9.9.sql", <<'SQL');
\echo Use "ALTER EXTENSION gpusort UPDATE" to load this file. \quit
CREATE FUNCTION gpu_sort_down(anyarray) RETURNS anyarray LANGUAGE SQL IMMUTABLE STRICT AS 'SELECT gpu_sort($1, true)';
CREATE OR REPLACE FUNCTION gpu_argsort("array" anyarray) RETURNS integer[] AS 'MODULE_PATHNAME', 'gpu_argsort' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 2000;
SQL
	end_session($node);
	$node->stop;
	local $ENV{GPUSORT_STANDIN_HOLD} = $node->basedir . '/holds';
	local $ENV{GPUSORT_STANDIN_TRACE} = $node->basedir . '/trace';
	start_private($node, $private);
	is($node->safe_psql('other', "SELECT count(*) FROM pg_available_extension_versions WHERE name = 'gpusort' AND version = '9.9.9'"), '1', 'update: a later version is available');

	forget_trace($node);
	hold_device($node, 'sort');
	my ($out, $err);
	my $psql = in_background($node, \$out, \$err, { dbname => 'other' }, $sort, 'SELECT gpu_sort_down(ARRAY[1, 3, 2])');
	ok(poll_trace($node, 'sort \d+'), 'update: a sort runs');
	$node->safe_psql('other', "ALTER EXTENSION gpusort UPDATE TO '9.9.9'");
	release_device($node);
	$psql->finish;
	is($out . $err, "t\ncuda|\n{3,2,1}\n", 'update: the sort succeeds, and its session can call the new function');
	my $objects = join("\n", (split(/\n/, $held))[ 0 .. 2 ]);
	like($node->safe_psql('other', $contents), qr/^\Q$objects\E\n.*\nt\|f\n9\.9\.9$/s, 'update: the contents are the same');
	end_session($node);
	$node->stop;
	$node->start;
}

#
# pg_upgrade of the restored database to the same version
#
{
	$node->safe_psql('postgres', 'DROP DATABASE other WITH (FORCE); CREATE DATABASE other TEMPLATE template0');
	my ($bindir) = run_command([ 'pg_config', '--bindir' ]);
	$node->command_ok([ 'pg_restore', '-d', $node->connstr('other'), $node->basedir . '/dump' ], 'upgraded: the dump is restored first');
	$node->stop;
	my $new = new_node('new', order_by => 1, settings => $settings);
	my $dir = PostgreSQL::Test::Utils::tempdir();
	chdir($dir);
	command_ok([ 'pg_upgrade', '--no-sync', '-d', $node->data_dir, '-D', $new->data_dir, '-b', $bindir, '-B', $bindir,
			'-s', $new->host, '-p', $node->port, '-P', $new->port ], 'pg_upgrade succeeds');
	restart_with($new);
	is($new->safe_psql('other', $contents), $held, 'upgraded: the contents are the same');
	is($new->safe_psql('other', $sort), "t\ncuda|", 'upgraded: the device sorts');
	is($new->safe_psql('other', $spilled), '30000|t', 'upgraded: ORDER BY can spill');
	$new->stop;
}

done_testing();
