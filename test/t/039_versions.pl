# A new version of the library is installed while the server runs.  Sessions of the two
# versions share nothing, and each sorts.  A parallel query whose workers load another
# version than its session has raises an error that says what to do.
#
# The library of the new version is the installed one with another version written into it.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('versions', settings => <<'CONF');
session_preload_libraries = 'gpusort'
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
gpusort.force = on
gpusort.min_rows = 100
autovacuum = off
CONF
my $private = private_program();
my $library = "$private->{libraries}/gpusort.so";
start_private($node, $private);
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE TABLE t AS SELECT i AS id, hashint4(i) AS k, md5(i::text) AS word FROM generate_series(1, 12000) AS i;
ALTER TABLE t SET (parallel_workers = 2);
ANALYZE;
SQL
my $version = $node->safe_psql('postgres', q(SELECT extversion FROM pg_extension WHERE extname = 'gpusort'));
my $other = $version =~ tr/0-9/9/r;

# Replaces the library, as packages do: running processes keep the file that they have.
sub install_other
{
	my $bytes = slurp_file($library);
	my $n = ($bytes =~ s/(?<![\w.])\Q$version\E(?=[\0 ])/$other/g);
	die "no version in the library" if !$n;
	open(my $file, '>:raw', "$library.new") or die "could not write $library.new: $!";
	print $file $bytes;
	close($file) or die "could not write $library.new: $!";
	rename("$library.new", $library) or die "could not rename $library.new: $!";
	return;
}

my $serial = 'SET max_parallel_workers_per_gather = 0; ' . in_order('SELECT k, word FROM t ORDER BY k');
my $parallel = 'SET max_parallel_workers_per_gather = 2; ' . in_order('SELECT k, word FROM t ORDER BY k');
# a plan node of gpusort in a worker, below a Gather that is not gpusort's
my $percentile = 'SET max_parallel_workers_per_gather = 2; SELECT count(*) FROM t WHERE id::float8 NOT IN (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY i) FROM generate_series(1, 200) AS i)';
my $counters = q(SELECT sum(count) FROM gpusort_stat WHERE kind = 'sort' AND engine <> 'core');

my $old = session($node);
is(answer($old, $serial), '12000|t', 'a session sorts');
is(answer($old, $parallel), '12000|t', 'its workers sort');
like(answer($old, 'EXPLAIN ' . in_order('SELECT k, word FROM t ORDER BY k')), qr/GpuSort Feed/, 'its workers feed a sort');
is(answer($old, $percentile), '12000', 'its workers compute percentiles');
is(answer($old, $counters) . $old->{err}, '2', 'two sorts are counted, without an error');

install_other();
is(answer($old, $serial), '12000|t', 'a session from before the installation sorts');
foreach my $query ($parallel, $percentile)
{
	answer($old, $query);
	like($old->{err}, qr/ERROR:  the processes of this parallel query have loaded different versions of gpusort\nDETAIL:  The session has version \Q$version\E, and its worker has version \Q$other\E\.\nHINT:  Reconnect/,
		'its workers say that they have another version');
	$old->{err} = '';
}
is(answer($old, $serial), '12000|t', 'the session goes on');

my $new = session($node);
is(answer($new, $serial), '12000|t', 'a session with the new library sorts');
is(answer($new, $parallel), '12000|t', 'its workers have the new library, too, and sort');
is(answer($new, $counters), '2', 'the new session counts its own sorts');
is(answer($new, 'SELECT count(*) FROM gpusort_activity'), '0', 'it has a view of its own');
is($new->{err}, '', 'the session has raised no error');
is(answer($old, $counters), '4', 'the old session counts its own sorts');
leave($_) foreach $old, $new;

$node->stop;
done_testing();
