#!/bin/bash
#
# docker.sh - tests the steps of the Dockerfile where no image can be built.
#
#   test/docker.sh CHROOT [VARIABLE=VALUE...]
#
# CHROOT is the folder of a Debian or Ubuntu with one PostgreSQL server, which may be
# from any repository.  Builds in it with .docker/build.sh and these arguments of make
# (default: WITH_CUDA=no), copies the result to / as the Dockerfile does, and runs
# test/package.sql on a new cluster.  With WITH_CUDA=yes, CHROOT needs the toolkit in
# /usr/local/cuda.  Needs root.  Packages stay installed in CHROOT, and so does gpusort.

set -euo pipefail
[ $# -gt 0 ] || { sed -n '3,13s/^# \?//p' "$0"; exit 2; }
tree=$(cd "$(dirname "$0")/.." && pwd)
chroot=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- WITH_CUDA=no

# what the Dockerfile's COPY takes
rm -rf "$chroot/gpusort" "$chroot/package"
mkdir "$chroot/gpusort"
tar -C "$tree" -c --exclude='*.[od]' --exclude='*.so' --exclude=.git --exclude=./build --exclude=tmp_check --exclude=results . |
  tar -C "$chroot/gpusort" -x

# A mount namespace of its own: nothing stays mounted.
export chroot
unshare -m --propagation private bash -euo pipefail -c '
  mount -t proc proc "$chroot/proc"
  mount --bind /dev "$chroot/dev"
  mount -t tmpfs tmpfs "$chroot/dev/shm"
  exec chroot "$chroot" bash -euo pipefail -s -- "$@"' _ "$@" <<'STEPS'
export LC_ALL=C.UTF-8
servers=(/usr/lib/postgresql/*/bin/postgres)
bindir=${servers[-1]%/postgres}
PG_MAJOR=$(basename "${bindir%/bin}")
export PG_MAJOR

# RUN
/gpusort/.docker/build.sh /gpusort /package "$@" </dev/null

# COPY --from
cp -a /package/. /
(cd /package && find . -type f -exec ls -l {} +)

# a session that sorts
data=$(mktemp -d)
end() {
  runuser -u postgres -- "$bindir/pg_ctl" -D "$data/pg" -m fast stop >/dev/null || true
  rm -rf "$data" /gpusort /package
}
trap end EXIT
chown postgres "$data"
runuser -u postgres -- "$bindir/initdb" -D "$data/pg" -A trust -E UTF8 --locale=C.UTF-8 >/dev/null
runuser -u postgres -- "$bindir/pg_ctl" -D "$data/pg" -w -l "$data/log" \
  -o "-c listen_addresses='' -c unix_socket_directories=$data" start >/dev/null
cd /
runuser -u postgres -- psql -h "$data" -X -v ON_ERROR_STOP=1 -f - </gpusort/test/package.sql
STEPS
echo "docker.sh: passed"
