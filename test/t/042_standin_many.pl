# Hundreds of sessions sort small arrays and rows at the same time: each sort is right, no
# session starves, and nothing is left.  First the device holds all sorts, so that they
# wait together; then it sorts as fast as it can.

use strict;
use warnings;

use GpusortTest;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# AddressSanitizer makes every process several times as large
my $clients = $ENV{ASAN_OPTIONS} ? 60 : 300;
my $seconds = 6;

my $node = new_node('many', order_by => 1, settings => <<"CONF");
shared_preload_libraries = 'gpusort'
gpusort.min_rows = 0
max_connections = @{[ $clients + 20 ]}
shared_buffers = 64MB
client_min_messages = error
CONF
# the device is held while hundreds of sessions begin
restart_with($node, patience => 600_000);
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
skip_without_standin($node);
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t AS SELECT i AS id, hashint8(i) AS k FROM generate_series(1, 500::bigint) AS i;
CREATE UNLOGGED TABLE sorts (client int, kind text, engine text, reason text);

CREATE FUNCTION note(client int, kind text) RETURNS void LANGUAGE sql AS
	'INSERT INTO sorts SELECT client, kind, engine, reason FROM gpusort_last_sort()';

CREATE FUNCTION sort_array(client int, n int, seed bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	a bigint[] := ARRAY(SELECT hashint8extended(g, seed) FROM generate_series(1, n) AS g);
	sorted bigint[] := gpu_sort(a);
BEGIN
	PERFORM note(client, 'array');
	PERFORM set_config('gpusort.enabled', 'off', true);
	IF sorted IS DISTINCT FROM (SELECT array_agg(v ORDER BY v) FROM unnest(a) AS v) THEN
		RAISE 'wrong order of an array of % numbers of seed %', n, seed;
	END IF;
END $$;

CREATE FUNCTION sort_rows(client int, n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	SELECT count(*) AS rows, sum(id) AS ids, count(*) FILTER (WHERE k < before) AS descents INTO r
	FROM (SELECT id, k, lag(k) OVER () AS before FROM (SELECT id, k FROM t WHERE id <= n ORDER BY k OFFSET 0) AS s) AS s;
	PERFORM note(client, 'rows');
	IF r IS DISTINCT FROM ROW(n::bigint, n * (n + 1::numeric) / 2, 0::bigint) THEN
		RAISE 'wrong result of ORDER BY over % rows: %', n, r;
	END IF;
END $$;
VACUUM ANALYZE t;
SQL
my %scripts = (
	array => "\\set n random(1, 1000)\n\\set seed random(1, 1000000000)\nSELECT sort_array(:client_id, :n, :seed);\n",
	rows => "\\set n random(1, 500)\nSELECT sort_rows(:client_id, :n);\n");
my @scripts;
foreach my $name (sort keys %scripts)
{
	my $file = $node->basedir . "/$name.sql";
	append_to_file($file, $scripts{$name});
	push @scripts, '-f', $file;
}

# Begins a run of all clients.  check_run() looks at its output.
my ($out, $err);

sub start_clients
{
	my (@how) = @_;
	($out, $err) = ('', '');
	return IPC::Run::start([ 'pgbench', '-n', '-c', $clients, '-j', 2, @how, @scripts, $node->connstr('postgres') ],
		'<', \'', '>', \$out, '2>', \$err, IPC::Run::timeout(2 * $PostgreSQL::Test::Utils::timeout_default));
}

# Checks the results of a run that has ended.
sub check_run
{
	my ($name) = @_;
	like($out, qr/^number of failed transactions: 0 /m, "$name: no sort fails");
	unlike($err, qr/ERROR|FATAL|aborted|WARNING/, "$name: no client has an error");
	is($node->safe_psql('postgres', 'SELECT count(DISTINCT client) FROM sorts'), $clients, "$name: every client sorts");
	is($node->safe_psql('postgres', "SELECT DISTINCT reason FROM sorts WHERE engine <> 'cuda'"), '', "$name: the device does all sorts that are not empty");
	nothing_is_held($node, $name);
	return;
}

#
# One sort of each client, while the device holds them
#
{
	hold_device($node, 'sort');
	my $pgbench = start_clients('-t', 1);
	my $waiting = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND wait_event_type = 'Extension'";
	ok(poll($node, "SELECT ($waiting) = $clients"), 'together: all sorts wait for the device at the same time');
	release_device($node);
	$pgbench->finish;
	is(ask($node, "SELECT count(*) FROM sorts WHERE engine = 'cuda'"), $clients, 'together: the device does them');
	check_run('together');
}

#
# As many sorts as there is time for
#
ask($node, 'TRUNCATE sorts');
{
	start_clients('-T', $seconds)->finish;
	my ($sorts, $share, $slowest, $median) = split(/\|/, ask($node, <<'SQL'));
WITH clients AS (SELECT count(*) AS sorts, count(*) FILTER (WHERE engine = 'cuda') AS device FROM sorts GROUP BY client)
SELECT sum(sorts), round(sum(device) / sum(sorts), 3), min(sorts), percentile_cont(0.5) WITHIN GROUP (ORDER BY sorts) FROM clients
SQL
	note("$sorts sorts, the device did $share of them; the slowest client did $slowest, the median is $median");
	cmp_ok(10 * $slowest, '>=', $median, 'no client starves');
	cmp_ok($share, '>', 0.95, 'the device sorts for many clients');
	check_run('for some seconds');
	is(scalar(service_pids($node)), 1, 'there is still one service');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM gpusort_activity'), 0, 'no sort is left in gpusort_activity');
}

end_session($node);
$node->stop;
done_testing();
