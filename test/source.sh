# shellcheck shell=bash
#
# source.sh - PostgreSQL's source of the installed version, or of the nearest available version
# with the same major number, and servers built from it, for check-core.sh, soak.sh and blocksize.sh.
#
# Source it after cluster.sh, and set $major.  PGSRC=folder is a source that is there.

# find_source FOLDER [PATTERN...]: sets $source to the source's folder: PGSRC, or a copy in
# FOLDER, from an earlier call, from Debian or from postgresql.org.  Only the paths that match
# the patterns are unpacked; without any, all.
find_source() {
  local version
  source_parent=$1
  shift
  source_parts=("$@")
  if [ -n "${PGSRC:-}" ]; then
    source=$PGSRC
    return
  fi
  version=$("$PG_CONFIG" --version | sed 's/[^0-9]*\([0-9a-z.]*\).*/\1/')
  source=$(find_kept)
  [ -n "$source" ] || fetch_from_debian || true
  source=$(find_kept)
  [ -n "$source" ] || fetch_from_postgresql "$version"
  source=$(find_kept)
  [ -n "$source" ]
}

# A release is in postgresql-19.1, one before the first in postgresql-19rc1.
find_kept() {
  find "$source_parent/postgresql-$major"[!0-9]*/contrib -maxdepth 0 -printf '%h\n' 2>/dev/null | sort -V | tail -1
}

unpack() {
  mkdir -p "$source_parent"
  tar -C "$source_parent" -xf "$1" --wildcards "${source_parts[@]}"
}

# Gets the source from Debian by apt, with private lists and settings.
fetch_from_debian() {
  local apt=$work/apt file versions candidate
  command -v apt-get >/dev/null || return 1
  mkdir -p "$apt/parts" "$apt/lists/partial" "$apt/archives/partial"
  for file in /etc/apt/sources.list.d/*.sources; do
    [ ! -f "$file" ] || sed 's/^Types:.*/Types: deb-src/' "$file" >"$apt/parts/${file##*/}"
  done
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ ! -f "$file" ] || sed -n 's/^deb\(-src\)\? /deb-src /p' "$file" >"$apt/parts/${file##*/}"
  done
  set -- -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$apt/parts" -o "Dir::State::lists=$apt/lists" \
    -o "Dir::Cache=$apt" -o APT::Sandbox::User=
  apt-get "$@" update -q >"$work/apt.log" 2>&1 || true
  versions=$(apt-cache "$@" showsrc "postgresql-$major" 2>/dev/null | sed -n 's/^Version: //p' | sort -u -V -r)
  # tries the installed version first, then the newest: a repository may list versions that it no longer has
  for candidate in $(dpkg-query -W -f '${source:Version}' "postgresql-$major" 2>/dev/null) $versions; do
    (cd "$apt" && apt-get "$@" source -q --download-only "postgresql-$major=$candidate") >>"$work/apt.log" 2>&1 || continue
    unpack "$apt/postgresql-${major}_${candidate%-*}.orig.tar.bz2" && return 0
  done
  return 1
}

fetch_from_postgresql() {
  local url=https://ftp.postgresql.org/pub/source/v$1/postgresql-$1.tar.bz2
  if command -v curl >/dev/null; then
    curl -sfL -m 300 -o "$work/source.tar.bz2" "$url"
  else
    wget -q -T 300 -O "$work/source.tar.bz2" "$url"
  fi && unpack "$work/source.tar.bz2"
}

# build_server ROOT [OPTION...]: builds the source as a server in ROOT, with these options of
# configure.  ROOT keeps the server for the next call; remove it to have a newer minor release.
build_server() {
  local root=$1
  shift
  [ ! -f "$root/made" ] || return 0
  ! command -v apt-get >/dev/null || apt_install bison flex zlib1g-dev || true
  find_source "$work/source" || return 1
  rm -rf "$root" "$work/server-build"
  mkdir -p "$root" "$work/server-build"
  (
    # PostgreSQL's make generates headers only if no other make calls it
    unset MAKELEVEL MAKEFLAGS
    cd "$work/server-build" &&
      CFLAGS="-O1 -g -fno-omit-frame-pointer" "$source/configure" --prefix="$root" --enable-tap-tests --with-icu \
        --without-readline --without-llvm "$@" &&
      make -s -j"$(nproc)" &&
      make -s install &&
      for extension in amcheck citext postgres_fdw; do make -s -C contrib/$extension install || exit 1; done
  ) >"$work/server-build.log" 2>&1 || { tail -20 "$work/server-build.log"; return 1; }
  rm -rf "$work/server-build"
  touch "$root/made"
}

# build_assert_server FOLDER: builds a server with --enable-cassert, and sets $assert_config to
# its pg_config.  Assertions stop the server where its state is wrong, memory that is
# freed is overwritten, and writes behind the end of a chunk are found.
build_assert_server() {
  assert_config=$1/$major/bin/pg_config
  build_server "$1/$major" --enable-cassert --enable-debug
}
