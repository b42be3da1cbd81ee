#!/bin/bash
#
# never_slower.sh - looks for queries that GpuSort makes slower than core.
#
#   bench/never_slower.sh
#   SHAPES=inet bench/never_slower.sh       the shapes whose names match this regular expression
#   MAX_ROWS=100000 bench/never_slower.sh   no larger tables
#   ROUNDS=9 bench/never_slower.sh          default: 5
#   LOCALES=all bench/never_slower.sh       groups of text under all locales of the C library that Debian can make, of
#                                           which 128 have rules of their own; or under those named
#   OUT=file.csv bench/never_slower.sh      all figures also as CSV
#
# Runs each shape of query with gpusort.enabled on and off, and prints the medians.
# At the end it lists the shapes that took more than 1.05 times core's time, those
# whose parallel plan took more than 1.05 times the time of GpuSort's own plan without
# workers, and those whose temporary files were more than 1.10 times as large as core's,
# the worst first.
#
# If PGHOST or PGPORT is set, it uses the server there, which must have gpusort and citext
# installed and the locale en_US.UTF-8 and those of LOCALES, as a superuser, in a database of its own.  Else it measures the
# library that make has built in this tree, on a private cluster (test/cluster.sh).
#
# The contenders are core, GpuSort and, where GpuSort's plan is parallel with a server's two
# workers, GpuSort with them, or without them if the shape has them.  They run in one session,
# by turns, and the one that begins changes with each round, so that a drift of the
# machine's speed affects all alike.  The
# server takes the time from parsing to the end of execution.  A query that takes
# less than 20 ms is repeated until 20 ms have passed.  If after all rounds the ratio
# is between 1.05 and 1.3, up to twice as many rounds follow, so that noise alone
# seldom puts a shape on the list.  OFFSET 1e10 discards the rows.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
rounds=${ROUNDS:-5}
max_rows=${MAX_ROWS:-4000000}
shapes=${SHAPES:-.}
more_locales=${LOCALES:-}
[ "$more_locales" != all ] || more_locales=$(bash "$tree/test/locales.sh" --list | grep -i 'UTF-8')
db=gpusort_never_slower

if [ -n "${PGHOST:-}${PGPORT:-}" ]; then
  trap 'psql -qX -d postgres -c "DROP DATABASE IF EXISTS $db" 2>/dev/null' EXIT
  trap 'exit 1' INT TERM
else
  # shellcheck source=test/cluster.sh
  . "$tree/test/cluster.sh"
  # shellcheck disable=SC2086
  bash "$tree/test/locales.sh" "$work/locales" en_US.UTF-8 $more_locales
  server_environment+=("LOCPATH=$work/locales")
  start_cluster_of_tree "shared_buffers = 2GB" "autovacuum = off" \
    "max_worker_processes = 32" "max_parallel_workers = 32"
fi
psql -qX -d postgres -c "DROP DATABASE IF EXISTS $db" \
  -c "CREATE DATABASE $db TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'" 2>/dev/null
export PGDATABASE=$db
export PGOPTIONS="${PGOPTIONS:-} -c client_min_messages=error -c jit=off -c work_mem=256MB -c max_parallel_workers_per_gather=0"

bench() {
  psql -qXtA -v ON_ERROR_STOP=1 "$@"
}

bench <<'SQL'
CREATE TABLE results (place serial, shape text, query text, core_ms float8, gpusort_ms float8,
                      node text, core_disk_kb bigint, gpusort_disk_kb bigint, serial_ms float8, parallel_ms float8);
CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE COLLATION libc (provider = libc, locale = 'en_US.UTF-8');
CREATE EXTENSION citext;
CREATE TYPE colour AS ENUM ('red', 'green', 'blue', 'black', 'white', 'yellow');
CREATE DOMAIN small AS int CHECK (VALUE < 1000000);

-- The shapes' data are made of a random integer, one from 0 to n - 1, and up to 32 random letters.
CREATE FUNCTION any_int() RETURNS int LANGUAGE sql VOLATILE AS 'SELECT floor(random() * 4294967296 - 2147483648)::int';
CREATE FUNCTION rnd(n float8) RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT floor(random() * n)::bigint';
CREATE FUNCTION word(n int) RETURNS text LANGUAGE sql VOLATILE
  AS $$ SELECT substr(translate(md5(random()::text), '0123456789', 'ghijklmnop'), 1, n) $$;

CREATE FUNCTION ms_since(begun timestamptz) RETURNS float8 LANGUAGE sql VOLATILE
  AS 'SELECT 1000 * extract(epoch FROM clock_timestamp() - begun)';
CREATE FUNCTION median(ms float8[]) RETURNS float8 LANGUAGE sql
  AS 'SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FROM unnest(ms) x';

-- Measures a statement, or several, in the session's settings.  Contenders: 0 is core, 1 is GpuSort, 2 is GpuSort with
-- workers if the session has none, else without.
CREATE PROCEDURE measure(shape text, query text, rounds int) LANGUAGE plpgsql AS $$
DECLARE
  session_workers text := current_setting('max_parallel_workers_per_gather');
  other_workers text := CASE session_workers WHEN '0' THEN '2' ELSE '0' END;
  explain text := concat('EXPLAIN (', CASE WHEN query NOT LIKE '%;%' THEN 'ANALYZE, TIMING OFF, ' END, 'FORMAT JSON) ',
                         split_part(query, ';', 1));
  plan jsonb;
  begun timestamptz;
  n int;
  repeats int := 1;
  contenders int[] := '{0,1}';
  core float8[];
  gpusort float8[];
  other float8[];
  ms float8;
  who int;
  node text;
  disk bigint;
  core_disk bigint;
