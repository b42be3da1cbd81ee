# REPACK (CONCURRENTLY), from PostgreSQL 19 on, builds the indexes of a table while others change it, under
# PG_ENSURE_ERROR_CLEANUP().  It may be the first command of a session for which gpusort sorts.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('repack', order_by => 1, settings => <<'CONF');
gpusort.engine = cpu
gpusort.verify = on
wal_level = replica
max_wal_senders = 5
log_min_messages = debug1
CONF

$node->start;
plan skip_all => 'the server has no REPACK' if $node->safe_psql('postgres', 'SHOW server_version_num') < 190000;

# the lock is held by the test: a build waits for it at one row, and longer than a second
# at that, after which gpusort_activity shows a sort
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE FUNCTION waited(id int, k int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF id = 1000 THEN
		PERFORM pg_advisory_lock_shared(1);
		PERFORM pg_advisory_unlock_shared(1);
		PERFORM pg_sleep(1.2);
	END IF;
	RETURN k % 100;
END $$;
CREATE TABLE t (id int PRIMARY KEY, k int, word text);
INSERT INTO t SELECT i, hashint4(i), md5(i::text) FROM generate_series(1, 60000) i;
CREATE INDEX by_k ON t (k);
CREATE INDEX by_word ON t (word, id);
CREATE INDEX by_wait ON t (waited(id, k));
DELETE FROM t WHERE id % 3 = 0;
ANALYZE t;
SQL

my @indexes = qw(t_pkey by_k by_word by_wait);
my $rows = 'SELECT count(*), sum(hashtextextended(t::text, 0)::numeric) FROM t';
my $slots = 'SELECT count(*) FROM pg_replication_slots';
my $amcheck = ($node->psql('postgres', 'CREATE EXTENSION amcheck'))[0] == 0;

# The table has the rows that it should have, and its indexes have them, too.
sub is_whole
{
	my ($name, $expected) = @_;

	is($node->safe_psql('postgres', "SET gpusort.enabled = off; $rows"), $expected, "$name: the rows");
	SKIP:
	{
		skip 'no amcheck', 1 if !$amcheck;
		my ($rc, undef, $err) = $node->psql('postgres', "SELECT bt_index_parent_check(i::regclass, true, true) FROM unnest('{@{[ join ',', @indexes ]}}'::text[]) i");
		is("$rc $err", '0 ', "$name: amcheck finds no fault");
	}
	is($node->safe_psql('postgres', $slots), 0, "$name: no replication slot is left");
}

# How many builds of indexes by gpusort are in the log, since an offset of it?  That of the table's TOAST does not count.
sub builds
{
	my ($from) = @_;

	return scalar(() = slurp_file($node->logfile, $from) =~ /gpusort has built index "(?!pg_toast)/g);
}

foreach my $command ('REPACK (CONCURRENTLY) t', 'REPACK (CONCURRENTLY) t USING INDEX by_k', 'REPACK t USING INDEX by_word')
{
	my $log = -s $node->logfile;
	my $before = $node->safe_psql('postgres', $rows);
	my ($rc, undef, $err) = $node->psql('postgres', "$command; SELECT 1");

	is("$rc $err", '0 ', "$command succeeds");
	is(builds($log), 4, "$command: gpusort has built the indexes");
	is_whole($command, $before);
}

# Others change rows while the indexes are built.
{
	my $name = 'a table that changes';
	my ($out, $err);
	my $repack;

	hold($node, 1);
	$repack = in_background($node, \$out, \$err, 'REPACK (CONCURRENTLY) t', 'SELECT count(*) FROM (SELECT k FROM t ORDER BY k OFFSET 0) s');
	ok(poll($node, waits_for(1)), "$name: a build waits");
	$node->safe_psql('postgres', <<'SQL');
UPDATE t SET k = -k WHERE id % 7 = 0;
DELETE FROM t WHERE id % 11 = 0;
INSERT INTO t SELECT i, i, 'new' FROM generate_series(70001, 72000) i;
SQL
	my $expected = $node->safe_psql('postgres', $rows);
	let_go($node, 1);
	$repack->finish;
	is($err, '', "$name: no error");
	like($out, qr/^\d+$/, "$name: the session goes on");
	is_whole($name, $expected);
}

# A build that waits is cancelled, and its session terminated.
foreach my $function ('pg_cancel_backend', 'pg_terminate_backend')
{
	my $before = $node->safe_psql('postgres', $rows);
	my ($out, $err);
	my $repack;

	hold($node, 1);
	$repack = in_background($node, \$out, \$err, 'REPACK (CONCURRENTLY) t', 'SELECT count(*) FROM (SELECT k FROM t ORDER BY k OFFSET 0) s');
	ok(poll($node, waits_for(1)), "$function: a build waits");
	ask($node, "SELECT $function(pid) FROM pg_stat_activity WHERE application_name = 'background'");
	$repack->finish;
	let_go($node, 1);
	like($err, $function eq 'pg_cancel_backend' ? qr/^ERROR:  canceling statement due to user request\n.*\z/s : qr/^FATAL:  terminating connection/,
		"$function: the error");
	like($out, qr/^\d+$/, "$function: the session goes on") if $function eq 'pg_cancel_backend';
	ok(poll($node, "SELECT ($slots) = 0"), "$function: the worker ends");
	is_whole($function, $before);
}

end_session($node);
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|not the latest entry|leak:|was not closed/, 'the log has nothing else');

done_testing();
