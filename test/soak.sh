#!/bin/bash
#
# soak.sh - make soak SECONDS=600: random SQL, before a release.
#
#   DURATION=3600    how long, in seconds, after the builds; make passes SECONDS on by it
#   SEED=n           begins with the seeds of an earlier run, which it shows first
#
# Two servers run beside each other, both with the stand-in device:
#
#   release   the distribution's server with gpusort as users have it
#   assert    PostgreSQL's source built with --enable-cassert, with gpusort built with
#             AddressSanitizer and UndefinedBehaviorSanitizer.  build/assert keeps the server:
#             its build takes some minutes
#
# Each of them does this, for half of the time each:
#
# queries
#   The TAP tests of random queries (RandomTest.pm), in random order, with new seeds each time, on
#   the CPU and on the stand-in device: the answers must be core's.  SEED=n CASES=n in front
#   of a test's name repeat it; a test that fails shows the query.
#
# SQLsmith
#   Debian's sqlsmith makes queries on tables of all types (soak_tables.pl), while
#   gpusort.force is on and memory is small, with parallel workers.  Another session cancels
#   them and their workers.  SQLsmith's queries have no answers to compare
#   with.  But no process may crash, no memory, file or query may stay behind, and no query may
#   raise an internal error (XX000).  Core raises some by itself: so each round runs
#   the queries of one seed with gpusort.enabled off and on.  An internal error counts if
#   gpusort's code raises it, or if core raises it with gpusort on only, also when the query
#   runs once more with gpusort off.  A table has both numbers for each of them, and for errors
#   about resources, states and the system, which cancels cause in core, too: a worker that
#   starts when its leader has been cancelled finds no shared memory any more.
#
# The last line has the counts: of SQLsmith, the queries with gpusort on.  The exit status is 0
# if nothing failed.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"
# shellcheck source=test/suites.sh
. "$tree/test/suites.sh"
# shellcheck source=test/sanitize.sh
. "$tree/test/sanitize.sh"
# shellcheck source=test/source.sh
. "$tree/test/source.sh"

# the variable of bash, which make's variable has set
SECONDS=0
unset MAKEFLAGS MAKEOVERRIDES MFLAGS
duration=${DURATION:-3600}
RANDOM=${SEED:=$RANDOM}

# Sets $seed to a new random number.
new_seed() {
  seed=$((RANDOM * 32768 + RANDOM))
}

# ---- queries ----

