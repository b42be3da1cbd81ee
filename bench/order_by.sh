#!/bin/bash
#
# order_by.sh - ORDER BY with GpuSort against core's Sort.
#
#   bench/order_by.sh [ROWS [CSV]]      default: ten million, bench/order_by.csv
#   WORKERS=8 bench/order_by.sh         with max_parallel_workers_per_gather = 8;
#                                       default: 0, one process and one thread
#   ROUNDS=21 bench/order_by.sh         rounds of the part crossover; default: 21
#   PARTS="query first crossover planning"    the parts to run; default: all four
#
# Measures the library that make has built in this tree, on a private cluster
# (test/cluster.sh) that it removes at the end.  Builds and installs nothing.
#
#   query      Each ORDER BY over ROWS rows of some 90 bytes: by core, by the
#              CPU engine, by the GPU if there is one, and without ORDER BY.
#              Nothing is forced: the column "node" says which node the planner
#              chose.  Medians of five runs after one to warm up.  OFFSET 1e10
#              discards the rows.
#   first      A session's first sort, which cannot use the memory of an earlier
#              one.  Medians of five sessions, which have read the table before.
#   crossover  Small tables, GpuSort forced.  The execution time that EXPLAIN
#              (ANALYZE, TIMING OFF) shows, medians of ROUNDS.  With WORKERS, first by one
#              process with threads, and then by parallel plans, whose costs are 0.
#              At the end it prints what src/plan/cost.c is calibrated by.  Times
#              and costs of serial plans are without those of the query without
#              ORDER BY; a parallel one of these would return its rows through queues.
#                unit_ns    the time of one cpu_operator_cost of core's plan
#                measured   GpuSort's time for a row, in these units
#                model      GpuSort's cost for a row
#                times      core's time divided by GpuSort's
#                expected   core's cost divided by GpuSort's
#   planning   pgbench -S with and without the library, by turns; "ms" is the
#              time of one transaction.
#
# Each contender runs once in every round, so that a drift of the machine's
# speed affects all of them alike.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"

rows=${1:-10000000}
csv=$(realpath "${2:-$tree/bench/order_by.csv}")
workers=${WORKERS:-0}
parts=${PARTS:-query first crossover planning}

start_cluster_of_tree "shared_buffers = $((1024 + rows * 400 / 1048576))MB" \
  "max_wal_size = 32GB" "autovacuum = off" \
  "max_worker_processes = 32" "max_parallel_workers = 32" \
  "max_parallel_workers_per_gather = $workers"

bench() {
  PGOPTIONS='-c client_min_messages=error -c session_preload_libraries=gpusort' \
    psql -qXtA -v ON_ERROR_STOP=1 -v rows="$rows" "$@"
}

# With engine "cuda" this query is an error unless there is a device.
cuda=false
if bench -c "SET gpusort.engine = cuda" -c "SET gpusort.min_rows = 0" -c "SET gpusort.force = on" \
  -c "SELECT g FROM generate_series(1, 1000) g ORDER BY g" >/dev/null 2>&1; then
  cuda=true
fi

say "$(psql -XtA -c 'SHOW server_version' | sed 's/ .*//'), $rows rows, workers: $workers, GPU: $cuda,$(uptime | sed 's/.*load/ load/')"

bench -v cuda=$cuda <<'SQL'
CREATE TABLE t AS
SELECT (random() * 4294967295 - 2147483648)::int AS k,
       (random() * 999)::int AS a,
       i::int8 AS id,
       timestamptz '2024-01-01' + random() * 31536e3 * interval '1 second' AS ts,
       substr(encode(decode(md5(random()::text), 'hex'), 'base64'), 1, 20) COLLATE "C" AS txt,
       (random() * 1e9)::numeric(12, 2) AS num
FROM generate_series(1, :rows) AS i;
VACUUM ANALYZE t;

CREATE TABLE contenders (contender text, enabled text, engine text, ordered boolean);
INSERT INTO contenders VALUES ('unordered', 'off', 'cpu', false), ('core', 'off', 'cpu', true), ('cpu', 'on', 'cpu', true);
INSERT INTO contenders SELECT 'cuda', 'on', 'cuda', true WHERE :cuda;