BEGIN
  -- to warm up, to look at the plan, and to find the number of repeats
  FOREACH who IN ARRAY contenders LOOP
    PERFORM set_config('gpusort.enabled', (who > 0)::text, true);
    core_disk := disk;
    begun := clock_timestamp();
    EXECUTE explain INTO plan;
    node := CASE WHEN jsonb_path_exists(plan, '$.**."Custom Plan Provider"') THEN 'GpuSort' ELSE 'core' END;
    SELECT sum(x::bigint) INTO disk FROM (
      SELECT jsonb_path_query(plan, 'strict $.** ? (@."Sort Space Type" == "Disk")."Sort Space Used"')
      UNION ALL SELECT jsonb_path_query(plan, 'strict $.** ? (@."Custom Plan Provider" == "GpuSort" && exists(@.Disk)).Disk')) d(x);
    n := 0;
    WHILE ms_since(begun) < 20 LOOP
      EXECUTE query;
      n := n + 1;
    END LOOP;
    repeats := greatest(repeats, n);
  END LOOP;
  -- "plan" is that of GpuSort in the session's settings
  IF session_workers = '0' THEN
    PERFORM set_config('max_parallel_workers_per_gather', other_workers, true);
    EXECUTE replace(explain, 'ANALYZE, TIMING OFF, ', '') INTO plan;
  END IF;
  IF jsonb_path_exists(plan, '$.**."Custom Plan Provider"') AND jsonb_path_exists(plan, '$.**."Workers Planned"') THEN
    contenders := '{0,1,2}';
  END IF;

  FOR i IN 1 .. 3 * rounds LOOP
    EXIT WHEN i > rounds AND median(gpusort) / median(core) NOT BETWEEN 1.05 AND 1.3 AND
      (other IS NULL OR greatest(median(gpusort) / median(other), median(other) / median(gpusort)) NOT BETWEEN 1.05 AND 1.3);
    FOR place IN 1 .. cardinality(contenders) LOOP
      who := contenders[1 + (i + place) % cardinality(contenders)];
      PERFORM set_config('gpusort.enabled', (who > 0)::text, true),
        set_config('max_parallel_workers_per_gather', CASE who WHEN 2 THEN other_workers ELSE session_workers END, true);
      begun := clock_timestamp();
      FOR j IN 1 .. repeats LOOP
        EXECUTE query;
      END LOOP;
      ms := ms_since(begun) / repeats;
      CASE who
        WHEN 0 THEN core := core || ms;
        WHEN 1 THEN gpusort := gpusort || ms;
        ELSE other := other || ms;
      END CASE;
    END LOOP;
  END LOOP;
  INSERT INTO results (shape, query, core_ms, gpusort_ms, node, core_disk_kb, gpusort_disk_kb, serial_ms, parallel_ms)
    VALUES (shape, query, median(core), median(gpusort), node, core_disk, disk,
            CASE WHEN other IS NOT NULL THEN median(CASE session_workers WHEN '0' THEN gpusort ELSE other END) END,
            CASE WHEN other IS NOT NULL THEN median(CASE session_workers WHEN '0' THEN other ELSE gpusort END) END);
END $$;

-- Returns the time of a session's first statement.
CREATE FUNCTION first_ms(query text, load boolean) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
  begun timestamptz;
BEGIN
  PERFORM set_config('gpusort.enabled', load::text, false);
  begun := clock_timestamp();
  IF load THEN
    LOAD 'gpusort';
  END IF;
  EXECUTE query;
  RETURN ms_since(begun);
END $$;
SQL

made=
failed=0

# wanted ROWS NAME: is the shape among those to measure?
# Sets n to the number of rows, and name to the shape's name.
wanted() {
  n=${1/k/000}
  n=${n/M/000000}
  name="$2, $1"
  [ "$n" -le "$max_rows" ] && [[ $name =~ $shapes ]]
}

# make_table DATA: makes table t of n rows, unless it is there.
make_table() {
  [ "$made" != "$n $1" ] || return 0
  local columns=${1%%;*} more=${1#"${1%%;*}"}
  bench -c "SELECT setseed(0.14)" -c "DROP TABLE IF EXISTS t" \
    -c "CREATE UNLOGGED TABLE t AS SELECT $columns FROM generate_series(1, 1) i WITH NO DATA" \
    -c "ALTER TABLE t SET (autovacuum_enabled = off)" -c "${more#;}" \
    -c "INSERT INTO t SELECT $columns FROM generate_series(1, $n) i" -c "VACUUM ANALYZE t" >/dev/null
  made="$n $1"
}

# statement QUERY: prints the statement that QUERY stands for: a whole one, or an ORDER BY list.
statement() {
  case $1 in
    SELECT* | WITH*) echo "$1 OFFSET 1e10" ;;
    CREATE* | DECLARE*) echo "$1" ;;
    *LIMIT*) echo "SELECT * FROM (SELECT * FROM t ORDER BY $1) q OFFSET 1e10" ;;
    *) echo "SELECT * FROM t ORDER BY $1 OFFSET 1e10" ;;
  esac
}

show_last() {
  bench -F ' ' -c "SELECT to_char(gpusort_ms / core_ms, '990.99'), to_char(core_ms, '999990.999'),
    to_char(gpusort_ms, '999990.999'), coalesce(to_char(parallel_ms / serial_ms, '990.99'), repeat(' ', 7)), rpad(node, 7), shape FROM results ORDER BY place DESC LIMIT 1"
}

# shape ROWS NAME DATA QUERY [SETTING=VALUE...]
#
#   ROWS   the rows of table t: 100, 10k, 1M
#   DATA   its columns, where i is a row's number; after a semicolon, what is done to the empty table
#   QUERY  a statement, or an ORDER BY list
shape() {
  wanted "$1" "$2" || return 0
  make_table "$3"
  local settings=() setting
  for setting in "${@:5}"; do
    settings+=(-c "SET ${setting%%=*} = '${setting#*=}'")
  done
  if bench -c "LOAD 'gpusort'" "${settings[@]}" \
    -c "CALL measure(\$\$$name\$\$, \$\$$(statement "$4")\$\$, $rounds)"; then
    show_last
  else
    echo "failed: $name"
    failed=$((failed + 1))
  fi
}

# first ROWS NAME DATA QUERY: the first sort of a session, the library's loading included
first() {
  wanted "$1" "$2" || return 0
  make_table "$3"
  local query round load times
  query=$(statement "$4")
  times=$(for ((round = 0; round <= 3 * rounds; round++)); do
    for load in $((round % 2)) $((1 - round % 2)); do
      echo "($round, $load, $(bench -c "SELECT first_ms(\$\$$query\$\$, $load = 1)")),"
    done
  done)
  bench -c "INSERT INTO results (shape, query, core_ms, gpusort_ms, node)
    SELECT \$\$$name\$\$, \$\$$query\$\$, percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) FILTER (WHERE load = 0),
      percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) FILTER (WHERE load = 1), 'first'
    FROM (VALUES ${times%,}) v(round, load, ms) WHERE round > 0"
  show_last
}

server=$(bench -c "SELECT 'PostgreSQL ' || current_setting('server_version')")
echo "$server, $(nproc) processors,$(uptime | sed 's/.*load/ load/'), $rounds rounds"
echo
echo "   ratio        core     GpuSort workers node    shape"

