# Injects every fault of test/fault/fault.c into every kind of sort.  The first pass
# of a site fails, then the second, and so on until the sort ends before the site
# fails.  Behind the tenth pass only some fail, with ALL_FAULTS=1 each.  There are three
# modes: one pass fails, that pass and all later ones fail,
# and one pass fails in a subtransaction with gpusort.engine = cuda.  Each time the
# result must be right or the error be the injected one, nothing may stay allocated,
# and the device must do the next sort.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('standin_faults', order_by => 1, settings => <<'CONF');
gpusort.min_rows = 100
gpusort.service_idle_timeout = 0
synchronize_seqscans = off
statement_timeout = 30s
work_mem = 64MB
CONF
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
skip_without_standin($node);

$node->safe_psql('postgres', <<'SQL');
SET gpusort.engine = 'cpu';
SET gpusort.enabled = off;
CREATE TABLE t AS SELECT i AS id, CASE WHEN i % 100 <> 0 THEN hashint8extended(i, 1) END AS k,
	(i * 7919::bigint % 10)::smallint AS few, 'row ' || i AS word
FROM generate_series(1, 800::bigint) AS i;
-- these rows travel to the device and back; keys tie that the strings tell apart
CREATE TABLE many AS SELECT i AS id, i % 1000 AS k, (i % 10)::smallint AS few, md5((i % 1000)::text) || left(md5(i::text), 20 + (i % 9)::int) AS word
FROM generate_series(1, 270000::bigint) AS i;
VACUUM ANALYZE t, many;
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

-- The memory that sorts still hold when the service has nothing more to do, and the number of temporary files.
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

# A query for the sequence of rows as one number.
sub ordered
{
	my ($order, $from) = (@_, 't');
	return order_number("SELECT id, k, few, word FROM $from ORDER BY $order");
}

# The kinds of sorts.  "next" is the sort that follows a fault, if not the same one.
# The large ones are slow.  So arrays are compared as bytes, and rows by a sum that
# depends on their places, and they are not sorted in every mode.
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
	'ORDER BY, rows travel' => {
		query => 'SELECT sum((place % 1009) * (id + k + few + hashtext(word))) FROM (SELECT *, row_number() OVER () AS place '
		  . 'FROM (SELECT id, k, few, word FROM many ORDER BY few, word OFFSET 0) AS s) AS s',
		large => 1,
		modes => [ 0, 1 ],
		next => 'ORDER BY'
	},
	'gpu_sort, large' => {
		query => "SELECT record_image_eq(ROW(gpu_sort(a)), ROW(sorted))::text FROM arrays WHERE name = 'large'",
		large => 1,
		modes => [2],
		next => 'gpu_sort'
	},
	'gpu_argsort, large' => {
		query => "SELECT record_image_eq(ROW(gpu_argsort(a)), ROW(positions))::text FROM arrays WHERE name = 'large'",
		large => 1,
		modes => [ 0, 1 ],
		next => 'gpu_sort'
	},
);
foreach my $sort (values %sorts)
{
	$sort->{right} = $node->safe_psql('postgres',
		"SET gpusort.enabled = off; SET gpusort.engine = 'cpu'; $sort->{query}");
}

# The sites, and the codes that each fails with.
my %sites = (
	worker => ['refused'],
	request => ['refused'],
	arena => ['refused'],
	map => ['refused'],
	memory => ['53200'],
	scratch => ['refused'],
	rowstore => ['53200'],
	spill_file => ['53100'],
	spill_write => ['53100'],
	spill_read => ['58030'],
	open => [ 'no_driver', 'fault' ],
	register => ['no_memory'],
	lane => [ 'no_memory', 'fault' ],
	reserve => [ 'no_memory', 'fault' ],
	allocate => ['no_memory'],
	upload => [ 'no_memory', 'fault' ],
	uploaded => ['fault'],
	sort => [ 'no_memory', 'unsorted', 'fault' ],
	ties => [ 'no_memory', 'fault' ],
	arrange => [ 'no_memory', 'unsorted', 'fault' ],
	gather => [ 'no_memory', 'fault' ],
	download => [ 'no_memory', 'fault' ],
	downloaded => ['fault']);

# The process that must be started again for a site to be passed; the other sites need nothing.
my %begins = (
	(map { $_ => ['service'] } qw(worker open)),
	(map { $_ => ['session'] } qw(map register)));

my @modes = (
	{ name => 'once', times => '', engine => 'auto' },
	{ name => 'and all later ones', times => '+', engine => 'auto' },
	{ name => 'once, gpusort.engine is cuda, in a subtransaction', times => '', engine => 'cuda', subtransaction => 1 });

# The session of all sorts.
my $session;

sub begin_session
{
	leave($session) if $session;
	$session = session($node);
	$session->{in} .= "\\set VERBOSITY sqlstate\n";
}

