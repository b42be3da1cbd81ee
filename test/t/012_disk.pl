# A sort has no room to spill: the temporary tablespace is full, or temp_file_limit
# is reached.  The query fails with core's own error, the files written so far are
# removed, the session can sort, and the same sort succeeds when there is room.
# The test suits every build and every machine.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('disk', order_by => 1, settings => "gpusort.min_rows = 1000\ngpusort.memory_limit = '2MB'\nmax_wal_size = 1GB\n");
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE TABLE t AS SELECT hashint8(i) AS k, repeat(md5(i::text), 4) COLLATE "C" AS filler FROM generate_series(1, 150000::bigint) AS i;
VACUUM ANALYZE t;
SQL
$node->stop;

# Spilling the table takes 23 MB, and spilling half of it takes 11 MB.  The limit of
# 20 MB lies between them, and above the 16 MB of a WAL file.
my $space = PostgreSQL::Test::Utils::tempdir();
my $started = start_with_little_room($node, $space, 20, 700, 20);
my $kind = $started eq 'mounted' ? 'a tablespace of 20 MB' : 'files of at most 20 MB';
my $full = $started eq 'mounted' ? qr/No space left on device/ : qr/File too large/;
ok($started, "$kind: the server starts");
$node->safe_psql('postgres', "CREATE TABLESPACE small LOCATION '$space'");

my $all = in_order('SELECT * FROM t ORDER BY k, filler') . ';';
my $half = in_order('SELECT * FROM t WHERE k < 0 ORDER BY k, filler') . ';';
my $left = "SELECT (SELECT count(*) FROM pg_ls_tmpdir((SELECT oid FROM pg_tablespace WHERE spcname = 'small'))), (SELECT count(*) FROM pg_ls_tmpdir()), "
  . '(SELECT count(*) FROM gpusort_activity);';
my $half_result = $node->safe_psql('postgres', "SET gpusort.enabled = off; $half");
# the sort itself must spill, not only core's nodes above it
like($node->safe_psql('postgres', "EXPLAIN (ANALYZE, COSTS OFF) SELECT * FROM t WHERE k < 0 ORDER BY k, filler"), qr/GpuSort.*Runs: \d/s, 'the sort of half the table spills');

foreach my $case (
	[ $kind, 'SET temp_tablespaces = small;', qr/ERROR:  could not (?:write to|extend) [^\n]*: $full/ ],
	[ 'temp_file_limit', "SET temp_file_limit = '20MB';", qr/ERROR:  temporary file size exceeds "?temp_file_limit"? \(20480kB\)/ ])
{
	my ($name, $settings, $error) = @$case;
	my $log = -s $node->logfile;
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "$settings\n$all\n$left\n$half\n$left\nRESET ALL;\nSET gpusort.memory_limit = '1GB';\n$all\n$left", on_error_stop => 0);
	like($stderr, qr/^[^\n]*$error/, "$name: the sort fails");
	is($stdout, "0|0|0\n$half_result\n0|0|0\n150000|t\n0|0|0", "$name: nothing is left, and the session can sort");

	# a subtransaction that fails, in a transaction that goes on
	($rc, $stdout, $stderr) = $node->psql('postgres', "$settings\nBEGIN;\nSAVEPOINT s;\n$all\nROLLBACK TO s;\n$left\n$half\nCOMMIT;\n$left", on_error_stop => 0);
	like($stderr, qr/^[^\n]*$error/, "$name: the sort fails in a subtransaction");
	is($stdout, "0|0|0\n$half_result\n0|0|0", "$name: the subtransaction leaves nothing, and the transaction can sort");

	# a cursor keeps its files while another sort has no room
	($rc, $stdout, $stderr) = $node->psql('postgres',
		"$settings\nBEGIN;\nDECLARE c NO SCROLL CURSOR FOR SELECT k FROM (SELECT * FROM t WHERE k < 0 ORDER BY k, filler OFFSET 0) AS s;\nMOVE 1000 FROM c;\n"
		. "SAVEPOINT s;\n$all\nROLLBACK TO s;\nMOVE 60000 FROM c;\nFETCH 1 FROM c;\nCOMMIT;\n$left", on_error_stop => 0);
	like($stderr, qr/^[^\n]*$error/, "$name: another sort fails beside a cursor");
	is($stdout, $node->safe_psql('postgres', 'SET gpusort.enabled = off; SELECT k FROM t WHERE k < 0 ORDER BY k, filler OFFSET 61000 LIMIT 1') . "\n0|0|0",
		"$name: the cursor goes on");
	unlike(slurp_file($node->logfile, $log), qr/WARNING|PANIC|TRAP|leak/, "$name: the log has no warning");
}
$node->stop;

done_testing();
