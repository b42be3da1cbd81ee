#!/bin/bash
#
# one_version.sh - builds for one server and tests the build, for make test-versions.
#
#   build          builds by gcc with the stand-in device, which has all C files; then
#                  without CUDA, and installs that
#   clang          builds by clang with the stand-in device
#   installcheck   the SQL suite
#   pgtap          the pgTAP tests, with the pgTAP of another version if this one has none
#   tap            the TAP tests without those of the stand-in device
#   core           PostgreSQL's own suite (check-core.sh)
#   abi            the symbols that the library imports, and other minor releases (abi.sh)
#   packages       Debian's packages (packages.sh)
#
# In the builds of the first two parts warnings are errors.
#
#   PG_CONFIG=...           the server; a server of Debian's is installed if it is missing
#   PARTS="build tap"       the parts to run; all by default
#   QUICK=yes               the short form for CI: one build, with the stand-in device,
#                           the SQL suite and 010_order_by.pl
#
# The last line has the counts.  The exit status is 0 if nothing failed, and 3 if
# packages are missing and cannot be installed.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"
# shellcheck source=test/suites.sh
. "$tree/test/suites.sh"

quick=${QUICK:-no}
parts=${PARTS:-build clang installcheck pgtap tap core abi packages}
[ "$quick" != yes ] || parts=${PARTS:-build installcheck tap}

wants() {
  [[ " $parts " = *" $1 "* ]]
}

# count_build NAME COMMAND...: runs a build and counts it.  If it fails, nothing is left to test.
count_build() {
  local name=$1
  shift
  # in the background, because "set -e" has no effect in a condition
  "$@" >"$work/build.log" 2>&1 &
  if wait $!; then
    count "$name" 1 0
  else
    tail -60 "$work/build.log"
    count "$name" 0 1
    show_sum || exit 1
  fi
}

run_build() {
  copy_tree "$work/gcc"
  count_build "build by gcc, stand-in device" build_and_install "$work/gcc" WITH_CUDA=standin WERROR=1
  [ "$quick" = yes ] || count_build "build by gcc" build_and_install "$work/gcc" WITH_CUDA=no WERROR=1
}

# Warnings about the flags and the attributes of gcc, which the server's files have, are off.
run_clang() {
  local flags="-Wno-unknown-warning-option -Wno-ignored-optimization-argument -Wno-ignored-attributes"
  flags+=" -Wno-unused-command-line-argument"
  copy_tree "$work/clang"
  count_build "build by clang, stand-in device" make -C "$work/clang" -s -j"$(nproc)" WITH_CUDA=standin WERROR=1 \
    CC="clang $flags" CXX="clang++ $flags"
}

# If the server has no pgTAP, installs that of another version, from this machine or from
# Debian's newest package.  It is in SQL and the same for all these versions.
install_other_pgtap() {
  local install=() from package to
  from=$(find /usr/share/postgresql/*/extension/pgtap.control -printf '%h\n' 2>/dev/null | sort -V | tail -1 || true)
  if [ -z "$from" ] && command -v apt-get >/dev/null; then
    package=$(apt-cache search --names-only '^postgresql-[0-9]+-pgtap$' | sort -V | tail -1 | cut -d ' ' -f 1)
    [ -n "$package" ] || return 0
    mkdir "$work/pgtap"
    (cd "$work/pgtap" && apt-get download -q "$package" && dpkg-deb -x "$package"_*.deb .) >"$work/apt.log" 2>&1 || return 0
    from=$(find "$work/pgtap" -name pgtap.control -printf '%h\n')
  fi
  [ -n "$from" ] || return 0
  to=$("$PG_CONFIG" --sharedir)/extension
  [ -w "$to" ] || install=("${sudo[@]}")
  say "installing the pgTAP of PostgreSQL $(basename "${from%/extension}")"
  "${install[@]}" cp "$from"/pgtap* "$to"
}

run_tap_files() {
  local file files=("$tree"/test/t/010_order_by.pl)
  [ "$quick" = yes ] || mapfile -t files < <(find "$tree/test/t" -name '*.pl' ! -name '*standin*' | sort)
  for file in "${files[@]}"; do
    run_tap "$(basename "$file")" "$file"
  done
}

packages=()
! wants clang || packages+=(clang)
! wants core || packages+=(perl bzip2)
install_test_packages "${packages[@]}" || exit 3
use_server
say "$("$PG_CONFIG" --version)"

! wants pgtap || have_pgtap || install_other_pgtap
! wants build || run_build
! wants clang || run_clang
if wants installcheck || wants pgtap; then
  start_cluster "${server_settings[@]}"
  ! wants installcheck || run_regress "installcheck"
  ! wants pgtap || run_pgtap "pgTAP"
  stop_cluster
fi
! wants tap || run_tap_files
! wants core || run_core "PostgreSQL's own suite" SUITE=core
! wants abi || run_unit "abi" bash "$tree/test/abi.sh"
! wants packages || if server_is_debian; then
  run_unit "packages" env PARTS=deb bash "$tree/test/packages.sh"
else
  skip "packages" "the server is not Debian's"
fi

show_sum