# The lines of the session's answer, and its messages.
sub ask_session
{
	$session->{err} = '';
	my @lines = split /\n/, answer($session, @_);
	return (\@lines, [ $session->{err} =~ /^(\w+:  .*)$/mg ]);
}

my $nothing_held = 'requests=0 of_these=0 lanes=0 files=0';
my %sites_fired;

# Injects one fault into one sort.  Returns whether the sort reached the pass that
# fails, and a list of what is wrong.
sub try_fault
{
	my ($sort, $mode, $begin, $site, $nth, $code) = @_;
	my $query = $mode->{subtransaction} ? "SELECT attempt(\$\$$sort->{query}\$\$)" : $sort->{query};
	my $next = $sorts{ $sort->{next} // '' } // $sort;
	my @wrong;

	# a fault ends the service
	ask_session("SET gpusort.engine = 'auto'", "SET gpusort.fault = 'upload:1:fault'", $sorts{gpu_sort}->{query},
		'RESET gpusort.fault', 'SELECT held()') if $begin eq 'service';
	begin_session() if $begin;

	my ($answer, $errors) = ask_session($sort->{settings} // 'RESET gpusort.min_rows', "SET gpusort.engine = '$mode->{engine}'",
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

	($answer, $errors) = ask_session('RESET gpusort.fault', 'RESET gpusort.memory_limit', 'RESET gpusort.min_rows',
		"SET gpusort.engine = 'cuda'", $next->{query}, 'SELECT held()');
	$result = join(' ', @$answer, @$errors);
	push @wrong, "next: $result" if $result ne "$next->{right} $nothing_held";
	return ($fired, @wrong);
}

# the list of sites is complete
my ($result, $stdout, $stderr) = $node->psql('postgres', "SET gpusort.fault = 'nowhere:1:refused'");
my ($there) = $stderr =~ /The sites are: (.*)$/m;
# (the service unpins memory between sorts: see 016_standin_hangs.pl; results are broken in 061_standin_verify.pl and 049_index_faults.pl)
is(join(', ', sort grep { !/^(?:unregister|sorted|selected|result|row|window|merged|group|index_\w+)$/ } split /, /, $there // ''), join(', ', sort keys %sites), 'this test knows every site');
foreach my $wrong ('map', 'map:0:refused', 'map:1', 'map:1:53200', 'memory:1:refused', 'upload:1:nothing')
{
	($result, $stdout, $stderr) = $node->psql('postgres', "SET gpusort.fault = '$wrong'");
	like($stderr, qr/ERROR:  invalid value for parameter "gpusort.fault"/, "gpusort.fault = '$wrong' is refused");
}
$node->safe_psql('postgres', 'CREATE ROLE someone');
($result, $stdout, $stderr) = $node->psql('postgres', "SET ROLE someone; SET gpusort.fault = 'map:1:refused'");
like($stderr, qr/ERROR:  permission denied to set parameter "gpusort.fault"/, 'only superusers may set gpusort.fault');

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

						$nth += $ENV{ALL_FAULTS} || $nth < 4 ? 1 : $sorts{$name}->{large} ? int($nth / 2) : $nth < 10 ? 1 : int($nth / 4);
						($fired, @found) = try_fault($sorts{$name}, $mode, $begin, $site, $nth, $code);
						$sites_fired{$site} = 1 if $fired;
						push @wrong, "$site:$nth$mode->{times}:$code $begin: " . join('; ', @found) if @found;
					}
					push @wrong, "$site is passed for ever" if $fired && $nth >= 500;
				}
			}
		}
		# anything that one fault leaves behind would show after all later faults as well
		$well = is(join("\n", @wrong), '', "$name: every fault, $mode->{name}, is handled");
		last SORTS unless $well;
	}
}
is(join(' ', sort keys %sites_fired), join(' ', sort keys %sites), 'every site failed in some sort') if $well;

# a device whose copies never finish; the service does not wait for the upload of less than 4 MB
my %copies = (
	uploaded => [ 'gpu_sort, large', 'ORDER BY, rows travel' ],
	downloaded => [ 'gpu_sort_agg', 'ORDER BY several words', 'ORDER BY, rows travel', 'gpu_sort, large' ]);
foreach my $site ($well ? sort keys %copies : ())
{
	foreach my $name (@{ $copies{$site} })
	{
		my $next = $sorts{ $sorts{$name}->{next} // $name };
		my ($answer, $errors) = ask_session("SET gpusort.engine = 'cuda'", "SET gpusort.fault = '$site:1+:busy'", "SET statement_timeout = '200ms'",
			$sorts{$name}->{query}, 'RESET statement_timeout', 'SELECT held()', 'RESET gpusort.fault', $next->{query}, 'SELECT held()');
		is(join("\n", @$errors, @$answer), "ERROR:  57014\n$nothing_held\n$next->{right}\n$nothing_held",
			"$name, $site never succeeds: the statement can be cancelled");
	}
}
leave($session);
$node->stop;

done_testing();
