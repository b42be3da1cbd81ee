# A change of the system's time does not end a service whose device works: its
# timeouts are measured by the monotonic clock.  The server runs with a clock
# that this test sets (test/fakeclock/clock.c).

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $library = built_file('fakeclock.so');
my $node = ordering_node('clock');
my $clock = $node->basedir . '/clock';
my $sort = 'SELECT gpu_sort_agg(k) = array_agg(k ORDER BY k) FROM t';
my $last = 'SELECT engine, reason FROM gpusort_last_sort()';

sub set_clock
{
	my ($seconds) = @_;
	append_to_file("$clock.new", "$seconds\n");
	rename "$clock.new", $clock or die "$clock: $!";
	return;
}

{
	# after what is preloaded already: the sanitizers' runtimes must come first
	local $ENV{LD_PRELOAD} = ($ENV{LD_PRELOAD} // '') . " $library";
	local $ENV{GPUSORT_FAKE_CLOCK} = $clock;
	restart_with($node);
}
set_clock(1000);
my $before = ask($node, 'SELECT extract(epoch FROM clock_timestamp())::bigint');
set_clock(2000);
cmp_ok(ask($node, 'SELECT extract(epoch FROM clock_timestamp())::bigint') - $before, '>=', 1000, 'the test sets the server\'s clock');

foreach my $call ('upload', 'download')
{
	my ($stdout, $stderr);
	set_clock(0);
	forget_trace($node);
	hold_device($node, $call);
	my $psql = in_background($node, \$stdout, \$stderr, $sort, $last);
	ok(poll_trace($node, "$call \\d+"), "$call: a copy is in flight");
	my @before = service_pids($node);
	# ten years, then a while in which the service looks at the copy many times
	set_clock(10 * 365 * 86400);
	ask($node, 'SELECT pg_sleep(0.5)');
	release_device($node);
	$psql->finish;
	is($stdout, "t\ncuda|\n", "$call: the clock jumps ahead, and the device sorts");
	is($stderr, '', "$call: without a warning");
	is_deeply([ service_pids($node) ], \@before, "$call: the service goes on");
}
end_session($node);

done_testing();
