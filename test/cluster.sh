# shellcheck shell=bash
#
# cluster.sh - packages, builds and private clusters, for make test and make demo.
#
# Source it.  It makes $work, a new folder below $TMPDIR, for all files.  The
# server belongs to an unprivileged user and listens only on a socket in $work.
# Existing clusters are not used, and installing the server package creates none.
# At exit, also after an error or a signal, the server is stopped and $work removed.

# The server's pg_config.  It need not exist before install_packages.
PG_CONFIG=${PG_CONFIG:-pg_config}

if [ "$(id -u)" = 0 ]; then
  sudo=()
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  sudo=(sudo)
else
  sudo=(false)
fi

say() {
  printf '\n== %s\n' "$*"
}

# True if pg_config, PGXS and the server are all installed.
have_server() {
  # Debian installs pg_config separately from PGXS and the server
  command -v "$PG_CONFIG" >/dev/null && [ -f "$("$PG_CONFIG" --pgxs 2>/dev/null)" ] &&
    [ -x "$("$PG_CONFIG" --bindir)/postgres" ]
}

# Prints the major version of the installed server, or of the one to install.
server_major() {
  if have_server; then
    "$PG_CONFIG" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/'
  elif [[ $PG_CONFIG =~ ^/usr/lib/postgresql/([0-9]+)/ ]]; then
    echo "${BASH_REMATCH[1]}"
  else
    apt-cache depends postgresql 2>/dev/null | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p' | head -1
  fi
}

# True if the server is of Debian's packages, or is to be installed from them.
# Packages for other servers do not exist, or belong to another build.
server_is_debian() {
  command -v apt-get >/dev/null || return 1
  ! have_server || [ "$("$PG_CONFIG" --bindir)" = "/usr/lib/postgresql/$(server_major)/bin" ]
}

is_installed() {
  dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'
}

# apt_install PACKAGE...: installs those packages that are missing.
apt_install() {
  local missing=() package
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]}"
  if [ "${sudo[0]:-}" = false ]; then
    echo "These packages are missing, and installing them needs root or sudo without a password: apt-get install ${missing[*]}" >&2
    return 1
  fi
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "${missing[@]}" >"$work/apt.log" 2>&1 ||
    { tail -20 "$work/apt.log"; return 1; }
}

# The file that keeps the server's package from making a cluster, while it is being installed
no_cluster=/etc/postgresql-common/createcluster.d/gpusort.conf

# install_without_cluster PACKAGE: installs the server's package, which makes and starts a cluster by default.
install_without_cluster() {
  apt_install postgresql-common || return 1
  "${sudo[@]}" mkdir -p "${no_cluster%/*}"
  echo "create_main_cluster = false" | "${sudo[@]}" tee "$no_cluster" >/dev/null
  apt_install "$1" || return 1
  make_clusters_again
  echo "$1 has no cluster; \"pg_createcluster ${1##*-} main --start\" makes one." >&2
}

make_clusters_again() {
  if [ -f "$no_cluster" ]; then
    "${sudo[@]}" rm -f "$no_cluster"
    "${sudo[@]}" rmdir --ignore-fail-on-non-empty "${no_cluster%/*}"
  fi
}

# install_packages [PACKAGE...]: installs everything that the build needs, the server
# too if there is none, and these packages.
install_packages() {
  local major packages=(make gcc g++ libc6-dev libhwy-dev libicu-dev "$@")
  if ! command -v apt-get >/dev/null; then
    have_server || { echo "Install PostgreSQL with its development files, g++, make and libhwy." >&2; return 1; }
    return 0
  fi
  if ! have_server && [ "${sudo[0]:-}" != false ]; then
    "${sudo[@]}" apt-get update -q >/dev/null
  fi
  # package lists may be missing on a machine that has the server already
  apt-cache show libhwy-dev >/dev/null 2>&1 || "${sudo[@]}" apt-get update -q >/dev/null 2>&1 || true
  major=$(server_major) || true
  if [ -z "$major" ]; then
    echo "apt knows no package postgresql; \"apt-get update\" as root gets the lists of packages." >&2
    return 1
  fi
  if server_is_debian; then
    packages+=("postgresql-$major" "postgresql-server-dev-$major")
    [ "${sudo[0]:-}" = false ] || is_installed "postgresql-$major" || install_without_cluster "postgresql-$major" || return 1
  fi
  apt_install "${packages[@]}" || return 1
  have_server || { echo "pg_config of PostgreSQL $major was not found" >&2; return 1; }
}

# copy_tree FOLDER: copies the tree without anything that was built.
copy_tree() {
  mkdir -p "$1"
  tar -C "$tree" -c --exclude='*.[od]' --exclude='*.so' --exclude=.git --exclude=./build --exclude='./.*' . | tar -C "$1" -x
}

