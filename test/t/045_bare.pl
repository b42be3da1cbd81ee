# Rows whose only column is a varlena are kept as bare values (src/store/rowstore.h).  The
# answers are core's all the same: for values of all sizes and forms, NULLs and empty
# strings among them, in memory, spilled, with a LIMIT, gathered by several processes,
# read in both directions, handed over to core, and kept by the node's parent.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('bare', order_by => 1, settings => <<'CONF');
gpusort.engine = cpu
max_parallel_workers = 3
work_mem = 256MB
log_temp_files = 0
CONF
$node->start;

# Columns by name: type, a value in terms of the row's number i, and an expression that makes
# a new value.  Those of a type whose
# different values can be equal have only one form of each value.
my %columns = (
	short => [ 'text COLLATE "C"', "CASE i % 40 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE left(md5(i::text), 1 + i % 24) END" ],
	alike => [ 'text COLLATE "C"', "'a common beginning of all strings ' || (hashint4(i) & 1) || ' and then another one ' || hashint4(i) % 3000" ],
	long => [ 'text COLLATE "C"', "CASE i % 500 WHEN 0 THEN repeat('x', 5000 + i % 7) WHEN 1 THEN repeat(md5(i::text), 400) WHEN 2 THEN NULL ELSE md5(i::text) END" ],
	bytes => [ 'bytea', "CASE WHEN i % 9 > 0 THEN decode(repeat('00', i % 5), 'hex') || int4send(hashint4(i)) END", "v || '\\x'" ],
	number => [ 'numeric', "CASE i % 40 WHEN 0 THEN 'NaN' WHEN 1 THEN NULL WHEN 2 THEN 1e100 + i ELSE hashint4(i) END", 'v + 0' ]);
my @names = sort keys %columns;

$node->safe_psql('postgres', join("\n", 'CREATE EXTENSION gpusort;',
	map({ "CREATE TABLE t_$_ (v $columns{$_}[0]); "
		  . ($_ eq 'long' ? 'ALTER TABLE t_long ALTER v SET STORAGE EXTERNAL; INSERT INTO t_long SELECT ' . $columns{$_}[1] . ' FROM generate_series(1, 3000) AS i; ALTER TABLE t_long ALTER v SET STORAGE EXTENDED; ' : '')
		  . "INSERT INTO t_$_ SELECT $columns{$_}[1] FROM generate_series(1, 20000) AS i; ANALYZE t_$_;" } @names)));

# All rows of a query, in its order
sub rows_of
{
	my ($query) = @_;
	return ask($node, "SELECT md5(string_agg(coalesce(v::text, '(null)'), ',' ORDER BY r)), count(*), count(v) FROM (SELECT v, row_number() OVER () AS r FROM ($query OFFSET 0) AS s) AS x");
}

# Core's answer is GpuSort's, whose plan matches GpuSort, or $settings{plan}.  The other
# %settings are GpuSort's.
sub same
{
	my ($what, $query, $answer, %settings) = @_;
	my $plan = delete $settings{plan} // qr/GpuSort/;
	ask($node, 'SET gpusort.enabled = off');
	my $core = $answer->($query);
	ask($node, 'SET gpusort.enabled = on');
	ask($node, "SET $_ = '$settings{$_}'") foreach sort keys %settings;
	my $got = $answer->($query);
	my $explained = ask($node, 'EXPLAIN (ANALYZE, TIMING OFF) ' . $query =~ s/.*CURSOR FOR (.*?);.*/$1/r);
	ask($node, "RESET $_") foreach sort keys %settings;
	is($explained =~ $plan ? $got : "another plan:\n$explained", $core, $what);
	return;
}

sub temporary_files
{
	my ($log) = @_;
	return () = slurp_file($node->logfile, $log) =~ /temporary file: path/g;
}

foreach my $name (@names)
{
	foreach my $order ('', 'DESC', 'NULLS FIRST', 'DESC NULLS LAST')
	{
		my $query = "SELECT v FROM t_$name ORDER BY v $order";
		same("$query", $query, \&rows_of);
	}
	my $query = "SELECT v FROM t_$name ORDER BY v";
	my $log = -s $node->logfile;
	same("$name: spilled", $query, \&rows_of, 'gpusort.memory_limit' => '256kB');
	cmp_ok(temporary_files($log), '>', 0, "$name: to a temporary file");

	same("$name: LIMIT", "$query LIMIT 2000", \&rows_of);
	same("$name: WITH TIES", "$query FETCH FIRST 100 ROWS WITH TIES", \&rows_of);
	same("$name: LIMIT, spilled", "$query LIMIT 15000", \&rows_of, 'gpusort.memory_limit' => '256kB');

	# values that the executor has made: with headers of 4 bytes, or an expanded array
	my $made = $columns{$name}[2] // "v || ''";
	same("$name: values that are no column's", "SELECT $made AS v FROM t_$name ORDER BY 1", \&rows_of);

	# the parent keeps rows
	same("$name: DISTINCT", "SELECT DISTINCT v FROM (SELECT v FROM t_$name ORDER BY v OFFSET 0) AS s ORDER BY v", \&rows_of, enable_hashagg => 'off');
	same("$name: window", "SELECT lag(v, 1500) OVER (ORDER BY v) AS v FROM t_$name", \&rows_of);

	# all rows go to core
	my $rewound = "SELECT s.v FROM (VALUES (1), (2)) AS n (i) LEFT JOIN (SELECT v FROM t_$name ORDER BY v OFFSET 0) AS s ON true";
	same("$name: rewound, in too little memory", $rewound, \&rows_of, 'gpusort.memory_limit' => '256kB', enable_material => 'off',
		plan => qr/Reason: the result is read backward or repeatedly and exceeds/);
}