# Queries that were found to be slower than in core
body="i::int u, repeat(md5(i::text), 400) body"
external="$body; ALTER TABLE t ALTER body SET STORAGE EXTERNAL"
url="'https://www.example.com/catalogue/products/item?category=books&number='"
six="any_int() a, rnd(1e9) b, word(12) COLLATE \"C\" c, rnd(1e6)::numeric d, now() + rnd(1e9) * interval '1 s' e, i f"
uuids="md5(random()::text)::uuid u, md5(random()::text)::uuid v"
shape 20k 'unique, then 12.8 kB out of line, C' "$external" 'u, body COLLATE "C"'
shape 30k 'unique, then 12.8 kB out of line, C' "$external" 'u, body COLLATE "C"'
shape 20k 'unique, then 12.8 kB compressed, ICU' "$body" 'u, body COLLATE "en-x-icu"'
shape 30k 'unique, then 12.8 kB compressed, ICU' "$body" 'u, body COLLATE "en-x-icu"'
shape 20k 'unique in random order, then 12.8 kB out of line, C' "any_int() u, repeat(md5(i::text), 400) body; ALTER TABLE t ALTER body SET STORAGE EXTERNAL" 'u, body COLLATE "C"'
shape 1M '3 distinct IPv6 addresses' "inet '2001:db8:1:2:3:4:5:6' + rnd(3) k" k
shape 1M '5 distinct long texts, ICU' "'quality inspector ' || (ARRAY['north', 'south', 'west', 'east', 'centre'])[1 + rnd(5)] k" 'k COLLATE "en-x-icu"'
shape 1M '1,000 distinct URLs, ICU, work_mem 4MB' "$url || rnd(1000) k" 'k COLLATE "en-x-icu"' work_mem=4MB
shape 1M '4 values in two cases, ks-level2' "(ARRAY['quality inspector ', 'Quality Inspector '])[1 + rnd(2)] || (ARRAY['north', 'south', 'west', 'east'])[1 + rnd(4)] k" 'k COLLATE nocase'
shape 2M 'LIMIT 500000 of 2 million' "any_int() k" 'k LIMIT 500000'
shape 1M 'temporary files, two uuids' "$uuids" 'u, v' work_mem=4MB
shape 3M 'temporary files, six columns' "$six" 'a, b, c, d, e, f' work_mem=4MB

# Sizes
for rows in 100 1k 3k 10k 30k 100k 1M 3M; do
  shape $rows 'int4' "any_int() k" k
  shape $rows 'two columns' "rnd(1000) a, any_int() b, i id" 'a, b'
  shape $rows 'text C' "word(12) k" 'k COLLATE "C"'
  shape $rows 'text ICU' "word(12) k" 'k COLLATE "en-x-icu"'
done
for rows in 100 1k 3k 10k 30k 100k 300k; do
  shape $rows 'int4, 1 kB rows' "any_int() k, repeat('x', 1000) pad" k
done
for rows in 100 1k 10k 100k 1M; do
  first $rows 'first sort of a session, int4' "any_int() k" k
  first $rows 'first sort of a session, text ICU' "word(12) k" 'k COLLATE "en-x-icu"'
done

# Types, near the planner's break-even and well above
for rows in 3k 300k; do
  shape $rows 'int2' "(rnd(65536) - 32768)::int2 k" k
  shape $rows 'int8' "rnd(1e18) k" k
  shape $rows 'float4' "random()::float4 k" k
  shape $rows 'float8' "random() k" k
  shape $rows 'numeric(12,2)' "(random() * 1e9)::numeric(12,2) k" k
  shape $rows 'numeric, 40 digits' "(rnd(1e9)::text || repeat('7', 31))::numeric k" k
  shape $rows 'money' "rnd(1e9)::int::money k" k
  shape $rows 'bool' "random() < 0.5 k" k
  shape $rows 'date' "date '2000-01-01' + rnd(9000)::int k" k
  shape $rows 'timestamp' "timestamp '2000-01-01' + random() * interval '20 years' k" k
  shape $rows 'timestamptz' "timestamptz '2000-01-01' + random() * interval '20 years' k" k
  shape $rows 'time' "time '00:00' + random() * interval '1 day' k" k
  shape $rows 'timetz' "timetz '00:00+00' + random() * interval '1 day' k" k
  shape $rows 'interval' "random() * interval '2 years' k" k
  shape $rows '"char"' "chr(33 + rnd(90)::int)::\"char\" k" k
  shape $rows 'name' "word(20)::name k" k
  shape $rows 'bpchar C' "word(12)::char(20) k" 'k COLLATE "C"'
  shape $rows 'bpchar ICU' "word(12)::char(20) k" 'k COLLATE "en-x-icu"'
  shape $rows 'text ks-level2' "word(12) k" 'k COLLATE nocase'
  shape $rows 'bytea' "decode(md5(random()::text), 'hex') k" k
  shape $rows 'uuid' "md5(random()::text)::uuid k" k
  shape $rows 'inet, IPv4' "inet '0.0.0.0' + rnd(4e9) k" k
  shape $rows 'inet, IPv6' "inet '2001:db8::' + rnd(1e18) k" k
  shape $rows 'inet, IPv6 with netmasks' "set_masklen(inet '2001:db8::' + rnd(1e18), 32 + rnd(97)::int) k" k
  shape $rows 'cidr' "network(set_masklen(inet '0.0.0.0' + rnd(4e9), 24)) k" k
  shape $rows 'macaddr' "substr(md5(random()::text), 1, 12)::macaddr k" k
  shape $rows 'macaddr8' "substr(md5(random()::text), 1, 16)::macaddr8 k" k
  shape $rows 'oid' "rnd(4e9)::oid k" k
  shape $rows 'enum' "('{red,green,blue,black,white,yellow}'::colour[])[1 + rnd(6)] k" k
  shape $rows 'domain' "rnd(1e6)::int::small k" k
done
# Types that are left to core
for rows in 3k 30k; do
  shape $rows 'int[]' "ARRAY[any_int(), any_int()] k" k
  shape $rows 'row' "any_int() a, any_int() b" '(a, b)'
  shape $rows 'jsonb' "to_jsonb(any_int()) k" k
done

# Order of arrival, with a table's other columns behind
for rows in 10k 300k; do
  shape $rows 'sorted int4' "i k, word(20) pad" k
  shape $rows 'reverse int4' "-i k, word(20) pad" k
  shape $rows 'nearly sorted int4' "i + rnd(100) k, word(20) pad" k
  shape $rows 'sawtooth int4' "i % 1000 k, word(20) pad" k
  shape $rows 'sorted int4, a few at the end' "CASE WHEN random() < 0.001 THEN 0 ELSE i END k, word(20) pad" k
  shape $rows 'sorted text C' "to_char(i, 'FM00000000') k, word(20) pad" 'k COLLATE "C"'
  shape $rows 'sorted text ICU' "to_char(i, 'FM00000000') k, word(20) pad" 'k COLLATE "en-x-icu"'
  shape $rows 'reverse text C' "to_char(9e7 - i, 'FM00000000') k, word(20) pad" 'k COLLATE "C"'
  shape $rows 'sorted timestamptz, DESC' "timestamptz '2024-01-01' + i * interval '1 s' k, word(20) pad" 'k DESC'
  shape $rows 'two columns, sorted by the first' "i / 10 a, any_int() b" 'a, b'
done

# Few distinct values
for distinct in 1 3 5 1000; do
  shape 300k "int4, $distinct distinct" "rnd($distinct)::int k, i id" k
  shape 300k "text C, $distinct distinct" "'value ' || rnd($distinct) k, i id" 'k COLLATE "C"'
  shape 300k "long text C, $distinct distinct" "'quality inspector number ' || rnd($distinct) k, i id" 'k COLLATE "C"'
  shape 300k "long text ICU, $distinct distinct" "'quality inspector number ' || rnd($distinct) k, i id" 'k COLLATE "en-x-icu"'
  shape 300k "long numeric, $distinct distinct" "(repeat('1234567890', 4) || rnd($distinct))::numeric k, i id" k
  shape 300k "IPv6, $distinct distinct" "inet '2001:db8::' + rnd($distinct) k, i id" k
