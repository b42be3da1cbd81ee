# shellcheck shell=bash
#
# suites.sh - runs groups of tests and counts them, for make test and others.
#
# Source it after cluster.sh.  A group is a program, the SQL suite, a list of
# pgTAP files or a list of TAP files, and tests the build that was installed last.
# Each function takes the group's name first, adds the group's counts to $passed
# and $failed, and shows the output of failed tests.

server_settings=("shared_buffers = 512MB" "work_mem = 1GB" "max_connections = 120")

# install_test_packages [PACKAGE...]: installs the packages that the build and the
# tests need, and these.
install_test_packages() {
  local pgtap
  install_packages libtap-parser-sourcehandler-pgtap-perl libipc-run-perl procps locales "$@" || return 1
  pgtap=postgresql-$(server_major)-pgtap
  if ! have_pgtap && server_is_debian && apt-cache show "$pgtap" >/dev/null 2>&1; then
    apt_install "$pgtap"
  fi
}

# True if the server has the extension pgtap.
have_pgtap() {
  [ -f "$("$PG_CONFIG" --sharedir)/extension/pgtap.control" ]
}

# A line for each group: seconds, passed, failed and name, between tabs.  And the groups
# that did not run.
results=$work/results
skipped=$work/skipped
touch "$results" "$skipped"

# count NAME PASSED FAILED: adds a group's counts and shows them with the seconds
# since the last group.
counted=0
count() {
  printf '%d\t%d\t%d\t%s\n' $((SECONDS - counted)) "$2" "$3" "$1" >>"$results"
  printf '%-46s %8d passed, %d failed, %d s\n' "$1" "$2" "$3" $((SECONDS - counted))
  counted=$SECONDS
}

# skip NAME REASON: notes that a group does not run, for show_sum.
skip() {
  echo "$1: $2" >>"$skipped"
  say "skipped: $1: $2"
}

# Shows a table of the groups, the longest first, the skipped groups and, as the last
# line, the sum of all counts.  Groups of one name are one line of it.  False if a test failed.
show_sum() {
  local passed failed
  read -r passed failed <<<"$(awk '{ passed += $2; failed += $3 } END { print passed + 0, failed + 0 }' "$results")"
  if ((passed + failed == 0)); then
    say "nothing ran"
  else
    say "$( ((failed == 0)) && echo "all passed" || echo "some failed")"
    printf '%-46s %10s %7s %8s\n' group passed failed seconds
    awk -F '\t' -v OFS='\t' '{ seconds[$4] += $1; passed[$4] += $2; failed[$4] += $3 }
      END { for (name in seconds) print seconds[name], passed[name], failed[name], name }' "$results" |
      sort -t $'\t' -k 1,1rn -k 4 |
      awk -F '\t' '{ printf "%-46s %10d %7d %8d\n", $4, $2, $3, $1 }'
  fi
  sed 's/^/skipped: /' "$skipped"
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
}

# ---- groups beside each other ----

