#!/bin/bash
#
# blocksize.sh - make test-blocksize: servers whose pages have another size than 8 kB.
#
#   BLOCKSIZES="4 16"      kB; default: 16 32
#   BLOCKSIZES_DIR=folder  where the servers are kept for the next call; default:
#                          build/blocksize
#   TAP="048 049 057"      the TAP files, by their numbers; "" runs none
#
# Builds a server of each size from PostgreSQL's source, which takes some minutes.  gpusort is
# built for it, with the stand-in device, and tested by the SQL suite, on the CPU and on the
# device, and by the TAP files about builds of indexes, whose bytes must be core's.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"
# shellcheck source=test/suites.sh
. "$tree/test/suites.sh"
# shellcheck source=test/source.sh
. "$tree/test/source.sh"

# test_size KB PG_CONFIG
test_size() {
  # plans are those of pages of 8 kB if a byte costs what it costs there
  local number numbers costs
  costs=$(awk -v kb="$1" 'BEGIN { print "-c seq_page_cost=" kb / 8 " -c random_page_cost=" kb / 2 }')
  # core builds all indexes of smaller pages
  numbers=$([ "$1" -lt 8 ] || echo "${TAP-048 049 057}")
  PG_CONFIG=$2
  copy_tree "$work/built"
  use_private_server "$work/server"
  build_and_install "$work/built" WITH_CUDA=standin WERROR=1
  if [ -n "$numbers" ]; then
    make -C "$work/built" -s -j"$(nproc)" PG_CONFIG="$stock_config" test-modules >/dev/null
    modules=$work/built
  fi
  counted=$SECONDS
  start_cluster "${server_settings[@]}"
  run_regress "$1 kB: regress" "$costs"
  run_regress "$1 kB: regress, stand-in device" "-c gpusort.engine=cuda -c gpusort.min_rows=0 $costs"
  stop_cluster
  for number in $numbers; do
    run_tap "$1 kB: $number" "$tree"/test/t/"$number"*.pl
  done
}

install_test_packages
use_server
major=$(server_major)
folder=${BLOCKSIZES_DIR:-$tree/build/blocksize}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd -P)
for size in ${BLOCKSIZES:-16 32}; do
  root=$folder/$major-$size
  if build_server "$root" --with-blocksize="$size" && as_cluster_user "$root/bin/pg_config" --version >/dev/null; then
    start test_size "$size" "$root/bin/pg_config"
  else
    skip "$size kB" "a server could not be built from PostgreSQL's source"
  fi
done
wait_for_all

show_sum
