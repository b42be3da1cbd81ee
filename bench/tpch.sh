#!/bin/bash
#
# tpch.sh - TPC-H, and 16 queries that people write over its tables, in core and with GpuSort.
#
#   bench/tpch.sh
#   SF=10 bench/tpch.sh                     the scale factor; default: 1, which is 6 million rows in lineitem
#   ROUNDS=5 bench/tpch.sh                  default: 3
#   MEMORY="64MB 1GB" bench/tpch.sh         the values of work_mem; default: 4MB 256MB
#   QUERIES='^Q1$|month' bench/tpch.sh      the queries whose names match this regular expression
#   OUT=file.csv bench/tpch.sh              the figures also as CSV
#   PLANS=folder bench/tpch.sh              EXPLAIN (ANALYZE, VERBOSE) of both for each query, in files there
#   TPCHGEN=/path/to/tpchgen-cli bench/tpch.sh
#
# bench/tpch.sql has the queries.  Each runs in two sessions by turns: with gpusort.enabled off,
# which is core, and with it on.  The session that begins changes with each round.
# Settings are PostgreSQL's defaults, JIT and two parallel workers included, except
# work_mem, autovacuum = off, and fsync = off.  gpusort.memory_limit is its default, twice
# work_mem.  At the default of shared_buffers the tables are mostly in the cache of the operating system.
#
# First each session writes the result to a file, and the two files are compared.  Where the
# query's ORDER BY leaves ties, or there is none, the lines are sorted before.  All
# numbers are numeric or come from one row or two, so that no result depends on the order of
# additions, and none is rounded.  If results differ, the exit status is 1.
#
# Then the rounds are timed by psql's \timing, from the client's statement to the end.  No row
# goes to a client: OFFSET 1e10 behind the query discards all in a Limit node.  A query that has
# a LIMIT becomes a subquery, which the planner plans as it was.  EXPLAIN (ANALYZE) is
# not used: it counts the rows of each node, and a GpuSort of 2 million rows takes 98 ms instead of 91 with it.
# If the ratio is above 1.05 after all rounds, up to twice as many follow.
#
# Prints the medians in milliseconds, gpusort's divided by core's, and the nodes of gpusort in the
# plan.  "other" behind them says that the rest of the plan is not core's plan.
# At the end: the geometric means of the ratios, for TPC-H of the queries with a node of gpusort,
# and the largest ratio.  The queries that have core's plan in both sessions show the noise.
#
# If PGHOST or PGPORT is set, it uses the server there, which must have gpusort
# installed, as a superuser, in a database of its own.  Else it measures the
# library that make has built in this tree, on a private cluster (test/cluster.sh).
#
# The data are made by tpchgen-cli from PyPI, in a virtual environment in build/tpch that is made
# at the first run.  TPCHGEN names one, for machines without a network.  SF=1 takes some 4 GB
# below TMPDIR, most of it tables and WAL, and 35 minutes on two busy cores.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
sf=${SF:-1}
rounds=${ROUNDS:-3}
read -ra memories <<<"${MEMORY:-4MB 256MB}"
queries=${QUERIES:-.}
db=gpusort_tpch

tpchgen=${TPCHGEN:-$tree/build/tpch/bin/tpchgen-cli}
if ! command -v "$tpchgen" >/dev/null; then
  [ -z "${TPCHGEN:-}" ] || { echo "$TPCHGEN was not found" >&2; exit 1; }
  mkdir -p "$tree/build"
  python3 -m venv "$tree/build/tpch"
  "$tree/build/tpch/bin/pip" install -q --disable-pip-version-check tpchgen-cli
fi

if [ -n "${PGHOST:-}${PGPORT:-}" ]; then
  work=$(mktemp -d "${TMPDIR:-/tmp}/gpusort.XXXXXX")
  trap 'psql -qX -d postgres -c "DROP DATABASE IF EXISTS $db WITH (FORCE)" 2>/dev/null; rm -rf "$work"' EXIT
  trap 'exit 1' INT TERM
  say() {
    printf '\n== %s\n' "$*"
  }
else
  # shellcheck source=test/cluster.sh
  . "$tree/test/cluster.sh"
  start_cluster_of_tree "jit = on" "autovacuum = off"
fi
psql -qX -d postgres -c "DROP DATABASE IF EXISTS $db" \
  -c "CREATE DATABASE $db TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C.UTF-8'" 2>/dev/null
export PGDATABASE=$db LC_ALL=C.UTF-8
export PGOPTIONS="${PGOPTIONS:-} -c client_min_messages=error -c session_preload_libraries=gpusort"

bench() {
  psql -qXtA -v ON_ERROR_STOP=1 "$@"
}

say "PostgreSQL $(bench -c 'SHOW server_version' | sed 's/ .*//'), TPC-H at scale factor $sf, $(nproc) processors, $rounds rounds;$(uptime | sed 's/.*load/ load/')"

bench <<'SQL'
CREATE TABLE region (r_regionkey int, r_name char(25), r_comment varchar(152));
CREATE TABLE nation (n_nationkey int, n_name char(25), n_regionkey int, n_comment varchar(152));
CREATE TABLE part (p_partkey int, p_name varchar(55), p_mfgr char(25), p_brand char(10), p_type varchar(25), p_size int,
  p_container char(10), p_retailprice numeric(15, 2), p_comment varchar(23));
