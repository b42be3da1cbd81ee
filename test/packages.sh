#!/bin/bash
#
# packages.sh - make test-packages: builds the packages for one server, and checks what they
# contain, what they need, and that they sort.
#
#   deb   debian/, by dpkg-buildpackage
#   rpm   .rpm/gpusort.spec, by rpmbuild, with the paths of this server
#
#   PG_CONFIG=...      a server of Debian's or of PostgreSQL's repository for Debian
#   PARTS="rpm"        the parts to run; both by default
#   CUDA_ARCH=90       the architectures of the GPU's packages, which are built if nvcc is found
#
# The packages are unpacked over a copy of the server, in which test/package.sql runs:
# nothing is installed in the server itself.  The last line has the counts.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"
# shellcheck source=test/suites.sh
. "$tree/test/suites.sh"

unset MAKEFLAGS MAKEOVERRIDES MFLAGS
export CUDA_ARCH=${CUDA_ARCH:-90}
version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" "$tree/gpusort.control")
nvcc=$(command -v nvcc || find /usr/local/cuda/bin/nvcc 2>/dev/null || true)

# check NAME EXPECTED FOUND: counts whether the two are the same, and shows them if not.
check() {
  if [ "$2" = "$3" ]; then
    count "$1" 1 0
  else
    diff <(echo "$2") <(echo "$3") || true
    count "$1" 0 1
  fi
}

# The files of a package, without documentation
deb_contents() {
  dpkg-deb -c "$1" | awk '/^-/ { print substr($6, 2) }' | grep -v /share/doc/ | sort
}

rpm_contents() {
  rpm -qp --qf '[%{FILEMODES:perms} %{FILENAMES}\n]' "$1" | sed -n 's/^-[^ ]* //p' | grep -vE '/share/(doc|licenses)/' | sort
}

cpu_contents() {
  printf '%s\n' "$pkglibdir/gpusort.so" "$extension/gpusort--$version.sql" "$extension/gpusort.control" | sort
}

# try NAME FOUND COMMAND...: unpacks a package by a command that runs in the copy of the
# server, and sorts.  FOUND is t if gpusort_cuda.so must be there then, and f if not.
try() {
  local name=$1 found=$2 query="SELECT detail !~ 'is not installed' FROM gpusort_status() WHERE engine = 'cuda'"
  shift 2
  stop_cluster
  (cd "$server_root" && "$@")
  start_cluster
  if psql -qX -v ON_ERROR_STOP=1 -f "$tree/test/package.sql" >"$work/sql.log" 2>&1; then
    check "$name" "$found" "$(psql -qXtAc "$query")"
  else
    tail -20 "$work/sql.log"
    count "$name" 0 1
  fi
}

# build COMMAND...: runs a build, and shows the end of its output if it fails.
build() {
  "$@" >"$work/build.log" 2>&1 || { tail -40 "$work/build.log"; return 1; }
}

test_deb() {
  local name=postgresql-$major-gpusort profiles=nocheck cpu cuda
  apt_install dpkg-dev debhelper postgresql-server-dev-all
  copy_tree "$work/deb/tree"
  cd "$work/deb/tree"
  export PG_SUPPORTED_VERSIONS=$major
  pg_buildext updatecontrol
  if [ -n "$nvcc" ]; then
    profiles+=,pkg.gpusort.cuda
    # the package of CUDA's runtime, which the toolkit may lack if it is not Debian's
    "$nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/libcudart \1 libcudart\1/p' >debian/shlibs.local
  fi
  build env PATH="$PATH:${nvcc%/nvcc}" LIBRARY_PATH="${nvcc%/bin/nvcc}/lib64" \
    DEB_BUILD_OPTIONS="nocheck noautodbgsym parallel=$(nproc)" dpkg-buildpackage -b -us -uc -d "-P$profiles"
  cd "$work/deb"
  cpu=$(echo "$name"_*.deb)
  check "$cpu" "$(cpu_contents)" "$(deb_contents "$cpu")"
  check "deb: needs nothing of CUDA" "" "$(dpkg-deb -f "$cpu" Depends | grep -iE 'cuda|nvidia' || true)"
  check "deb: names the settings before its removal" 1 "$(dpkg-deb -I "$cpu" prerm | grep -c "^ *\[ .* = $major ]")"
  try "deb: sorts" f dpkg-deb -x "$work/deb/$cpu" .
  cuda=$(echo "$name"-cuda_*.deb)
  if [ -n "$nvcc" ]; then
    check "$cuda" "$pkglibdir/gpusort_cuda.so" "$(deb_contents "$cuda")"
    check "deb: needs the other package" "$name (= $(dpkg-deb -f "$cpu" Version))" \
      "$(dpkg-deb -f "$cuda" Depends | tr , '\n' | sed -n 's/^ *\(.*gpusort.*\)/\1/p')"
    try "deb: sorts, with both packages" t dpkg-deb -x "$work/deb/$cuda" .
  else
    check "deb: no package for the GPU without nvcc" "" "$(find . -name '*-cuda_*.deb')"
  fi
}

# unpack_rpm FILE
unpack_rpm() {
  rpm2cpio "$1" | cpio -idum --quiet
}

test_rpm() {
  local name=gpusort_$major with=() cpu cuda
  apt_install rpm cpio zip unzip
  mkdir -p "$work/rpm/SOURCES"
  copy_tree "$work/rpm/gpusort-$version"
  (cd "$work/rpm" && zip -qr "SOURCES/gpusort-$version.zip" "gpusort-$version")
  cp "$tree/debian/copyright" "$tree/debian/preremove.sh" "$work/rpm/SOURCES"
  [ -z "$nvcc" ] || with=(--with cuda)
  # Debian's packages are not in rpm's database
  build rpmbuild -bb --nodeps "${with[@]}" --define "_topdir $work/rpm" --define "pgmajorversion $major" \
    --define "pg_config $stock_config" --define "debug_package %{nil}" "$tree/.rpm/gpusort.spec"
  cpu=$(echo "$work/rpm/RPMS"/*/"$name-$version"-*.rpm)
  check "${cpu##*/}" "$(cpu_contents)" "$(rpm_contents "$cpu")"
  check "rpm: names the settings before its removal" 1 "$(rpm -qp --scripts "$cpu" | grep -c "^ *\[ .* = $major ]")"
  try "rpm: sorts" f unpack_rpm "$cpu"
  if [ -n "$nvcc" ]; then
    cuda=$(echo "$work/rpm/RPMS"/*/"$name-cuda-$version"-*.rpm)
    check "${cuda##*/}" "$pkglibdir/gpusort_cuda.so" "$(rpm_contents "$cuda")"
    check "rpm: needs the other package" "$name = $version-1" "$(rpm -qRp "$cuda" | sed 's/([^)]*) / /' | grep "^$name ")"
    try "rpm: sorts, with both packages" t unpack_rpm "$cuda"
  fi
}

install_packages
major=$(server_major)
if ! server_is_debian; then
  skip "packages" "the server is not of Debian's packages"
  show_sum
  exit
fi
for part in ${PARTS:-deb rpm}; do
  say "$part"
  use_private_server "$work/server-$part"
  pkglibdir=$("$stock_config" --pkglibdir)
  extension=$("$stock_config" --sharedir)/extension
  "test_$part"
done

show_sum
