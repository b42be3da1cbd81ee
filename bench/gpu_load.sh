#!/bin/bash
#
# gpu_load.sh - many clients sort at the same time, with the GPU and on the CPU.
#
#   bench/gpu_load.sh
#   CLIENTS="1 32" bench/gpu_load.sh          default: 1 8 32 100
#   ROWS="33000 1000000" bench/gpu_load.sh    default: 33000 200000 1000000 10000000
#   ENGINES=cpu bench/gpu_load.sh             default: cuda cpu; without a device, cpu
#   KIND=array bench/gpu_load.sh              gpu_sort() of an array; default: rows, for ORDER BY
#   SECONDS_EACH=20 bench/gpu_load.sh         seconds of each measurement; default: 5
#   OUT=file.csv bench/gpu_load.sh            the figures also as CSV, for bench/gpu_load.gp
#   PGOPTIONS="-c gpusort.min_rows=0" bench/gpu_load.sh    other settings: each sort asks for the device
#
# If PGHOST or PGPORT is set, it uses the server there, which must run on this machine and
# have gpusort installed, as a superuser, in a database of its own.  Else it measures the
# library that make has built in this tree, on a private cluster (test/cluster.sh).
#
# Each measurement is a run of pgbench: each client has a connection, and sorts the same
# integers again and again.  They are read from a table in shared memory, and nothing
# is sent to the client: OFFSET 1e10 discards rows, and an array is only counted.
# A sort that runs when the time is over goes on to its end, so measurements of large sorts
# take longer than SECONDS_EACH.  For each hundred clients there is one second more, in
# which they connect.  Each sort has one process with one thread, and memory
# for all its rows.
#
# "cuda" means gpusort.engine = auto: the CPU does those sorts that would be slower on the
# device, or that would wait for it.
#
# Columns, empty or "-" where the figure cannot be had:
#
#   sorts/s, median, 99 %  as the clients see them: the latency of a transaction, in ms
#   device      the share of sorts that the device did
#   kernels     the share of time in which the device sorted, by the reports of the sorts
#   GPU         the device's busy share by nvidia-smi; of several devices, the busiest
#   GB/s        what was copied to the device and back, both together
#   bus         the share of time in which copies ran, in the direction that copied longer.
#               Copies that share the bus all count, so that it can be above 100 %
#   processors  their busy share, that of pgbench included
#   not on the device because    the most frequent reason
#
# After its sort, each transaction stores the report of gpusort_last_sort() in a table.
# Both statements are sent at once, in a pipeline.  Storing takes some 20 us.  (In a script
# without backslash commands, pgbench logs a latency of 0 for results that come at once.)
#
# A measurement that needs more than a half of the available memory, or more connections
# than the server has, is skipped.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
read -ra client_counts <<<"${CLIENTS:-1 8 32 100}"
read -ra sizes <<<"${ROWS:-33000 200000 1000000 10000000}"
read -ra engines <<<"${ENGINES:-cuda cpu}"
kind=${KIND:-rows}
duration=${SECONDS_EACH:-5}
db=gpusort_gpu_load

# The memory that a session takes, and the most that a sort takes for each row, with its
# result
session_kb=8192
case $kind in
  rows) row_bytes=16 ;;
  array) row_bytes=24 ;;
  *) echo "KIND is rows or array, not $kind" >&2; exit 1 ;;
esac

# most NUMBER...: prints the largest.
most() {
  printf '%s\n' "$@" | sort -n | tail -1
}

if [ -n "${PGHOST:-}${PGPORT:-}" ]; then
  work=$(mktemp -d "${TMPDIR:-/tmp}/gpusort.XXXXXX")
  trap 'psql -qX -d postgres -c "DROP DATABASE IF EXISTS $db WITH (FORCE)" 2>/dev/null; rm -rf "$work"' EXIT
  trap 'exit 1' INT TERM
  private=false