# build_and_install FOLDER [VARIABLE=VALUE...]: builds and installs there, with
# these arguments of make.
build_and_install() {
  local folder=$1 config=${stock_config:-$PG_CONFIG} install=()
  shift
  make -C "$folder" -s -j"$(nproc)" PG_CONFIG="$config" "$@"
  [ -w "$("$PG_CONFIG" --pkglibdir)" ] || install=("${sudo[@]}")
  "${install[@]}" make -C "$folder" -s install PG_CONFIG="$config" DESTDIR="$server_root" "$@" >/dev/null
}

# use_private_server FOLDER: makes a copy of the server there, without gpusort, for which
# PG_CONFIG stands from then on.  Builds are for the server itself, so that a tree that
# was built for it stays as it is, and are installed in the copy.
server_root=
stock_config=
use_private_server() {
  stock_config=${stock_config:-$(command -v "$PG_CONFIG")}
  server_root=$1
  PG_CONFIG=$(PG_CONFIG=$stock_config bash "$tree/test/private_server.sh" "$server_root")
  export PG_CONFIG
  find "$server_root" -name 'gpusort*' ! -type d -delete
  use_server
}

# as_cluster_user COMMAND...: runs a command in $work as the user that owns the cluster.
as_cluster_user() {
  if [ "$(id -u)" = 0 ]; then
    (cd "$work" && runuser -u "$cluster_user" -- env HOME="$work" "$@")
  else
    (cd "$work" && "$@")
  fi
}

# Variables, as NAME=VALUE, that start_cluster and run_tap add to the environment of servers.
server_environment=()

# The locale of the clusters that start_cluster makes
cluster_locale=C.UTF-8

# A file in which start_cluster keeps the data folder that initdb has made, for the next call
saved_data=

# make_data: makes a new data folder.
make_data() {
  PGDATA=$work/data
  rm -rf "$PGDATA"
  if [ -f "$saved_data" ]; then
    as_cluster_user tar -xf - <"$saved_data"
    return
  fi
  as_cluster_user env "${server_environment[@]}" "$bindir/initdb" -D "$PGDATA" -A trust -U postgres -E UTF8 \
    --locale="$cluster_locale" >"$work/initdb.log"
  if [ -n "$saved_data" ]; then
    as_cluster_user tar -cf - data >"$work/data.tar"
    mv "$work/data.tar" "$saved_data"
  fi
}

# start_cluster [LINE...]: starts a new cluster with these lines in postgresql.conf.
start_cluster() {
  stop_cluster
  make_data
  {
    echo "listen_addresses = ''"
    echo "unix_socket_directories = '$work'"
    echo "port = 57432"
    echo "fsync = off"
    echo "max_wal_size = 4GB"
    echo "jit = off"
    printf '%s\n' "$@"
  } >>"$PGDATA/postgresql.conf"
  as_cluster_user env "${server_environment[@]}" "$bindir/pg_ctl" -D "$PGDATA" -w -t 120 -l "$work/server.log" start >/dev/null ||
    { tail -30 "$work/server.log"; return 1; }
}

# start_cluster_of_tree [LINE...]: starts a cluster in which gpusort is the library that make has
# built in $tree.  PGOPTIONS stays as it is.
start_cluster_of_tree() {
  local options=${PGOPTIONS:-}
  [ -f "$tree/gpusort.so" ] || { echo "gpusort.so is missing: make" >&2; exit 1; }
  mkdir "$work/lib"
  cp "$tree"/gpusort*.so "$work/lib/"
  chmod -R a+rX "$work"
  use_server
  [ -z "$options" ] || export PGOPTIONS=$options
  start_cluster "dynamic_library_path = '$work/lib:\$libdir'" "$@"
}

# Lines of a server's log that tell of memory, files or locks that were not given back, or of
# writes to memory of others.
log_of_leaks='leak:|leaked|resource was not closed|problem in (alloc set|slab|generation)|detected write past chunk'
log_of_leaks+='|could not find block containing chunk|pfree called with invalid pointer'

stop_cluster() {
  if [ -f "${PGDATA:-/nonexistent}/postmaster.pid" ]; then
    as_cluster_user "$bindir/pg_ctl" -D "$PGDATA" -m fast -w stop >/dev/null || true
  fi
}

clean_up() {
  local file
  make_clusters_again
  stop_cluster
  # the servers of TAP tests that a signal has ended
  while read -r file; do
    as_cluster_user "$bindir/pg_ctl" -D "${file%/*}" -m immediate -w stop >/dev/null || true
  done < <(find "$work" -name postmaster.pid)
  rm -rf "$work"
}

work=$(mktemp -d "${TMPDIR:-/tmp}/gpusort.XXXXXX")
trap clean_up EXIT
trap 'exit 1' INT TERM

# Sets the variables that depend on the installed server.
use_server() {
  bindir=$("$PG_CONFIG" --bindir)
  if [ "$(id -u)" = 0 ]; then
    cluster_user=postgres
    getent passwd "$cluster_user" >/dev/null || cluster_user=nobody
    chown "$cluster_user" "$work"
  fi
  export PGHOST=$work PGPORT=57432 PGUSER=postgres PGDATABASE=postgres
  export PATH=$bindir:$PATH
  unset PGOPTIONS PGSERVICE PGPASSWORD PGSSLMODE
}
