#!/bin/bash
#
# run.sh - make test: installs missing packages, builds, and runs all tests.
#
# The tests run against two builds.  The first build has a CPU in place of the
# device (test/standin/device.c) and fault injection (test/fault), so that the
# GPU service, the chunk pool and every failure can be tested on any machine.  The
# second build is the one that WITH_CUDA selects.  If that build finds a GPU, the
# SQL suite and the pgTAP tests run on the GPU as well, with the same expected output.
#
# Each group of tests prints its counts, and the last line is their sum.  PG_CONFIG
# chooses the server, which needs PGXS and need not be Debian's.  Groups that it cannot
# run are named at the end.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"
# shellcheck source=test/suites.sh
. "$tree/test/suites.sh"

# Runs the row key tests in three databases, whose default collations differ.
run_rowkey() {
  local module=$work/check/build/rowkey_test database
  if [ "$(psql -qXtAc "SELECT count(*) FROM pg_available_extensions WHERE name = 'citext'")" = 0 ] || ! have_icu; then
    skip "$1" "the server has no ICU or no citext"
    return
  fi
  make_check build/rowkey_test.so >/dev/null
  psql -qXc 'CREATE DATABASE gpusort_rowkey' \
    -c "CREATE DATABASE gpusort_rowkey_c TEMPLATE template0 LOCALE 'C'" \
    -c "CREATE DATABASE gpusort_rowkey_icu TEMPLATE template0 LOCALE 'C' LOCALE_PROVIDER icu ICU_LOCALE 'en'"
  run_prove "$1" pg_prove -d gpusort_rowkey --set "module=$module" "$tree/test/rowkey/rowkey.sql"
  for database in gpusort_rowkey:libc gpusort_rowkey_c:bytes gpusort_rowkey_icu:icu; do
    run_prove "$1, default collation by ${database#*:}" pg_prove -d "${database%:*}" --set "module=$module" \
      --set "comparer=${database#*:}" "$tree/test/rowkey/default_collation.sql"
  done
}

# run_instrument NAME PART: runs a part of test/instruments.sh in its short form.
run_instrument() {
  local rc=0 last
  QUICK=yes PARTS=$2 bash "$tree/test/instruments.sh" >"$work/instruments.log" 2>&1 || rc=$?
  last=$(tail -1 "$work/instruments.log")
  [ "$rc" = 0 ] || tail -150 "$work/instruments.log"
  if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    count "$1" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
  else
    count "$1" 0 1
  fi
}

# True if the server was built with ICU; one collation of that provider is there in any build.
have_icu() {
  [ "$(psql -qXtAc "SELECT count(*) > 0 FROM pg_collation WHERE collname = 'en-x-icu'")" = t ]
}

# True if the installed build has found a GPU.  run_regress has made the database.
have_gpu() {
  [ "$(psql -qXtAc "SELECT available FROM gpusort_status() WHERE engine = 'cuda'" contrib_regression)" = t ]
}

install_test_packages
use_server
say "$("$PG_CONFIG" --version)"

say "build with a stand-in for the device, in a folder of its own"
copy_tree "$work/source"
mkdir "$work/standin"
build_and_install "$work/standin" -f "$work/source/Makefile" WITH_CUDA=standin
start_cluster "${server_settings[@]}"
[ "$(id -u)" != 0 ] || chown -R "$cluster_user" "$work/standin"
run_regress "regress, stand-in device" "-c gpusort.engine=cuda -c gpusort.min_rows=0" \
  -C "$work/standin" -f "$work/source/Makefile"
stop_cluster
tap_jobs=3 run_tap "stand-in device" "${standin_tests[@]}" "$tree"/test/t/{013,041}*.pl
run_tap "limits, stand-in device" "${limits_test[@]}"
run_unit "load, stand-in device" env BUILD=no DURATION=10 CLIENTS=20 POOL=512MB FAIR=0 bash "$tree/test/load.sh"
run_tap "running queries, stand-in device" "$tree"/test/t/{025,026}*.pl
SETTINGS="gpusort.engine=cuda" CASES=150 run_tap "random queries, stand-in device" "$tree"/test/t/020*.pl
SETTINGS="gpusort.engine=cuda gpusort.min_rows=0" run_tap "random LIMITs, stand-in device" "$tree"/test/t/031*.pl
SETTINGS="gpusort.engine=cuda" run_tap "parallel sorts, stand-in device" "$tree"/test/t/034*.pl
SETTINGS="gpusort.engine=cuda" CASES=6 run_tap "text under libc, stand-in device" "$tree"/test/t/029*.pl
SETTINGS="gpusort.engine=cuda" RUNS=200 run_tap "leaks, stand-in device" "$tree"/test/t/018*.pl

say "build"
build_and_install "$tree"

run_unit "layers" perl "$tree/test/layers.pl" "$tree"
run_unit "package" perl "$tree/test/package.pl" "$tree"
run_unit "unit tests" make -C "$tree" -s unit

start_cluster "${server_settings[@]}"
run_regress "regress"
run_pgtap "properties"
run_rowkey "row keys"
if have_gpu; then
  run_pgtap "properties, on the GPU" "-c gpusort.engine=cuda -c gpusort.min_rows=0"
  for algorithm in auto mppsort quicksort mergesort radixsort cub; do
    run_regress "regress, on the GPU, $algorithm" \
      "-c gpusort.engine=cuda -c gpusort.min_rows=0 -c gpusort.algorithm=$algorithm"
  done
fi
stop_cluster
if [ -f "$tree/kernels/sort.o" ]; then
  say "build the kernel tests and the benchmark; without a GPU the tests do not run"
  make -C "$tree" -s test/kernels/kernel_test bench/bench_gpu
  if command -v nvidia-smi >/dev/null && nvidia-smi >/dev/null 2>&1; then
    run_unit "kernels" "$tree/test/kernels/kernel_test" --quick --lane --random 1000
  fi
fi
tap_jobs=2 run_tap "server" "$tree"/test/t/{001,010,012,013,014,017,024,039,041}*.pl
run_tap "drivers without a device" "$tree"/test/t/015*.pl
run_tap "spill, activity and memory" "$tree"/test/t/{021,022,027}*.pl
tap_jobs=2 run_tap "random queries" "$tree"/test/t/{020,031,032,033,045}*.pl
tap_jobs=2 run_tap "parallel sorts" "$tree"/test/t/{034,035,036,040}*.pl
tap_jobs=2 run_tap "text under libc" "$tree"/test/t/{029,030}*.pl
run_tap "leaks" "$tree"/test/t/018*.pl
run_instrument "sanitizers" sanitizers
run_instrument "fuzzing" fuzz
run_instrument "valgrind" valgrind
run_core "PostgreSQL's own suite" SUITE=core

show_sum
