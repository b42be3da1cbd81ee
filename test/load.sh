#!/bin/bash
#
# load.sh - many clients sort at the same time; the first part of make test-long.
#
# The clients of pgbench sort small and large arrays, and rows by ORDER BY in memory and
# with temporary files, and check every result (test/load/setup.sql).  Afterwards no
# sort may have failed, and all memory must be free again: the service's, that of a
# session that sorted and stays connected, its files in memory, which the service maps,
# temporary files, and the device's.  The device is the GPU if there are a GPU and nvcc,
# and the stand-in otherwise.
#
# At the end the test prints the times of each kind of sort, the share of sorts that the
# device did among those of at least gpusort.min_rows rows, and why the CPU did the others.
#
# The test also checks fairness: the mean time that a client waits for its small arrays
# may be at most FAIR times the median of all clients.  Sorting such an array takes
# microseconds, so this time is spent waiting in line.  It depends on the machine;
# with FAIR=0 the test only prints it.
#
#   DURATION=60      seconds; 600 for a long run
#   CLIENTS=100
#   FAIR=10          0: print the times, but do not check them
#   DEVICE=512MB     gpusort.device_memory_limit
#   BUILD=no         neither build nor install, nor look for missing packages
#
# The last line has the counts of checks, and the exit status is 0 if none failed.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"

duration=${DURATION:-60}
clients=${CLIENTS:-100}
fair=${FAIR:-10}
device=${DEVICE:-512MB}

# A process may keep this much more than before: caches of the server, and free memory of
# malloc, which these variables keep small.
slack_kb=$((32 * 1024))
export MALLOC_MMAP_THRESHOLD_=1048576 MALLOC_TRIM_THRESHOLD_=1048576

passed=0
failed=0

# check NAME COMMAND...: counts a check that passes if the command succeeds.
check() {
  local name=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
    echo "ok - $name"
  else
    failed=$((failed + 1))
    echo "not ok - $name"
  fi
}

query() {
  psql -qXAt -F ' ' -v ON_ERROR_STOP=1 -c "$1"
}

have_nvidia() {
  command -v nvidia-smi >/dev/null && nvidia-smi >/dev/null 2>&1
}

build() {
  if have_nvidia; then
    say "build, with the GPU"
    build_and_install "$tree"
  else
    say "build, with a stand-in for the device"
    copy_tree "$work/standin"
    build_and_install "$work/standin" WITH_CUDA=standin
  fi
}

# ---- memory, in kB ----

# own_kb PID: a process's private memory.
own_kb() {
  awk '/^RssAnon:/ { print $2 }' "/proc/$1/status"
}

# resting_kb PID: the least private memory within 12 s of a session that waits for its
# client.  A session keeps the memory of its last sort for ten seconds.
resting_kb() {
  local tries least now
  least=$(own_kb "$1")
  for ((tries = 0; tries < 24; tries++)); do
    sleep 0.5
    now=$(own_kb "$1")
    [ "$now" -ge "$least" ] || least=$now
  done
  echo "$least"
}

# mapped_kb PID: the memory of files that a process shares with others for sorts.
mapped_kb() {
  awk '/^[0-9a-f]+-/ { file = $6 ~ /^\/memfd:gpusort/ } /^Rss:/ && file { sum += $2 } END { print sum + 0 }' "/proc/$1/smaps"
}

# Prints the device memory in use by all processes, or nothing if that is unknown.
device_kb() {
  if have_nvidia; then
    nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | awk '/^[0-9]+$/ { sum += $1 * 1024; n++ } END { if (n) print sum }'
  fi
}

# Waits up to 30 s until the service has unmapped the files of all sessions, which keep
# them for ten seconds.
wait_for_idle() {
  local tries
  for ((tries = 0; tries < 300; tries++)); do
    [ "$(query "SELECT max(mapped_bytes) FROM gpusort_status()")" != 0 ] || return 0
    sleep 0.1
  done
  echo "the service still has mapped $(query "SELECT max(mapped_bytes) FROM gpusort_status()") bytes" >&2
  return 1
}

# ---- a session that stays connected ----

