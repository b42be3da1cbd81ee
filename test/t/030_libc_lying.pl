# A C library whose strxfrm() disagrees with its strcoll() does not change the order:
# the rows come as core sorts them, by strcoll(), and EXPLAIN says which collation is
# not trusted.  With a strcoll() that has no order, each sort ends with all its rows.
# The server runs with a library that lies (test/lying/collate.c).
#
# The last part counts the calls of a library that is slow: a sort that is cancelled
# ends after few more of them, in each of its phases.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $locales = locales_in_build('en_US.UTF-8', 'cs_CZ.UTF-8');
my $library = built_file('lying.so');
my $node = new_node('lying', order_by => 1, settings => <<'CONF');
gpusort.min_rows = 0
work_mem = 64MB
autovacuum = off
statement_timeout = '180s'
CONF
my ($lie, $calls) = map { $node->basedir . "/$_" } 'lie', 'calls';

# The sessions that begin from now on are told this lie.
sub tell_lie
{
	unlink $lie;
	append_to_file($lie, "$_[0]\n");
	return;
}

# The number of calls of strxfrm(), or of strcoll(), so far.
sub calls_of
{
	my ($function) = @_;
	return (unpack 'QQ', slurp_file($calls))[ $function eq 'strcoll' ];
}

tell_lie('none');
{
	local @ENV{ 'LOCPATH', 'LD_PRELOAD', 'GPUSORT_LIE', 'GPUSORT_LIE_CALLS' } = ($locales, $library, $lie, $calls);
	$node->start;
}
$node->safe_psql('postgres', "CREATE DATABASE words TEMPLATE template0 LOCALE 'en_US.UTF-8'");
$node->safe_psql('words', <<'SQL');
CREATE EXTENSION gpusort;
CREATE COLLATION czech (provider = libc, locale = 'cs_CZ.UTF-8');
-- "w" has no two equal values, "few" has four, and "signs" more letters than any alphabet
CREATE TABLE t AS SELECT row_number() OVER ()::int AS id, w,
	(ARRAY['a', 'b', '漢b', '漢a'])[1 + row_number() OVER () % 4] AS few,
	chr(19968 + hashtext(w) % 1500) || 'a' || chr(21968 + hashtext(w) % 1500) AS signs FROM
	(SELECT DISTINCT left(translate(md5(i::text), '0123456789', 'abABáčCh語漢'), 4 + i % 12) AS w FROM generate_series(1, 20000) i) s;
VACUUM ANALYZE t;
SQL

my %queries = (
	'default collation' => 'SELECT id FROM t ORDER BY w',
	'another collation' => 'SELECT id FROM t ORDER BY w COLLATE czech DESC',
	'behind a number' => 'SELECT id FROM t ORDER BY id % 7, w',
	'before a number' => 'SELECT id FROM t ORDER BY few DESC, id',
	'many letters, before a number' => 'SELECT id FROM t ORDER BY signs, id DESC',
	'the second text' => 'SELECT id FROM t ORDER BY few, w',
	'some rows' => 'SELECT id FROM t ORDER BY w LIMIT 3000');
my %settings = (
	'in memory' => '',
	'with threads' => 'SET max_parallel_workers_per_gather = 2;',
	'spilled' => "SET gpusort.memory_limit = '256kB';");

my $reason = qr/orders differently from its sort keys/;

# ----------------------------------------------------------------
# Keys that lie
# ----------------------------------------------------------------

my %right;
foreach my $query (values %queries)
{
	$right{$query} = $node->safe_psql('words', 'SET gpusort.enabled = off; ' . order_number($query));
}

# whether EXPLAIN says that the collation is not trusted; undef: either
my %distrusted = (none => 0, constant => 0, local => 0, truncated => 1, swapped => 1, reversed => 1, random => 1,
	rare => undef, unequal => undef, growing => undef);
foreach my $which (sort keys %distrusted)
{
	tell_lie($which);
	foreach my $how (sort keys %settings)
	{
		my @wrong;
		foreach my $name (sort keys %queries)
		{
			# the second sort of a session knows what the first one found
			my $order = order_number($queries{$name});
			my $answer = $node->safe_psql('words', "$settings{$how} $order; $order;");
			push @wrong, $name if $answer ne "$right{$queries{$name}}\n$right{$queries{$name}}";
		}
		is("@wrong", '', "$which, $how: core's order");
	}
	my $session = session($node, 'words');
	my $plan = answer($session, "EXPLAIN (ANALYZE, COSTS OFF) $queries{'default collation'}");
	my $distrusted = $plan =~ $reason ? 1 : 0;
	is($distrusted, $distrusted{$which}, "$which: EXPLAIN says whether the collation is trusted") or diag($plan)
	  if defined $distrusted{$which};
	$plan = answer($session, 'SET client_min_messages = debug1', "EXPLAIN (COSTS OFF) $queries{'default collation'}");
	is($plan =~ /GpuSort/ ? 1 : 0, 1 - $distrusted, "$which: the next plan, too");
	like($session->{err}, $reason, "$which: and a message says why") if $distrusted;
	leave($session);
}

# ----------------------------------------------------------------
# Comparisons without an order
# ----------------------------------------------------------------

my $rows = $node->safe_psql('words', 'SELECT count(*), sum(id), sum(hashtext(w)) FROM t');
foreach my $which ('intransitive', 'fickle')
{
	tell_lie($which);
	foreach my $how (sort keys %settings)
	{
		my @wrong;
		foreach my $name (grep { $_ ne 'some rows' } sort keys %queries)
		{
			my $query = $queries{$name} =~ s/SELECT id/SELECT id, w/r;
			my ($rc, $stdout, $stderr) = $node->psql('words', "$settings{$how} SELECT count(*), sum(id), sum(hashtext(w)) FROM ($query OFFSET 0) s");
			push @wrong, "$name: $stdout $stderr" if $stdout ne $rows;
		}
		is("@wrong", '', "$which, $how: all rows");
	}
}

# ----------------------------------------------------------------
# Cancels
# ----------------------------------------------------------------

# Each call takes 50 microseconds or more, and there are 400,000 of them, since each string
# has letters that no other has.  Between two checks for a cancel, each of two threads
# may do 65,536.
$node->safe_psql('words', <<'SQL');
CREATE TABLE many AS SELECT chr(19968 + i / 20) || left(md5(i::text), 12) || chr(19968 + i % 20000) AS w FROM generate_series(1, 400000) i;
VACUUM ANALYZE many;
SQL
foreach my $case ([ 'slow_keys', 'strxfrm' ], [ 'slow_order', 'strcoll' ], [ 'slow_ties', 'strcoll' ])
{
	my ($which, $function) = @$case;
	foreach my $how ('in memory', 'with threads')
	{
		tell_lie($which);
		my $before = calls_of($function);
		my ($stdout, $stderr);
		my $psql = in_background($node, \$stdout, \$stderr, { dbname => 'words' }, "$settings{$how} SELECT count(*) FROM (SELECT w FROM many ORDER BY w OFFSET 0) s");
		ok(poll_until(sub { return calls_of($function) > $before + 10000 }), "$which, $how: the sort is under way");
		ask($node, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'background' AND backend_type = 'client backend'");
		my $cancelled = calls_of($function);
		$psql->finish;
		my $more = calls_of($function) - $cancelled;
		like($stderr, qr/canceling statement/, "$which, $how: it is cancelled");
		cmp_ok($more, '<', 2 * 65536, "$which, $how: and ends after $more more calls of $function()");
	}
}
end_session($node);
$node->stop;

done_testing();