is(ask($node, 'SELECT bool_and(pg_column_size(v) = length(v) + 1) FROM (SELECT upper(v) AS v FROM t_short ORDER BY 1 OFFSET 0) AS s'),
	't', 'a short value has a header of 1 byte');

# The bound of a LIMIT stays what it was while rows are moved to the front of the store.
same("LIMIT $_: the bound", "SELECT v FROM t_alike ORDER BY v LIMIT $_", \&rows_of) foreach map { 500 * $_ + 250 } 1 .. 8;

# merge joins mark a row and return to it
foreach my $name (qw(short number))
{
	my $join = "SELECT a.v FROM t_$name AS a JOIN t_$name AS b ON a.v = b.v ORDER BY a.v";
	same("$name: merge join", $join, \&rows_of, enable_hashjoin => 'off', enable_nestloop => 'off', enable_material => 'off',
		plan => qr/Merge Join.*GpuSort.*GpuSort.*actual rows=2\d{5}/s);
}

# a plan from before gpusort.enabled was turned off
ask($node, 'PREPARE p AS ' . q(SELECT md5(string_agg(coalesce(v, '-'), ',')) FROM (SELECT v FROM t_short ORDER BY v OFFSET 0) AS s));
my $first = ask($node, 'EXECUTE p');
ask($node, 'SET gpusort.enabled = off');
is(ask($node, 'EXECUTE p'), $first, 'a prepared plan, without GpuSort');
ask($node, 'SET gpusort.enabled = on');

# a cursor, in both directions; rows that were fetched stay as they are
my $cursor = 'BEGIN; DECLARE c SCROLL CURSOR FOR SELECT v FROM t_short ORDER BY v; '
  . join(' ', map { "$_ FROM c;" } 'FETCH 5', 'MOVE 1000', 'FETCH 5', 'FETCH BACKWARD 7', 'MOVE FORWARD ALL', 'FETCH BACKWARD 5', 'FETCH ABSOLUTE 3', 'MOVE BACKWARD ALL', 'FETCH 2')
  . ' COMMIT';
foreach my $memory ('64MB', '256kB')
{
	same("cursor, $memory", $cursor, sub { return $node->safe_psql('postgres', ask($node, "SELECT 'SET gpusort.enabled = ' || current_setting('gpusort.enabled') || '; SET gpusort.memory_limit = ''$memory'';'") . $_[0]); });
}

# several processes gather; in the second case the workers have too little memory
foreach my $memory ('64MB', '64kB')
{
	same("several processes, $memory", 'SELECT v FROM t_number ORDER BY v', \&rows_of, 'gpusort.memory_limit' => $memory,
		max_parallel_workers_per_gather => 2, parallel_setup_cost => 0, parallel_tuple_cost => 0, min_parallel_table_scan_size => 0,
		parallel_leader_participation => 'off', plan => $memory eq '64kB' ? qr/GpuSort Feed.*Worker \d:  Rows: \d+  Memory: \d+kB  Disk/s : qr/GpuSort Feed/);
}

# the rows take less memory than minimal tuples, which have a header of 16 bytes
ask($node, q(CREATE TABLE word AS SELECT left(md5(i::text), 20) COLLATE "C" AS v, true AS b FROM generate_series(1, 300000) AS i; ANALYZE word));
my ($bare) = ask($node, 'EXPLAIN (ANALYZE, TIMING OFF) SELECT v FROM word ORDER BY v') =~ /Memory: (\d+) kB/;
my ($tuples) = ask($node, 'EXPLAIN (ANALYZE, TIMING OFF) SELECT v, b FROM word ORDER BY v') =~ /Memory: (\d+) kB/;
cmp_ok($tuples - $bare, '>=', 300000 * 16 / 1024, 'memory: at least 16 bytes less than a tuple') or diag("$bare kB, $tuples kB");

end_session($node);
$node->stop;

done_testing();