start_guest() {
  mkfifo "$work/guest.in"
  psql -qXAt -v ON_ERROR_STOP=1 <"$work/guest.in" >"$work/guest.out" 2>"$work/guest.err" &
  guest=$!
  exec 8>"$work/guest.in"
  guest_says 'SELECT pg_backend_pid();'
  guest_backend=$(head -1 "$work/guest.out")
}

# guest_says STATEMENTS: gives them to the session and waits until they are done.
guest_says() {
  guest_said=$((${guest_said:-0} + 1))
  printf '%s\n\\echo done %d\n' "$1" "$guest_said" >&8
  until grep -q "^done $guest_said\$" "$work/guest.out"; do
    kill -0 "$guest" 2>/dev/null || { cat "$work/guest.err" >&2; return 1; }
    sleep 0.05
  done
}

rounds() {
  local i
  for ((i = 0; i < $1; i++)); do
    echo 'SELECT load.round(-1);'
  done
}

# ---- the run ----

[ "${BUILD:-yes}" = no ] || install_packages
use_server
[ "${BUILD:-yes}" = no ] || build
start_cluster "shared_preload_libraries = 'gpusort'" "max_connections = $((clients + 20))" "shared_buffers = 256MB" \
  "gpusort.device_memory_limit = '$device'" "gpusort.service_idle_timeout = 1s" \
  "max_parallel_workers_per_gather = 0"
export PGOPTIONS="-c gpusort.force=on -c gpusort.min_rows=1000 -c gpusort.memory_limit=64MB -c client_min_messages=error"
psql -qX -v ON_ERROR_STOP=1 -f "$tree/test/load/setup.sql"
start_guest
say "$("$PG_CONFIG" --version), $(query "SELECT coalesce(device, 'no device: ' || detail) FROM gpusort_status() WHERE engine = 'cuda'"), $(nproc) processors, $clients clients, $duration s"

# loads libraries and kernels and fills caches, which use memory from then on
guest_says "$(rounds 3)"
# spilled sorts do not count here: the report is that of the last run, which may be too small for the device
check "the device does every kind of sort" \
  [ "$(query "SELECT count(DISTINCT kind) FROM load.sorts WHERE engine = 'cuda' AND kind <> 'spill'")" = 6 ]
wait_for_idle
service=$(query "SELECT max(service_pid) FROM gpusort_status()")
own_service=$(own_kb "$service")
own_guest=$(resting_kb "$guest_backend")
on_device=$(device_kb)
query "TRUNCATE load.sorts"

psql -qXAt >"$work/mapped.samples" 2>&1 <<<"SELECT max(mapped_bytes) FROM gpusort_status() \\watch 0.2" &
sampler=$!
scripts=()
for script in array@60 argsort@10 order_by@15 travel@5 spill@5 cursor@5 large@5; do
  scripts+=(-f "$tree/test/load/${script/@/.sql@}")
done
pgbench_status=0
pgbench -n -c "$clients" -j "$(nproc)" -T "$duration" "${scripts[@]}" postgres >"$work/pgbench.out" 2>"$work/pgbench.err" &
pgbench=$!
# meanwhile, the guest does as they do
while kill -0 "$pgbench" 2>/dev/null; do
  guest_says "$(rounds 1)"
done
wait "$pgbench" || pgbench_status=$?
kill "$sampler"
wait "$sampler" 2>/dev/null || true

grep -vE '^pgbench: .*(pghost|client)|^$' "$work/pgbench.err" | head -20 >&2 || true
check "no client had an error: $(query "SELECT count(*) || ' sorts, ' || coalesce(sum(rows), 0) || ' rows' FROM load.sorts")" \
  [ "$pgbench_status$(sed -n 's/^number of failed transactions: \([0-9]*\) .*/\1/p' "$work/pgbench.out")" = 00 ]
check "every client sorted" [ "$(query "SELECT count(DISTINCT client) FROM load.sorts WHERE client >= 0")" = "$clients" ]
check "the server's log has no error, and no warning except for sorts that the CPU did" \
  bash -c "! grep -E '(ERROR|FATAL|PANIC|WARNING):' '$work/server.log' | grep -v 'gpusort sorts on the CPU because'"
