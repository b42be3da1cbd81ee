#!/bin/bash
#
# sessions.sh - many sessions: the memory that idle ones hold, and the throughput of small sorts.
#
#   bench/sessions.sh
#   PARTS="idle" bench/sessions.sh       default: idle pages
#   SESSIONS=100 ROWS=1000000            of the idle sessions
#   CLIENTS=200 SECONDS_EACH=10 ROUNDS=5 of the clients of small sorts
#
# Measures the library that make has built in this tree, on a private cluster
# (test/cluster.sh) that it removes at the end.  "core" are sessions without the library.
#
#   idle    SESSIONS sessions sort a table of ROWS rows in memory, one after another, and stay.
#           15 seconds after the last sort, the script prints the private memory of their
#           server processes, by /proc/PID/smaps_rollup, which needs root or the server's owner.
#   pages   CLIENTS clients of pgbench read 20 rows of those of one of a thousand owners, of
#           which each has 300: ORDER BY ... LIMIT 20 OFFSET n.  core and gpusort run by
#           turns.  The columns are transactions per second, and the server's processor time
#           for each in microseconds, which depends less on what else runs on the machine.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"

parts=${PARTS:-idle pages}
sessions=${SESSIONS:-100}
rows=${ROWS:-1000000}
clients=${CLIENTS:-200}
seconds=${SECONDS_EACH:-10}
rounds=${ROUNDS:-5}

start_cluster_of_tree "shared_buffers = 512MB" "max_connections = $((sessions + clients + 10))" "autovacuum = off" \
  "max_parallel_workers_per_gather = 0" "work_mem = 128MB"
psql -qX -v ON_ERROR_STOP=1 -v rows="$rows" <<'SQL'
CREATE TABLE t AS SELECT hashint8(i)::bigint AS k, i AS id, md5(i::text) AS word FROM generate_series(1, :rows::bigint) AS i;
CREATE TABLE events AS SELECT i % 1000 AS owner, i AS id, now() - hashint4(i) % 100000 * interval '1 second' AS at, md5(i::text) AS title
FROM generate_series(1, 300000) AS i ORDER BY 1, hashint4(i);
CREATE INDEX ON events (owner);
VACUUM ANALYZE;
SQL

# contender NAME: sets the variables of its sessions.
contender() {
  export PGAPPNAME=$1 PGOPTIONS="-c session_preload_libraries=${1/core/}"
}

# measure_idle NAME: the sessions sort and then wait until a writer opens and closes the pipe.
measure_idle() {
  local i pids=()
  mkfifo "$work/hold"
  for ((i = 0; i < sessions; i++)); do
    psql -qXAt -v ON_ERROR_STOP=1 -c "SELECT count(word) FROM (SELECT * FROM t ORDER BY k OFFSET 0) AS s" \
      -c "\\! touch $work/sorted.$i; cat $work/hold" >"$work/psql.$i" 2>&1 &
    pids+=($!)
    until [ -f "$work/sorted.$i" ]; do
      kill -0 $! 2>/dev/null || { cat "$work/psql.$i" >&2; exit 1; }
      sleep 0.01
    done
  done
  sleep 15
  for i in $(psql -qXAt -c "SELECT pid FROM pg_stat_activity WHERE application_name = '$1' AND pid <> pg_backend_pid()"); do
    awk '/^Private_(Clean|Dirty):/ { kb += $2 } /^Pss:/ { pss = $2 } END { print kb, pss }' "/proc/$i/smaps_rollup"
  done | sort -n | awk -v name="$1" '{ kb[NR] = $1; pss += $2 }
    END { printf "%-8s %8d %11.1f %11.1f %11.1f\n", name, NR, kb[int((NR + 1) / 2)] / 1024, kb[NR] / 1024, pss / NR / 1024 }'
  : >"$work/hold"
  wait "${pids[@]}"
  rm "$work"/hold "$work"/sorted.*
}

# run SCRIPT ARGUMENT...: runs pgbench.  Sets ticks to the processor time of its server processes.
run() {
  local processes before
  processes=$(pgrep -c -P "$postmaster")
  before=$(awk '{ print $16 + $17 }' "/proc/$postmaster/stat")
  pgbench -n -c "$clients" -j "$(nproc)" -f "$work/$1.sql" "${@:2}" >"$work/pgbench.out" 2>"$work/pgbench.err"
  until [ "$(pgrep -c -P "$postmaster")" -le "$processes" ]; do sleep 0.1; done
  ticks=$(($(awk '{ print $16 + $17 }' "/proc/$postmaster/stat") - before))
}

# measure_pages PROTOCOL: prints the two figures.  The time for the connections is subtracted.
measure_pages() {
  run one -M "$1" -t 1
  local connections=$ticks
  run page -M "$1" -T "$seconds"
  awk -v ticks=$((ticks - connections)) -v hz="$(getconf CLK_TCK)" '/^number of transactions actually/ { n = $NF }
    /^tps = / { print $3, ticks / hz * 1e6 / n }' "$work/pgbench.out"
}

postmaster=$(head -1 "$PGDATA/postmaster.pid")
say "$("$PG_CONFIG" --version), $(nproc) processors,$(uptime | sed 's/.*load/ load/')"
if [[ $parts = *idle* ]]; then
  say "MB of private memory of sessions that have sorted $rows rows and are idle for 15 s"
  printf '%-8s %8s %11s %11s %11s\n' '' sessions median most 'mean PSS'
  for name in core gpusort; do
    contender $name
    measure_idle $name
  done
fi
if [[ $parts = *pages* ]]; then
  echo 'SELECT id, at, title FROM events WHERE owner = 1 ORDER BY at DESC LIMIT 20;' >"$work/one.sql"
  cat >"$work/page.sql" <<'SQL'
\set owner random(0, 999)
\set start 20 * random(0, 9)
SELECT id, at, title FROM events WHERE owner = :owner ORDER BY at DESC LIMIT 20 OFFSET :start;
SQL
  for protocol in simple prepared; do
    say "transactions per second of $clients clients, protocol $protocol, $seconds s each"
    printf '%9s %9s %9s %11s %9s %9s\n' core gpusort quotient 'core, us' gpusort quotient
    for ((round = 0; round < rounds; round++)); do
      contender core
      core=$(measure_pages $protocol)
      contender gpusort
      echo "$core $(measure_pages $protocol)"
    done | awk '{ printf "%9.0f %9.0f %9.3f %11.1f %9.1f %9.3f\n", $1, $3, $3 / $1, $2, $4, $4 / $2; fflush() }' | tee "$work/rounds"
    echo "median quotients: $(awk '{ print $3 }' "$work/rounds" | sort -n | sed -n "$(((rounds + 1) / 2))p")" \
      "$(awk '{ print $6 }' "$work/rounds" | sort -n | sed -n "$(((rounds + 1) / 2))p")"
  done
fi