# start COMMAND...: runs groups in the background, in a folder and with a cluster of their
# own, as soon as fewer than $places others run.
places=$(($(nproc) < 8 ? $(nproc) + 1 : 8))
started=0
declare -A running=()
start() {
  while [ ${#running[@]} -ge "$places" ]; do
    wait_for_one
  done
  started=$((started + 1))
  # in a process group of its own, which end_running ends
  set -m
  run_apart "$@" </dev/null &
  set +m
  running[$!]=$*
}

run_apart() {
  work=$work/$started
  unset PGDATA
  counted=$SECONDS
  mkdir "$work"
  trap clean_up EXIT
  trap 'exit 1' INT TERM
  use_server
  "$@"
}

wait_for_one() {
  local pid rc=0
  wait -n -p pid "${!running[@]}" || rc=$?
  [ "$rc" = 0 ] || count "not finished: ${running[$pid]}" 0 1
  unset "running[$pid]"
}

wait_for_all() {
  while [ ${#running[@]} -gt 0 ]; do
    wait_for_one
  done
  counted=$SECONDS
}

end_running() {
  local pid
  for pid in "${!running[@]}"; do
    kill -- "-$pid" 2>/dev/null || true
    wait "$pid" || true
  done
}
trap 'end_running; clean_up' EXIT

# ---- kinds of groups ----

# run_unit NAME COMMAND...: runs a program whose last line is "N passed, M failed".
run_unit() {
  local name=$1 last
  shift
  "$@" >"$work/unit.log" 2>&1 || true
  last=$(tail -1 "$work/unit.log")
  if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    [ "${BASH_REMATCH[2]}" = 0 ] || grep -m 20 -B 3 'not ok' "$work/unit.log" || tail -20 "$work/unit.log"
    count "$name" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
  else
    tail -20 "$work/unit.log"
    count "$name" 0 1
  fi
}

# make_check GOAL [VARIABLE=VALUE...]: runs a goal of PGXS that tests the installed
# build, as the cluster's user and in a copy of the tree in $work/check: prove's
# tests cannot run as root, and that user may not be able to write in the tree.  If
# $modules names a folder in which "make test-modules" has run, it is copied.
modules=
make_check() {
  if [ ! -d "$work/check" ]; then
    if [ -n "$modules" ]; then cp -a "$modules" "$work/check"; else copy_tree "$work/check"; fi
    [ "$(id -u)" != 0 ] || chown -R "$cluster_user" "$work/check"
  fi
  # without the variables of the make that called the script, which are for builds
  as_cluster_user env -u MAKEFLAGS -u MAKEOVERRIDES make -s -C "$work/check" "$@" PG_CONFIG="$PG_CONFIG"
}

# run_regress NAME [OPTIONS [ARGUMENT...]]: runs the SQL suite against the running
# cluster, with OPTIONS as PGOPTIONS and these arguments of make, which may name
# another folder than $work/check.
run_regress() {
  local name=$1 tests good
  read -ra tests <<<"$(sed -n 's/^REGRESS = //p' "$tree/Makefile")"
  PGOPTIONS=${2:-} make_check "${@:3}" installcheck >"$work/regress.log" 2>&1 || true
  good=$(grep -cE '^(test .*\.\.\. +ok|ok [0-9]+ )' "$work/regress.log" || true)
  if [ "$good" != "${#tests[@]}" ]; then
    tail -40 "$work/regress.log"
    head -200 "$work"/*/regression.diffs 2>/dev/null || true
  fi
  count "$name" "$good" $((${#tests[@]} - good))
}

# run_prove NAME COMMAND...: runs a command that ends with prove's summary.
run_prove() {
  local name=$1 total bad
  shift
  if "$@" >"$work/prove.log" 2>&1; then
    total=$(sed -n 's/.*Tests=\([0-9]*\),.*/\1/p' "$work/prove.log" | tail -1)
    if [ "${total:-0}" -gt 0 ]; then
      count "$name" "$total" 0
    elif grep -q '^Result: NOTESTS' "$work/prove.log"; then
      skip "$name" "$(sed -n 's/.*\.\. skipped: //p' "$work/prove.log" | sort -u | paste -sd ';')"
    else
      cat "$work/prove.log"
      count "$name" 0 1
    fi
  else
    grep -vE '^ok|^# Looks|\.\. ok$' "$work/prove.log" | tail -60
    bad=$(grep -cE '^# +Failed test' "$work/prove.log" || true)
    count "$name" 0 "$((bad > 0 ? bad : 1))"
  fi
}

# run_pgtap NAME [OPTIONS]: runs test/pgtap/ against the running cluster, with
# OPTIONS as PGOPTIONS.
run_pgtap() {
  if ! have_pgtap; then
    skip "$1" "the server has no pgTAP, and there is no package of it"
    return
  fi
  psql -qXc 'SET client_min_messages = warning' -c 'DROP DATABASE IF EXISTS gpusort_pgtap' -c 'CREATE DATABASE gpusort_pgtap'
  psql -qX gpusort_pgtap -c 'CREATE EXTENSION gpusort' -c 'CREATE EXTENSION pgtap'
  run_prove "$1" env PGOPTIONS="${2:-}" pg_prove -j 2 -d gpusort_pgtap "$tree"/test/pgtap/*.sql
}

# The TAP tests of the stand-in device.  limits_test allocates all available
# shared memory, so it must not run beside other tests.
mapfile -t standin_tests < <(find "$tree/test/t" -name '*standin*.pl' ! -name '009_*' | sort)
limits_test=("$tree"/test/t/009_*.pl)

# run_tap NAME FILES...: runs TAP tests, which start servers of their own.  The
# caller may set tap_jobs=2 to run two at a time, for tests that look at their own
# servers only and do not need the whole machine.
tap_jobs=1
run_tap() {
  local name=$1 arguments=() flags="-j $tap_jobs"
  shift
  local files=("${@#"$tree/"}")
  if ! server_has_tap; then
    if [ -z "$(other_tap)" ]; then
      skip "$name" "the server was configured without TAP tests, and no package postgresql-server-dev is installed"
      return
    fi
    # modules until PostgreSQL 15 need TESTDIR
    arguments=(enable_tap_tests=yes PROVE=prove TESTDIR="$work/check")
    flags+=" -I $(other_tap)"
  fi
  # make exports its arguments, so that the tests' servers have $server_environment
  run_prove "$name" make_check prove_installcheck "${server_environment[@]}" "${arguments[@]}" \
    PROVE_TESTS="${files[*]}" PROVE_FLAGS="$flags"
  end_unfinished
}

# True if the server was configured with --enable-tap-tests.
server_has_tap() {
  grep -qE '^enable_tap_tests\s*=\s*yes' "$(dirname "$("$PG_CONFIG" --pgxs)")/../Makefile.global"
}

# Prints the folder with the Perl modules of Debian's newest postgresql-server-dev on
# this machine.  They can test servers of other versions.
other_tap() {
  find /usr/lib/postgresql/*/lib/pgxs/src/test/perl -maxdepth 0 2>/dev/null | sort -V | tail -1
}

# After a TAP test that bailed out: shows the last lines of the logs of tests that did
# not run to their end, and stops the servers that are left.  The next group
# removes the folder of them all, which would fail while they run.
end_unfinished() {
  local folder=$work/check/tmp_check file
  for file in $(grep -LE '(^|\) )1\.\.[0-9]' "$folder"/log/regress_log_* 2>/dev/null); do
    say "not finished: $file"
    tail -n 20 "$file"
  done
  for file in "$folder"/t_*/pgdata/postmaster.pid; do
    [ -f "$file" ] || continue
    say "still running: ${file%/*}"
    tail -n 20 "$folder/log/$(sed 's,.*/t_\(.*\)_data/.*,\1,' <<<"$file").log" || true
    as_cluster_user "$bindir/pg_ctl" -D "${file%/*}" -m immediate -w stop || true
  done
}

# run_core NAME VARIABLE=VALUE...: runs PostgreSQL's own tests with gpusort doing their
# sorts, with these variables of check-core.sh.
run_core() {
  local name=$1 rc=0 counts
  shift
  env PRELOAD=gpusort CONF="gpusort.force=on gpusort.min_rows=0" "$@" \
    bash "$tree/test/check-core.sh" >"$work/core.log" 2>&1 || rc=$?
  read -ra counts <<<"$(grep -E '^passed [0-9]+ failed [0-9]+$' "$work/core.log")"
  if [ "$rc" = 0 ]; then
    count "$name" "${counts[1]}" "${counts[3]}"
  elif [ "$rc" = 3 ]; then
    skip "$name" "$(tail -1 "$work/core.log")"
  else
    grep -vE '^ +[a-z0-9_.]+ +[A-Z]+=' "$work/core.log" | tail -100
    count "$name" "${counts[1]:-0}" "$((${counts[3]:-0} + (${counts[3]:-0} == 0)))"
  fi
}