else
  # shellcheck source=test/cluster.sh
  . "$tree/test/cluster.sh"
  start_cluster_of_tree "shared_preload_libraries = 'gpusort'" \
    "shared_buffers = $((128 + $(most "${sizes[@]}") * 80 / 1048576))MB" "autovacuum = off" \
    "max_connections = $(($(most "${client_counts[@]}") + 20))"
  private=true
fi
psql -qX -v ON_ERROR_STOP=1 -d postgres -c "SET client_min_messages = error" -c "DROP DATABASE IF EXISTS $db" \
  -c "CREATE DATABASE $db TEMPLATE template0"
export PGDATABASE=$db
settings="-c client_min_messages=error -c session_preload_libraries=gpusort -c jit=off -c gpusort.force=on \
  -c gpusort.memory_limit=8GB -c max_parallel_workers_per_gather=0 ${PGOPTIONS:-}"
export PGOPTIONS=$settings

# use_engine NAME: sets the engine of the sessions that begin from now on.
use_engine() {
  if [ "$1" = cuda ]; then
    PGOPTIONS="-c gpusort.engine=auto $settings"
  else
    PGOPTIONS="-c gpusort.engine=$1 $settings"
  fi
}

bench() {
  psql -qXtA -F ' ' -v ON_ERROR_STOP=1 "$@"
}

if [ "$private" = true ]; then
  # the functions of this tree, of which the server may have another version or none
  script=$tree/sql/gpusort--$(sed -n "s/^default_version = '\(.*\)'/\1/p" "$tree/gpusort.control").sql
  sed -e '/^\\echo/d' -e 's/MODULE_PATHNAME/gpusort/' "$script" | bench
else
  bench -c "CREATE EXTENSION gpusort"
fi
bench <<'SQL'
-- a row for each sort of a measurement
CREATE UNLOGGED TABLE sorts (engine text, kernels_ms float8, in_ms float8, in_bytes bigint, out_ms float8, out_bytes bigint, reason text)
  WITH (autovacuum_enabled = off);
CREATE TABLE results (place serial, kind text, rows bigint, clients int, engine text, sorts bigint, sorts_per_s float8,
  median_ms numeric, p99_ms numeric, device_percent float8, kernels_percent float8, gpu_percent float8,
  bus_gb_s float8, bus_percent float8, processors_percent float8, reason text);
SQL

# make_table ROWS: makes the table of this size, the query that sorts it, and pgbench's script.
make_table() {
  local value='(random() * 4294967295 - 2147483648)::int'
  if [ "$kind" = rows ]; then
    bench -c "CREATE UNLOGGED TABLE t$1 AS SELECT $value AS k FROM generate_series(1, $1)"
    query="SELECT k FROM t$1 ORDER BY k OFFSET 10000000000"
  else
    bench -c "CREATE UNLOGGED TABLE t$1 (a int[])" -c "ALTER TABLE t$1 ALTER a SET STORAGE EXTERNAL" \
      -c "INSERT INTO t$1 SELECT array_agg($value) FROM generate_series(1, $1)"
    query="SELECT cardinality(gpu_sort(a)) FROM t$1"
  fi
  bench -c "VACUUM ANALYZE t$1"
  cat >"$work/script.sql" <<SQL
\\startpipeline
$query;
INSERT INTO sorts SELECT engine, kernels_ms, copy_in_ms, copy_in_bytes, copy_out_ms, copy_out_bytes, reason FROM gpusort_last_sort();
\\endpipeline
SQL
}

# Prints the time that the processors that this script may use were busy, and all their time.
ticks() {
  awk '/^Cpus_allowed_list:/ {
      n = split($2, ranges, ",")
      for (i = 1; i <= n; i++) {
        m = split(ranges[i], ends, "-")
        for (c = ends[1] + 0; c <= ends[m] + 0; c++) mine["cpu" c] = 1
      }
    }
    $1 in mine { for (i = 2; i <= 9; i++) all += $i; idle += $5 + $6 }
    END { printf "%.0f %.0f\n", all - idle, all }' /proc/self/status /proc/stat
}