done
shape 300k 'nothing but one value, int4' "7 k, i id" k
shape 100k 'four columns of few values' "rnd(3) a, rnd(3) b, rnd(3) c, rnd(3) d, i id" 'a, b, c, d'
shape 300k '100 distinct texts of 300 bytes, ICU' "repeat('long text ', 30) || rnd(100) k" 'k COLLATE "en-x-icu"'

# Common prefixes
for bytes in 0 20 60 200; do
  shape 300k "text C, prefix of $bytes bytes" "repeat('p', $bytes) || word(20) k" 'k COLLATE "C"'
  shape 300k "text ICU, prefix of $bytes bytes" "repeat('p', $bytes) || word(20) k" 'k COLLATE "en-x-icu"'
  shape 300k "bytea, prefix of $bytes bytes" "convert_to(repeat('p', $bytes) || word(20), 'UTF8') k" k
  shape 3k "text C, prefix of $bytes bytes" "repeat('p', $bytes) || word(20) k" 'k COLLATE "C"'
  shape 3k "text ICU, prefix of $bytes bytes" "repeat('p', $bytes) || word(20) k" 'k COLLATE "en-x-icu"'
done
shape 300k 'URLs of ten hosts, C' "'https://host' || rnd(10) || '.example.com/path/to/' || word(12) k" 'k COLLATE "C"'
shape 300k 'URLs of ten hosts, ICU' "'https://host' || rnd(10) || '.example.com/path/to/' || word(12) k" 'k COLLATE "en-x-icu"'
shape 300k 'accents and cases, ICU' "translate(word(12), 'aei', 'äÉI') k" 'k COLLATE "en-x-icu"'

# NULLs
for percent in 10 90 100; do
  shape 1M "int4, $percent % NULL" "CASE WHEN rnd(100) >= $percent THEN any_int() END k, i id" k
  shape 300k "text ICU, $percent % NULL" "CASE WHEN rnd(100) >= $percent THEN word(12) END k, i id" 'k COLLATE "en-x-icu" NULLS FIRST'
  shape 300k "numeric, $percent % NULL" "CASE WHEN rnd(100) >= $percent THEN random()::numeric END k, i id" 'k DESC NULLS LAST'
done

# Toasted and wide values
shape 20k 'k, with 12.8 kB out of line behind' "any_int() k, repeat(md5(i::text), 400) body; ALTER TABLE t ALTER body SET STORAGE EXTERNAL" k
shape 20k '12.8 kB out of line, C' "$external" 'body COLLATE "C"'
shape 20k '12.8 kB compressed, C' "$body" 'body COLLATE "C"'
shape 20k '12.8 kB compressed, ICU' "$body" 'body COLLATE "en-x-icu"'
shape 20k 'few values, then 12.8 kB compressed, C' "rnd(1000) a, repeat(md5(i::text), 400) body" 'a, body COLLATE "C"'
shape 20k 'unique, then bytea of 12.8 kB compressed' "i u, convert_to(repeat(md5(i::text), 400), 'UTF8') body" 'u, body'
shape 100k 'unique, then numeric of 200 digits' "i u, (repeat('1234567890', 20) || rnd(1e6))::numeric n" 'u, n'
shape 100k 'unique, then 1 kB of text, C' "i u, repeat(word(32), 32) body" 'u, body COLLATE "C"'
shape 100k 'unique, then 1 kB of text, ICU' "i u, repeat(word(32), 32) body" 'u, body COLLATE "en-x-icu"'
shape 100k '1 kB of text, C' "repeat(word(32), 32) k" 'k COLLATE "C"'
shape 100k '1 kB of text, ICU' "repeat(word(32), 32) k" 'k COLLATE "en-x-icu"'

# Several columns
for rows in 10k 300k; do
  shape $rows 'timestamptz and id' "now() + rnd(1e9) * interval '1 s' ts, i id, word(20) pad" 'ts DESC, id'
  shape $rows 'six columns' "$six" 'a, b, c, d, e, f'
  shape $rows 'six columns, the last decides' "1 a, 2 b, 'x' COLLATE \"C\" c, 3::numeric d, now() e, any_int() f" 'a, b, c, d, e, f'
  shape $rows 'eight int8 of few values' "rnd(3) a, rnd(3) b, rnd(3) c, rnd(3) d, rnd(3) e, rnd(3) f, rnd(3) g, rnd(3) h" 'a, b, c, d, e, f, g, h'
  shape $rows 'text ICU and int4' "word(12) k, any_int() v" 'k COLLATE "en-x-icu", v'
  shape $rows 'few texts ICU and int4' "'state ' || rnd(10) k, any_int() v" 'k COLLATE "en-x-icu", v'
  shape $rows 'int4 of few values and text ICU' "rnd(10) a, word(12) k" 'a, k COLLATE "en-x-icu"'
  shape $rows 'two texts C' "word(3) a, word(20) b" 'a COLLATE "C", b COLLATE "C"'
  shape $rows 'lower(text) ICU' "upper(word(12)) k" 'lower(k) COLLATE "en-x-icu"'
done

# Elsewhere in a plan
facts="rnd(1000)::int a, any_int() k, word(12) s, i::int id"
for rows in 10k 300k; do
  shape $rows 'row_number()' "$facts" 'SELECT row_number() OVER (ORDER BY k) FROM t'
  shape $rows 'rank() in partitions' "$facts" 'SELECT rank() OVER (PARTITION BY a ORDER BY k) FROM t'
  shape $rows 'two windows' "$facts" 'SELECT sum(id) OVER (PARTITION BY a ORDER BY k), lag(k) OVER (ORDER BY id) FROM t'
  shape $rows 'DISTINCT' "$facts" 'SELECT DISTINCT k FROM t'
  shape $rows 'DISTINCT, sorted' "$facts" 'SELECT DISTINCT k, a FROM t' enable_hashagg=off
  shape $rows 'DISTINCT ON' "$facts" 'SELECT DISTINCT ON (a) a, k, s FROM t ORDER BY a, k DESC'
  shape $rows 'GROUP BY, ordered' "$facts" 'SELECT a, count(*) FROM t GROUP BY a ORDER BY a'
  shape $rows 'GROUP BY, sorted' "$facts" 'SELECT a, count(*), max(k) FROM t GROUP BY a' enable_hashagg=off
  shape $rows 'GROUP BY of many groups, sorted' "$facts" 'SELECT k, count(*) FROM t GROUP BY k' enable_hashagg=off
  shape $rows 'GROUP BY text ICU, sorted' "$facts" 'SELECT s COLLATE "en-x-icu", count(*) FROM t GROUP BY 1' enable_hashagg=off
  shape $rows 'count(DISTINCT)' "$facts" 'SELECT a, count(DISTINCT k) FROM t GROUP BY a'
  shape $rows 'merge join' "$facts" 'SELECT count(*) FROM t x JOIN t y ON x.k = y.k' enable_hashjoin=off enable_nestloop=off
  shape $rows 'merge full join' "$facts" 'SELECT count(*) FROM t x FULL JOIN t y ON x.k = y.id' enable_hashjoin=off enable_nestloop=off
  shape $rows 'UNION, sorted' "$facts" 'SELECT k FROM t UNION SELECT id FROM t' enable_hashagg=off
  shape $rows 'UNION ALL, ordered' "$facts" 'SELECT * FROM (SELECT k FROM t UNION ALL SELECT id FROM t) u ORDER BY k'
  shape $rows 'count(*) of an ordered subquery' "$facts" 'SELECT count(*) FROM (SELECT k FROM t ORDER BY k OFFSET 0) q'
  shape $rows 'ordered CTE' "$facts" 'WITH q AS MATERIALIZED (SELECT k, id FROM t ORDER BY k) SELECT max(id) FROM q'
  shape $rows 'ordered by an expression' "$facts" 'SELECT s FROM t ORDER BY k % 1000, length(s)'
  shape $rows 'array_agg of an ordered subquery' "$facts" 'SELECT array_agg(k) FROM (SELECT k FROM t ORDER BY k) q'
  shape $rows 'ordered with an index at hand' "any_int() k, i id; CREATE INDEX ON t (k)" 'SELECT id FROM t ORDER BY k'
  shape $rows 'incremental sort by an index' "i / 100 a, any_int() b; CREATE INDEX ON t (a)" 'a, b'
