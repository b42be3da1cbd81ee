#!/bin/bash
#
# peers.sh - ORDER BY in core, GpuSort and DuckDB: the same tables, queries and machine.
#
#   bench/peers.sh
#   ROWS=2000000 bench/peers.sh             default: 10 million
#   ROUNDS=5 bench/peers.sh                 default: 3
#   THREADS=16 bench/peers.sh               "all" threads; default: one for each processor
#   WORKERS=8 bench/peers.sh                "all" parallel workers; default: THREADS - 1
#   QUERIES='^k$|num' bench/peers.sh        the queries whose names match this regular expression
#   OUT=file.csv bench/peers.sh             the figures also as CSV, for bench/peers.gp
#   DUCKDB_PYTHON=/path/to/python bench/peers.sh
#
# Contenders: core; GpuSort with the CPU engine; GpuSort with the GPU, if there is one; DuckDB;
# and core's scan without ORDER BY.  Each runs with one thread and with all.  In PostgreSQL one thread means
# max_parallel_workers_per_gather = 0.  All means WORKERS there, and parallel_workers = WORKERS
# for the tables; the leader is one more process.  "process" is one
# process whose sort has all threads.  For core with all workers the two
# costs of parallel plans are 0, because at the default costs the planner would leave most of
# these queries to one process.  For GpuSort the costs are the defaults: where its plan is
# not parallel, it sorts with threads.  The column "plan" shows the nodes that ran.
#
# If PGHOST or PGPORT is set, it uses the server there, which must have gpusort
# installed, as a superuser, in a database of its own.  Else it measures the
# library that make has built in this tree, on a private cluster (test/cluster.sh).
#
# DuckDB is the newest from PyPI, in a virtual environment in build/duckdb that is made
# at the first run.  DUCKDB_PYTHON names a Python that has it, for machines without a
# network.  If it cannot be had, the others are measured without it.  Its tables are in
# memory, copied from PostgreSQL's, which the private cluster's buffers hold.
#
# Each contender runs once in every round, after one round to warm up, so that a drift of
# the machine's speed affects all alike.  Prints medians, and the time of core's
# faster contender divided by each one's.  All have memory for the whole sort.
#
# No row goes to a client.  In PostgreSQL OFFSET 1e10 discards all: each still passes
# through the executor as a tuple.  In DuckDB it is OFFSET n - 1, and the last row is
# fetched: with an OFFSET beyond the end DuckDB may leave out work whose
# result nobody sees.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
rows=${ROWS:-10000000}
rounds=${ROUNDS:-3}
threads=${THREADS:-$(nproc)}
workers=${WORKERS:-$((threads - 1))}
queries=${QUERIES:-.}
db=gpusort_peers

if [ -n "${PGHOST:-}${PGPORT:-}" ]; then
  work=$(mktemp -d "${TMPDIR:-/tmp}/gpusort.XXXXXX")
  trap 'psql -qX -d postgres -c "DROP DATABASE IF EXISTS $db" 2>/dev/null; rm -rf "$work"' EXIT
  trap 'exit 1' INT TERM
  say() {
    printf '\n== %s\n' "$*"
  }
else
  # shellcheck source=test/cluster.sh
  . "$tree/test/cluster.sh"
  start_cluster_of_tree "shared_buffers = $((1024 + rows * 600 / 1048576))MB" \
    "autovacuum = off" "max_worker_processes = $((workers + 8))"
fi
psql -qX -d postgres -c "DROP DATABASE IF EXISTS $db" \
  -c "CREATE DATABASE $db TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'" 2>/dev/null
memory=$((64 + rows * 400 / 1048576))MB
export PGDATABASE=$db
export PGOPTIONS="${PGOPTIONS:-} -c client_min_messages=error -c session_preload_libraries=gpusort -c jit=off \
  -c work_mem=$memory -c gpusort.memory_limit=$memory -c max_parallel_workers=$workers"

bench() {
  psql -qXtA -v ON_ERROR_STOP=1 "$@"
}