# Prints the transactions in pgbench's logs, and the median and the 99th percentile of their ms.
latencies() {
  awk '$3 ~ /^[0-9]+$/ { print $3 }' "$work"/log.* | sort -n | awk '{ us[NR] = $1 }
    END { if (NR) printf "%d %.3f %.3f\n", NR, us[int((NR + 1) / 2)] / 1000, us[int((99 * NR + 99) / 100)] / 1000 }'
}

# Prints the mean of nvidia-smi's samples, or nothing if there are none.
gpu_busy() {
  awk -F', *' '$2 ~ /^[0-9]+$/ { sum[$1] += $2; n[$1]++ }
    END { for (i in n) if (mean == "" || sum[i] / n[i] > mean) mean = sum[i] / n[i]; if (mean != "") printf "%.0f\n", mean }' "$work/gpu"
}

# Waits up to 30 s until the sessions of the last measurement are gone.
wait_for_end() {
  local tries
  for ((tries = 0; tries < 300; tries++)); do
    [ "$(bench -c "SELECT count(*) FROM pg_stat_activity WHERE datname = '$db'")" -gt 1 ] || return 0
    sleep 0.1
  done
}

# show: prints the line of the last measurement.
show() {
  bench <<'SQL'
SELECT concat(to_char(rows, '999,999,990'), to_char(clients, '9999990'), lpad(engine, 7),
  to_char(sorts_per_s, '99,999,990.0'), to_char(median_ms, '99,999,990.00'), to_char(p99_ms, '99,999,990.00'),
  lpad(coalesce(to_char(device_percent, 'FM990.0'), '-'), 8), lpad(coalesce(to_char(kernels_percent, 'FM9990.0'), '-'), 9),
  lpad(coalesce(to_char(gpu_percent, 'FM990'), '-'), 5), lpad(coalesce(to_char(bus_gb_s, 'FM990.00'), '-'), 8),
  lpad(coalesce(to_char(bus_percent, 'FM9990.0'), '-'), 9), lpad(coalesce(to_char(processors_percent, 'FM990'), '-'), 12), '  ', reason)
FROM results ORDER BY place DESC LIMIT 1
SQL
}

failed=0