CREATE TABLE supplier (s_suppkey int, s_name char(25), s_address varchar(40), s_nationkey int, s_phone char(15),
  s_acctbal numeric(15, 2), s_comment varchar(101));
CREATE TABLE partsupp (ps_partkey int, ps_suppkey int, ps_availqty int, ps_supplycost numeric(15, 2), ps_comment varchar(199));
CREATE TABLE customer (c_custkey int, c_name varchar(25), c_address varchar(40), c_nationkey int, c_phone char(15),
  c_acctbal numeric(15, 2), c_mktsegment char(10), c_comment varchar(117));
CREATE TABLE orders (o_orderkey bigint, o_custkey int, o_orderstatus char(1), o_totalprice numeric(15, 2), o_orderdate date,
  o_orderpriority char(15), o_clerk char(15), o_shippriority int, o_comment varchar(79));
CREATE TABLE lineitem (l_orderkey bigint, l_partkey int, l_suppkey int, l_linenumber int, l_quantity numeric(15, 2),
  l_extendedprice numeric(15, 2), l_discount numeric(15, 2), l_tax numeric(15, 2), l_returnflag char(1), l_linestatus char(1),
  l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct char(25), l_shipmode char(10), l_comment varchar(44));
SQL
for table in region nation part supplier partsupp customer orders lineitem; do
  "$tpchgen" csv -s "$sf" -T $table --stdout -q | bench -c "COPY $table FROM STDIN (FORMAT csv, HEADER)"
done
bench <<'SQL'
ALTER TABLE region ADD PRIMARY KEY (r_regionkey);
ALTER TABLE nation ADD PRIMARY KEY (n_nationkey);
ALTER TABLE part ADD PRIMARY KEY (p_partkey);
ALTER TABLE supplier ADD PRIMARY KEY (s_suppkey);
ALTER TABLE partsupp ADD PRIMARY KEY (ps_partkey, ps_suppkey);
ALTER TABLE customer ADD PRIMARY KEY (c_custkey);
ALTER TABLE orders ADD PRIMARY KEY (o_orderkey);
ALTER TABLE lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber);
CREATE INDEX ON nation (n_regionkey);
CREATE INDEX ON supplier (s_nationkey);
CREATE INDEX ON partsupp (ps_suppkey);
CREATE INDEX ON customer (c_nationkey);
CREATE INDEX ON orders (o_custkey);
CREATE INDEX ON lineitem (l_partkey, l_suppkey);
CREATE INDEX ON lineitem (l_suppkey);
VACUUM ANALYZE;
CHECKPOINT;

CREATE TABLE runs (place int, memory text, query text, node text, result text, contender text, ms float8);
CREATE VIEW figures AS
SELECT place, memory, query, node, result, core_ms, gpusort_ms, gpusort_ms / core_ms AS ratio
FROM (SELECT place, memory, query, node, result,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) FILTER (WHERE contender = 'core') AS core_ms,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) FILTER (WHERE contender = 'gpusort') AS gpusort_ms
      FROM runs GROUP BY place, memory, query, node, result) AS medians;
SQL

# Two sessions of psql, which read from files of these numbers and write to others
declare -A to from enabled=([core]=off [gpusort]=on)
for contender in core gpusort; do
  mkfifo "$work/$contender.in" "$work/$contender.out"
  PGOPTIONS="$PGOPTIONS -c gpusort.enabled=${enabled[$contender]}" stdbuf -oL psql -qXtA -v ON_ERROR_STOP=1 \
    <"$work/$contender.in" >"$work/$contender.out" &
  exec {number}>"$work/$contender.in"
  to[$contender]=$number
  exec {number}<"$work/$contender.out"
  from[$contender]=$number
  printf '%s\n' '\timing on' >&"${to[$contender]}"
done

