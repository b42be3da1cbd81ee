# A role cannot change settings that all users share, end the GPU service, see what others sort,
# or install the extension.  The lists of settings, functions
# and views are complete, so that a new one has to be thought about.
# test/sql/privileges.sql tests what a query may read, 022_activity.pl what a role sees
# of other roles' sorts, and 009_standin_limits.pl how many requests a session may hold.

use strict;
use warnings;

use File::Basename qw(dirname);
use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('privileges', settings => "gpusort.min_rows = 1000\ngpusort.device_memory_limit = 64MB\nmax_parallel_workers_per_gather = 0\n");
$node->start;
$node->safe_psql('postgres', q(
CREATE EXTENSION gpusort;
CREATE ROLE alice LOGIN;
CREATE ROLE bob LOGIN;
CREATE ROLE signaller LOGIN IN ROLE pg_signal_backend;
CREATE DATABASE bobs OWNER bob;
));

# Runs a role's statements and returns their output and errors.
sub as_role
{
	my ($role, $sql, %options) = @_;
	local $ENV{PGOPTIONS} = $options{settings} // '';
	my ($rc, $stdout, $stderr) = $node->psql($options{database} // 'postgres', $sql,
		extra_params => [ '-U', $role ], on_error_stop => 0);
	return ($stdout, $stderr);
}

#
# Only the administrator may change settings that all users share, also before the library is loaded
#
my $told = qr/parameter "gpusort.device_memory_limit" cannot be changed now/;
my ($stdout, $stderr);

# each of these sessions is new; the service is ready by now
my $gpu = $node->safe_psql('postgres', q(SELECT available FROM gpusort_status() WHERE engine = 'cuda'));
foreach my $case (
	[ 'before the library is loaded', "SET gpusort.device_memory_limit = '1GB'", '' ],
	[ 'for the transaction', "BEGIN; SET LOCAL gpusort.device_memory_limit = '1GB'", '' ],
	[ 'when connecting', 'SELECT', '-c gpusort.device_memory_limit=1GB' ])
{
	my ($name, $sql, $settings) = @$case;
	($stdout, $stderr) = as_role('alice', "$sql; SELECT cardinality(gpu_sort(array_agg(g))) FROM generate_series(1, 9000000::bigint) AS g; "
		  . q(SELECT engine, reason FROM gpusort_last_sort()), settings => $settings);
	like($stderr, $told, "set $name: alice gets a message that she may not");
	like($stdout, $gpu eq 't' ? qr/^9000000\ncpu\|.*too little memory.*gpusort\.device_memory_limit/ : qr/^9000000\ncpu\|/, "set $name: the limit holds");
}
($stdout, $stderr) = as_role('alice', "SELECT gpu_sort(ARRAY[2, 1]); SET gpusort.device = '0'");
like($stderr, qr/parameter "gpusort.device" cannot be changed now/, 'alice cannot choose the device');
($stdout, $stderr) = as_role('alice', "ALTER SYSTEM SET gpusort.device = '0'");
like($stderr, qr/ERROR:  permission denied to set parameter "gpusort.device"|ERROR:  must be superuser/, 'alice cannot choose the device of the server');
($stdout, $stderr) = as_role('bob', "ALTER DATABASE bobs SET gpusort.device_memory_limit = '64MB'", database => 'bobs');
like($stderr, qr/ERROR:  permission denied to set parameter "gpusort.device_memory_limit"/, 'bob cannot set a limit for his database');
($stdout, $stderr) = as_role('alice', "SET gpusort.memory_limit = '1MB'; SELECT gpu_sort(ARRAY[2, 1]); SHOW gpusort.memory_limit");
is($stdout, "{1,2}\n1MB", q(every role may change the settings of its own sessions));
is($stderr, '', 'such a setting may be changed before the library is loaded');
($stdout, $stderr) = as_role('alice', "SELECT gpu_sort(ARRAY[2, 1]); SET gpusort.max_memory_limit = '1GB'");
like($stderr, qr/permission denied to set parameter "gpusort.max_memory_limit"/, 'alice cannot raise the bound of her limit');

#
# Each setting has the right context, and docs/usage.md says so
#
my %contexts = (
	(map { ("gpusort.$_" => 'user') } qw(algorithm enabled engine force index_build memory_limit min_rows verify)),
	'gpusort.max_memory_limit' => 'superuser',
	(map { ("gpusort.$_" => 'sighup') } qw(device device_memory_limit service_idle_timeout)));
my @found = split /\n/, $node->safe_psql('postgres',
	q(LOAD 'gpusort'; SELECT name || ' ' || context FROM pg_settings WHERE name LIKE 'gpusort.%' AND name NOT LIKE 'gpusort.fault%' ORDER BY name COLLATE "C"));
is(join(', ', @found), join(', ', map { "$_ $contexts{$_}" } sort keys %contexts), 'every setting has its context');
my %documented = slurp_file(dirname(__FILE__) . '/../../docs/usage.md') =~ /^\| `(gpusort\.\w+)` \| (any user|a superuser|the administrator) \| /mg;
my %who = (user => 'any user', superuser => 'a superuser', sighup => 'the administrator');
is_deeply(\%documented, { map { ($_ => $who{ $contexts{$_} }) } keys %contexts }, 'docs/usage.md says who may change a setting');

#
# Functions and views: what the public may use, and that nothing acts as its owner
#
my $members = q(pg_depend d ON d.objid = o.oid AND d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'gpusort'));
is($node->safe_psql('postgres', "SELECT DISTINCT proname FROM pg_proc o JOIN $members AND d.classid = 'pg_proc'::regclass "
	  . q(WHERE has_function_privilege('alice', o.oid, 'EXECUTE') AND NOT 'internal'::regtype = ANY (proargtypes::oid[]) ORDER BY 1)),
	join("\n", qw(gpu_argsort gpu_sort gpu_sort_agg gpusort_activity_list gpusort_engine_list gpusort_last_sort gpusort_stat_list
		  gpusort_stat_reason_list gpusort_status)), 'the functions that everybody may call');