# Starts DuckDB, and sets duckdb to its version.  It is asked through descriptor 9, and
# answers through descriptor 8.  It ends when this script does.
duckdb=
start_duckdb() {
  local python=${DUCKDB_PYTHON:-$tree/build/duckdb/bin/python} log=$work/duckdb.log
  if { [ -n "${DUCKDB_PYTHON:-}" ] || "$python" -c 'import duckdb' ||
    { python3 -m venv "$tree/build/duckdb" && "$python" -m pip install -q --disable-pip-version-check duckdb; }; } >"$log" 2>&1 &&
    duckdb=$("$python" -c 'import duckdb; print(duckdb.__version__)' 2>"$log"); then
    mkfifo "$work/question" "$work/answer"
    "$python" "$tree/bench/peers.py" <"$work/question" >"$work/answer" &
    exec 9>"$work/question" 8<"$work/answer"
  else
    say "DuckDB is left out: $(tail -1 "$log")"
  fi
}

# ask THREADS STATEMENT: a shell command that runs this in DuckDB and prints the milliseconds
ask() {
  # shellcheck disable=SC2016
  printf 'echo "%s %s" >&9 && read -r ms <&8 && echo $ms' "$1" "$2"
}

start_duckdb
# With engine "cuda" this query is an error unless there is a device.
engines=(cpu)
if bench -c "SET gpusort.engine = cuda" -c "SET gpusort.min_rows = 0" -c "SET gpusort.force = on" \
  -c "SELECT g FROM generate_series(1, 1000) g ORDER BY g" >/dev/null 2>&1; then
  engines+=(cuda)
fi
slots=$(bench -c "SHOW max_worker_processes")
[ "$workers" -le "$slots" ] || say "the server has max_worker_processes = $slots, and cannot run $workers workers"
say "PostgreSQL $(bench -c 'SHOW server_version' | sed 's/ .*//'), DuckDB ${duckdb:-none}, $rows rows, $(nproc) processors;" \
  "all: $threads threads, $workers workers; engines: ${engines[*]};$(uptime | sed 's/.*load/ load/')"

bench -v rows="$rows" <<'SQL'
SELECT setseed(0.16) \g /dev/null
CREATE UNLOGGED TABLE t (k int4, a int4, id int8);
INSERT INTO t SELECT (random() * 4294967295 - 2147483648)::int4, (random() * 999)::int4, i FROM generate_series(1, :rows) i;
CREATE UNLOGGED TABLE t1 (k int4);
INSERT INTO t1 SELECT k FROM t;
CREATE UNLOGGED TABLE u (id int8, ts timestamp, txt text, num numeric(12, 2));
INSERT INTO u SELECT i, timestamp '2024-01-01' + random() * 31536e3 * interval '1 second',
  substr(encode(decode(md5(random()::text), 'hex'), 'base64'), 1, 20), random() * 1e9
FROM generate_series(1, :rows) i;
CREATE UNLOGGED TABLE w (c1 int4, c2 int4, c3 int8, c4 timestamp, c5 float8, k int4, c7 int4, id int8, c9 int4, c10 int4, c11 int8, c12 int4);
INSERT INTO w SELECT a, a, id, now(), a, k, a, id, a, a, id, a FROM t;
CREATE TABLE h (LIKE t) PARTITION BY HASH (id);
SELECT format('CREATE UNLOGGED TABLE h%s PARTITION OF h FOR VALUES WITH (MODULUS 8, REMAINDER %s)', i, i) FROM generate_series(0, 7) i \gexec
INSERT INTO h SELECT * FROM t;
VACUUM ANALYZE t, t1, u, w, h;

CREATE TABLE results (place serial, query text, contender text, threads text, plan text, ms float8);