CREATE TABLE results (place serial, part text, query text, n bigint, contender text, node text, ms float8, cost float8);

-- Runs a query with all contenders, or with only_by, "rounds" times, after one
-- run to warm up.  executor: take the execution time from EXPLAIN.
CREATE FUNCTION measure(part text, query text, n bigint, source text, columns text, sort_key text,
                        rounds int, executor boolean, only_by text DEFAULT NULL, warm_up boolean DEFAULT true) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  c contenders;
  statement text;
  plan json;
  begun timestamptz;
  ms float8;
BEGIN
  FOR i IN 1 - warm_up::int .. rounds LOOP
    FOR c IN SELECT * FROM contenders WHERE contender = only_by OR only_by IS NULL LOOP
      PERFORM set_config('gpusort.enabled', c.enabled, true), set_config('gpusort.engine', c.engine, true);
      statement := format('SELECT %s FROM %s %s OFFSET 1e10', columns, source,
                          CASE WHEN c.ordered THEN 'ORDER BY ' || sort_key ELSE '' END);
      IF executor THEN
        EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ' || statement INTO plan;
        ms := plan -> 0 ->> 'Execution Time';
      ELSE
        begun := clock_timestamp();
        EXECUTE statement;
        ms := 1000 * extract(epoch FROM clock_timestamp() - begun);
        EXECUTE 'EXPLAIN (FORMAT JSON) ' || statement INTO plan;
      END IF;
      plan := plan -> 0 -> 'Plan' -> 'Plans' -> 0;
      IF i > 0 THEN
        INSERT INTO results (part, query, n, contender, node, ms, cost) SELECT part, query, n, c.contender,
          coalesce(plan ->> 'Custom Plan Provider', plan ->> 'Node Type'), ms, (plan ->> 'Total Cost')::float8;
      END IF;
    END LOOP;
  END LOOP;
END $$;
SQL

# memory SIZE: sets the memory limits of core's Sort and of GpuSort
memory() {
  printf "SET work_mem = '%s'; SET gpusort.memory_limit = '%s';" "$1" "$1"
}
in_memory=$(memory "$((64 + rows * 400 / 1048576))MB")

# query NAME COLUMNS KEY [MEMORY]
query() {
  bench -c "${4:-$in_memory}" -c "SELECT measure('query', '$1', $rows, 't', '$2', '$3', 5, false)" >/dev/null
  echo "$1"
}

if [[ $parts = *query* ]]; then
  query 'k' 'k' 'k'
  query '* by k' '*' 'k'
  query '* by a and k' '*' 'a, k'
  query '* by ts and id' '*' 'ts, id'
  query '* by txt (C)' '*' 'txt'
  query '* by txt (ICU)' '*' 'txt COLLATE "und-x-icu"'
  query '* by num' '*' 'num'
  query '* by a' '*' 'a'
  query '* by id' '*' 'id'
  tenth=$(memory "$(bench -c "SELECT greatest(64, pg_table_size('t') / 10240)")kB")
  query '* by k spilling' '*' 'k' "$tenth"
fi

if [[ $parts = *first* ]]; then
  for _ in {1..5}; do
    for contender in $(bench -c "SELECT contender FROM contenders WHERE ordered"); do
      for key in 'k' 'ts and id'; do
        bench -c "$in_memory" -c "SELECT * FROM t OFFSET 1e10" -c "
          SELECT measure('first', '* by $key', $rows, 't', '*', '${key/ and/,}', 1, false, '$contender', false)" >/dev/null
      done
    done
  done
  echo "first"
fi

# crossover TABLE ROWS LABEL [SETTINGS]
crossover() {
  bench -c "$in_memory ${4:-} SET gpusort.force = on; SET gpusort.min_rows = 0" -c "
    SELECT measure('crossover', query || '$3', $2, '$1', columns, sort_key, ${ROUNDS:-21}, true)
    FROM (VALUES ('k', 'k', 'k'), ('* by k', '*', 'k'), ('* by a and k', '*', 'a, k'), ('* by txt (C)', '*', 'txt'),
                 ('* by txt (ICU)', '*', 'txt COLLATE \"und-x-icu\"'), ('* by num', '*', 'num'), ('* by id', '*', 'id'),
                 ('* by eight columns', '*', 'b, c, d, e, a, k, id, ts'), ('* by eight columns (unique first)', '*', 'k, id, ts, a, b, c, d, e'))
    AS queries (query, columns, sort_key)" >/dev/null
}

