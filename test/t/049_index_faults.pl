# A build of a btree by gpusort (src/index/) that fails, or whose server does: nothing is left,
# the table and its other indexes are intact, and the next build makes core's bytes.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('index_faults', order_by => 1, init => [ allows_streaming => 1, extra => ['--data-checksums'] ], settings => <<'CONF');
gpusort.engine = cpu
gpusort.force = on
autovacuum = off
log_min_messages = debug1
max_wal_size = 1GB
restart_after_crash = on
CONF
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE TABLE t AS SELECT i AS id, hashint4(i) AS k, md5(i::text) AS txt FROM generate_series(1, 150000) i;
CREATE INDEX old ON t (id);
-- late(i) waits at row 100,000 until the test lets go of lock 1
CREATE FUNCTION late(i int) RETURNS int IMMUTABLE PARALLEL SAFE LANGUAGE plpgsql AS
  'BEGIN IF i = 100000 THEN PERFORM pg_advisory_lock_shared(1), pg_advisory_unlock_shared(1); END IF; RETURN -i; END';
VACUUM ANALYZE t;
SQL

my $block_size = $node->safe_psql('postgres', 'SHOW block_size');

# The bytes of an index on a server, without the LSN and the checksum of each page, and without the
# part between its line pointers and its items, which WAL does not have.
sub bytes_of
{
	my ($index, $server) = @_;
	my $path = $node->safe_psql('postgres', "CHECKPOINT; SELECT pg_relation_filepath('$index')");
	my $bytes = slurp_file(($server // $node)->data_dir . "/$path");

	foreach my $page (map { $block_size * $_ } 0 .. length($bytes) / $block_size - 1)
	{
		my ($lower, $upper) = unpack('SS', substr($bytes, $page + 12, 4));

		substr($bytes, $page, 10) = "\0" x 10;
		substr($bytes, $page + $lower, $upper - $lower) = "\0" x ($upper - $lower);
	}
	return $bytes;
}

# Files of the database that belong to no relation, temporary files, and whether the old index answers.
my $left = q{SELECT (SELECT count(*) FROM pg_ls_dir('base/' || (SELECT oid FROM pg_database WHERE datname = 'postgres')) f
    WHERE f ~ '^\d+' AND substring(f FROM '^\d+')::oid NOT IN (SELECT pg_relation_filenode(oid) FROM pg_class WHERE pg_relation_filenode(oid) IS NOT NULL)),
  (SELECT count(*) FROM pg_ls_dir('base/pgsql_tmp', true, false)), (SELECT count(*) FROM pg_class WHERE relname LIKE 'made%'),
  (SELECT k = hashint4(70000) FROM t WHERE id = 70000)};
my $nothing = '0|0|0|t';

# Nothing is left of a build, and the next one makes core's bytes.
sub goes_on
{
	my ($name, $columns) = @_;
	my $ours;

	is($node->safe_psql('postgres', "CHECKPOINT; SET enable_seqscan = off; $left"), $nothing, "$name: nothing is left");
	$node->safe_psql('postgres', "SET maintenance_work_mem = '1MB'; CREATE INDEX made ON t ($columns)");
	$ours = bytes_of('made');
	$node->safe_psql('postgres', 'SET gpusort.index_build = off; REINDEX INDEX made');
	ok($ours eq bytes_of('made'), "$name: the bytes of the next build");
	$node->safe_psql('postgres', 'DROP INDEX made');
	return;
}

# ---- errors ----

# at any time: while rows are read, sorted, spilled, merged or loaded
foreach my $memory ('64MB', '1MB')
{
	my $cancelled = 0;

	foreach my $ms (map { 15 * $_ } 1 .. 12)
	{
		my ($rc) = $node->psql('postgres', "SET maintenance_work_mem = '$memory'; SET statement_timeout = $ms; CREATE INDEX made ON t (txt, k)");

		# also if the time was over when the build had been committed
		$node->safe_psql('postgres', 'DROP INDEX IF EXISTS made');
		$cancelled += $rc != 0;
	}
	cmp_ok($cancelled, '>', 0, "$cancelled builds of 12 are cancelled, with $memory");
	goes_on("cancelled builds with $memory", 'txt, k');
}

# The build waits, with spilled runs.  Then something happens to its process.
sub held_build
{
	my ($happens, $workers) = @_;
	my ($out, $err);
	my $psql;
	my $pid;

	$node->safe_psql('postgres', 'ALTER TABLE t SET (parallel_workers = ' . ($workers // 0) . ')');
	hold($node, 1);
	$psql = in_background($node, \$out, \$err, "SET maintenance_work_mem = '3MB'; CREATE INDEX made ON t (txt, late(id))");
	poll($node, waits_for(1)) or die 'the build does not wait';
	$pid = ask($node, "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
	cmp_ok(ask($node, "SELECT count(*) FROM pg_ls_dir('base/pgsql_tmp')"), '>', 0, "$happens: the build has spilled");
	ok(ask($node, "SELECT (leader_pid IS NOT NULL) = '$workers' FROM pg_stat_activity WHERE pid = $pid") eq 't', "$happens: a worker waits") if $workers;
	if ($happens =~ /^kill (\d+)/)
	{
		my $log = -s $node->logfile;

		end_session($node);
		kill $1, $pid;
		ok(is_back($node, $log), "$happens: the server is back");
	}
	else
	{
		ask($node, "SELECT $happens(coalesce(leader_pid, pid)) FROM pg_stat_activity WHERE pid = $pid");
		let_go($node, 1);
	}
	eval { $psql->finish; };
	return $err;
}

foreach my $workers (0, 1)
{
	like(held_build('pg_cancel_backend', $workers), qr/canceling statement due to user request/, "the build is cancelled, $workers workers");
	goes_on("a cancelled build, $workers workers", 'txt, late(id)');
	like(held_build('pg_terminate_backend', $workers), qr/terminating connection/, "the build is terminated, $workers workers");
	goes_on("a terminated build, $workers workers", 'txt, late(id)');
}
# it would time out
end_session($node);

# with parallel workers, which read in memory or spill
$node->safe_psql('postgres', 'ALTER TABLE t SET (parallel_workers = 2)');
foreach my $memory ('256MB', '1MB')
{
	my $cancelled = 0;

	foreach my $ms (map { ($memory eq '1MB' ? 8 : 3) * $_ } 1 .. 12)
	{
		my ($rc) = $node->psql('postgres', "SET maintenance_work_mem = '$memory'; SET statement_timeout = $ms; CREATE INDEX made ON t (k, id)");

		# also if the time was over when the build had been committed
		$node->safe_psql('postgres', 'DROP INDEX IF EXISTS made');
		$cancelled += $rc != 0;
	}
	cmp_ok($cancelled, '>', 0, "$cancelled builds of 12 with workers and $memory are cancelled");
	goes_on("cancelled builds with workers and $memory", 'k, id');
}

# ---- results that are wrong ----

# Each is found by gpusort.verify, before the statement ends; without it, the build ends with a wrong index.
SKIP:
{
	my $sites = { order => qr/does not sort behind the one before it/, item => qr/\d+ rows with checksum \w+ came in, and \d+ rows with checksum \w+ would be returned/,
		count => qr/150000 rows with checksum \w+ came in, and 149999 rows/, high_key => qr/sorts behind the page's high key/,
		pointer => qr/The pointers of level 1 are not those to the pages of level 0/ };
	my ($rc, $out, $err) = $node->psql('postgres', "SET gpusort.fault = 'index_order:1:refused'");
	my $failures = q{SELECT sum(failures) FROM gpusort_stat WHERE kind = 'index'};

	skip 'this build has no faults', 1 if $rc != 0;
	foreach my $index ('INDEX made ON t (id)', 'INDEX made ON t (txt)', 'INDEX made ON t (id) INCLUDE (txt)', 'UNIQUE INDEX made ON t (id)', 'UNIQUE INDEX made ON t (txt)')
	{
		foreach my $how ("SET maintenance_work_mem = '256MB'; ALTER TABLE t SET (parallel_workers = 0);", "SET maintenance_work_mem = '1MB'; ALTER TABLE t SET (parallel_workers = 2);")
		{
			foreach my $site (sort keys %$sites)
			{
				my $before = $node->safe_psql('postgres', $failures);
				my $fault = "SET gpusort.fault = 'index_$site:1:refused'";

				($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$how SET gpusort.verify = on; $fault; CREATE $index");
				like($err, qr/XX001: index "made" has made a wrong result\nDETAIL:  .*$sites->{$site}/, "$index, $site: found");
				is($node->safe_psql('postgres', $failures), $before + 1, "$index, $site: counted");
				is($node->safe_psql('postgres', "CHECKPOINT; SET enable_seqscan = off; $left"), $nothing, "$index, $site: nothing is left");
				($rc) = $node->psql('postgres', "$how $fault; CREATE $index; DROP INDEX made");
				is($rc, 0, "$index, $site: a build that is not checked");
			}
		}
	}

	# a key that comes twice in a unique index, beside rows that are dead only for new snapshots
	my $reader = session($node);
	my @both = ("SET maintenance_work_mem = '256MB'; ALTER TABLE twice SET (parallel_workers = 0);", "SET maintenance_work_mem = '1MB'; ALTER TABLE twice SET (parallel_workers = 2);");

	$node->safe_psql('postgres', "CREATE TABLE twice AS SELECT i - (i = 70000)::int AS id, md5((i - (i = 70000)::int)::text) AS txt FROM generate_series(1, 100000) i");
	answer($reader, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1');
	$node->safe_psql('postgres', "UPDATE twice SET id = -id, txt = txt || id WHERE id <= 1000; UPDATE twice SET id = id WHERE id BETWEEN 2000 AND 3000");
	foreach my $how (@both)
	{
		foreach my $columns ('id', 'txt', 'txt, id')
		{
			my $fault = "SET gpusort.fault = 'index_unique:1:refused'; CREATE UNIQUE INDEX made ON twice ($columns)";

			($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$how SET gpusort.verify = on; $fault");
			like($err, qr/XX001: index "made" has made a wrong result\nDETAIL:  Item \d+ of block \d+ has the key of another row, and neither is dead/, "a key twice, $columns: found");
			($rc) = $node->psql('postgres', "$how $fault; DROP INDEX made");
			is($rc, 0, "a key twice, $columns: a build that is not checked");
		}
	}
	$node->safe_psql('postgres', 'DELETE FROM twice WHERE id = 69999');
	foreach my $how (@both)
	{
		($rc, $out, $err) = $node->psql('postgres', "$how SET gpusort.verify = on; " . join '', map { "CREATE UNIQUE INDEX made ON twice ($_); DROP INDEX made;" } 'id', 'txt', 'txt, id');
		is("$rc $err", '0 ', 'keys that come twice, but not in two live rows');
	}
	answer($reader, 'COMMIT');
	leave($reader);

	# the value is not read in a thread
	($rc, $out, $err) = $node->psql('postgres', "SET gpusort.verify = on; SET gpusort.fault = 'index_page:1+:refused'; CREATE UNIQUE INDEX made ON t (id)");
	is($rc, 0, 'core reads all pages: the build is right');
	$node->safe_psql('postgres', 'DROP INDEX IF EXISTS made');
	goes_on('results that are wrong', 'txt, k');
}

# ---- no room ----

foreach my $workers (2, 0)
{
	my ($rc, $out, $err) = $node->psql('postgres', "ALTER TABLE t SET (parallel_workers = $workers); SET maintenance_work_mem = '3MB'; SET temp_file_limit = '1MB'; CREATE INDEX made ON t (txt)");

	like($err, qr/temporary file size exceeds "?temp_file_limit"? \(1024kB\)/, "temp_file_limit, $workers workers: the build fails");
	goes_on("temp_file_limit, $workers workers", 'txt');
}

# ---- writers ----

# the index that is built while rows come and go has them all
SKIP:
{
	my ($rc) = $node->psql('postgres', 'CREATE EXTENSION amcheck');
	my ($out, $err);
	my $log = -s $node->logfile;

	skip 'no amcheck', 3 if $rc != 0;
	my $writer = in_background($node, \$out, \$err, map { ("UPDATE t SET k = k + 1, txt = md5(k::text) WHERE id % 500 = $_", "DELETE FROM t WHERE id % 3000 = $_",
			"INSERT INTO t SELECT i, hashint4(i), md5(i::text) FROM generate_series(200000 + $_ * 100, 200099 + $_ * 100) i") } 1 .. 30);
	$node->safe_psql('postgres', "CREATE INDEX CONCURRENTLY made$_ ON t (k, txt)") foreach 1 .. 3;
	$node->safe_psql('postgres', 'REINDEX INDEX CONCURRENTLY made1');
	eval { $writer->finish; };
	is($err, '', 'writers beside a concurrent build');
	is(scalar(() = slurp_file($node->logfile, $log) =~ /gpusort has built index "made\w+"/g), 4, 'gpusort builds concurrently');
	is($node->safe_psql('postgres', "SELECT count(bt_index_parent_check(c::regclass, true, true)::text) FROM unnest(ARRAY['made1', 'made2', 'made3']) c"), 3,
		'amcheck finds no fault in the indexes');
	$node->safe_psql('postgres', 'DROP INDEX made1, made2, made3');
}

# ---- a standby, checksums, tablespaces ----

$node->backup('first');
my $standby = PostgreSQL::Test::Cluster->new('index_standby');
$standby->init_from_backup($node, 'first', has_streaming => 1);
$standby->start;
{
	my $space = PostgreSQL::Test::Utils::tempdir();
	my $query = "SET enable_seqscan = off; SELECT id, k, txt FROM t WHERE k > 2147000000 ORDER BY k, id";

	$node->safe_psql('postgres', 'CREATE INDEX made ON t (k); CREATE INDEX made2 ON t (txt) INCLUDE (k)');
	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	$standby->safe_psql('postgres', 'CHECKPOINT');
	ok(bytes_of($_) eq bytes_of($_, $standby), "$_: a standby has the bytes") foreach 'made', 'made2';
	is($standby->safe_psql('postgres', $query), $node->safe_psql('postgres', "SET enable_indexscan = off; SET enable_bitmapscan = off; $query"),
		'a standby answers by the index');
	$node->safe_psql('postgres', "SET allow_in_place_tablespaces = on; CREATE TABLESPACE other LOCATION ''; CREATE INDEX made3 ON t (k) TABLESPACE other");
	ok(bytes_of('made3') eq bytes_of('made'), 'an index in another tablespace');
	$standby->stop;
	$node->stop;
	ok(run_log([ 'pg_checksums', '--check', '-D', $node->data_dir ]), 'checksums are right');
	$node->start;
	$node->safe_psql('postgres', 'DROP INDEX made, made2, made3; DROP TABLESPACE other');
}

# ---- a killed build ----

foreach my $workers (0, 1)
{
	my $ours;

	held_build('kill 9', $workers);
	is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM pg_ls_dir(\'base/pgsql_tmp\', true, false)), (SELECT k = hashint4(70000) FROM t WHERE id = 70000)'), '0|t',
		'a killed build: no temporary file is left');
	$node->safe_psql('postgres', "SET maintenance_work_mem = '1MB'; CREATE INDEX made ON t (txt, late(id))");
	$ours = bytes_of('made');
	$node->safe_psql('postgres', 'SET gpusort.index_build = off; REINDEX INDEX made');
	ok($ours eq bytes_of('made'), 'a killed build: the bytes of the next one');
	$node->safe_psql('postgres', 'DROP INDEX made');
}
$node->stop;

# ---- a full disk ----

{
	my $space = PostgreSQL::Test::Utils::tempdir();
	my $started = start_with_little_room($node, $space, 8, 700, 20);
	my ($rc, $out, $err);

	ok($started, 'a server with little room starts');
	$node->safe_psql('postgres', "CREATE TABLESPACE small LOCATION '$space'");
	($rc, $out, $err) = $node->psql('postgres', "CREATE INDEX made ON t (repeat(txt, 5)) TABLESPACE small");
	like($err, qr/could not (?:extend|write)/, 'a full disk: the build fails');
	is($node->safe_psql('postgres', "CHECKPOINT; SELECT count(*) FROM pg_class WHERE relname = 'made'"), 0, 'a full disk: there is no index');
	($rc, $out, $err) = $node->psql('postgres', "SET maintenance_work_mem = '1MB'; SET temp_tablespaces = small; CREATE INDEX made ON t (repeat(txt, 5))");
	like($err, qr/could not (?:extend|write)/, 'no room for spilled runs: the build fails');
	$node->safe_psql('postgres', 'CREATE INDEX made ON t (k) TABLESPACE small');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_ls_tmpdir((SELECT oid FROM pg_tablespace WHERE spcname = \'small\'))'), 0,
		'a smaller index has room then, and no file is left');
	$node->stop;
}

done_testing();
