#!/bin/bash
#
# abi.sh - make test-abi: checks what gpusort.so takes from the server.
#
#   imports   each symbol of the server that the library imports is in abi_symbols.txt, the
#             list for all versions.  A new one is a new dependency on core: add it there
#   minor     for each other minor release of the server that apt has: a library that was
#             built for the older one finds all symbols in the newer one, and the types that
#             it shares with the server are the same in both
#
#   PG_CONFIG=...           the server; a server of Debian's for the second part
#
# A library that was built for the newer release may need it: the symbols are shown, and
# pg_buildext lets packages depend on the release.  The last line has the counts.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"
# shellcheck source=test/suites.sh
. "$tree/test/suites.sh"

unset MAKEFLAGS MAKEOVERRIDES MFLAGS
export LC_ALL=C
list=$tree/test/abi_symbols.txt

# build NAME PG_CONFIG: makes $work/NAME.so of the C files, which are all that know the server.
build() {
  local objects
  mapfile -t objects < <(cd "$tree" && find src -name '*.c' | sed 's/c$/o/')
  copy_tree "$work/$1"
  make -C "$work/$1" -s -j"$(nproc)" PG_CONFIG="$2" WITH_CUDA=no COPT=-g "${objects[@]}" >/dev/null
  (cd "$work/$1" && gcc -shared -o "../$1.so" "${objects[@]}")
}

defined() {
  nm -D --defined-only "$1" | awk '{ print $NF }' | sort
}

# imports LIBRARY SERVER: the symbols of the server that the library imports.
imports() {
  comm -12 <(nm -D --undefined-only "$1" | awk '{ print $NF }' | sort) <(defined "$2")
}

# check NAME PASSED FILE: counts the lines of the file as failures, and shows them.
check() {
  sed "s/^/not ok: $1: /" "$3"
  count "$1" "$2" "$(wc -l <"$3")"
}

# compare VERSION: compares the server with another minor release.
compare() {
  local version=$1 root=$work/root-$1 older=here newer=$1 library
  mkdir "$root"
  (cd "$root" && apt-get download -q "postgresql-"{,client-,server-dev-}"$major=$version" &&
    for deb in *.deb; do dpkg-deb -x "$deb" . || exit 1; done) >"$work/apt.log" 2>&1 ||
    { skip "minor release $version" "its packages cannot be downloaded"; return 0; }
  build "$version" "$root$bindir/pg_config"
  servers[$version]=$root$bindir/postgres
  dpkg --compare-versions "$version" lt "$installed" && older=$version newer=here
  for library in here "$version"; do
    imports "$work/$library.so" "${servers[$library]}" >"$work/$library.imports"
  done
  comm -23 "$work/$older.imports" <(defined "${servers[$newer]}") >"$work/missing"
  check "symbols, $installed and $version" "$(wc -l <"$work/$older.imports")" "$work/missing"
  comm -23 "$work/$newer.imports" <(defined "${servers[$older]}") | sed "s/^/the newer release only has: /"
  # enumerations without a name have none to be found by
  printf '[suppress_type]\n type_kind = enum\n name_regexp = __anonymous\n' >"$work/anonymous"
  if abidiff --leaf-changes-only --non-reachable-types --suppressions "$work/anonymous" \
    "$work/$older.so" "$work/$newer.so" >"$work/types"; then
    count "types, $installed and $version" 1 0
  else
    head -100 "$work/types"
    count "types, $installed and $version" 0 1
  fi
}

install_packages binutils
use_server
major=$(server_major)
say "$("$PG_CONFIG" --version)"
build here "$PG_CONFIG"
declare -A servers=([here]=$bindir/postgres)
imports "$work/here.so" "$bindir/postgres" >"$work/imports"
comm -23 "$work/imports" "$list" >"$work/new"
check "imports" "$(comm -12 "$work/imports" "$list" | wc -l)" "$work/new"
if server_is_debian && apt_install abigail-tools; then
  installed=$(dpkg-query -W -f '${Version}' "postgresql-server-dev-$major")
  for version in $(apt-cache madison "postgresql-server-dev-$major" | awk '{ print $3 }' | sort -u); do
    [ "$version" = "$installed" ] || compare "$version"
  done
else
  skip "minor releases" "the server is not Debian's, or abigail-tools is missing"
fi

show_sum