done

# Groups in place of a hash table: few, many, as many as rows, of which the planner knows too much or too little, and in order
for rows in 1k 10k 100k 1M; do
  wanted $rows '' || true
  for memory in 4MB 256MB; do
    for groups in 100 10000 $((n / 10)) $n; do
      table="rnd($groups)::int g, any_int() k, 'name ' || rnd($groups) s, rnd($groups)::int h"
      shape $rows "groups: DISTINCT of $groups, $memory" "$table" 'SELECT DISTINCT g FROM t' work_mem=$memory
      shape $rows "groups: DISTINCT text of $groups, $memory" "$table" 'SELECT DISTINCT s FROM t' work_mem=$memory
      shape $rows "groups: count of $groups, $memory" "$table" 'SELECT g, count(*) FROM t GROUP BY g' work_mem=$memory
      shape $rows "groups: four aggregates of $groups, $memory" "$table" 'SELECT g, count(*), sum(k), max(k), avg(h) FROM t GROUP BY g' work_mem=$memory
      shape $rows "groups: text of $groups, $memory" "$table" 'SELECT s, count(*), sum(k) FROM t GROUP BY s' work_mem=$memory
      shape $rows "groups: two columns of $groups, $memory" "$table" 'SELECT g, s, sum(k) FROM t GROUP BY g, s' work_mem=$memory
    done
    shape $rows "groups: columns that depend on each other, $memory" 'rnd(1000)::int g, any_int() k; ALTER TABLE t ADD h int; UPDATE t SET h = g / 2' 'SELECT g, h, sum(k) FROM t GROUP BY g, h' work_mem=$memory
    shape $rows "groups: an expression, $memory" 'i id, any_int() k' 'SELECT id / 1000, sum(k) FROM t GROUP BY 1' work_mem=$memory
    shape $rows "groups: in order, $memory" 'i / 10 g, any_int() k' 'SELECT g, sum(k) FROM t GROUP BY g' work_mem=$memory
    shape $rows "groups: few pass, $memory" 'i id, rnd(100)::int a' 'SELECT id, count(*) FROM t WHERE a = 1 GROUP BY id' work_mem=$memory
    shape $rows "groups: UNION, $memory" 'i id, any_int() k' 'SELECT k FROM t UNION SELECT id FROM t' work_mem=$memory
    shape $rows "groups: IN, $memory" "i id, rnd($((n / 10)))::int g" 'SELECT count(*) FROM t WHERE id IN (SELECT g FROM t)' work_mem=$memory
  done
done

# Groups of texts: those of the table's order, of few values and of many; all sorted and hashed shapes
distinct_p='SELECT DISTINCT p FROM t'
urls="'https://www.example.com/articles/2024/' || hashint4(i) % 30000"
for collation in libc '"en-x-icu"' '"C"' nocase; do
  for memory in 4MB 64MB; do
    for data in "urls:$urls" "random:substr(md5(rnd(30000)::text), 1, 12)" "random, all distinct:word(20)"; do
      table="(${data#*:}) COLLATE $collation p"
      texts="texts: ${data%%:*}, $collation, $memory"
      shape 200k "$texts, DISTINCT" "$table" "$distinct_p" work_mem=$memory
      shape 200k "$texts, GROUP BY" "$table" 'SELECT p, count(*) FROM t GROUP BY p' work_mem=$memory
      shape 200k "$texts, count(DISTINCT)" "$table" 'SELECT count(DISTINCT p) FROM t' work_mem=$memory
      shape 200k "$texts, DISTINCT in order" "$table" 'SELECT DISTINCT p FROM t ORDER BY p' work_mem=$memory
      shape 200k "$texts, ORDER BY" "$table" p work_mem=$memory
      shape 200k "$texts, bpchar, DISTINCT" "(${data#*:})::char(60) COLLATE $collation p" "$distinct_p" work_mem=$memory
      shape 200k "$texts, bpchar, GROUP BY" "(${data#*:})::char(60) COLLATE $collation p" 'SELECT p, count(*) FROM t GROUP BY p' work_mem=$memory
    done
  done
done
for memory in 4MB 64MB; do
  shape 200k "texts: urls, citext, libc, $memory, DISTINCT" "($urls)::citext COLLATE libc p" "$distinct_p" work_mem=$memory
  shape 200k "texts: urls, citext, libc, $memory, GROUP BY" "($urls)::citext COLLATE libc p" 'SELECT p, count(*) FROM t GROUP BY p' work_mem=$memory
  shape 200k "texts: urls, name, libc, $memory, DISTINCT" "('n' || hashint4(i) % 30000)::name COLLATE libc p" "$distinct_p" work_mem=$memory
done
for collation in libc '"en-x-icu"' '"C"'; do
  for data in "in the table's order:'k' || lpad(i::text, 10, '0')" "nine of ten NULL:CASE WHEN i % 10 = 0 THEN word(12) END" \
    "long equal prefixes:repeat('w', i % 300)"; do
    table="(${data#*:}) COLLATE $collation p, i id"
    texts="texts: ${data%%:*}, $collation"
    shape 60k "$texts, ORDER BY" "$table" p
    shape 60k "$texts, count(DISTINCT)" "$table" 'SELECT count(DISTINCT p) FROM t'
    shape 60k "$texts, count(DISTINCT) of groups" "$table" 'SELECT id % 100, count(DISTINCT p) FROM t GROUP BY 1'
    shape 60k "$texts, DISTINCT" "$table" "$distinct_p"
    shape 60k "$texts, DISTINCT ON" "$table" 'SELECT DISTINCT ON (p) p, id FROM t ORDER BY p, id'
  done
