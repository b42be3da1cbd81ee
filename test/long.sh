#!/bin/bash
#
# long.sh - make test-long: the tests that take too long for make test.
#
#   load      many clients sort at the same time: see load.sh for its variables
#   locales   every locale of Debian's package locales whose character set a
#             server can have (t/029_libc.pl)
#   core      PostgreSQL's own suite, citext's and intarray's, in a database whose
#             default collation is en_US.UTF-8 (check-core.sh)
#
#   standin   with the stand-in device: every fault at every pass (t/005_standin_faults.pl), and the random
#             tests of limits, groups, aggregates and text, and the tests of indexes and leaks, with each result verified
#
#   PARTS="locales core"    the parts to run; default: all
#
# The last line has the counts, and the exit status is 0 if nothing failed.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"
# shellcheck source=test/suites.sh
. "$tree/test/suites.sh"

parts=${PARTS:-load locales core standin}
if [[ $parts = *load* ]]; then
  bash "$tree/test/load.sh" | tee "$work/load.log" || true
  run_unit "load" tail -1 "$work/load.log"
fi
install_test_packages
use_server
[[ $parts != *locales* && $parts != *core* ]] || build_and_install "$tree"
if [[ $parts = *locales* ]]; then
  LOCALES=all run_tap "text under every locale" "$tree"/test/t/029*.pl
fi
if [[ $parts = *core* ]]; then
  run_core "PostgreSQL's own suites in en_US.UTF-8" SUITE="core citext intarray" LOCALE=en_US.UTF-8
fi
if [[ $parts = *standin* ]]; then
  use_private_server "$work/standin-server"
  copy_tree "$work/standin"
  build_and_install "$work/standin" WITH_CUDA=standin
  make -C "$work/standin" -s PG_CONFIG="$stock_config" WITH_CUDA=standin test-modules >/dev/null
  modules=$work/standin
  rm -rf "$work/check"
  ALL_FAULTS=yes run_tap "every fault" "$tree"/test/t/005*.pl
  export SETTINGS="gpusort.engine=cuda gpusort.verify=on"
  run_tap "random queries, stand-in device" "$tree"/test/t/{029,031,050,051,052,054}*.pl
  SETTINGS="gpusort.verify=on" run_tap "indexes, stand-in device" "$tree"/test/t/048*.pl
  RUNS=200 run_tap "leaks, stand-in device" "$tree"/test/t/018*.pl
  unset SETTINGS
fi

show_sum
