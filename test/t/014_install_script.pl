# The extension's SQL scripts resist an attacker who may create objects in its
# schema.  The attacker creates functions, operators and types that fit a call in
# the script better than the intended ones: neither the script nor the objects that it
# creates may use them.  An object with the name of one of the extension's objects
# must stop the script.  CREATE EXTENSION looks up names in pg_catalog first and then
# in the extension's schema, so an attacker uses this schema.
#
# Some checks are those of pgspot (github.com/timescale/pgspot); PSnnn is the number
# of its rule.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('install_script');
$node->start;
$node->safe_psql('postgres', q(
CREATE ROLE mallory LOGIN;
CREATE SCHEMA evil AUTHORIZATION mallory;
));

#
# The text of the script
#
my ($sharedir, $err) = run_command([ 'pg_config', '--sharedir' ]);
my @scripts = glob("$sharedir/extension/gpusort--*.sql");
cmp_ok(scalar(@scripts), '>', 0, 'there are scripts');

# The text without comments and literals.  Function bodies are checked like other
# statements, so none of them may be a string.
sub code_of
{
	my ($text) = @_;
	$text =~ s/--[^\n]*|\/\*.*?\*\/|'(?:[^']|'')*'/ /gs;
	return $text;
}

foreach my $script (@scripts)
{
	my $name = $script =~ s/.*\///r;
	my $text = slurp_file($script);
	like($text, qr/^\\echo .* \\quit$/m, "$name refuses to run in psql");
	my $code = code_of($text =~ s/^\\echo .*$//mr);

	# PS010, PS002, PS005 to PS015: the script neither replaces nor adopts existing objects.
	unlike($code, qr/\bOR\s+REPLACE\b|\bIF\s+NOT\s+EXISTS\b|\bCREATE\s+SCHEMA\b/i, "$name replaces and adopts nothing");
	# PS001, PS003, PS004: no string is executed, and no body is a string whose names are looked up at each call
	unlike($code, qr/\$\w*\$|\bDO\b|\bEXECUTE\s+(?!ON\b)|\bSECURITY\s+DEFINER\b|\bSET\s+(LOCAL\s+)?search_path\b/i,
		"$name has no body whose names are looked up at each call");
	# PS016, PS017: functions, and operators as well, in bodies whose names are looked up now
	foreach my $body ($code =~ /\bBEGIN\s+ATOMIC\b.*?\bEND\s*;|\bCREATE\s+VIEW\b.*?;/gsi)
	{
		my $what = join ' ', (split ' ', $body)[ 0 .. 4 ];
		my @unqualified = grep { !/^(coalesce|least|any|all|array|operator|as|gpusort_\w+|gpu_\w+)$/i } $body =~ /(?<![.\w])(\w+)\s*\(/g;
		is("@unqualified", '', "$name: functions are qualified in: $what");
		unlike($body =~ s/OPERATOR\(pg_catalog\.[^)\w]+\)//gr, qr/[-+*\/<>=~!@#%^&|`?]/, "$name: operators are qualified in: $what");
	}
}

#
# Objects that fit better than the intended ones
#
my $traps = q(
DO $do$
DECLARE
	types text[] := '{int2,int4,int8,float4,float8,numeric,text,varchar,bpchar,name,bool,oid,regtype}';
	l text;
	r text;
	o text;
	p record;
	body text := $$BEGIN RAISE EXCEPTION 'a trap has snapped'; END$$;
BEGIN
	-- types are created last, because later statements here would use them
	FOREACH l IN ARRAY types LOOP
		FOREACH r IN ARRAY types LOOP
			EXECUTE format('CREATE FUNCTION evil.trap(pg_catalog.%s, pg_catalog.%s) RETURNS bool LANGUAGE plpgsql AS %L', l, r, body);
			FOREACH o IN ARRAY '{=,<>,<,<=,>,>=}'::text[] LOOP
				EXECUTE format('CREATE OPERATOR evil.%s (LEFTARG = pg_catalog.%s, RIGHTARG = pg_catalog.%s, FUNCTION = evil.trap)', o, l, r);
			END LOOP;
		END LOOP;
		EXECUTE format('CREATE FUNCTION evil.trap_state(pg_catalog.%1$s, pg_catalog.%1$s) RETURNS pg_catalog.%1$s LANGUAGE plpgsql AS %2$L', l, body);
		FOREACH o IN ARRAY '{min,max}'::text[] LOOP
			EXECUTE format('CREATE AGGREGATE evil.%s(pg_catalog.%s) (SFUNC = evil.trap_state, STYPE = pg_catalog.%2$s)', o, l);
		END LOOP;
	END LOOP;
	EXECUTE format('CREATE FUNCTION evil.gpusort_activity_list(VARIADIC int4[]) RETURNS TABLE (pid int, leader_pid int, sort_number int8, phase text, rows int8, bytes int8, engine text, started timestamptz, estimated_rows int8) LANGUAGE plpgsql AS %L', body);
	FOREACH l IN ARRAY '{text,regtype,int8,int4,float8,bool,anyarray,anynonarray,internal,record}'::text[] LOOP
		EXECUTE format('CREATE DOMAIN evil.%I AS pg_catalog.int2', l);
	END LOOP;
END
$do$;
);

# the members of the extension and their parts, such as a view's rule
my $members = q(
WITH members AS (
	SELECT classid, objid FROM pg_depend
	WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'gpusort')),
parts AS (
	SELECT classid, objid FROM members
	UNION ALL SELECT d.classid, d.objid FROM pg_depend d JOIN members m ON (d.refclassid, d.refobjid) = (m.classid, m.objid) WHERE d.deptype IN ('i', 'a')
	UNION ALL SELECT 'pg_rewrite'::regclass, r.oid FROM pg_rewrite r JOIN members m ON m.classid = 'pg_class'::regclass AND r.ev_class = m.objid)
);
# other objects on which they depend; dependencies on the server's own objects are not recorded
my $foreign = "$members " . q(
SELECT DISTINCT pg_describe_object(d.classid, d.objid, 0) || ': ' || pg_describe_object(d.refclassid, d.refobjid, 0)
FROM pg_depend d JOIN parts p USING (classid, objid)
WHERE d.refobjid >= 16384 AND d.refclassid NOT IN ('pg_extension'::regclass, 'pg_namespace'::regclass)
  AND (d.refclassid, d.refobjid) NOT IN (SELECT classid, objid FROM parts)
  -- a view's row type and the array of it
  AND NOT (d.refclassid = 'pg_type'::regclass AND EXISTS (SELECT FROM parts WHERE classid = 'pg_type'::regclass AND objid = d.refobjid)));

my ($rc, $stdout, $stderr) = $node->psql('postgres', $traps, extra_params => [ '-U', 'mallory' ]);
is("$rc $stderr", '0 ', 'traps are laid');
foreach my $case (
	[ 'in the schema with the traps', 'SET search_path = evil, pg_catalog;', '', 'evil' ],
	[ 'in that schema by SCHEMA', '', 'SCHEMA evil', 'evil' ],
	[ 'in another schema, with that schema first in search_path', 'SET search_path = evil, public;', 'SCHEMA public', 'public' ],
	[ 'with traps in pg_temp', 'CREATE DOMAIN pg_temp.text AS int; CREATE DOMAIN pg_temp.regtype AS int; CREATE TEMP TABLE gpusort_activity (a int);', 'SCHEMA public', 'public' ])
{
	my ($where, $before, $schema, $target) = @$case;
	my $name = "installed $where";
	is($node->psql('postgres', "$before CREATE EXTENSION gpusort $schema"), 0, $name);
	is($node->safe_psql('postgres', q(SELECT extnamespace::regnamespace FROM pg_extension WHERE extname = 'gpusort')), $target, "$name: the extension is in schema $target");
	is($node->safe_psql('postgres', $foreign), '', "$name: its objects depend only on each other");

	# calls everything that can be called, by qualified names
	my $t = 'pg_catalog';
	my $calls = "SET client_min_messages = error; SET search_path = evil, pg_catalog;\n" . join(";\n",
		"SELECT $target.gpu_sort('{2,1}'::$t._int4), $target.gpu_sort('{2,1}'::$t._int4, true), $target.gpu_argsort('{2,1}'::$t._int4, true, false)",
		"SELECT $target.gpu_sort_agg(g) FROM $t.generate_series(1::$t.int4, 3::$t.int4) AS g",
		"SELECT $t.count(*) FROM $target.gpusort_activity",
		"SELECT (l).rows FROM $target.gpusort_last_sort() AS l",
		"SELECT $t.count(*) FROM $target.gpusort_stat",
		"SELECT $t.count(*) FROM $target.gpusort_stat_reasons",
		"SELECT $t.count(*) FROM $target.gpusort_status()");
	($rc, $stdout, $stderr) = $node->psql('postgres', $calls);
	is("$rc $stdout$stderr", "0 {1,2}|{2,1}|{1,2}\n{1,2,3}\n0\n3\n9\n0\n2", "$name: no trap snaps");
	$node->safe_psql('postgres', 'DROP EXTENSION gpusort');
}

# do the traps work?
($rc, $stdout, $stderr) = $node->psql('postgres', q(SET search_path = evil; SELECT 1.5::pg_catalog.float8 <= 1));
like($stderr, qr/a trap has snapped/, 'an operator that fits better is a trap');
($rc, $stdout, $stderr) = $node->psql('postgres', q(SET search_path = evil; SELECT gpusort_activity_list(1, 2)));
like($stderr, qr/a trap has snapped/, 'a function that fits better is a trap');

#
# The extension's functions: names in their bodies were looked up when they were created
#
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
is($node->safe_psql('postgres', "$members " . q(
SELECT string_agg(DISTINCT lanname || CASE WHEN lanname = 'sql' THEN CASE WHEN prosqlbody IS NULL THEN ', a string' ELSE ', parsed' END ELSE '' END, '; ')
FROM pg_proc p JOIN members m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid JOIN pg_language l ON l.oid = prolang)),
	'c; internal; sql, parsed', 'functions are in C, aggregates, or SQL whose names are looked up');
is($node->safe_psql('postgres', "$members " . q(
SELECT count(*) FROM pg_proc p JOIN members m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
WHERE prosecdef OR probin NOT IN ('$libdir/gpusort'))), '0', 'C functions are in the installed library, and no function runs with the rights of its owner');
# Statements that take the names of the extension's objects in schema taken
my $takers = "$members " . q(
SELECT format('CREATE FUNCTION taken.%I(%s) RETURNS int LANGUAGE plpgsql AS %L', proname, oidvectortypes(proargtypes), 'BEGIN RETURN 1; END')
FROM pg_proc p JOIN members m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
WHERE NOT 'internal'::regtype = ANY (proargtypes)
UNION ALL
SELECT unnest(ARRAY[format('CREATE VIEW taken.%I AS SELECT 1 AS a', relname), format('CREATE TABLE taken.%I (a int)', relname),
	format('CREATE TYPE taken.%I AS (a int)', relname), format('CREATE DOMAIN taken.%I AS int', relname)])
FROM pg_class c JOIN members m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid);
my @takers = split /\n/, $node->safe_psql('postgres', $takers);
$node->safe_psql('postgres', 'DROP EXTENSION gpusort');

#
# Names that other objects have already (CVE-2022-2625)
#
cmp_ok(scalar(@takers), '>', 10, 'there are names to take');
foreach my $taker (@takers)
{
	$node->safe_psql('postgres', 'CREATE SCHEMA taken AUTHORIZATION mallory');
	($rc, $stdout, $stderr) = $node->psql('postgres', $taker, extra_params => [ '-U', 'mallory' ]);
	is("$rc $stderr", '0 ', "mallory may: $taker");
	($rc, $stdout, $stderr) = $node->psql('postgres', 'CREATE EXTENSION gpusort SCHEMA taken');
	like($stderr, qr/^psql:<stdin>:1: ERROR:  \w+ "?gpu\w+.* already exists/, "refused over that object: $taker");
	$node->safe_psql('postgres', 'SET client_min_messages = error; DROP SCHEMA taken CASCADE');
}
is($node->safe_psql('postgres', q(SELECT count(*) FROM pg_extension WHERE extname = 'gpusort')), '0', 'the extension is not installed in the end');

$node->stop;
done_testing();
