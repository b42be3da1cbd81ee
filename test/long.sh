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
#   PARTS="locales core"    the parts to run; default: all three
#
# The last line has the counts, and the exit status is 0 if nothing failed.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"
# shellcheck source=test/suites.sh
. "$tree/test/suites.sh"

parts=${PARTS:-load locales core}
if [[ $parts = *load* ]]; then
  bash "$tree/test/load.sh" | tee "$work/load.log" || true
  run_unit "load" tail -1 "$work/load.log"
fi
install_test_packages
use_server
build_and_install "$tree"
if [[ $parts = *locales* ]]; then
  LOCALES=all run_tap "text under every locale" "$tree"/test/t/029*.pl
fi
if [[ $parts = *core* ]]; then
  run_core "PostgreSQL's own suites in en_US.UTF-8" SUITE="core citext intarray" LOCALE=en_US.UTF-8
fi

show_sum
