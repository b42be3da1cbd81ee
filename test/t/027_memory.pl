# Allocating in a memory context (src/base/memory.c) when there is no memory, by
# test/spill/memory_test.c: the session gives back the buffers that it keeps for
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
$node->safe_psql('postgres', "CREATE FUNCTION memory_retry(keep boolean) RETURNS text AS '$module' LANGUAGE C STRICT");

my ($rc, $stdout, $stderr) = $node->psql('postgres', 'SELECT memory_retry(false)');
like($stderr, qr/ERROR:  out of memory/, 'no memory, and no buffer is kept: an error');

($rc, $stdout, $stderr) = $node->psql('postgres', 'SELECT memory_retry(true)');
is("$stdout$stderr", '512 MB kept before, 0 MB after', 'no memory, and a buffer is kept: it is given back, and the allocation succeeds');

$node->stop;
done_testing();
