# A library that is gone: which settings load it, as gpusort_status() shows them before, and how a
# superuser gets into a database without it, as README says.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('removed');
my $private = private_program();
start_private($node, $private);
$node->safe_psql('postgres', <<'SQL');
CREATE DATABASE shop;
CREATE DATABASE "Other shop";
CREATE ROLE alice LOGIN;
SQL
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');

my $places = q{SELECT coalesce((SELECT string_agg(place, ', ' ORDER BY place COLLATE "C") FROM string_to_table(preloaded_by, ', ') AS place), 'nothing')
	FROM (SELECT DISTINCT preloaded_by FROM gpusort_status()) s};
is($node->safe_psql('postgres', $places), 'nothing', 'no setting loads the library');
$node->safe_psql('postgres', <<'SQL');
ALTER DATABASE shop SET session_preload_libraries = 'gpusort';
ALTER DATABASE "Other shop" SET session_preload_libraries = 'auto_explain', '/a=b/gpusort.so';
ALTER ROLE alice IN DATABASE shop SET session_preload_libraries = 'gpusort';
ALTER ROLE alice SET session_preload_libraries = 'gpusorted', 'auto_explain';
SQL
my @named = ('session_preload_libraries of database "Other shop"', 'session_preload_libraries of database shop',
	'session_preload_libraries of role alice of database shop');
is($node->safe_psql('postgres', $places), join(', ', @named), 'settings of databases and roles');
is($node->safe_psql('postgres', "SET ROLE alice; $places"), join(', ', @named), 'the same for another user');
$node->safe_psql('postgres', "ALTER ROLE ALL SET session_preload_libraries = 'gpusort'");
is($node->safe_psql('postgres', $places), join(', ', 'session_preload_libraries of all roles', @named),
	'a setting of all roles');
$node->safe_psql('postgres', "ALTER ROLE ALL RESET session_preload_libraries; ALTER SYSTEM SET session_preload_libraries = 'gpusort'; SELECT pg_reload_conf()");
ok($node->poll_query_until('postgres', "SELECT preloaded_by ~ '^session_preload_libraries,' FROM gpusort_status() LIMIT 1"), 'a setting of the server');
is($node->safe_psql('postgres', "SET ROLE alice; $places"), join(', ', @named), 'which not every user may see');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET session_preload_libraries; SELECT pg_reload_conf()');

# the library is removed, and the settings are not
unlink "$private->{libraries}/gpusort.so" or die 'there is no library';
my ($rc, $stdout, $stderr) = $node->psql('shop', 'SELECT 1');
is($rc, 2, 'no session begins in the database');
like($stderr, qr/FATAL:  could not access file "gpusort"/, 'the message names the library');
is($node->safe_psql('postgres', 'SELECT 1'), '1', 'another database is not affected');
{
	local $ENV{PGOPTIONS} = '-c session_preload_libraries=';
	is($node->safe_psql('shop', 'ALTER DATABASE shop RESET session_preload_libraries; SELECT 1'), '1', 'a superuser gets in, and resets the setting');
}
is($node->safe_psql('shop', 'SELECT 1'), '1', 'sessions begin again');

$node->stop;
done_testing();
