#!/bin/bash
#
# windows.sh - windows and groups in one process and in all, against core.
#
#   bench/windows.sh
#   ROWS=60000000 WORKERS=8 bench/windows.sh    default: 5 million rows, a worker for each processor but one, at least 2
#   ENGINE=cuda bench/windows.sh                default: cpu
#   ROUNDS=3 bench/windows.sh                   default: 5
#   SERVER=running bench/windows.sh             on the server of the PG* variables, in which gpusort is installed
#
# The contenders run by turns in sessions of their own: core with the workers, GpuSort in one process, and GpuSort with
# the workers, whose processes take shares of one sort.  Prints medians in milliseconds, core's time and that of one
# process divided by that of all, and whether the plan had shares.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
rows=${ROWS:-5000000}
processors=$(getconf _NPROCESSORS_ONLN)
workers=${WORKERS:-$((processors > 3 ? processors - 1 : 2))}
rounds=${ROUNDS:-5}
if [ "${SERVER:-}" != running ]; then
  # shellcheck source=test/cluster.sh
  . "$tree/test/cluster.sh"
  start_cluster_of_tree "shared_buffers = 2GB" "autovacuum = off" "max_worker_processes = 64" "max_parallel_workers = 64"
fi

psql -qXtA -v ON_ERROR_STOP=1 -c "DROP TABLE IF EXISTS windows_t" -c "CREATE TABLE windows_t AS
  SELECT i % 10000 AS device, hashint4(i) AS at, (i % 1000)::float4 AS f, i::int8 AS id FROM generate_series(1, $rows) i" \
  -c "ALTER TABLE windows_t SET (parallel_workers = $workers)" -c "VACUUM ANALYZE windows_t"

# Runs a query with some settings, and prints its milliseconds.
run() {
  psql -qXtA -v ON_ERROR_STOP=1 -c "LOAD 'gpusort'" -c "SET work_mem = '2GB'; SET gpusort.engine = ${ENGINE:-cpu}; SET jit = off; $1" \
    -c '\timing on' -c "$2" -c '\timing off' | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p'
}

median() {
  sort -n | sed -n "$(((rounds + 1) / 2))p"
}

printf '%-34s %9s %9s %9s %6s %6s  %s\n' query core one all 'core/' 'one/' plan
while IFS='|' read -r name query; do
  rm -f "${TMPDIR:-/tmp}"/windows."$$".*
  times=${TMPDIR:-/tmp}/windows.$$
  for ((round = 0; round < rounds; round++)); do
    run "SET gpusort.enabled = off; SET max_parallel_workers_per_gather = $workers" "$query" >>"$times.core"
    run "SET max_parallel_workers_per_gather = 0" "$query" >>"$times.one"
    run "SET max_parallel_workers_per_gather = $workers" "$query" >>"$times.all"
  done
  core=$(median <"$times.core")
  one=$(median <"$times.one")
  all=$(median <"$times.all")
  plan=$(psql -qXtA -c "LOAD 'gpusort'" -c "SET work_mem = '2GB'; SET max_parallel_workers_per_gather = $workers" -c "EXPLAIN $query")
  printf '%-34s %9.0f %9.0f %9.0f %6.2f %6.2f  %s\n' "$name" "$core" "$one" "$all" \
    "$(awk "BEGIN {print $core / $all}")" "$(awk "BEGIN {print $one / $all}")" "$(grep -q 'Shared by' <<<"$plan" && echo shares || echo -)"
  rm -f "$times".*
done <<'QUERIES'
windows, counted|SELECT count(rn), sum(s) FROM (SELECT row_number() OVER w rn, sum(f) OVER w s FROM windows_t WINDOW w AS (PARTITION BY device ORDER BY at) OFFSET 0) x
windows, filtered|SELECT * FROM (SELECT device, id - lag(id) OVER (PARTITION BY device ORDER BY at) d FROM windows_t) x WHERE d = 10000
two windows|SELECT max(a), max(b) FROM (SELECT rank() OVER (PARTITION BY device ORDER BY at) a, count(*) OVER (PARTITION BY device ORDER BY f) b FROM windows_t) x
windows, all rows returned|SELECT *, sum(f) OVER (PARTITION BY device ORDER BY at) FROM windows_t OFFSET 1000000000
groups, array_agg and DISTINCT|SELECT device, array_agg(id ORDER BY at), count(DISTINCT f) FROM windows_t GROUP BY device
groups, string_agg of two orders|SELECT device, string_agg(id::text, ',' ORDER BY at), string_agg(f::text, ',' ORDER BY id) FROM windows_t GROUP BY device
first rows of groups|SELECT DISTINCT ON (device) * FROM windows_t ORDER BY device, at
QUERIES
psql -qXtA -c "DROP TABLE windows_t"