# soak_queries SERVER: runs the TAP tests of random queries.
soak_queries() {
  local end=$((SECONDS + duration / 2)) files file engine name
  while :; do
    new_seed
    mapfile -t files < <(grep -l '^use RandomTest' "$tree"/test/t/*.pl |
      awk -v seed="$seed" 'BEGIN { srand(seed) } { printf "%f\t%s\n", rand(), $0 }' | sort | cut -f 2)
    for file in "${files[@]}"; do
      for engine in cpu cuda; do
        # the other tests choose the engine themselves
        [ "$engine" = cpu ] || grep -q 'SETTINGS=' "$file" || continue
        [ "$SECONDS" -lt "$end" ] || return 0
        name=$(basename "$file" .pl)
        [ "$engine" = cpu ] || name+=", stand-in device"
        new_seed
        echo "$1: SEED=$seed CASES=40 $name"
        SEED=$seed CASES=40 SETTINGS="gpusort.engine=$engine gpusort.verify=on" run_tap "$1: $name" "$file"
        check_reports "$1: $name"
      done
    done
  done
}

# ---- SQLsmith ----

smith_settings=("shared_preload_libraries = 'gpusort'" "gpusort.force = on" "gpusort.verify = on" "gpusort.min_rows = 0"
  "gpusort.memory_limit = 64kB" "work_mem = 64kB" "max_worker_processes = 20" "max_parallel_workers = 16"
  "max_parallel_workers_per_gather = 2" "parallel_setup_cost = 0" "parallel_tuple_cost = 0"
  "min_parallel_table_scan_size = 0" "min_parallel_index_scan_size = 0"
  "log_error_verbosity = verbose" "log_line_prefix = '%p '" "autovacuum = off")

# Cancels queries of SQLsmith, and parallel workers, by chance or after a second, until it is
# ended.  The queries by which SQLsmith reads the catalogs when it starts stay.
cancel_queries() {
  local client
  # otherwise psql would go on
  trap 'kill "$client" 2>/dev/null; exit' TERM
  while :; do
    psql -qXAt >/dev/null 2>&1 <<'SQL' &
SELECT pg_cancel_backend(pid) FROM pg_stat_activity
  WHERE usename = 'smith' AND state = 'active' AND query ~ '(ref|subq)_[0-9]' AND (random() < 0.2 OR query_start < now() - interval '1 s') \watch 0.2
SQL
    client=$!
    wait "$client" || true
    # the server restarts
    sleep 0.2
  done
}

# smith ENABLED SECONDS: runs SQLsmith with gpusort.enabled on or off, and adds what the server
# logs to $work/smith-ENABLED.
smith() {
  local begun cancels left number=0 end=$((SECONDS + $2))
  begun=$(wc -c <"$work/server.log")
  cancel_queries &
  cancels=$!
  while [ "$SECONDS" -lt "$end" ]; do
    PGOPTIONS="-c gpusort.enabled=$1 -c statement_timeout=30s $smith_options" timeout $((end - SECONDS)) sqlsmith \
      --target="host=$work port=$PGPORT dbname=smith user=smith" --exclude-catalog --seed=$((seed + number)) >"$work/sqlsmith.log" 2>&1 || true
    # if SQLsmith has ended by itself, another one goes on
    number=$((number + 1))
  done
  kill "$cancels"
  wait "$cancels" 2>/dev/null || true
  # the last query ends by its timeout, if it is not cancelled
  for _ in {1..600}; do
    left=$(psql -qXAt -c "SELECT count(*) FROM pg_stat_activity WHERE usename = 'smith'" 2>/dev/null) || left=
    [ "$left" != 0 ] || break
    sleep 0.1
  done
  tail -c +$((begun + 1)) "$work/server.log" >>"$work/smith-$1"
  [ "$left" = 0 ]
}

# errors_of LOG: prints the errors of a log that are internal (XX), or about resources (53), states (55)
# and the system (58), as lines: the code, the text without numbers and names, the place in the
# source, and the statement, between tabs.
errors_of() {
  awk -v OFS='\t' '
    function flush(pid) {
      if (pid in text) print code[pid], text[pid], place[pid], statement[pid]
      delete text[pid]
    }
    !/^[0-9]+ [A-Z]+: / {
      if (in_statement) { gsub(/\t/, " "); statement[pid] = statement[pid] $0 }
      next
    }
    {
      pid = $1; kind = $2; in_statement = 0
      sub(/^[0-9]+ [A-Z]+:  /, ""); gsub(/\t/, " ")
      if (kind ~ /^(ERROR|FATAL|PANIC):$/) {
        flush(pid)
        if (/^(XX|53|55|58)/) {
          code[pid] = substr($0, 1, 5); text[pid] = substr($0, 8); place[pid] = statement[pid] = ""
          sub(/ at character [0-9]+$/, "", text[pid])
          gsub(/"[^"]*"/, "\"...\"", text[pid]); gsub(/[0-9]+/, "N", text[pid])
        }
      } else if (pid in text) {
        if (kind == "LOCATION:") place[pid] = $0
        else if (kind == "STATEMENT:") { statement[pid] = $0; in_statement = 1 }
        else if (kind !~ /^(CONTEXT|DETAIL|HINT|QUERY|BACKTRACE):$/) flush(pid)
      }
    }
    END { for (pid in text) flush(pid) }' "$1"
}

# True if a place in the source, as the log has it, is in gpusort's code.
is_ours() {
  local function=${1%%,*} file=${1##*, }
  file=${file%:*}
  [ -n "$(find "$tree/src" "$tree/test/fault" -name "$file" -exec grep -qE "^$function\(" {} \; -print)" ]
}

# core_raises TEXT PLACE STATEMENT: true if the function that raises this error, or that the error
# names, is one of core's that the statement itself calls, as SQLsmith calls those of aggregates, with
# values that no aggregate gives them; or if the statement raises it with gpusort.enabled off, too.  It
# reads all rows then: a random sample may have none that raise it.
core_raises() {
  local answer statement called function
  called=$(sed -E 's/[0-9]+/N/g' <<<"$3")
  function=$(sed -E 's/,.*//; s/[0-9]+/N/g' <<<"$2")
  [[ $called != *"pg_catalog.$function("* && $called != *"pg_catalog.${1%%:*}("* ]] || return 0
  statement=$(sed -E 's/ tablesample (system|bernoulli) \([0-9.]+\)//g' <<<"$3")
  answer=$(PGOPTIONS="-c gpusort.enabled=off -c statement_timeout=30s" psql -qXAt -U smith -d smith \
    -c BEGIN -c "$statement" -c ROLLBACK 2>&1 | sed -E 's/"[^"]*"/"..."/g; s/[0-9]+/N/g') || true
  [[ $answer = *"ERROR:  $1"* ]]
}

# judge_errors SERVER: counts the internal errors that are gpusort's, and shows how often each
# error came with gpusort.enabled off and on.
judge_errors() {
  local code text place statement seen='' n=0
  errors_of "$work/smith-off" >"$work/errors-off"
  errors_of "$work/smith-on" | sort -t $'\t' -k 1,3 >"$work/errors-on"
  while IFS=$'\t' read -r code text place statement; do
    [[ $code = XX* ]] || continue
    # no pipe: grep ends before cut has written all, which pipefail would take for "not found"
    if is_ours "$place" || { ! grep -qxF "$text" <(cut -f 2 "$work/errors-off") && ! core_raises "$text" "$place" "$statement"; }; then
      [ "$text" = "$seen" ] || printf 'not ok: %s: an error with gpusort only: %s\n%s\n%s\n' "$1" "$text" "$place" "$statement"
      seen=$text
      n=$((n + 1))
    fi
  done <"$work/errors-on"
  echo "$1: errors with gpusort.enabled off, on:"
  awk -F '\t' '{ name = $1 ": " $2 " (" $3 ")"; seen[name]; count[FILENAME, name]++ }
    END { for (name in seen) printf "%6d %6d  %s\n", count[ARGV[1], name], count[ARGV[2], name], name }' \
    "$work/errors-off" "$work/errors-on" | sort -k 1,2rn
  count "$1: SQLsmith, internal errors" $((n == 0)) "$n"
}

# Prints how many queries of SQLsmith have run; it rolls each back.
queries_run() {
  psql -qXAt -c "SELECT xact_rollback FROM pg_stat_database WHERE datname = 'smith'" || echo 0
}

# soak_smith SERVER: runs rounds of SQLsmith.
soak_smith() {
  local rounds=$((duration / 240 + 1)) round before left problems hangs=0 remains=0 queries=0 tap
  tap=$(other_tap)
  if ! command -v sqlsmith >/dev/null; then
    skip "$1: SQLsmith" "there is no package sqlsmith"
    return
  fi
  new_seed
  echo "$1: tables of SEED=$seed"
  (cd "$work" && TESTDIR=$work perl ${tap:+-I "$tap"} -I "$tree/test/t" "$tree/test/soak_tables.pl" "$seed" tables.sql)
  start_cluster "${smith_settings[@]}"
  psql -qXc 'CREATE DATABASE smith'
  psql -qX -v ON_ERROR_STOP=1 -d smith -f "$work/tables.sql" >"$work/tables.log" 2>&1 ||
    { tail -20 "$work/tables.log"; count "$1: SQLsmith, tables" 0 1; return; }
  for ((round = 1; round <= rounds; round++)); do
    new_seed
    smith_options="-c gpusort.engine=$([ $((round % 2)) = 1 ] && echo cpu || echo auto)"
    # merge joins and groups that sort
    [ $((round % 3)) = 0 ] || smith_options+=" -c enable_hashjoin=off -c enable_hashagg=off -c enable_nestloop=off"
    echo "$1: SQLsmith, SEED=$seed $smith_options"
    smith off $((duration / 4 / rounds)) || hangs=$((hangs + 1))
    before=$(queries_run)
    smith on $((duration / 4 / rounds)) || hangs=$((hangs + 1))
    queries=$((queries + $(queries_run) - before))
    left=$(psql -qXAt -d smith -c "SELECT concat_ws(', ', (SELECT string_agg(name, ', ') FROM pg_ls_tmpdir()),
      (SELECT string_agg(pid::text, ', ') FROM gpusort_activity))" || echo "no answer")
    [ -z "$left" ] || { echo "not ok: $1: stayed behind: $left"; remains=$((remains + 1)); }
  done
  psql -qX -d smith -c 'SELECT kind, engine, count, rows, disk_bytes, workers FROM gpusort_stat WHERE count > 0' || true
  [ "$queries" -gt 20 ] || { echo "not ok: $1: SQLsmith has hardly run"; tail -5 "$work/sqlsmith.log"; remains=$((remains + 1)); }
  count "$1: SQLsmith, queries" "$queries" $((hangs + remains))
  judge_errors "$1"
  stop_cluster
  problems=$(grep -cE "$log_of_leaks" "$work/smith-on" || true)
  grep -hE -m 10 "$log_of_leaks" "$work/smith-on" || true
  count "$1: SQLsmith, leaks" $((problems == 0)) "$problems"
  check_reports "$1: SQLsmith"
}

# ---- servers ----

# soak SERVER PG_CONFIG [VARIABLE=VALUE...]: builds gpusort for a server, installs it in a copy,
# and runs both parts.
soak() {
  local server=$1
  PG_CONFIG=$2
  RANDOM=$((SEED + ${#server}))
  copy_tree "$work/built"
  use_private_server "$work/server"
  build_and_install "$work/built" WITH_CUDA=standin "${@:3}"
  counted=$SECONDS
  soak_queries "$server"
  rm -rf "$work/check"
  soak_smith "$server"
}

soak_assert() {
  sanitize_servers
  soak assert "$assert_config" CC="gcc $sanitizer_flags" CXX="g++ $sanitizer_flags"
}

install_test_packages
use_server
major=$(server_major)
if command -v apt-get >/dev/null; then
  ! apt-cache show sqlsmith >/dev/null 2>&1 || apt_install sqlsmith || true
fi
say "$("$PG_CONFIG" --version), SEED=$SEED, $duration seconds"
start soak release "$PG_CONFIG"
if build_assert_server "$tree/build/assert" && as_cluster_user "$assert_config" --version >/dev/null; then
  start soak_assert
else
  skip "assert" "a server could not be built from PostgreSQL's source"
fi
wait_for_all

show_sum