-- Runs a query in PostgreSQL.  Round 0 is to warm up.
CREATE FUNCTION run(round int, query text, contender text, threads text, workers int, statement text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  plan jsonb;
  begun timestamptz;
  ms float8;
BEGIN
  PERFORM set_config('gpusort.enabled', (contender LIKE 'GpuSort%')::text, true),
    set_config('gpusort.engine', CASE WHEN contender = 'GpuSort cuda' THEN 'cuda' ELSE 'cpu' END, true),
    set_config('max_parallel_workers_per_gather', workers::text, true),
    set_config('parallel_tuple_cost', CASE WHEN contender = 'core' THEN 0 ELSE 0.1 END::text, true),
    set_config('parallel_setup_cost', CASE WHEN threads = 'process' THEN 1e9 WHEN contender = 'core' THEN 0 ELSE 1000 END::text, true);
  begun := clock_timestamp();
  EXECUTE statement;
  ms := 1000 * extract(epoch FROM clock_timestamp() - begun);
  EXECUTE 'EXPLAIN (FORMAT JSON) ' || statement INTO plan;
  IF round > 0 THEN
    INSERT INTO results (query, contender, threads, plan, ms)
    SELECT query, contender, threads, string_agg(coalesce(node ->> 'Custom Plan Provider', node ->> 'Node Type'), ' > ' ORDER BY depth), ms
    FROM jsonb_path_query(plan, 'strict $.**."Plans"[0]') WITH ORDINALITY AS n(node, depth);
  END IF;
END $$;
SQL

for table in t1 t u w h{0..7}; do
  bench -c "ALTER TABLE $table SET (parallel_workers = $workers)"
  # DuckDB has no partitioned tables
  [[ -n $duckdb && $table != h* ]] || continue
  columns=$(bench -c "SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)
    FROM pg_attribute WHERE attrelid = '$table'::regclass AND attnum > 0")
  bench -c "\\copy $table TO '$work/table.csv' (FORMAT csv)"
  eval "$(ask "$threads" "CREATE TABLE $table ($columns)")" >/dev/null
  eval "$(ask "$threads" "COPY $table FROM '$work/table.csv' (FORMAT csv, HEADER false)")" >/dev/null
  rm "$work/table.csv"
done

# contenders ROUND NAME STATEMENT THREADS WORKERS LABEL NAMES...: psql's commands that run each once
contenders() {
  local contender statement=$3
  for contender in "${@:7}"; do
    [ "$contender" != unordered ] || statement=${3% ORDER BY *}
    if [ "$contender" = DuckDB ]; then
      echo "\\set ms \`$(ask "$4" "$3 OFFSET $((returned - 1))")\`"
      [ "$1" = 0 ] || echo "INSERT INTO results (query, contender, threads, ms) VALUES ('$2', 'DuckDB', '$6', :ms);"
    else
      echo "SELECT run($1, '$2', '$contender', '$6', $5, '$statement OFFSET 1e10') \\g /dev/null"
    fi
  done
}

# query NAME STATEMENT: one session runs all rounds
query() {
  local round returned peers=()
  [[ $1 =~ $queries ]] || return 0
  returned=$(bench -c "SELECT count(*) FROM (${2% ORDER BY *}) AS s")
  [[ -z $duckdb || $2 = *" h ORDER BY"* ]] || peers=(DuckDB)
  for ((round = 0; round <= rounds; round++)); do
    contenders "$round" "$1" "$2" 1 0 1 core "${engines[@]/#/GpuSort }" "${peers[@]}" unordered
    [ "$threads" != 1 ] || continue
    contenders "$round" "$1" "$2" "$threads" "$workers" process "${engines[@]/#/GpuSort }"
    contenders "$round" "$1" "$2" "$threads" "$workers" all core "${engines[@]/#/GpuSort }" "${peers[@]}"
  done | bench
  echo "$1"
}

query 'k' 'SELECT k FROM t1 ORDER BY k'
query '* by k' 'SELECT * FROM t ORDER BY k'
query '* by a and k' 'SELECT * FROM t ORDER BY a, k'
query '* by ts and id' 'SELECT * FROM u ORDER BY ts, id'
query '* by txt (C)' 'SELECT * FROM u ORDER BY txt'
query '* by num' 'SELECT * FROM u ORDER BY num'
query 'half of * by k' 'SELECT * FROM t WHERE a < 500 ORDER BY k'
query '2 of 12 columns' 'SELECT id, k FROM w ORDER BY k'
query '8 partitions' 'SELECT * FROM h ORDER BY k'

bench <<'SQL'
CREATE VIEW medians AS
SELECT min(place) AS place, query, contender, threads, string_agg(DISTINCT plan, ' / ') AS plan,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS ms, min(ms) AS ms_min, max(ms) AS ms_max
FROM results GROUP BY query, contender, threads;
CREATE VIEW figures AS
SELECT query, contender, threads, plan, round(ms::numeric, 1) AS ms_median, round(ms_min::numeric, 1) AS ms_min, round(ms_max::numeric, 1) AS ms_max,
       round((min(ms) FILTER (WHERE contender = 'core') OVER (PARTITION BY query) / ms)::numeric, 2) AS times
FROM medians ORDER BY min(place) OVER (PARTITION BY query), place;
SQL
say "milliseconds, and times the speed of core's best;$(uptime | sed 's/.*load/ load/')"
bench -P tuples_only=off -P format=aligned -P footer=off -c "TABLE figures"
if [ -n "${OUT:-}" ]; then
  bench --csv -P tuples_only=off -c "SELECT $rows AS rows, figures.* FROM figures" >"$OUT"
fi