# measure ROWS CLIENTS ENGINE
measure() {
  local name="$1 rows, $2 clients, $3" need_kb have_kb before after sampler='' status=0 tps sorts median p99 seconds processors
  need_kb=$(($2 * (session_kb + $1 * row_bytes / 1024)))
  have_kb=$(awk '/^MemAvailable:/ { print int($2 / 2) }' /proc/meminfo)
  if [ "$need_kb" -gt "$have_kb" ]; then
    echo "skipped: $name: takes $((need_kb >> 10)) MB, and a half of the available memory is $((have_kb >> 10)) MB"
    return
  fi
  if [ "$2" -gt "$connections" ]; then
    echo "skipped: $name: the server has room for $connections connections (max_connections)"
    return
  fi
  use_engine "$3"
  # reads the table, and starts the GPU service if it has ended
  bench -c "$query" -c "TRUNCATE sorts" >/dev/null
  rm -f "$work"/log.*
  before=$(ticks)
  if [ "$have_nvidia" = true ]; then
    nvidia-smi --query-gpu=index,utilization.gpu --format=csv,noheader,nounits -lms 200 >"$work/gpu" 2>/dev/null &
    sampler=$!
  fi
  # pgbench's time begins before the clients connect
  pgbench -n -M prepared -c "$2" -j "$(nproc)" -T "$((duration + $2 / 100))" -f "$work/script.sql" \
    --log --log-prefix="$work/log" >"$work/pgbench.out" 2>"$work/pgbench.err" || status=$?
  if [ -n "$sampler" ]; then
    kill "$sampler"
    wait "$sampler" 2>/dev/null || true
  fi
  after=$(ticks)
  wait_for_end
  tps=$(sed -n 's/^tps = \([0-9.]*\) .*/\1/p' "$work/pgbench.out")
  if [ "$status" != 0 ] || [ -z "$tps" ]; then
    echo "failed: $name: $(grep -m 1 -E 'ERROR|FATAL|error:' "$work/pgbench.err" || echo "no sort in $duration s")"
    failed=$((failed + 1))
    return
  fi
  read -r sorts median p99 <<<"$(latencies)"
  seconds=$(awk "BEGIN { print $sorts / $tps }")
  processors=$(awk '$4 > $2 { printf "%.0f\n", 100 * ($3 - $1) / ($4 - $2) }' <<<"$before $after")
  bench <<SQL
INSERT INTO results (kind, rows, clients, engine, sorts, sorts_per_s, median_ms, p99_ms,
  device_percent, kernels_percent, gpu_percent, bus_gb_s, bus_percent, processors_percent, reason)
SELECT '$kind', $1, $2, '$3', $sorts, $tps, $median, $p99,
  100.0 * count(*) FILTER (WHERE engine = 'cuda') / count(*), sum(kernels_ms) FILTER (WHERE engine = 'cuda') / ($seconds * 10),
  nullif('$(gpu_busy)', '')::float8, sum(in_bytes + out_bytes) / ($seconds * 1e9), greatest(sum(in_ms), sum(out_ms)) / ($seconds * 10),
  nullif('$processors', '')::float8, mode() WITHIN GROUP (ORDER BY reason)
FROM sorts
SQL
  show
  if [ -n "${OUT:-}" ]; then
    bench --csv -P tuples_only=off -c "SELECT kind, rows, clients, engine, sorts, round(sorts_per_s::numeric, 2) AS sorts_per_s,
      median_ms, p99_ms, round(device_percent::numeric, 1) AS device_percent, round(kernels_percent::numeric, 1) AS kernels_percent,
      gpu_percent, round(bus_gb_s::numeric, 3) AS bus_gb_s, round(bus_percent::numeric, 1) AS bus_percent, processors_percent, reason
      FROM results ORDER BY place" >"$OUT"
  fi
}

connections=$(bench -c "SELECT current_setting('max_connections')::int - count(*) - 2 FROM pg_stat_activity WHERE backend_type = 'client backend'")
have_nvidia=false
if command -v nvidia-smi >/dev/null && nvidia-smi >/dev/null 2>&1; then
  have_nvidia=true
fi
: >"$work/gpu"
# With engine "cuda" this query is an error unless there is a device.
if ! bench -c "SET gpusort.engine = cuda" -c "SET gpusort.min_rows = 0" \
  -c "SELECT g FROM generate_series(1, 1000) g ORDER BY g" >/dev/null 2>&1; then
  echo "there is no device: only the CPU sorts"
  engines=(cpu)
fi
count=$((${#sizes[@]} * ${#client_counts[@]} * ${#engines[@]}))
echo "PostgreSQL $(bench -c 'SHOW server_version'), device: $(bench -c "SELECT coalesce(device, 'none') FROM gpusort_status() WHERE engine = 'cuda'")," \
  "$(nproc) processors, $(awk '/^MemTotal:/ { print int($2 / 1048576) }' /proc/meminfo) GB,$(uptime | sed 's/.*load/ load/')"
echo "$kind: at most $count measurements of $duration s, together $(((count * (duration + 1) + 59) / 60)) min and the time to make tables;" \
  "many clients with large sorts take longer"
echo
printf '%12s %7s %6s %13s %13s %13s %7s %8s %4s %7s %8s %11s  %s\n' \
  rows clients engine sorts/s 'median, ms' '99 %, ms' device kernels GPU GB/s bus processors "not on the device because"
for rows in "${sizes[@]}"; do
  make_table "$rows"
  for clients in "${client_counts[@]}"; do
    for engine in "${engines[@]}"; do
      measure "$rows" "$clients" "$engine"
    done
  done
  bench -c "DROP TABLE t$rows"
done
echo
echo "$((SECONDS / 60)) min $((SECONDS % 60)) s, $failed failed"
[ "$failed" = 0 ]
