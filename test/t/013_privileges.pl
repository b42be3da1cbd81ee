# A role cannot change settings that all users share, and cannot install the extension.
# test/sql/privileges.sql tests what a query may read, 022_activity.pl what a role sees
# of other roles' sorts.

use strict;
use warnings;

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