# run_in CONTENDER STATEMENT: runs it in the contender's session, and sets ms.
run_in() {
  local line
  printf '%s\n' "$2" >&"${to[$1]}"
  while read -r -u "${from[$1]}" line; do
    if [[ $line = Time:* ]]; then
      ms=${line#Time: }
      ms=${ms%% *}
      return
    fi
  done
  echo "failed in the session of $1: $2" >&2
  exit 1
}

# explain CONTENDER OPTIONS STATEMENT: the plan in a new session
explain() {
  bench -c "SET work_mem = '$memory'" -c "SET gpusort.enabled = ${enabled[$1]}" -c "EXPLAIN ($2) $3"
}

# same_results ORDERED: compares the two results, and sets result.
same_results() {
  local contender
  if cmp -s "$work/core.txt" "$work/gpusort.txt"; then
    result=same
    return
  fi
  for contender in core gpusort; do
    LC_ALL=C sort -o "$work/$contender.txt" "$work/$contender.txt"
  done
  if ! cmp -s "$work/core.txt" "$work/gpusort.txt"; then
    result="other rows"
    diff "$work/core.txt" "$work/gpusort.txt" | head -6 || true
  elif [ "$1" = yes ]; then
    result="other order"
  else
    result=same
  fi
}

# measure NAME ORDERED STATEMENT: compares the results, and times the rounds.
measure() {
  local contender plan round ms node result discard="$3 OFFSET 1e10"
  declare -A nodes
  [[ ! $3 =~ \ LIMIT\ [0-9]+(\ OFFSET\ [0-9]+)?$ ]] || discard="SELECT * FROM ($3) AS q OFFSET 1e10"
  for contender in core gpusort; do
    run_in $contender "\\copy ($3) TO '$work/$contender.txt'"
    plan=$(explain $contender 'COSTS OFF' "$discard")
    nodes[$contender]=$(sed -n 's/ (GpuSort)//; s/^ *\(->  \)*//; s/Custom Scan/Sort/; 1p; /^[A-Z][A-Za-z ]*\( on \| using \|$\)/p' <<<"$plan")
    if [ -n "${PLANS:-}" ]; then
      mkdir -p "$PLANS"
      explain $contender 'ANALYZE, VERBOSE, BUFFERS' "$discard" >"$PLANS/${1//[^A-Za-z0-9]/_}.$memory.$contender"
    fi
  done
  node=$(grep -o 'Custom Scan (GpuSort[ A-Za-z]*)' <<<"$plan" | sed 's/.*(\(.*\))/\1/' | sort -u | paste -sd, | sed 's/,/, /') || true
  [ "${nodes[core]}" = "${nodes[gpusort]}" ] || node="${node:-core}, other"
  same_results "$2"
  rm -f "$work"/{core,gpusort}.txt
  [ "$result" = same ] || different=$((different + 1))

  place=$((place + 1))
  for ((round = 1; round <= 3 * rounds; round++)); do
    [ "$round" -le "$rounds" ] || [ "$(bench -c "SELECT ratio > 1.05 FROM figures WHERE place = $place")" = t ] || break
    for contender in "${order[@]}"; do
      run_in "$contender" "$discard;"
      bench -c "INSERT INTO runs VALUES ($place, '$memory', '$1', '${node:-core}', '$result', '$contender', $ms)"
    done
    order=("${order[1]}" "${order[0]}")
  done
  bench -F ' ' -c "SELECT to_char(ratio, '990.99'), to_char(core_ms, '999990.9'), to_char(gpusort_ms, '999990.9'),
    rpad(node, 24), rpad(result, 12), query FROM figures WHERE place = $place"
}

# all_queries: each query of bench/tpch.sql as name, whether its order is total, and statement, each ended by a zero byte
all_queries() {
  awk -v RS= '/^-- name: / {
    name = $0; sub(/^-- name: /, "", name); sub(/\n.*/, "", name)
    ordered = /\n-- ties\n/ ? "no" : "yes"
    gsub(/(^|\n)--[^\n]*/, ""); gsub(/[ \n]+/, " ")
    printf "%s%c%s%c%s%c", name, 0, ordered, 0, $0, 0
  }' "$tree/bench/tpch.sql"
}

order=(core gpusort)
different=0
place=0
for memory in "${memories[@]}"; do
  say "work_mem = $memory"
  echo "  ratio       core    gpusort node                     result       query"
  for contender in core gpusort; do
    run_in $contender "SET work_mem = '$memory';"
  done
  while IFS= read -r -d '' name && IFS= read -r -d '' ordered && IFS= read -r -d '' statement; do
    [[ $name =~ $queries ]] || continue
    measure "$name" "$ordered" "${statement//:SF/$sf}"
  done < <(all_queries)
done

if [ -n "${OUT:-}" ]; then
  bench --csv -P tuples_only=off -c "SELECT '$sf' AS sf, memory, query, node, round(core_ms::numeric, 1) AS core_ms,
    round(gpusort_ms::numeric, 1) AS gpusort_ms, round(ratio::numeric, 3) AS ratio, result FROM figures ORDER BY place" >"$OUT"
fi
say "geometric means of gpusort's time divided by core's;$(uptime | sed 's/.*load/ load/')"
bench -P tuples_only=off -P format=aligned -P footer=off -c "
  SELECT memory AS work_mem, kind AS queries, count(*), round(exp(avg(ln(ratio)))::numeric, 3) AS mean, round(max(ratio)::numeric, 3) AS worst,
    (array_agg(query ORDER BY ratio DESC))[1] AS worst_query
  FROM figures, LATERAL (
    SELECT 'TPC-H, with GpuSort' AS kind WHERE query ~ '^Q[0-9]+$' AND node ~ 'GpuSort'
    UNION ALL SELECT 'TPC-H, all' WHERE query ~ '^Q[0-9]+$'
    UNION ALL SELECT 'the 16 others' WHERE query !~ '^Q[0-9]+$'
    UNION ALL SELECT 'all with core''s plan' WHERE node = 'core') AS kinds
  GROUP BY memory, kind ORDER BY min(min(place)) OVER (PARTITION BY memory), kind DESC"
if [ "$different" -gt 0 ]; then
  echo "$different results differ" >&2
  exit 1
fi