is($node->safe_psql('postgres', "SELECT oid::regprocedure FROM pg_proc o JOIN $members AND d.classid = 'pg_proc'::regclass "
	  . q(WHERE NOT has_function_privilege('alice', o.oid, 'EXECUTE') OR prosecdef)), 'gpusort_stat_reset()', 'the others, and those that act as their owner');
is($node->safe_psql('postgres', "SELECT relname, has_table_privilege('alice', o.oid, 'SELECT'), has_table_privilege('alice', o.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER') "
	  . "FROM pg_class o JOIN $members AND d.classid = 'pg_class'::regclass ORDER BY 1"),
	"gpusort_activity|t|f\ngpusort_stat|t|f\ngpusort_stat_reasons|t|f", 'everybody may read the views, and do nothing else with them');
(undef, $stderr) = as_role('alice', 'SELECT gpusort_stat_reset()');
like($stderr, qr/permission denied for function gpusort_stat_reset/, 'alice cannot reset the statistics');

#
# Nothing shows another user's names, texts or values
#
$node->safe_psql('postgres', q(
CREATE SCHEMA bob AUTHORIZATION bob;
SET ROLE bob;
CREATE TYPE bob.secret_type AS ENUM ('secret_value', 'another');
CREATE TYPE bob.secret_row AS (j jsonb);
CREATE COLLATION bob.secret_collation (provider = libc, locale = 'C');
CREATE TABLE bob.secret_table AS SELECT g AS secret_column, 'secret_value'::bob.secret_type AS e, '{"secret_value": 1}'::jsonb AS j,
	('secret_value' || g) COLLATE bob.secret_collation AS text, ROW('{"secret_value": 1}'::jsonb)::bob.secret_row AS record FROM generate_series(1, 3000) AS g;
ANALYZE bob.secret_table;
));
my $bob = session($node);
answer($bob, 'SET ROLE bob', q(SET search_path = bob, public), 'SET gpusort.force = on', 'SELECT cardinality(gpu_sort_agg(secret_column)) FROM secret_table',
	(map { "SELECT $_ FROM secret_table ORDER BY $_ OFFSET 3000" } qw(secret_column e j text record array[e] array[text])),
	'CREATE INDEX secret_index ON secret_table (text)', 'SELECT count(DISTINCT text) FROM secret_table', 'SELECT gpu_sort(array_agg(text)) FROM secret_table',
	'BEGIN', 'DECLARE secret_cursor CURSOR FOR SELECT text FROM (SELECT text, CASE WHEN secret_column = 7 THEN pg_sleep(1.2) END FROM secret_table OFFSET 0) s ORDER BY text',
	'MOVE 1 FROM secret_cursor');
my @shown = qw(gpusort_activity gpusort_activity_list() gpusort_stat gpusort_stat_list() gpusort_stat_reasons gpusort_stat_reason_list() gpusort_status() gpusort_last_sort());
($stdout, $stderr) = as_role('alice', join('; ', map { "SELECT s::text FROM $_ AS s" } @shown));
is($stderr, '', 'alice reads all views and functions');
like($stdout, qr/type ""\.\.\."" is not supported/, 'they show the reasons why core did sorts of bob');
like($stdout, qr/^\(\d+,,,,,,,,\)$/m, 'they show a process of bob that sorts');
unlike($stdout, qr/secret/, 'they show none of the names, texts and values of bob');
leave($bob);

#
# A sort starts the GPU service, and nothing that a role calls ends it
#
if ($gpu eq 't')
{
	$node->restart;
	is((as_role('alice', q(SELECT gpu_sort(ARRAY[2, 1]); LOAD 'gpusort_cuda')))[0], '{1,2}', 'a sort of few values');
	is(scalar(service_pids($node)), 0, 'does not start the service for alice');
	my $sort = 'SELECT cardinality(gpu_sort_agg(g)) FROM generate_series(1, 2000) AS g; SELECT engine FROM gpusort_last_sort()';
	is((as_role('alice', $sort))[0], "2000\ncuda", 'a sort of alice starts it');
	my @pids = service_pids($node);
	is(scalar(@pids), 1, 'there is one');
	foreach my $role ('alice', 'signaller')
	{
		foreach my $function ('terminate', 'cancel')
		{
			(undef, $stderr) = as_role($role, "SELECT pg_${function}_backend(service_pid) FROM gpusort_status() WHERE engine = 'cuda'");
			like($stderr, qr/ERROR:  |WARNING:  PID \d+ is not a PostgreSQL/, "$role cannot $function it");
		}
	}
	is((as_role('alice', $sort))[0], "2000\ncuda", 'it goes on');
	is(join(' ', service_pids($node)), "@pids", 'it is the same, and there is no other');
}

#
# Installing native code is for superusers, not for a database's owner
#
($stdout, $stderr) = as_role('bob', 'CREATE EXTENSION gpusort', database => 'bobs');
like($stderr, qr/permission denied to create extension "gpusort"/, q(a database's owner cannot install it));
($stdout, $stderr) = as_role('bob', q(CREATE FUNCTION gpu_sort(anyarray) RETURNS anyarray AS '$libdir/gpusort' LANGUAGE c), database => 'bobs');
like($stderr, qr/permission denied for language c/, q(a database's owner cannot create its functions));
($stdout, $stderr) = as_role('bob', q(LOAD 'gpusort'), database => 'bobs');
like($stderr, qr/access to library "gpusort" is not allowed/, q(a database's owner cannot load the library));

$node->stop;
done_testing();