if [[ $parts = *crossover* ]]; then
  for n in 300 1000 3000 10000 30000 100000 300000 1000000; do
    [ "$n" -le "$rows" ] || continue
    bench -c "CREATE TABLE t$n AS SELECT *, a % 3 AS b, a % 4 AS c, a % 5 AS d, a % 7 AS e FROM t LIMIT $n" \
      -c "ALTER TABLE t$n SET (parallel_workers = 0)" -c "VACUUM ANALYZE t$n"
    crossover "t$n" "$n" ''
    [ "$workers" != 0 ] || continue
    bench -c "ALTER TABLE t$n SET (parallel_workers = $workers)"
    crossover "t$n" "$n" ' (parallel)' "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;"
  done
  echo "crossover"
fi

if [[ $parts = *planning* ]]; then
  pgbench -i -q -s 10 2>/dev/null
  for round in {0..20}; do
    for library in core gpusort gpusort core; do
      tps=$(PGOPTIONS="-c session_preload_libraries=${library#core}" pgbench -n -S -T 1 2>/dev/null |
        sed -n 's/^tps = \([0-9.]*\).*/\1/p')
      [ "$round" = 0 ] || bench -c "INSERT INTO results (part, query, n, contender, node, ms)
        SELECT 'planning', 'pgbench -S', 0, '$library', 'Index Scan', 1000.0 / $tps"
    done
  done
  echo "planning"
fi

bench <<'SQL' >"$csv"
\pset format csv
\pset tuples_only off
SELECT part, query, n, contender, string_agg(DISTINCT node, '/') AS node,
       round(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)::numeric, 4) AS ms_median,
       round(min(ms)::numeric, 4) AS ms_min, round(max(ms)::numeric, 4) AS ms_max
FROM results GROUP BY part, query, n, contender
ORDER BY min(min(place)) OVER (PARTITION BY part, query), n, min(place);
SQL
say "times core's speed"
awk -F, -v OFS=, 'NR > 1' "$csv" | bench -c "CREATE TEMP TABLE csv (part text, query text, n bigint, contender text, node text, ms float8, low float8, high float8)" \
  -c "\\copy csv FROM STDIN (FORMAT csv)" -c "\\pset tuples_only off" -c "\\pset format aligned" -c "
  SELECT c.part, c.query, c.n, g.contender, g.node, c.ms AS core_ms, g.ms, round((c.ms / g.ms)::numeric, 3) AS times
  FROM csv c JOIN csv g USING (part, query, n)
  WHERE c.contender = 'core' AND g.contender <> 'core' ORDER BY 1 DESC, 2, 3, 4"

if [[ $parts = *crossover* ]]; then
  say "cost model"
  bench -P tuples_only=off -P format=aligned -P footer=off -c "
    WITH medians AS (
      SELECT query, n, contender, percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS ms, max(cost) / current_setting('cpu_operator_cost')::float8 AS units
      FROM results WHERE part = 'crossover' GROUP BY query, n, contender),
    sorts AS (
      SELECT m.query, m.n, m.contender, 1e6 * (m.ms - serial * u.ms) AS ns, m.units - serial * u.units AS units
      FROM medians m JOIN medians u USING (query, n), LATERAL (SELECT (m.query NOT LIKE '%(parallel)')::int AS serial) l
      WHERE u.contender = 'unordered' AND m.contender <> 'unordered')
    SELECT g.query, g.n, g.contender, round((c.ns / nullif(c.units, 0))::numeric, 1) AS unit_ns, round((g.ns / nullif(c.ns, 0) * c.units / g.n)::numeric, 1) AS measured,
           round((g.units / g.n)::numeric, 1) AS model, round((c.ns / nullif(g.ns, 0))::numeric, 2) AS times, round((c.units / nullif(g.units, 0))::numeric, 2) AS expected
    FROM sorts c JOIN sorts g USING (query, n) WHERE c.contender = 'core' AND g.contender <> 'core' ORDER BY 1, 2, 3"
fi
