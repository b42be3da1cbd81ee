# A new version of gpusort.  ALTER EXTENSION UPDATE from the first version makes the same
# objects as CREATE EXTENSION, and keeps users' objects that depend on the old ones; so do
# dump and restore.  Where the library, the SQL objects, and the processes of a server
# are of different versions, the queries give core's answers or an error that says what
# to do.
#
# The library of another version is the installed one with another version written into it.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('update', settings => <<'CONF');
session_preload_libraries = 'gpusort'
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
gpusort.force = on
gpusort.min_rows = 100
autovacuum = off
CONF
my $private = private_program();
my $library = "$private->{libraries}/gpusort.so";
start_private($node, $private);
$node->safe_psql('postgres', 'CREATE ROLE measures; CREATE ROLE watches');
$node->safe_psql('postgres', "CREATE DATABASE $_") foreach 'fresh', 'plain', 'used', 'restored';

# Everything about the extension's objects that a user can see, a line for each
my $objects = <<'SQL';
WITH members AS (
	SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
	WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'gpusort')
SELECT pg_describe_object(m.classid, m.objid, 0), obj_description(m.objid, m.classid::regclass::name),
	(SELECT string_agg(privilege::text, ' ' ORDER BY privilege::text) FROM pg_init_privs i, unnest(i.initprivs) AS privilege WHERE (i.classoid, i.objoid) = (m.classid, m.objid)),
	to_jsonb(p) - '{oid,prorettype,proargtypes,proallargtypes,proargdefaults,prosqlbody}'::text[], pg_get_function_result(p.oid), pg_get_function_arguments(p.oid), pg_get_function_sqlbody(p.oid),
	to_jsonb(a) - '{aggfnoid,aggtranstype}'::text[], format_type(a.aggtranstype, NULL),
	pg_get_viewdef(c.oid), c.relacl, c.reloptions,
	(SELECT string_agg(format('%s %s', attname, format_type(atttypid, atttypmod)), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0)
FROM members m
LEFT JOIN pg_proc p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
LEFT JOIN pg_aggregate a ON m.classid = 'pg_proc'::regclass AND a.aggfnoid = m.objid
LEFT JOIN pg_class c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid
ORDER BY 1
SQL

#
# ALTER EXTENSION UPDATE
#
$node->safe_psql('fresh', 'CREATE EXTENSION gpusort');
$node->safe_psql('plain', q(CREATE EXTENSION gpusort VERSION '0.1.0'));
isnt($node->safe_psql('plain', $objects), $node->safe_psql('fresh', $objects), 'the first version has other objects');
$node->safe_psql('plain', 'ALTER EXTENSION gpusort UPDATE');
my $expected = $node->safe_psql('fresh', $objects);
is($node->safe_psql('plain', $objects), $expected, 'an update makes the objects of a new installation');
my $version = $node->safe_psql('fresh', q(SELECT extversion FROM pg_extension WHERE extname = 'gpusort'));

$node->safe_psql('used', <<'SQL');
CREATE EXTENSION gpusort VERSION '0.1.0';
CREATE TABLE t AS SELECT i AS id, hashint4(i) AS k, md5(i::text) AS word FROM generate_series(1, 12000) AS i;
ALTER TABLE t SET (parallel_workers = 2);
CREATE TABLE arrays AS SELECT i AS id, ARRAY[hashint4(i), i, hashint4(-i)] AS a FROM generate_series(1, 1000) AS i;
CREATE INDEX arrays_sorted ON arrays (gpu_sort(a));
CREATE VIEW groups AS SELECT id % 10 AS g, gpu_sort_agg(k) AS a FROM t GROUP BY 1;
CREATE MATERIALIZED VIEW places AS SELECT id, gpu_argsort(a, true) AS p FROM arrays;
CREATE VIEW watch AS SELECT pid, phase, rows, bytes, engine, started FROM gpusort_activity;
REVOKE EXECUTE ON FUNCTION gpusort_counters() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION gpusort_counters() TO measures;
REVOKE SELECT ON gpusort_activity FROM PUBLIC;
GRANT SELECT ON gpusort_activity TO watches;
ANALYZE;
SQL
my $contents = <<'SQL';
SELECT md5(string_agg(g::text, ' ' ORDER BY g)) FROM groups AS g;
REFRESH MATERIALIZED VIEW places;
SELECT md5(string_agg(p::text, ' ' ORDER BY id)) FROM places AS p;
SET enable_seqscan = off;
SELECT id FROM arrays WHERE gpu_sort(a) = (SELECT gpu_sort(a) FROM arrays WHERE id = 7);
SELECT has_function_privilege('measures', 'gpusort_counters()', 'EXECUTE'),
	has_function_privilege('watches', 'gpusort_counters()', 'EXECUTE'),
	has_table_privilege('watches', 'gpusort_activity', 'SELECT'), has_table_privilege('measures', 'gpusort_activity', 'SELECT');
SQL
my $works = <<'SQL';
SELECT gpu_sort(ARRAY[2, 1], true), gpu_argsort(ARRAY[2, 1]), gpu_sort_agg(i) FROM generate_series(1, 3) AS i;
SELECT count(*) FROM gpusort_status();
SELECT count(rows) FROM gpusort_last_sort();
SELECT core_sorts FROM gpusort_counters();
SQL
my $held = $node->safe_psql('used', $contents);
like($held, qr/^\w{32}\n\w{32}\n7\nt\|f\|t\|f$/, 'objects that use the first version have contents');
like($node->safe_psql('used', "SET enable_seqscan = off; EXPLAIN SELECT id FROM arrays WHERE gpu_sort(a) = '{1}'"), qr/arrays_sorted/, 'an index on gpu_sort() is used');
my $answers = "{2,1}|{2,1}|{1,2,3}\n2\n1\n0";
is($node->safe_psql('used', $works), $answers, 'the functions of the first version work with this library');
foreach my $view ('gpusort_activity', 'watch')
{
	my ($rc, $stdout, $stderr) = $node->psql('used', "SELECT * FROM $view");
	like($stderr, qr/ERROR:  gpusort's library and its SQL objects are of different versions\nDETAIL:  .*declared with 6 columns.*\nHINT:  Execute ALTER EXTENSION gpusort UPDATE/,
		"before the update, $view says what to do");
}

$node->safe_psql('used', 'ALTER EXTENSION gpusort UPDATE');
is($node->safe_psql('used', $contents), $held, 'updated: the contents and the privileges are the same');
is($node->safe_psql('used', $works), $answers, 'updated: the functions work');
is($node->safe_psql('used', 'SELECT count(*) FROM watch; SELECT sum(participants) FROM gpusort_activity; SELECT gpu_median(i) FROM generate_series(1, 4) AS i'),
	"0\n\n2.5", 'updated: views on the old view work, and so does what is new');

#
# Dump and restore
#
my $dump = $node->basedir . '/dump';
command_ok([ 'pg_dump', '-Fc', '-f', $dump, '-d', $node->connstr('used') ], 'dumped');
command_ok([ 'pg_restore', '-e', '-d', $node->connstr('restored'), $dump ], 'restored');
is($node->safe_psql('restored', $contents), $held, 'restored: the contents and the privileges are the same');
is($node->safe_psql('restored', 'SELECT count(*) FROM watch'), '0', 'restored: views on the view work');
is($node->safe_psql('restored', $objects =~ s/c\.relacl/NULL/r =~ s/'\{oid,/'{proacl,oid,/r), $node->safe_psql('fresh', $objects =~ s/c\.relacl/NULL/r =~ s/'\{oid,/'{proacl,oid,/r),
	'restored: the objects are those of a new installation');

#
# Another library is installed while the server runs
#
my $other = $version =~ tr/0-9/9/r;

# Replaces the library, as packages do: running processes keep the file that they have.
sub install
{
	my ($installed) = @_;
	my $bytes = slurp_file("$private->{libraries}/gpusort.so.installed");
	if ($installed ne $version)
	{
		my $n = ($bytes =~ s/(?<![\w.])\Q$version\E\0/$installed\0/g);
		die "no version in the library" if !$n;
	}
	open(my $file, '>:raw', "$library.new") or die "could not write $library.new: $!";
	print $file $bytes;
	close($file) or die "could not write $library.new: $!";
	rename("$library.new", $library) or die "could not rename $library.new: $!";
	return;
}

rename($library, "$library.installed") or die "could not rename $library: $!";
install($version);

my $serial = 'SET max_parallel_workers_per_gather = 0; ' . in_order('SELECT k, word FROM t ORDER BY k');
my $parallel = 'SET max_parallel_workers_per_gather = 2; ' . in_order('SELECT k, word FROM t ORDER BY k');
# a plan node of gpusort in a worker, below a Gather that is not gpusort's
my $percentile = 'SET max_parallel_workers_per_gather = 2; SELECT count(*) FROM t WHERE id::float8 NOT IN (SELECT gpu_median(i) FROM generate_series(1, 200) AS i)';
my $status = 'SELECT engine, detail FROM gpusort_status()';
my $restart = "This session has gpusort $other, and the server's shared memory is that of gpusort $version; restart the server.";

$node->stop;
start_private($node, $private);
my $old = session($node, 'used');
is(answer($old, $serial), '12000|t', 'a session sorts');
is(answer($old, $parallel), '12000|t', 'its workers sort');
like(answer($old, 'EXPLAIN ' . in_order('SELECT k, word FROM t ORDER BY k')), qr/GpuSort Feed/, 'its workers feed a sort');
like(answer($old, $percentile =~ s/SELECT count/EXPLAIN SELECT count/r), qr/Parallel Seq Scan/, 'workers compute percentiles');
is(answer($old, $percentile), '12000', 'its workers compute percentiles');
unlike(answer($old, $status), qr/restart/, 'the status asks for no restart');
is($old->{err}, '', 'the session has raised no error');

install($other);
is(answer($old, $serial), '12000|t', 'a session from before the installation sorts');
foreach my $query ($parallel, $percentile)
{
	answer($old, $query);
	like($old->{err}, qr/ERROR:  the processes of this parallel query have loaded different versions of gpusort\nDETAIL:  The session has version \Q$version\E, and its worker has version \Q$other\E\.\nHINT:  Reconnect/,
		'its workers say that they have another version');
	$old->{err} = '';
}
is(answer($old, $serial), '12000|t', 'the session goes on');

my $new = session($node, 'used');
is(answer($new, $serial), '12000|t', 'a session with the new library sorts');
is(answer($new, $parallel), '12000|t', 'its workers have the new library, too, and sort');
my $said = answer($new, $status);
like($said, qr/^cpu\|.*no extra threads: \Q$restart\E$/m, 'the status of the new session asks for a restart');
like($said, qr/^cuda\|(\Q$restart\E|The library gpusort_cuda\.\S+ is not installed\.)$/m, 'the new session does not use the GPU');
is($new->{err}, '', 'the session has raised no error');
is(answer($new, 'SELECT count(*) FROM gpusort_activity'), '0', 'the view of the new session is empty');
like($new->{err}, qr/WARNING:  gpusort cannot show what sorts are doing\nDETAIL:  \Q$restart\E/, 'the view says why');
leave($_) foreach $old, $new;

$node->stop;
start_private($node, $private);
$new = session($node, 'used');
is(answer($new, $serial), '12000|t', 'restarted: a session sorts');
unlike(answer($new, $status), qr/restart/, 'restarted: the status asks for no restart');
is(answer($new, 'SELECT count(*) FROM gpusort_activity') . $new->{err}, '0', 'restarted: the view gives no warning');
leave($new);

# with shared_preload_libraries, all processes have the postmaster's library
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'gpusort'\n");
$node->stop;
start_private($node, $private);
install($version);
$new = session($node, 'used');
is(answer($new, $parallel), '12000|t', 'preloaded: sessions and workers have the same library');
unlike(answer($new, $status), qr/restart/, 'preloaded: the status asks for no restart');
is($new->{err}, '', 'preloaded: the session has raised no error');
leave($new);

$node->stop;
done_testing();
