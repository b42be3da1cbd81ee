# Memory.  A GpuSort keeps to gpusort.memory_limit, as EXPLAIN shows and as the
# kernel counts.  And if there is no memory (src/base/memory.c, by
# test/spill/memory_test.c), the session gives back the buffers that it keeps for
# its next sort, and tries once more.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $module = built_file('spill_test.so');

my $node = new_node('memory');
$node->start;
$node->safe_psql('postgres', <<"SQL");
CREATE FUNCTION memory_retry(keep boolean) RETURNS text AS '$module' LANGUAGE C STRICT;
CREATE FUNCTION memory_rest(buffers integer) RETURNS bigint AS '$module' LANGUAGE C STRICT;
CREATE FUNCTION shmem_wrong_size() RETURNS boolean AS '$module' LANGUAGE C;
SQL

my ($rc, $stdout, $stderr) = $node->psql('postgres', 'SELECT memory_retry(false)');
like($stderr, qr/ERROR:  out of memory/, 'no memory, and no buffer is kept: an error');

($rc, $stdout, $stderr) = $node->psql('postgres', 'SELECT memory_retry(true)');
is("$stdout$stderr", '512 MB kept before, 0 MB after', 'no memory, and a buffer is kept: it is given back, and the allocation succeeds');

is($node->safe_psql('postgres', 'SELECT memory_rest(10000) - memory_rest(1)'), 0, 'nothing is left of buffers that are freed before their memory context');

($rc, $stdout, $stderr) = $node->psql('postgres', 'SELECT shmem_wrong_size()');
like($stderr, qr/ERROR:  ShmemIndex entry size is wrong/, 'an error about shared memory is not taken for a lack of it');

# ----------------------------------------------------------------
# The limit
# ----------------------------------------------------------------

$node->append_conf('postgresql.conf', <<'CONF');
session_preload_libraries = 'gpusort'
gpusort.force = on
gpusort.engine = cpu
max_parallel_workers_per_gather = 0
CONF
$node->restart;
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t AS SELECT i AS id, hashint4(i) AS k, hashint8extended(i, 0) AS b, md5(i::text) COLLATE "C" AS word
	FROM generate_series(1, 500000) AS i;
VACUUM ANALYZE t;
SQL
my $icu = $node->safe_psql('postgres', q(SELECT count(*) FROM pg_collation WHERE collname = 'und-x-icu'));

# The kB that the node's Memory may exceed the limit by: one row.
my $row_kb = 3;

# The kB by which the process may grow beyond the limit: a sixteenth of it for
# buffers whose sizes are rounded up, and what every sort needs.
sub slack_kb
{
	my ($limit_kb) = @_;
	return $limit_kb / 16 + 8 * 1024;
}

# Runs a query in a session of its own.  Returns its output and the most memory
# that the session had, in kB.
sub peak
{
	my ($settings, $query) = @_;
	my $output = $node->safe_psql('postgres', "$settings; $query; SELECT pg_read_file('/proc/self/status')");
	my ($kb) = $output =~ /^VmHWM:\s*(\d+) kB/m;
	return ($output, $kb);
}

my @shapes = (
	[ 'narrow rows', 'id, k', 'k' ],
	[ 'values of 4 bytes', 'k', 'k' ],
	[ 'values of 8 bytes', 'b', 'b' ],
	[ 'four columns', 'k, id, b, k % 1000 AS few', 'k % 1000, k, b, id' ],
	[ 'eight words', 'id', 'id % 2, id % 3, id % 5, id % 7, id % 11, id % 13, id % 17, k' ],
	[ 'wide rows', 'repeat(word, 10), k', 'k' ],
	[ 'rows of 2 kB', 'repeat(word, 64), k', 'k' ],
	[ 'texts', 'word', 'word' ],
	[ 'texts that tie', q(concat('the same beginning ', word) COLLATE "C" AS s), 's' ],
	[ 'numerics', 'b::numeric AS n, id', 'n' ],
	[ 'wide rows, then narrow ones', 'CASE WHEN id % 200000 < 30000 THEN repeat(word, 10) END, k', 'k' ],
	[ 'narrow rows, then wide ones', 'CASE WHEN id % 200000 > 150000 THEN repeat(word, 10) END, k', 'k' ]);
push @shapes, [ 'texts under ICU', 'word COLLATE "und-x-icu" AS s, k', 's' ],
  [ 'texts under ICU that tie', q(concat('the same beginning ', word) COLLATE "und-x-icu" AS s), 's' ] if $icu;

foreach my $case ([ 64, 10000 ], [ 1024, 30000 ], [ 4096, 100000 ], [ 65536, 500000 ], [ 131072, 500000 ])
{
	my ($limit_kb, $rows) = @$case;

	foreach my $shape (@shapes)
	{
		my ($name, $columns, $order) = @$shape;
		# fewer of the slow ones
		next if $limit_kb > 4096 && $name eq 'rows of 2 kB' || $limit_kb > 65536 && $name !~ /four|wide|tie|numeric/;
		my $query = "SELECT $columns FROM t WHERE id <= $rows";
		my ($output, $kb) = peak("SET gpusort.memory_limit = '${limit_kb}kB'",
			"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) $query ORDER BY $order");
		my ($memory) = $output =~ /Memory: (\d+) kB/;
		cmp_ok($memory, '<=', $limit_kb + $row_kb, "$name, $limit_kb kB: the sort keeps to the limit");
		next if $limit_kb < 65536;
		my (undef, $unsorted_kb) = peak('SELECT', "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) $query");
		cmp_ok($kb - $unsorted_kb, '<=', $limit_kb + slack_kb($limit_kb), "$name, $limit_kb kB: and so does the process");
	}
}

$node->stop;
done_testing();