done
for locale in $more_locales; do
  wanted 200k "texts: urls, $locale, DISTINCT" || continue
  bench -c "DROP TABLE IF EXISTS t" -c "DROP COLLATION IF EXISTS other" -c "CREATE COLLATION other (provider = libc, locale = '$locale')"
  made=
  shape 200k "texts: urls, $locale, DISTINCT" "($urls) COLLATE other p" "$distinct_p" work_mem=4MB
  shape 200k "texts: random, $locale, GROUP BY" "substr(md5(rnd(30000)::text), 1, 12) COLLATE other p" 'SELECT p, count(*) FROM t GROUP BY p' work_mem=4MB
done

# Aggregates that sort inside themselves
for rows in 1k 3k 10k 100k 3M; do
  shape $rows 'aggregate: percentile_cont' "$facts" 'SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY k) FROM t'
  shape $rows 'aggregate: count(DISTINCT)' "$facts" 'SELECT count(DISTINCT k) FROM t'
  shape $rows 'aggregate: count(DISTINCT) of 1,000 values' "$facts" 'SELECT count(DISTINCT a) FROM t'
  shape $rows 'aggregate: count(DISTINCT) of texts' "$facts" 'SELECT count(DISTINCT s) FROM t'
  shape $rows 'aggregate: string_agg(ORDER BY)' "$facts" "SELECT length(string_agg(s, ',' ORDER BY k)) FROM t"
  shape $rows 'aggregate: rank' "$facts" 'SELECT rank(0) WITHIN GROUP (ORDER BY k) FROM t'
  shape $rows 'aggregate: percentile_cont, in order' "$facts" 'SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY id) FROM t'
  shape $rows 'aggregate: percentile_cont of groups' "$facts" 'SELECT a, percentile_cont(0.5) WITHIN GROUP (ORDER BY k) FROM t GROUP BY a'
  shape $rows 'aggregate: count(DISTINCT) of uuids' "md5(rnd($((n / 2)))::text)::uuid u" 'SELECT count(DISTINCT u) FROM t'
  shape $rows 'aggregate: count(DISTINCT) of uuids by groups, beside others' "md5(rnd($((n / 2)))::text)::uuid u, rnd(1000)::int a" 'SELECT a, count(DISTINCT u), count(*), avg(a) FROM t GROUP BY a'
  shape $rows 'aggregate: few distinct texts beside others' "$facts" 'SELECT count(*), count(DISTINCT s), avg(k) FROM t'
  shape $rows 'aggregate: two orders' "$facts" 'SELECT count(DISTINCT k), count(DISTINCT s) FROM t'
done
# ... several, and beside others
for rows in 1k 10k 1M; do
  shape $rows 'aggregate: several' "$facts" 'SELECT count(DISTINCT k), count(DISTINCT a), percentile_cont(0.95) WITHIN GROUP (ORDER BY k) FROM t'
  shape $rows 'aggregate: several beside others' "$facts" 'SELECT count(*), avg(k), count(DISTINCT a), percentile_disc(0.95) WITHIN GROUP (ORDER BY k) FROM t'
  shape $rows 'aggregate: with FILTER' "$facts" 'SELECT count(DISTINCT k) FILTER (WHERE a < 500), mode() WITHIN GROUP (ORDER BY a) FROM t'
  shape $rows 'aggregate: work_mem 4MB' "$facts" 'SELECT count(DISTINCT k), percentile_cont(0.5) WITHIN GROUP (ORDER BY id) FROM t' work_mem=4MB
done
# ... of groups: a thousand, of a hundred rows each, of two, and of one; in order; and of which the planner knows too little
of_group='percentile_cont(0.5) WITHIN GROUP (ORDER BY k)'
for rows in 1k 10k 100k 1M; do
  wanted $rows '' || true
  for memory in 4MB 256MB; do
    shape $rows "aggregate: groups, $memory" "$facts" "SELECT a, $of_group FROM t GROUP BY a" work_mem=$memory
    shape $rows "aggregate: groups beside others, $memory" "$facts" "SELECT a, $of_group, count(DISTINCT id), count(*), avg(k) FROM t GROUP BY a" work_mem=$memory
    shape $rows "aggregate: groups of 100 rows, $memory" "any_int() k, rnd($((n / 100)))::int a" "SELECT a, $of_group FROM t GROUP BY a" work_mem=$memory
    shape $rows "aggregate: groups of two rows, $memory" "any_int() k, rnd($((n / 2)))::int a" "SELECT a, $of_group, count(*) FROM t GROUP BY a" work_mem=$memory
    shape $rows "aggregate: groups of one row, $memory" "$facts" "SELECT id, $of_group, count(*) FROM t GROUP BY id" work_mem=$memory
    shape $rows "aggregate: count(DISTINCT) of groups of one row, $memory" "$facts" "SELECT id, count(DISTINCT k), count(*) FROM t GROUP BY id" work_mem=$memory
    shape $rows "aggregate: groups in order, $memory" "any_int() k, i / 100 a" "SELECT a, $of_group FROM t GROUP BY a" work_mem=$memory
    shape $rows "aggregate: groups by an expression, $memory" "$facts" "SELECT id % 100, $of_group, count(*) FROM t GROUP BY id % 100" work_mem=$memory
    shape $rows "aggregate: groups of one row by an expression, $memory" "$facts" "SELECT id + 1, $of_group, count(*) FROM t GROUP BY id + 1" work_mem=$memory
    shape $rows "aggregate: groups of five rows by an expression, $memory" "$facts" "SELECT id % $((n / 5)), $of_group, count(*) FROM t GROUP BY 1" work_mem=$memory
    shape $rows "aggregate: groups of one row by a truncation, $memory" "$facts" "SELECT (id / 1.0)::int, $of_group, count(*) FROM t GROUP BY 1" work_mem=$memory
    shape $rows "aggregate: rows of groups in order, $memory" "$facts" "SELECT a, string_agg(s, ',' ORDER BY k), count(DISTINCT s) FROM t GROUP BY a" work_mem=$memory
    shape $rows "aggregate: rows of groups of 100 in order, $memory" "any_int() k, rnd($((n / 100)))::int a, i id" "SELECT a, array_agg(k ORDER BY k, id), count(*) FROM t GROUP BY a" work_mem=$memory
    shape $rows "aggregate: rows of groups of two in order, $memory" "any_int() k, rnd($((n / 2)))::int a, i id" "SELECT a, array_agg(id ORDER BY k) FROM t GROUP BY a" work_mem=$memory
    shape $rows "aggregate: rows and groups in order already, $memory" "any_int() k, i / 100 a, i id" "SELECT a, array_agg(k ORDER BY id) FROM t GROUP BY a" work_mem=$memory
    shape $rows "aggregate: rows in order already, $memory" "$facts" "SELECT length(string_agg(s, ',' ORDER BY id)) FROM t" work_mem=$memory
    shape $rows "aggregate: groups by text, $memory" "any_int() k, 'city ' || rnd(1000) s" "SELECT s, $of_group FROM t GROUP BY s" work_mem=$memory
  done
