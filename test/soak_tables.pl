# soak_tables.pl - writes the SQL that makes tables and views for SQLsmith.
#
#   perl -I test/t soak_tables.pl SEED FILE
#
# The tables have columns of every kind of RandomTest.pm, the text among them under
# random collations, and indexes of every access method that their types have.  SQLsmith
# writes no ORDER BY, but it reads views: each table has views that sort, with ties, LIMITs,
# DISTINCT, groups, aggregates that sort inside themselves and windows.

use strict;
use warnings;

use RandomTest;

my ($seed, $file) = @ARGV;
srand($seed);
open my $out, '>', $file or die "$file: $!";
my @collations = ('C', 'default', 'en-x-icu', 'cs-x-icu', 'nocase');
my @kinds = (@plain_kinds, 'citext');

# An index of a random access method on a column, or none if its type has no operators for it
# or a value is too long.
sub index_on
{
	my ($table, $column) = @_;
	my $method = pick('btree', 'btree', 'btree', 'hash', 'gin', 'gist', 'spgist', 'brin');
	return "DO \$\$ BEGIN CREATE INDEX ON $table USING $method ($column); "
	  . "EXCEPTION WHEN undefined_object OR program_limit_exceeded THEN NULL; END \$\$;\n";
}

sub order
{
	return join ', ', directions(map { pick(@_) } 1 .. pick(1, 2, 3));
}

# The views of a table, by its columns.
sub views_of
{
	my ($table, @columns) = @_;
	my ($group, $value, $other) = map { pick(@columns) } 1 .. 3;
	return "CREATE VIEW ${table}_ordered AS SELECT * FROM $table ORDER BY " . order(@columns) . ";\n"
	  . "CREATE VIEW ${table}_first AS SELECT * FROM $table ORDER BY " . order(@columns) . ' FETCH FIRST ' . pick(1, 10, 300) . ' ROWS '
	  . pick('ONLY', 'WITH TIES') . ";\n"
	  . "CREATE VIEW ${table}_grouped AS SELECT $group, count(DISTINCT $value) AS n, string_agg($other\::text, ',' ORDER BY $other, id) AS s, "
	  . "percentile_disc(0.5) WITHIN GROUP (ORDER BY $value) AS p FROM $table GROUP BY $group;\n"
	  . "CREATE VIEW ${table}_window AS SELECT id, $value, rank() OVER (PARTITION BY $group ORDER BY $other) AS r FROM $table;\n"
	  . "CREATE VIEW ${table}_distinct AS SELECT DISTINCT ON ($group) * FROM $table ORDER BY " . join(', ', directions($group, $value)) . ";\n";
}

print $out 'CREATE EXTENSION citext;', random_schema(), 'CREATE ROLE smith LOGIN;';
while (my @some = splice @kinds, 0, 8)
{
	my $table = 'of_' . $some[0] =~ s/\W+/_/gr . '_' . @kinds;
	my $rows = pick(1, 100, 500, 2000);
	my @columns = map { "c$_" } 1 .. @some;
	# kinds without special values are those without a btree
	my @keys = map { "c$_" } grep { defined $kinds{ $some[ $_ - 1 ] }[1] } 1 .. @some;
	my $definitions = join ', ',
	  map { "c$_ " . $some[ $_ - 1 ] =~ s/:.*//r . ($kinds{ $some[ $_ - 1 ] }[2] ? ' COLLATE "' . pick(@collations) . '"' : '') } 1 .. @some;
	my $values = join ', ', map { value_of($_, distinct => pick(2, 20, 2_000_000_000), nulls => pick(0, 5, 50)) } @some;
	my $parts = pick('', '', ' PARTITION BY HASH (id)');
	print $out "CREATE TABLE $table (id int, $definitions)$parts;\n";
	print $out map { "CREATE TABLE ${table}_$_ PARTITION OF $table FOR VALUES WITH (MODULUS 3, REMAINDER $_);\n" } 0 .. 2 if $parts;
	print $out "INSERT INTO $table SELECT i, $values FROM generate_series(1, $rows) i;\n", "CREATE INDEX ON $table (id);\n";
	print $out index_on($table, $_) foreach @columns;
	print $out views_of($table, @keys);
}
print $out "ANALYZE; GRANT ALL ON ALL TABLES IN SCHEMA public TO smith;\n";
close $out or die "$file: $!";
