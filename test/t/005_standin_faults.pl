# Every fault that src/base/fault.c can make, in every kind of sort: the first pass
# of each site fails, then the second, and so on until the sort is done without
# another pass; alone, with all that follow, and in a subtransaction with the
# device demanded.  Each time, the result is right or the error is the one that
# was made, nothing stays behind, and the next sort is one of the device again.

use strict;
use warnings;

use IPC::Run qw(start timeout);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('standin_faults');
$node->init;
# 67 MB: a piece is one chunk of 16 MB
$node->append_conf('postgresql.conf', <<'CONF');
session_preload_libraries = 'gpusort'
gpusort.force = on
gpusort.min_rows = 100
gpusort.device_memory_limit = 67MB
gpusort.pool_limit = 256MB
gpusort.service_idle_timeout = 0
max_parallel_workers_per_gather = 0
synchronize_seqscans = off
statement_timeout = 30s
work_mem = 64MB
fsync = off
jit = off
CONF
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
if ($node->safe_psql('postgres', "SELECT count(*) FROM gpusort_status() WHERE device = 'stand-in device'") != 1)
{
	plan skip_all => 'this build has no stand-in device';
}

$node->safe_psql('postgres', <<'SQL');
SET gpusort.engine = 'cpu';
SET gpusort.enabled = off;
CREATE TABLE t AS SELECT i AS id, CASE WHEN i % 100 <> 0 THEN hashint8extended(i, 1) END AS k,
	(i * 7919::bigint % 10)::smallint AS few, 'row ' || i AS word
FROM generate_series(1, 800::bigint) AS i;
VACUUM ANALYZE t;
CREATE TABLE arrays (name text, a bigint[], sorted bigint[], positions int[]);
ALTER TABLE arrays ALTER a SET STORAGE EXTERNAL, ALTER sorted SET STORAGE EXTERNAL, ALTER positions SET STORAGE EXTERNAL;
INSERT INTO arrays SELECT 'small', array_agg(k ORDER BY id), array_agg(k ORDER BY k), NULL FROM t;
INSERT INTO arrays SELECT 'large', array_agg(k ORDER BY i), array_agg(k ORDER BY k), array_agg(i ORDER BY k, i)
FROM (SELECT i, hashint8extended(i, 1) % 1000 AS k FROM generate_series(1, 2200000) AS i) AS s;