done

# The first rows of each group: one row a group, two, a hundred; in order, and the latest ones first
latest='SELECT DISTINCT ON (device) * FROM t ORDER BY device, ts DESC'
top3='SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY device ORDER BY ts DESC) rn FROM t) q WHERE rn <= 3'
ranked='SELECT * FROM (SELECT *, rank() OVER (PARTITION BY device ORDER BY ts / 10) rn FROM t) q WHERE rn <= 3'
for rows in 1k 10k 100k 1M 3M; do
  wanted $rows '' || true
  for groups in $n $((n / 2)) $((n / 100)); do
    events="rnd($groups)::int device, i::int ts, word(32) s"
    shape $rows "groups: latest of $groups" "$events" "$latest"
    shape $rows "groups: latest of $groups, work_mem 4MB" "$events" "$latest" work_mem=4MB
    shape $rows "groups: narrow rows, latest of $groups" "$events" 'SELECT DISTINCT ON (device) device, ts FROM t ORDER BY device, ts DESC'
    shape $rows "groups: narrow rows, top 3 of $groups" "$events" "SELECT count(*) FROM ($top3) c"
    shape $rows "groups: expressions, latest of $groups" "$events" 'SELECT DISTINCT ON (device) device, ts * 2, upper(s) FROM t ORDER BY device, ts DESC'
    shape $rows "groups: top 3 of $groups" "$events" "$top3"
    shape $rows "groups: top 3 of $groups, work_mem 4MB" "$events" "$top3" work_mem=4MB
  done
  shape $rows 'groups: rank' "$events" "$ranked"
  shape $rows 'groups: all rows first' "$events" 'SELECT * FROM (SELECT *, row_number() OVER (ORDER BY ts DESC) rn FROM t) q WHERE rn <= 10'
  shape $rows 'groups: devices by text' "'device ' || word(20) || rnd($((n / 100))) device, i::int ts" "$latest"
  shape $rows 'groups: in order' "(i / 100)::int device, i::int ts, word(32) s" "$latest"
  shape $rows 'groups: in turn' "(i % $((n / 100 + 1)))::int device, i::int ts, word(32) s" "$latest"
  shape $rows 'groups: DISTINCT' "$events" 'SELECT DISTINCT device FROM t' enable_hashagg=off
done
shape 300k 'CREATE TABLE AS' "$facts" 'CREATE TEMP TABLE u AS SELECT * FROM t ORDER BY k; DROP TABLE u'
for rows in 1k 100k; do
  shape $rows 'cursor, FETCH 10' "$facts" 'DECLARE c CURSOR FOR SELECT * FROM t ORDER BY k; FETCH 10 FROM c; CLOSE c'
  shape $rows 'cursor, read whole' "$facts" 'DECLARE c CURSOR FOR SELECT * FROM t ORDER BY k; MOVE ALL FROM c; CLOSE c'
  shape $rows 'cursor, read forward and backward' "$facts" 'DECLARE c SCROLL CURSOR FOR SELECT * FROM t ORDER BY k; MOVE ALL FROM c; MOVE BACKWARD ALL FROM c; CLOSE c'
  shape $rows 'EXISTS with an ordered subquery' "$facts" 'SELECT EXISTS (SELECT FROM t ORDER BY k OFFSET 5)'
done
shape 10k 'LATERAL, 7 rows sorted 10,000 times' "$facts" 'SELECT sum(q.g) FROM t, LATERAL (SELECT (g # k) % 17 g FROM generate_series(1, 7) g ORDER BY 1 OFFSET 1) q'
shape 10k 'LATERAL, 100 rows sorted 10,000 times' "$facts" 'SELECT sum(q.g) FROM t, LATERAL (SELECT (g # id) % 177 g FROM generate_series(1, 100) g ORDER BY 1 OFFSET 98) q'
shape 100 'LATERAL, 3,000 rows sorted 100 times' "$facts" 'SELECT sum(q.g) FROM t, LATERAL (SELECT (g # id) % 1777 g FROM generate_series(1, 3000) g ORDER BY 1 OFFSET 2990) q'

# LIMIT, as a share of the rows
for rows in 10k 100k 1M; do
  shape $rows 'LIMIT 10' "$facts" 'k LIMIT 10'
  for percent in 1 3 10 25 50; do
    wanted $rows '' || true
    shape $rows "LIMIT $percent %" "$facts" "k LIMIT $((n * percent / 100))"
  done
  shape $rows 'OFFSET 10 % LIMIT 10' "$facts" "k LIMIT 10 OFFSET $((n / 10))"
  shape $rows 'OFFSET 90 %' "$facts" "SELECT * FROM (SELECT * FROM t ORDER BY k OFFSET $((n * 9 / 10))) q"
  shape $rows 'text ICU, LIMIT 3 %' "$facts" "s COLLATE \"en-x-icu\" LIMIT $((n * 3 / 100))"
done
for rows in 3k 10k 30k; do
  shape $rows 'text C, LIMIT 10' "$facts" 's COLLATE "C" LIMIT 10'
  shape $rows 'text ICU, LIMIT 10' "$facts" 's COLLATE "en-x-icu" LIMIT 10'
  shape $rows 'two columns, LIMIT 10' "$facts" 'a, k LIMIT 10'
done
# ... by the order of arrival
wide="repeat('x', 260) pad"
for limit in 10 1000 10000 100000 500000; do
  shape 2M "random int4, LIMIT $limit" "any_int() k" "k LIMIT $limit"
  shape 2M "random, LIMIT $limit" "any_int() k, i id" "k LIMIT $limit"
  shape 2M "ascending, LIMIT $limit" "i k, i id" "k LIMIT $limit"
  shape 2M "descending, LIMIT $limit" "-i k, i id" "k LIMIT $limit"
  shape 2M "8 distinct, LIMIT $limit" "rnd(8) k, i id" "k LIMIT $limit"
  shape 1M "300 bytes, random, LIMIT $limit" "any_int() k, $wide" "k LIMIT $limit"
  shape 1M "300 bytes, descending, LIMIT $limit" "-i k, $wide" "k LIMIT $limit"
done
for limit in 10 10000; do
  shape 1M "descending texts that agree in 60 letters, C, LIMIT $limit" "repeat('p', 60) || to_char(9e8 - i, 'FM000000000') k" "k COLLATE \"C\" LIMIT $limit"
  shape 1M "descending texts that agree in 60 letters, ICU, LIMIT $limit" "repeat('p', 60) || to_char(9e8 - i, 'FM000000000') k" "k COLLATE \"en-x-icu\" LIMIT $limit"
  shape 1M "1,000 distinct URLs, ICU, LIMIT $limit" "$url || rnd(1000) k" "k COLLATE \"en-x-icu\" LIMIT $limit"
  shape 1M "random, work_mem 4MB, LIMIT $limit" "any_int() k, $wide" "k LIMIT $limit" work_mem=4MB
