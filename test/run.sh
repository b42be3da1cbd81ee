#!/bin/bash
#
# run.sh - make test: installs missing packages, builds, and runs all tests.
#
# The tests run against two builds.  The first build has a CPU in place of the
# device (test/standin/device.c) and fault injection (test/fault), so that the GPU
# service and every failure can be tested on any machine.  The second build is the one
# that WITH_CUDA selects.  If that build finds a GPU, the SQL suite and the pgTAP tests run on the GPU as well, with the same expected output.
# Each build has a copy of the server, so that nothing is installed in the server
# itself, and groups of both run beside each other.
#
# What takes long and tests the same mechanisms once more, on the other engine or exhaustively, is in long.sh, and the
# sanitizers are in instruments.sh.
#
# Each group of tests prints its counts when it ends, and the last line is their sum.
# PG_CONFIG chooses the server, which needs PGXS and need not be Debian's.  Groups that
# it cannot run are named at the end.

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

# The SQL suite, the pgTAP tests and the row keys, on one cluster.
run_sql() {
  local algorithm
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
}

# The tests that need no server.
run_without_server() {
  run_unit "layers" perl "$tree/test/layers.pl" "$tree"
  run_unit "package" perl "$tree/test/package.pl" "$tree"
  run_unit "unit tests" make -C "$tree" -s -j"$(nproc)" PG_CONFIG="$stock_config" unit
}

# Builds the kernel tests and the benchmark; without a GPU the tests do not run.
run_kernels() {
  make -C "$tree" -s PG_CONFIG="$stock_config" test/kernels/kernel_test bench/bench_gpu
  if command -v nvidia-smi >/dev/null && nvidia-smi >/dev/null 2>&1; then
    run_unit "kernels" "$tree/test/kernels/kernel_test" --quick --lane --random 1000
  fi
}

run_regress_on_standin() {
  start_cluster "${server_settings[@]}"
  run_regress "regress, stand-in device" "-c gpusort.engine=cuda -c gpusort.min_rows=0" \
    -C "$standin" -f "$source/Makefile"
  run_regress "regress, stand-in device, verified" "-c gpusort.engine=cuda -c gpusort.min_rows=0 -c gpusort.verify=on" \
    -C "$standin" -f "$source/Makefile"
}

# on_standin COMMAND...: runs tests on the build with the stand-in.
on_standin() {
  PG_CONFIG=$standin_config
  standin_name=", stand-in device"
  use_server
  "$@"
}

# run_file FILE: runs a TAP file.
standin_name=
run_file() {
  run_tap "$(basename "$1" .pl)$standin_name" "$1"
}

install_test_packages
use_server
say "$("$PG_CONFIG" --version)"

say "build with a stand-in for the device, in a folder of its own"
source=$work/source
standin=$work/standin
copy_tree "$source"
mkdir "$standin"
use_private_server "$work/standin-server"
standin_config=$PG_CONFIG
build_and_install "$standin" -f "$source/Makefile" WITH_CUDA=standin
[ "$(id -u)" != 0 ] || chown -R "$cluster_user" "$standin"

say "build"
use_private_server "$work/server"
build_and_install "$tree"
modules=$work/modules
copy_tree "$modules"
make -C "$modules" -s -j"$(nproc)" PG_CONFIG="$stock_config" test-modules >/dev/null

say "tests"
# the longest first
start on_standin run_file "$tree"/test/t/005*.pl
start run_core "PostgreSQL's own suite" SUITE=core
start run_sql
start run_without_server
start run_instrument "fuzzing" fuzz
start run_instrument "valgrind" valgrind
[ ! -f "$tree/kernels/sort.o" ] || start run_kernels
start on_standin run_regress_on_standin
start on_standin run_unit "load, stand-in device" \
  env BUILD=no DURATION=10 CLIENTS=20 FAIR=0 bash "$tree/test/load.sh"
for file in "$tree"/test/t/*.pl; do
  case ${file##*/} in
    005_* | 009_*) ;;
    *standin* | 025_* | 026_* | 048_* | 058_*) start on_standin run_file "$file" ;;
    029_*) CASES=12 start run_file "$file" ;;
    *) start run_file "$file" ;;
  esac
done

# with the stand-in device, too, and each result verified
start on_standin run_file "$tree"/test/t/013*.pl
start on_standin run_file "$tree"/test/t/041*.pl
export SETTINGS="gpusort.engine=cuda gpusort.verify=on"
CASES=150 start on_standin run_file "$tree"/test/t/020*.pl
CASES=40 start on_standin run_file "$tree"/test/t/034*.pl
unset SETTINGS

# this test takes all available shared memory
wait_for_all
start on_standin run_file "$tree"/test/t/009*.pl
wait_for_all

show_sum
