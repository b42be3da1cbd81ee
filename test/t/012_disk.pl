# Sorts that spill when there is no room for it: a temporary tablespace that is
# full, and temp_file_limit.  It is an error, core's own; what was written is
# gone, the session and others sort on, and the same sort succeeds when there is
# room.  Whatever device there is or is not.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('disk');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
session_preload_libraries = 'gpusort'
gpusort.force = on
gpusort.min_rows = 1000
gpusort.memory_limit = '2MB'
max_parallel_workers_per_gather = 0
max_wal_size = 1GB
fsync = off
jit = off
CONF
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE TABLE t AS SELECT hashint8(i) AS k, repeat(md5(i::text), 4) COLLATE "C" AS filler FROM generate_series(1, 150000::bigint) AS i;
VACUUM ANALYZE t;
SQL
$node->stop;

# A tablespace of 20 MB, if this user may mount one; or else files that cannot
# grow beyond that, which is more than a WAL file.  Spilling the table takes
# 26 MB, and spilling half of it half of that.
my $space = PostgreSQL::Test::Utils::tempdir();
my $start = 'exec pg_ctl -w -D "$0" -l "$1" start >/dev/null';
my $id = "--map-user=$> --map-group=" . ($) + 0);
my $mount = "mount -t tmpfs -o size=20m,mode=700 gpusort '$space'";
my ($kind, $full, @server);
if (system("unshare -Urm sh -c \"$mount && unshare $id true\" >/dev/null 2>&1") == 0)
{
	$kind = 'a tablespace of 20 MB';
	$full = qr/No space left on device/;
	@server = ('unshare', '-Urm', 'sh', '-c', "$mount && exec unshare $id sh -c '$start' \"\$0\" \"\$1\"");
}
else
{
	$kind = 'files of at most 20 MB';
	$full = qr/File too large/;
	@server = ('sh', '-c', "ulimit -f 40960; $start");
}
ok(start_by($node, @server, $node->data_dir, $node->logfile), "$kind: the server starts");
$node->safe_psql('postgres', "CREATE TABLESPACE small LOCATION '$space'");

my $all = 'SELECT count(*), bool_and(up) FROM (SELECT k >= lag(k) OVER () IS NOT false AS up FROM (SELECT * FROM t WHERE k %s ORDER BY k, filler OFFSET 0) AS s) AS s;';
my $half = sprintf($all, '< 0');
$all = sprintf($all, 'IS NOT NULL');
my $left = "SELECT (SELECT count(*) FROM pg_ls_tmpdir((SELECT oid FROM pg_tablespace WHERE spcname = 'small'))), (SELECT count(*) FROM pg_ls_tmpdir()), "
  . '(SELECT count(*) FROM gpusort_activity);';
my $half_result = $node->safe_psql('postgres', "SET gpusort.enabled = off; $half");
# does the sort itself spill, and not only what core makes of it?
like($node->safe_psql('postgres', "EXPLAIN (ANALYZE, COSTS OFF) SELECT * FROM t WHERE k < 0 ORDER BY k, filler"), qr/GpuSort.*Runs: \d/s, 'what is to be spilled');

foreach my $case (
	[ $kind, 'SET temp_tablespaces = small;', qr/ERROR:  could not (?:write to|extend) [^\n]*: $full/ ],
	[ 'temp_file_limit', "SET temp_file_limit = '20MB';", qr/ERROR:  temporary file size exceeds "?temp_file_limit"? \(20480kB\)/ ])
{
	my ($name, $settings, $error) = @$case;
	my $log = -s $node->logfile;
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "$settings\n$all\n$left\n$half\n$left\nRESET ALL;\nSET gpusort.memory_limit = '1GB';\n$all\n$left", on_error_stop => 0);
	like($stderr, qr/^[^\n]*$error/, "$name: an error");
	is($stdout, "0|0|0\n$half_result\n0|0|0\n150000|t\n0|0|0", "$name: nothing is left, and the session sorts on");

	# a subtransaction that fails, in a transaction that goes on
	($rc, $stdout, $stderr) = $node->psql('postgres', "$settings\nBEGIN;\nSAVEPOINT s;\n$all\nROLLBACK TO s;\n$left\n$half\nCOMMIT;\n$left", on_error_stop => 0);
	like($stderr, qr/^[^\n]*$error/, "$name: an error in a subtransaction");
	is($stdout, "0|0|0\n$half_result\n0|0|0", "$name: nothing is left, and its transaction sorts on");

	# a cursor that holds what it has, while another sort finds no more
	($rc, $stdout, $stderr) = $node->psql('postgres',
		"$settings\nBEGIN;\nDECLARE c NO SCROLL CURSOR FOR SELECT k FROM (SELECT * FROM t WHERE k < 0 ORDER BY k, filler OFFSET 0) AS s;\nMOVE 1000 FROM c;\n"
		. "SAVEPOINT s;\n$all\nROLLBACK TO s;\nMOVE 60000 FROM c;\nFETCH 1 FROM c;\nCOMMIT;\n$left", on_error_stop => 0);
	like($stderr, qr/^[^\n]*$error/, "$name: another sort has no room beside a cursor");
	is($stdout, $node->safe_psql('postgres', 'SET gpusort.enabled = off; SELECT k FROM t WHERE k < 0 ORDER BY k, filler OFFSET 61000 LIMIT 1') . "\n0|0|0",
		"$name: which goes on");
	unlike(slurp_file($node->logfile, $log), qr/WARNING|PANIC|TRAP|leak/, "$name: nothing to warn of");
}
$node->stop;

done_testing();