-- The result of a query, or the error that rolled its subtransaction back.
CREATE FUNCTION attempt(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE query INTO result;
	RETURN result;
EXCEPTION WHEN OTHERS THEN
	RETURN 'ERROR:  ' || sqlstate;
END $$;

-- What sorts hold once the service has come to rest, and files.
CREATE FUNCTION held() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	report text;
BEGIN
	FOR i IN 1 .. 2000 LOOP
		report := regexp_replace(current_setting('gpusort.fault_report'), '^passes=\d+ ', '');
		EXIT WHEN report !~ '=[1-9]';
		PERFORM pg_sleep(0.005);
	END LOOP;
	RETURN report || ' files=' || (SELECT count(*) FROM pg_ls_tmpdir());
END $$;
SQL

# ORDER BY as one number, which another sequence of rows does not have.
sub ordered
{
	my ($by_what) = @_;
	return 'SELECT sum(hashint8extended(id, place)::numeric) FROM (SELECT id, row_number() OVER () AS place '
	  . "FROM (SELECT id, k, few, word FROM t ORDER BY $by_what) AS s) AS s";
}

# Kinds of sorts, and which one is the next, if not the same again.  Where 2
# million values take their time, they are compared as bytes, and not in every mode.
my %sorts = (
	'gpu_sort' => { query => "SELECT record_image_eq(ROW(gpu_sort(a)), ROW(sorted))::text FROM arrays WHERE name = 'small'" },
	'gpu_sort_agg' => { query => "SELECT (gpu_sort_agg(k) = (SELECT sorted FROM arrays WHERE name = 'small'))::text FROM t" },
	'ORDER BY' => { query => ordered('few, id') },
	'ORDER BY one value' => { query => 'SELECT array_agg(k) FROM (SELECT k FROM t ORDER BY k) AS s' },
	'ORDER BY several words' => { query => ordered('few, k DESC NULLS LAST, id') },
	'ORDER BY, spilled' => {
		query => ordered('few, k DESC NULLS LAST, id'),
		settings => "SET gpusort.memory_limit = '64kB'",
		next => 'ORDER BY'
	},
	'ORDER BY, spilled, by the CPU' => {
		query => ordered('few, k DESC NULLS LAST, id'),
		settings => "SET gpusort.memory_limit = '64kB'; SET gpusort.min_rows = 10000",
		next => 'ORDER BY'
	},
	'gpu_sort in pieces' => {
		query => "SELECT record_image_eq(ROW(gpu_sort(a)), ROW(sorted))::text FROM arrays WHERE name = 'large'",
		modes => [2],
		next => 'gpu_sort'
	},
	'gpu_argsort in pieces' => {
		query => "SELECT record_image_eq(ROW(gpu_argsort(a)), ROW(positions))::text FROM arrays WHERE name = 'large'",
		modes => [ 0, 1 ],
		next => 'gpu_sort'
	},
);
foreach my $sort (values %sorts)
{
	$sort->{right} = $node->safe_psql('postgres',
		"SET gpusort.enabled = off; SET gpusort.engine = 'cpu'; $sort->{query}");
}

# Sites, and what each is made to fail with.
my %sites = (
	worker => ['refused'],
	request => ['refused'],
	chunk => ['refused'],
	free_chunk => ['refused'],
	segment => ['53100'],
	map => [ 'refused', '53200' ],
	piece => ['refused'],
	memory => ['53200'],
	scratch => ['refused'],
	rowstore => ['53200'],
	spill_file => ['53100'],
	spill_write => ['53100'],
	spill_read => ['58030'],
	open => [ 'no_driver', 'fault' ],
	register => ['no_memory'],
	lane => [ 'no_memory', 'fault' ],
	allocate => ['no_memory'],
	upload => [ 'no_memory', 'fault' ],
	uploaded => ['fault'],
	sort => [ 'no_memory', 'unsorted', 'fault' ],
	download => [ 'no_memory', 'fault' ],
	downloaded => ['fault']);

# What has to begin anew for a site to be passed; nothing for all others.
my %begins = (
	(map { $_ => ['service'] } qw(worker segment open register)),
	map => [ 'service', 'session' ]);

my @modes = (
	{ name => 'once', times => '', engine => 'auto' },
	{ name => 'from then on', times => '+', engine => 'auto' },
	{ name => 'once, device demanded, in a subtransaction', times => '', engine => 'cuda', subtransaction => 1 });

# A psql that stays.
my ($psql, $in, $out, $err);

sub begin_session
{
	if ($psql)
	{
		$in .= "\\q\n";
		$psql->finish;
	}
	($in, $out, $err) = ("\\set VERBOSITY sqlstate\n", '', '');
	$psql = start [ 'psql', '-XAtq', '-d', $node->connstr('postgres') ], '<', \$in, '>', \$out, '2>', \$err,
	  timeout(10 * $PostgreSQL::Test::Utils::timeout_default);
}

# The lines of its answer, and the errors.
sub ask
{
	($out, $err) = ('', '');
	$in .= join('', map { "$_;\n" } @_) . "\\echo done\n\\warn done\n";
	$psql->pump until ($out =~ /^done$/m && $err =~ /^done$/m) || !$psql->pumpable;
	return ([ grep { $_ ne 'done' } split /\n/, $out ], [ $err =~ /^(\w+:  .*)$/mg ]);
}

my $nothing_held = 'requests=0 of_these=0 chunks=0 segments_being_made=0 lanes=0 files=0';
my %sites_fired;

# Makes one fault in one sort.  Returns whether the site was passed often
# enough, and what is wrong.
sub try_fault
{
	my ($sort, $mode, $begin, $site, $nth, $code) = @_;
	my $query = $mode->{subtransaction} ? "SELECT attempt(\$\$$sort->{query}\$\$)" : $sort->{query};
	my $next = $sorts{ $sort->{next} // '' } // $sort;
	my @wrong;

	# a service that fails gives up the whole pool, too
	ask("SET gpusort.engine = 'auto'", "SET gpusort.fault = 'upload:1:fault'", $sorts{gpu_sort}->{query},
		'RESET gpusort.fault', 'SELECT held()') if $begin eq 'service';
	begin_session() if $begin;

	my ($answer, $errors) = ask($sort->{settings} // 'RESET gpusort.min_rows', "SET gpusort.engine = '$mode->{engine}'",
		"SET gpusort.fault = '$site:$nth$mode->{times}:$code'", $query, 'SELECT held()', 'SHOW gpusort.fault_report');
	my ($passes) = ($answer->[-1] // '') =~ /^passes=(\d+) /;
	my $held = $answer->[-2] // 'unknown';
	my $result = @$answer == 3 ? $answer->[0] : join(' ', grep { !/^WARNING/ } @$errors);
	my $fired = defined $passes && $passes >= $nth;

	if ($result ne $sort->{right})
	{
		my @errors = $code =~ /^[0-9A-Z]{5}$/ ? ($code) : $site eq 'scratch' ? ('53200') : ();
		push @errors, '55000' if $mode->{engine} eq 'cuda';
		push @wrong, $result if !$fired || !grep { $result eq "ERROR:  $_" } @errors;
	}
	push @wrong, "held: $held" if $held ne $nothing_held;

	($answer, $errors) = ask('RESET gpusort.fault', 'RESET gpusort.memory_limit', 'RESET gpusort.min_rows',
		"SET gpusort.engine = 'cuda'", $next->{query}, 'SELECT held()');
	$result = join(' ', @$answer, @$errors);
	push @wrong, "next: $result" if $result ne "$next->{right} $nothing_held";
	return ($fired, @wrong);
}

# the sites are those that there are
my ($result, $stdout, $stderr) = $node->psql('postgres', "SET gpusort.fault = 'nowhere:1:refused'");
my ($there) = $stderr =~ /The sites are: (.*)$/m;
# (memory is unpinned between sorts: 016_standin_hangs.pl)
is(join(', ', sort grep { $_ ne 'unregister' } split /, /, $there // ''), join(', ', sort keys %sites), 'every site is known');
foreach my $wrong ('chunk', 'chunk:0:refused', 'chunk:1', 'chunk:1:53200', 'memory:1:refused', 'upload:1:nothing')
{
	($result, $stdout, $stderr) = $node->psql('postgres', "SET gpusort.fault = '$wrong'");
	like($stderr, qr/ERROR:  invalid value for parameter "gpusort.fault"/, "gpusort.fault = '$wrong' is refused");
}
$node->safe_psql('postgres', 'CREATE ROLE someone');
($result, $stdout, $stderr) = $node->psql('postgres', "SET ROLE someone; SET gpusort.fault = 'chunk:1:refused'");
like($stderr, qr/ERROR:  permission denied to set parameter "gpusort.fault"/, 'and belongs to superusers');

my $well;
begin_session();
SORTS: foreach my $name (sort keys %sorts)
{
	foreach my $mode (@modes[ @{ $sorts{$name}->{modes} // [ 0, 1, 2 ] } ])
	{
		my @wrong;

		foreach my $site (sort keys %sites)
		{
			foreach my $code (@{ $sites{$site} })
			{
				foreach my $begin (@{ $begins{$site} // [''] })
				{
					my $nth = 0;
					my $fired = 1;

					while ($fired && @wrong < 3 && $nth < 500)
					{
						my @found;

						$nth++;
						($fired, @found) = try_fault($sorts{$name}, $mode, $begin, $site, $nth, $code);
						$sites_fired{$site} = 1 if $fired;
						push @wrong, "$site:$nth$mode->{times}:$code $begin: " . join('; ', @found) if @found;
					}
					push @wrong, "$site is passed for ever" if $nth == 500;
				}
			}
		}
		# what one fault has left behind would be found after all others, too
		$well = is(join("\n", @wrong), '', "$name, every fault $mode->{name}");
		last SORTS unless $well;
	}
}
is(join(' ', sort keys %sites_fired), join(' ', sort keys %sites), 'every site was passed in some sort') if $well;

# a device that never gets ready
foreach my $site ($well ? ('uploaded', 'downloaded') : ())
{
	foreach my $name ('gpu_sort_agg', 'ORDER BY several words', 'gpu_sort in pieces')
	{
		my $next = $sorts{ $sorts{$name}->{next} // $name };
		my ($answer, $errors) = ask("SET gpusort.engine = 'cuda'", "SET gpusort.fault = '$site:1+:busy'", "SET statement_timeout = '200ms'",
			$sorts{$name}->{query}, 'RESET statement_timeout', 'SELECT held()', 'RESET gpusort.fault', $next->{query}, 'SELECT held()');
		is(join("\n", @$errors, @$answer), "ERROR:  57014\n$nothing_held\n$next->{right}\n$nothing_held",
			"$name, $site is never true: the statement is cancelled");
	}
}
$in .= "\\q\n";
$psql->finish;
$node->stop;

done_testing();
