# Types whose btree operator class has abbreviated keys, but is not PostgreSQL's own, as PostGIS's geometry.
#
# The operator classes here are of PostgreSQL's types, with their comparison and their sort support, in families of their
# own, so that gpusort does not know them.  Random tables and orders are compared with core, with NULLs, ties, values that
# begin alike, for which the sort support gives its keys up, and in spilled and parallel sorts.  Then indexes, and families
# that gpusort must leave to core.
#
#   SEED=n    repeats the cases of an earlier run; printed when a case fails

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($seed, $cases) = begin_cases(60);
my $node = new_node('sort_support', settings => "shared_preload_libraries = 'gpusort'\nautovacuum = off\n");
$node->start;
srand($seed);

# The types, their comparison and sort support, and values of i
my %types = (
	uuid => [ 'uuid_cmp', 'uuid_sortsupport', 'md5((i %% %d)::text)::uuid', "('00000000-0000-0000-0000-' || lpad(to_hex(i %% %d), 12, '0'))::uuid" ],
	bytea => [ 'byteacmp', 'bytea_sortsupport', "decode(left(md5((i %% %d)::text), 2 * (i %% 17)), 'hex')", "convert_to(repeat('alike ', 5) || i %% %d, 'UTF8')" ],
	macaddr => [ 'macaddr_cmp', 'macaddr_sortsupport', 'left(md5((i %% %d)::text), 12)::macaddr', "lpad(to_hex(i %% %d), 12, '0')::macaddr" ],
	inet => [ 'network_cmp', 'network_sortsupport', "((i * 7919 %% 256) || '.' || (i %% %d) %% 256 || '.0.1')::inet", "('10.0.0.' || (i %% %d) %% 256)::inet" ]);
my @names = sort keys %types;

foreach my $type (@names)
{
	my ($compare, $support) = @{ $types{$type} };
	my %functions = (uuid => 'uuid_', bytea => 'bytea', macaddr => 'macaddr_', inet => 'network_');
	$node->safe_psql('postgres', <<"SQL");
CREATE OPERATOR #< (FUNCTION = $functions{$type}lt, LEFTARG = $type, RIGHTARG = $type);
CREATE OPERATOR #> (FUNCTION = $functions{$type}gt, LEFTARG = $type, RIGHTARG = $type);
CREATE OPERATOR CLASS own_$type FOR TYPE $type USING btree AS
	OPERATOR 1 #<, OPERATOR 3 =, OPERATOR 5 #>, FUNCTION 1 $compare($type, $type), FUNCTION 2 $support(internal);
SQL
}

sub make_table
{
	my $rows = pick(0, 1, 2000, 20000, 60000);
	my @columns = map { sprintf("CASE WHEN i %% %d > 0 THEN $types{$_}[ pick(2, 2, 3) ] END AS $_", pick(2, 9, 1_000_000), pick(3, 500, 1_000_000)) } @names;
	return 'DROP TABLE IF EXISTS t; CREATE TABLE t AS SELECT i, i % 5 AS few, ' . join(', ', @columns) . " FROM generate_series(1, $rows) i; ANALYZE t;";
}

sub make_order
{
	my @order = map { my $type = $_; "$type USING " . pick('#<', '#>') . pick('', ' NULLS FIRST', ' NULLS LAST') } map { pick(@names) } 1 .. pick(1, 1, 2, 3);
	splice @order, below(@order + 1), 0, 'few DESC' if chance(30);
	return join(', ', @order, 'i');
}

my ($same, $used) = (0, 0);
for my $i (1 .. $cases)
{
	$node->safe_psql('postgres', make_table()) if $i % 10 == 1;
	my $query = 'SELECT md5(string_agg(i::text, \',\')) FROM (SELECT * FROM t ORDER BY ' . make_order() . pick('', '', ' LIMIT 100', ' OFFSET 7') . ') q';
	my $settings = 'SET gpusort.force = on; SET gpusort.memory_limit = \'' . pick('64kB', '1MB', '1GB') . '\'; SET max_parallel_workers_per_gather = ' . pick(0, 2)
	  . '; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;';
	my @answers = map { $node->safe_psql('postgres', "$settings SET gpusort.enabled = $_; $query") } 'off', 'on';

	$same += $answers[0] eq $answers[1];
	$used += $node->safe_psql('postgres', "$settings EXPLAIN $query") =~ /GpuSort\)/;
	diag("SEED=$seed\n$settings\n$query") if $answers[0] ne $answers[1];
}
is($same, $cases, 'all answers are the same');
cmp_ok($used, '>', $cases / 2, 'most sorts were GpuSort\'s');

# ---- useless abbreviations ----

$node->safe_psql('postgres', "CREATE TABLE alike AS SELECT convert_to(repeat('alike ', 5) || i * 7919 % 100000, 'UTF8') AS b, i FROM generate_series(1, 100000) i; ANALYZE alike");
my $alike = 'SELECT md5(string_agg(i::text, \',\')) FROM (SELECT i FROM alike ORDER BY b USING #<) q';
is($node->safe_psql('postgres', "SET gpusort.force = on; $alike"), $node->safe_psql('postgres', "SET gpusort.enabled = off; $alike"), 'values that begin alike');

# ---- indexes ----

$node->safe_psql('postgres', 'DROP TABLE t');
SKIP:
{
	my ($rc) = $node->psql('postgres', 'CREATE EXTENSION amcheck');

	skip 'no amcheck', scalar @names if $rc != 0;
	$node->safe_psql('postgres', make_table()) foreach 1 .. 3;
	foreach my $type (@names)
	{
		$node->safe_psql('postgres', "CREATE INDEX t_$type ON t ($type own_$type, i)");
		is($node->safe_psql('postgres', "SELECT bt_index_parent_check('t_$type', true)"), '', "an index by $type");
	}
}

# ---- left to core ----

$node->safe_psql('postgres', <<'SQL');
CREATE OPERATOR #< (FUNCTION = numeric_lt, LEFTARG = numeric, RIGHTARG = numeric);
CREATE OPERATOR #> (FUNCTION = numeric_gt, LEFTARG = numeric, RIGHTARG = numeric);
CREATE OPERATOR CLASS own_numeric FOR TYPE numeric USING btree AS
	OPERATOR 1 #<, OPERATOR 3 =, OPERATOR 5 #>, FUNCTION 1 numeric_cmp(numeric, numeric), FUNCTION 2 numeric_sortsupport(internal);
CREATE OPERATOR #< (FUNCTION = int8lt, LEFTARG = int8, RIGHTARG = int8);
CREATE OPERATOR #> (FUNCTION = int8gt, LEFTARG = int8, RIGHTARG = int8);
CREATE OPERATOR CLASS own_int8 FOR TYPE int8 USING btree AS
	OPERATOR 1 #<, OPERATOR 3 =, OPERATOR 5 #>, FUNCTION 1 btint8cmp(int8, int8), FUNCTION 2 btint8sortsupport(internal);
SQL
unlike($node->safe_psql('postgres', "SET gpusort.force = on; EXPLAIN SELECT i FROM alike ORDER BY $_ USING #<"), qr/GpuSort/, "core's: $_")
  foreach 'i::numeric', 'i::int8';

$node->stop;
done_testing();
