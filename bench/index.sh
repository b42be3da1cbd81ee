#!/bin/bash
#
# index.sh - builds of btree indexes: core and gpusort, with parallel workers and without.
#
#   bench/index.sh
#   ROWS=2000000 bench/index.sh             default: 10 million
#   ROUNDS=5 bench/index.sh                 default: 3
#   WORKERS=4 bench/index.sh                parallel workers; default: 2
#   QUERIES='^int4$|text' bench/index.sh    the indexes whose names match this regular expression
#   OUT=file.csv bench/index.sh             the figures also as CSV
#
# Each contender builds each index once in every round, by turns, after one round to warm up,
# so that a drift of the machine's speed affects all alike.  Prints medians, and each time divided by
# that of gpusort with workers.
#
# If PGHOST or PGPORT is set, it uses the server there, which must have gpusort
# installed, as a superuser, in a database of its own.  Else it measures the library that
# make has built in this tree, on a private cluster (test/cluster.sh).  The tables are logged and
# in the buffers, of which they take less than a quarter, since core reads larger ones through a
# ring.  A checkpoint before each build lets it use WAL files again.  The cluster does not wait for
# the disk (fsync = off).

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
rows=${ROWS:-10000000}
rounds=${ROUNDS:-3}
workers=${WORKERS:-2}
queries=${QUERIES:-.}
memory=${MEMORY:-4GB}
db=gpusort_index

if [ -n "${PGHOST:-}${PGPORT:-}" ]; then
  trap 'psql -qX -d postgres -c "DROP DATABASE IF EXISTS $db" 2>/dev/null' EXIT
  trap 'exit 1' INT TERM
  say() {
    printf '\n== %s\n' "$*"
  }
else
  # shellcheck source=test/cluster.sh
  . "$tree/test/cluster.sh"
  bash "$tree/test/locales.sh" "$work/locales" en_US.UTF-8
  server_environment+=("LOCPATH=$work/locales")
  start_cluster_of_tree "shared_buffers = $((1024 + rows * 650 / 1048576))MB" "fsync = off" "max_wal_size = 20GB" \
    "min_wal_size = 4GB" "autovacuum = off" "max_worker_processes = $((workers + 8))"
fi
psql -qX -d postgres -c "DROP DATABASE IF EXISTS $db" \
  -c "CREATE DATABASE $db TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'" 2>/dev/null
export PGDATABASE=$db
export PGOPTIONS="${PGOPTIONS:-} -c client_min_messages=error -c session_preload_libraries=gpusort"

bench() {
  psql -qXtA -v ON_ERROR_STOP=1 "$@"
}

say "PostgreSQL $(bench -c 'SHOW server_version' | sed 's/ .*//'), $rows rows, $(nproc) processors, $workers workers," \
  "maintenance_work_mem = $memory;$(uptime | sed 's/.*load/ load/')"

bench -v rows="$rows" <<'SQL'
SELECT setseed(0.31) \g /dev/null
CREATE TABLE t AS SELECT i::int8 AS id, (random() * 4294967295 - 2147483648)::int4 AS k, (random() * 1e18)::int8 AS k8,
  (random() * 999)::int4 AS a, timestamptz '2024-01-01' + random() * 31536e3 * interval '1 second' AS ts, gen_random_uuid() AS u,
  ((i * 2654435761) % 4294967296 - 2147483648)::int4 AS u4,
  substr(encode(decode(md5(random()::text), 'hex'), 'base64'), 1, 20) AS txt, hashint4(i)::numeric AS num
FROM generate_series(1, :rows) i;
CREATE COLLATION libc (provider = libc, locale = 'en_US.UTF-8');
VACUUM ANALYZE t;
CREATE TABLE big AS SELECT hashint4(i) AS k FROM generate_series(1, 4 * :rows) i;
VACUUM ANALYZE big;
CREATE TABLE results (place serial, name text, contender text, ms float8);

-- Builds an index.  Round 0 is to warm up.
CREATE FUNCTION build(round int, name text, contender text, workers int, definition text, memory text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  begun timestamptz;
  ms float8;
BEGIN
  PERFORM set_config('gpusort.index_build', (contender LIKE 'gpusort%')::text, true),
    set_config('max_parallel_maintenance_workers', greatest(workers, 1)::text, true),
    set_config('maintenance_work_mem', memory, true);
  EXECUTE format('ALTER TABLE t SET (parallel_workers = %s)', workers);
  EXECUTE format('ALTER TABLE big SET (parallel_workers = %s)', workers);
  CHECKPOINT;
  begun := clock_timestamp();
  EXECUTE replace(definition, 'INDEX', 'INDEX made');
  ms := 1000 * extract(epoch FROM clock_timestamp() - begun);
  DROP INDEX made;
  IF round > 0 THEN
    INSERT INTO results (name, contender, ms) VALUES (name, contender, ms);
  END IF;
END $$;
SQL

# measure NAME DEFINITION [MEMORY]
measure() {
  local round limit=${3:-$memory}
  if [[ ! $1 =~ $queries ]]; then return; fi
  echo "$1"
  for ((round = 0; round <= rounds; round++)); do
    echo "SELECT build($round, '$1', 'core', 0, '$2', '$limit');"
    echo "SELECT build($round, '$1', 'core workers', $workers, '$2', '$limit');"
    echo "SELECT build($round, '$1', 'gpusort', 0, '$2', '$limit');"
    echo "SELECT build($round, '$1', 'gpusort workers', $workers, '$2', '$limit');"
  done | bench >/dev/null
}

measure "int4" "CREATE INDEX ON t (k)"
measure "int4 unique" "CREATE UNIQUE INDEX ON t (u4)"
measure "int8" "CREATE INDEX ON t (k8)"
measure "timestamptz" "CREATE INDEX ON t (ts)"
measure "uuid" "CREATE INDEX ON t (u)"
measure "text C" "CREATE INDEX ON t (txt)"
measure "text en_US.UTF-8" "CREATE INDEX ON t (txt COLLATE libc)"
measure "text ICU" "CREATE INDEX ON t (txt COLLATE \"en-x-icu\")"
measure "int4 int8" "CREATE INDEX ON t (k, k8)"
measure "int4 INCLUDE int8" "CREATE INDEX ON t (k) INCLUDE (k8)"
measure "numeric" "CREATE INDEX ON t (num)"
measure "int4 1000 values" "CREATE INDEX ON t (a)"
measure "int4 4 times the rows 64 MB" "CREATE INDEX ON big (k)" 64MB
measure "int8 64 MB" "CREATE INDEX ON t (k8)" 64MB
measure "text C 64 MB" "CREATE INDEX ON t (txt)" 64MB
measure "int8 in order unique" "CREATE UNIQUE INDEX ON t (id)"
measure "lower(text) C" "CREATE INDEX ON t (lower(txt))"

say "milliseconds, and divided by those of gpusort with workers;$(uptime | sed 's/.*load/ load/')"
summary="SELECT name, contender, round(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)::numeric, 0) AS ms_median,
  round(min(ms)::numeric, 0) AS ms_min, round(max(ms)::numeric, 0) AS ms_max,
  round((percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) / (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) FROM results g
    WHERE g.name = r.name AND g.contender = 'gpusort workers'))::numeric, 2) AS times
  FROM results r GROUP BY name, contender ORDER BY min(place)"
psql -qX -c "$summary"
if [ -n "${OUT:-}" ]; then
  psql -qX --csv -c "$summary" >"$OUT"
fi