done
# ... of texts under libc: signs that it compares slowly, and a long common prefix
signs="'0123456789abcdef', '😀☃1️👍🎉❤😀☃2️👍🎉❤😀☃'"
prefix="'the same beginning of all of these strings, which has a hundred letters, 😀 and signs ☃ between its words ❤ '"
shape 20k 'signs, libc, LIMIT 1 OFFSET 7' "translate(substr(md5((i % 809)::text), 1, 20), $signs) k" 'k COLLATE libc DESC LIMIT 1 OFFSET 7'
shape 20k 'signs, libc, LIMIT 200' "translate(substr(md5((i % 809)::text), 1, 20), $signs) k" 'k COLLATE libc LIMIT 200'
for limit in 10 200; do
  shape 2k "citext with signs, libc, LIMIT $limit" "($prefix || translate(md5(i::text), $signs))::citext k" "k COLLATE libc LIMIT $limit"
done
for limit in 10 200 3000; do
  shape 100k "text with a long prefix, libc, LIMIT $limit" "$prefix || word(32) k" "k COLLATE libc LIMIT $limit"
  shape 100k "citext with a long prefix, libc, LIMIT $limit" "($prefix || word(32))::citext k" "k COLLATE libc LIMIT $limit"
  shape 100k "short text, libc, LIMIT $limit" 'word(12) k' "k COLLATE libc LIMIT $limit"
done
shape 1M 'FETCH FIRST 10 ROWS WITH TIES' "$facts" 'SELECT * FROM (SELECT * FROM t ORDER BY a FETCH FIRST 10 ROWS WITH TIES) q'

# Memory
for memory in 64kB 1MB 4MB 16MB 64MB 1GB; do
  shape 1M "int4, work_mem $memory" "any_int() k" k work_mem=$memory
  shape 300k "text ICU, work_mem $memory" "word(20) k, i id" 'k COLLATE "en-x-icu"' work_mem=$memory
  shape 300k "six columns, work_mem $memory" "$six" 'a, b, c, d, e, f' work_mem=$memory
  shape 100k "1 kB rows, work_mem $memory" "any_int() k, repeat('x', 1000) pad" k work_mem=$memory
done
shape 10k 'int4, work_mem 64kB' "any_int() k" k work_mem=64kB
shape 1M 'sorted int4, work_mem 4MB' "i k, word(20) pad" k work_mem=4MB
shape 1M 'reverse int4, work_mem 4MB' "-i k, word(20) pad" k work_mem=4MB
shape 1M '3 distinct int4, work_mem 4MB' "rnd(3) k, word(20) pad" k work_mem=4MB
shape 20k 'unique, then 12.8 kB compressed, work_mem 4MB' "$body" 'u, body COLLATE "C"' work_mem=4MB
shape 3M 'two columns, work_mem 4MB' "rnd(1000) a, any_int() b, i id" 'a, b' work_mem=4MB

# Parallel plans
parallel=(max_parallel_workers_per_gather=2 parallel_setup_cost=100 parallel_tuple_cost=0.001)
for rows in 10k 100k 1M 3M; do
  shape $rows 'int4, parallel' "$facts" 'SELECT k FROM t ORDER BY k' "${parallel[@]}"
done
shape 1M 'int4, threads but no parallel plan' "$facts" 'SELECT k FROM t ORDER BY k' max_parallel_workers_per_gather=2 parallel_setup_cost=1e9
shape 1M 'rows by two columns, parallel' "$facts" 'a, k' "${parallel[@]}"
shape 1M 'text ICU, parallel' "$facts" 's COLLATE "en-x-icu"' "${parallel[@]}"
shape 1M 'LIMIT 1000, parallel' "$facts" 'k LIMIT 1000' "${parallel[@]}"
shape 1M 'GROUP BY, sorted, parallel' "$facts" 'SELECT a, count(*) FROM t GROUP BY a' enable_hashagg=off "${parallel[@]}"
shape 1M 'merge join, parallel' "$facts" 'SELECT count(*) FROM t x JOIN t y ON x.k = y.k' enable_hashjoin=off enable_nestloop=off "${parallel[@]}"
shape 1M 'count(*) with a filter, parallel' "$facts" 'SELECT count(*) FROM (SELECT * FROM t WHERE a < 100 ORDER BY k OFFSET 0) q' "${parallel[@]}"
shape 1M 'int4, work_mem 4MB, parallel' "$facts" 'k' work_mem=4MB "${parallel[@]}"
events="rnd(8192)::int device, any_int() k, rnd(100000)::int v"
two_orders='SELECT device, array_agg(v ORDER BY k), count(DISTINCT v) FROM t GROUP BY device'
shape 4M 'aggregate: two orders in 8,192 groups' "$events" "$two_orders"
shape 4M 'aggregate: two orders in 8,192 groups, parallel' "$events" "$two_orders" "${parallel[@]}"

if [ -n "${OUT:-}" ]; then
  bench --csv -P tuples_only=off -c "SELECT shape, round(core_ms::numeric, 4) core_ms, round(gpusort_ms::numeric, 4) gpusort_ms,
    round((gpusort_ms / core_ms)::numeric, 3) ratio, node, core_disk_kb, gpusort_disk_kb, round(serial_ms::numeric, 4) serial_ms,
    round(parallel_ms::numeric, 4) parallel_ms, query FROM results ORDER BY place" >"$OUT"
fi
echo
echo "over 1.05 times core's time:"
bench -P tuples_only=off -P format=aligned -c "SELECT round((gpusort_ms / core_ms)::numeric, 2) ratio, round(core_ms::numeric, 3) core_ms,
  round(gpusort_ms::numeric, 3) gpusort_ms, node, shape FROM results WHERE gpusort_ms > 1.05 * core_ms ORDER BY gpusort_ms / core_ms DESC"
echo "over 1.05 times the time of GpuSort's plan without workers:"
bench -P tuples_only=off -P format=aligned -c "SELECT round((parallel_ms / serial_ms)::numeric, 2) ratio, round(serial_ms::numeric, 3) serial_ms,
  round(parallel_ms::numeric, 3) parallel_ms, shape FROM results WHERE parallel_ms > 1.05 * serial_ms ORDER BY parallel_ms / serial_ms DESC"
echo "over 1.10 times core's temporary files:"
bench -P tuples_only=off -P format=aligned -c "SELECT round(gpusort_disk_kb::numeric / core_disk_kb, 2) ratio, core_disk_kb core_kb,
  gpusort_disk_kb gpusort_kb, shape FROM results WHERE gpusort_disk_kb > 1.10 * core_disk_kb ORDER BY gpusort_disk_kb::numeric / core_disk_kb DESC"
bench -c "SELECT format('%s shapes measured, %s over 1.05 times core''s time, %s of %s parallel plans over 1.05 times the time without workers, %s over 1.10 times core''s temporary files, $failed failed',
  count(*), count(*) FILTER (WHERE gpusort_ms > 1.05 * core_ms), count(*) FILTER (WHERE parallel_ms > 1.05 * serial_ms), count(parallel_ms),
  count(*) FILTER (WHERE gpusort_disk_kb > 1.10 * core_disk_kb)) FROM results"
