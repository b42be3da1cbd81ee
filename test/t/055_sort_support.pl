# Types whose btree operator class has abbreviated keys, but is not PostgreSQL's own, as PostGIS's geometry.
#
# The operator classes here (random.sql) are of PostgreSQL's types, with their comparison and their sort support, in families of
# their own, so that gpusort does not know them.  Random queries are compared with core; some values begin alike, so that
# abbreviated keys do not tell them apart.  Then indexes, and families that gpusort must leave to core.
#
#   SEED=n, CASES=n (60 by default): see RandomTest.pm

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

begin_cases(60);
my $node = new_node('sort_support', settings => "shared_preload_libraries = 'gpusort'\nautovacuum = off\n");
$node->start;

my @names = ('uuid', 'bytea', 'macaddr', 'inet');
$node->safe_psql('postgres', random_schema());
random_queries($node, 'postgres', 'by sort support', least => 0.5, table => { strings => 0, kinds => [ @names, 'bytea: alike' ] }, forms => [ ('plain') x 4, 'limit', 'ties', 'distinct on', 'first', 'value', 'presorted' ]);

# ---- useless abbreviations ----

$node->safe_psql('postgres', "CREATE TABLE alike AS SELECT convert_to(repeat('alike ', 5) || i * 7919 % 100000, 'UTF8') AS b, i FROM generate_series(1, 100000) i; ANALYZE alike");
my $alike = 'SELECT md5(string_agg(i::text, \',\')) FROM (SELECT i FROM alike ORDER BY b USING #<) q';
is($node->safe_psql('postgres', "SET gpusort.force = on; $alike"), $node->safe_psql('postgres', "SET gpusort.enabled = off; $alike"), 'values that begin alike');

# ---- indexes ----

SKIP:
{
	my ($rc) = $node->psql('postgres', 'CREATE EXTENSION amcheck');

	skip 'no amcheck', scalar @names if $rc != 0;
	$node->safe_psql('postgres', 'DROP TABLE t CASCADE; CREATE TABLE t AS SELECT i, ' . join(', ', map { value_of($_, nulls => 10) . " AS $_" } @names) . ' FROM generate_series(1, 20000) i');
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