check "the service has not restarted" [ "$(query "SELECT max(service_pid) FROM gpusort_status()")" = "$service" ]
check "the device sorted for every client" \
  [ "$(query "SELECT count(DISTINCT client) = $clients FROM load.sorts WHERE client >= 0 AND engine = 'cuda'")" = t ]

# ---- afterwards ----

read -r peak samples < <(awk '/^[0-9]/ { n++; if ($1 > peak) peak = $1 } END { printf "%.0f %d\n", peak, n }' "$work/mapped.samples")
check "the service has unmapped all files; it had $((peak >> 20)) MB of them at most, in $samples samples" wait_for_idle
# the clients have disconnected, but their server processes may need a moment
for ((tries = 0; tries < 100; tries++)); do
  [ "$(query "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")" -gt 2 ] || break
  sleep 0.1
done
# check_back NAME BEFORE NOW: checks that memory, in kB, is free again.
check_back() {
  check "$1 is free again: $(($2 / 1024)) MB before, $(($3 / 1024)) now" [ "$3" -le "$(($2 + slack_kb))" ]
}
check_back "the service's memory" "$own_service" "$(own_kb "$service")"
check_back "a session's memory" "$own_guest" "$(resting_kb "$guest_backend")"
check "the session has no files in memory" [ "$(mapped_kb "$guest_backend")" = 0 ]
[ -z "$on_device" ] || check_back "the device's memory" "$on_device" "$(device_kb)"
check "no temporary file is left" [ "$(query "SELECT count(*) FROM pg_ls_tmpdir()")" = 0 ]
check "no sort is left in gpusort_activity" [ "$(query "SELECT count(*) FROM gpusort_activity")" = 0 ]

say "milliseconds from call to result, where the device sorts; slowest: the slowest client's mean, times the median of the clients"
psql -qX -P footer=off <<'SQL'
WITH clients AS (
	SELECT kind, client, avg(ms) AS mean FROM load.sorts WHERE client >= 0 AND engine = 'cuda' GROUP BY kind, client),
ratios AS (
	SELECT kind, max(mean) / percentile_cont(0.5) WITHIN GROUP (ORDER BY mean) AS slowest FROM clients GROUP BY kind)
SELECT kind, count(*) AS sorts, (100.0 * count(*) FILTER (WHERE engine = 'cuda') / count(*))::numeric(4, 1) AS "% on device",
       (percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) FILTER (WHERE engine = 'cuda'))::numeric(9, 1) AS median,
       (percentile_cont(0.99) WITHIN GROUP (ORDER BY ms) FILTER (WHERE engine = 'cuda'))::numeric(9, 1) AS "99 %",
       (max(ms) FILTER (WHERE engine = 'cuda'))::numeric(9, 1) AS max, slowest::numeric(9, 2)
FROM load.sorts LEFT JOIN ratios USING (kind) WHERE client >= 0 GROUP BY kind, slowest ORDER BY median;
CREATE TEMP VIEW wanted AS
SELECT engine, reason FROM load.sorts WHERE client >= 0 AND rows >= current_setting('gpusort.min_rows')::bigint;
SELECT count(*) AS "sorts of gpusort.min_rows or more", (100.0 * count(*) FILTER (WHERE engine = 'cuda') / count(*))::numeric(4, 1) AS "% on device"
FROM wanted;
SELECT count(*) AS "of these, on the CPU", (100.0 * count(*) / (SELECT count(*) FROM wanted))::numeric(4, 1) AS "%", reason
FROM wanted WHERE engine = 'cpu' GROUP BY reason ORDER BY 1 DESC;
SQL
slowest=$(query "WITH clients AS (SELECT avg(ms) AS mean FROM load.sorts WHERE kind = 'array' AND engine = 'cuda' AND client >= 0 GROUP BY client)
SELECT max(mean) / percentile_cont(0.5) WITHIN GROUP (ORDER BY mean) FROM clients")
if [ "$fair" != 0 ]; then
  check "no client waits $fair times the median for small arrays" \
    awk "BEGIN { exit !($slowest <= $fair) }"
fi

exec 8>&-
wait "$guest" || true
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
