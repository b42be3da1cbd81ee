#!/bin/bash
#
# check.sh - make check: the tests to run after each change, in two minutes on two processors.
#
# Builds with the stand-in device what has changed since the last call, in build/check, so
# that the tree's own build stays as it is, and tests it in a copy of the server: nothing
# is installed.  The groups run beside each other:
#
#   layers          the floors of src/
#   unit tests      make unit
#   regress         the SQL suite on the CPU, and on the stand-in device
#   explain         025_explain.pl
#   random queries  020_random.pl on the CPU and on the stand-in device; CASES=40 for each,
#                   and SEED=n repeats those of an earlier run
#
# build/check also keeps the data folder that initdb has made.  A table of the groups ends
# the output, and the last line has the counts.  The exit status is 0 if nothing failed.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"
# shellcheck source=test/suites.sh
. "$tree/test/suites.sh"

kept=$tree/build/check
copy=$kept/tree

# Brings the copy of the tree up to date.  Files keep their times, by which make sees
# what has changed.  If a file is gone, the libraries are linked anew without it.
update_copy() {
  local sources=(-type f ! -path './build/*' ! -path './tmp_check/*' ! -path './.*' ! -name '*.[od]' ! -name '*.so')
  copy_tree "$copy"
  comm -13 <(cd "$tree" && find . "${sources[@]}" | sort) <(cd "$copy" && find . "${sources[@]}" | sort) >"$work/gone"
  if [ -s "$work/gone" ]; then
    (cd "$copy" && xargs -d '\n' rm -f) <"$work/gone"
    rm -rf "$copy"/gpusort*.so "$copy"/build/*.so "$copy"/build/unit/*_test
  fi
}

check_units() {
  run_unit "layers" perl "$copy/test/layers.pl" "$copy"
  run_unit "unit tests" make -C "$copy" -s -j"$(nproc)" "${variables[@]}" unit
}

check_sql() {
  saved_data=$kept/data-$("$PG_CONFIG" --version | tr -c 'A-Za-z0-9.\n' -).tar
  start_cluster "${server_settings[@]}"
  run_regress "regress"
  run_regress "regress, stand-in device" "-c gpusort.engine=cuda -c gpusort.min_rows=0"
}

check_queries() {
  local cases=${CASES:-40}
  CASES=$cases run_tap "random queries" "$tree"/test/t/020*.pl
  CASES=$cases SETTINGS="gpusort.engine=cuda" run_tap "random queries, stand-in device" "$tree"/test/t/020*.pl
}

install_test_packages
use_server
mkdir -p "$copy"
update_copy
say "$("$PG_CONFIG" --version), build with a stand-in for the device"
use_private_server "$work/server"
build_and_install "$copy" WITH_CUDA=standin
variables=(PG_CONFIG="$stock_config" WITH_CUDA=standin)
make -C "$copy" -s -j"$(nproc)" "${variables[@]}" test-modules >/dev/null
modules=$copy

start check_sql
start check_units
start run_tap "explain" "$tree"/test/t/025*.pl
start check_queries
wait_for_all

show_sum
