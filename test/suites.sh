# shellcheck shell=bash
#
# suites.sh - runs groups of tests and counts them, for make test and others.
#
# Sourced after cluster.sh.  A group is a program, a list of SQL files or a list
# of TAP files, run against the build that was installed last; each adds its
# counts to passed and failed, and shows what failed.

passed=0
failed=0

# Adds a group's counts and shows them.
counted=0
count() {
  passed=$((passed + $2))
  failed=$((failed + $3))
  printf '%-46s %8d passed, %d failed, %d s\n' "$1" "$2" "$3" $((SECONDS - counted))
  counted=$SECONDS
}

# A C program that closes with "N passed, M failed".
run_unit() {
  local name=$1 last
  shift
  "$@" >"$work/unit.log" 2>&1 || true
  last=$(tail -1 "$work/unit.log")
  if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    [ "${BASH_REMATCH[2]}" = 0 ] || grep -m 20 'not ok' "$work/unit.log" || true
    count "$name" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
  else
    tail -20 "$work/unit.log"
    count "$name" 0 1
  fi
}

# pg_regress, with PGOPTIONS as given.
run_regress() {
  local name=$1 options=${2:-} out=$work/regress tests good
  read -ra tests <<<"$(sed -n 's/^REGRESS = //p' "$tree/Makefile")"
  rm -rf "$out"
  mkdir -p "$out"
  cp -r "$tree/test/sql" "$out/sql"
  cp -r "$tree/expected" "$out/expected"
  chmod -R a+rX "$out"
  [ "$(id -u)" != 0 ] || chown -R "$cluster_user" "$out"
  as_cluster_user env PGOPTIONS="$options" "$pgxs/test/regress/pg_regress" \
    --inputdir="$out" --outputdir="$out" --bindir="$bindir" --dbname=gpusort_regress \
    --load-extension=gpusort "${tests[@]}" >"$work/regress.log" 2>&1 || true
  good=$(grep -cE '^(test .*\.\.\. +ok|ok [0-9]+ )' "$work/regress.log" || true)
  [ "$good" = "${#tests[@]}" ] || { tail -40 "$work/regress.log"; head -200 "$out/regression.diffs" 2>/dev/null || true; }
  count "$name" "$good" $((${#tests[@]} - good))
}

# prove or pg_prove over files; counts files and tests as TAP does.
run_prove() {
  local name=$1 total bad
  shift
  if "$@" >"$work/prove.log" 2>&1; then
    total=$(sed -n 's/.*Tests=\([0-9]*\),.*/\1/p' "$work/prove.log" | tail -1)
    if [ "${total:-0}" -gt 0 ]; then
      count "$name" "$total" 0
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

run_pgtap() {
  psql -qXc 'SET client_min_messages = warning' -c 'DROP DATABASE IF EXISTS gpusort_pgtap' -c 'CREATE DATABASE gpusort_pgtap'
  psql -qX gpusort_pgtap -c 'CREATE EXTENSION gpusort' -c 'CREATE EXTENSION pgtap'
  run_prove "$1" env PGOPTIONS="${2:-}" pg_prove -j 2 -d gpusort_pgtap "$tree"/test/pgtap/*.sql
}

# TAP tests of the stand-in device: those that can run beside others, and one
# that takes all there is of shared memory.
mapfile -t standin_tests < <(find "$tree/test/t" -name '*standin*.pl' ! -name '009_*' | sort)
limits_test=("$tree"/test/t/009_*.pl)

# TAP tests, which make servers of their own: in folders of their own, and
# listening nowhere but there.  tap_jobs=2 runs two at a time, for tests that
# look at nothing but their servers and need not have the machine for themselves.
tap_jobs=1
run_tap() {
  local name=$1 perl_lib=$pgxs/test/perl
  shift
  rm -rf "$work/tap"
  mkdir -p "$work/tap"
  cp "$tree"/test/t/* "$work/tap/"
  cp "$@" "$work/tap/"
  [ "$(id -u)" != 0 ] || chown -R "$cluster_user" "$work/tap"
  run_prove "$name" as_cluster_user env -u PGHOST -u PGPORT -u PGUSER -u PGDATABASE "${server_environment[@]}" \
    TESTDIR="$work/tap" TESTDATADIR="$work/tap/tmp_check" TESTLOGDIR="$work/tap/tmp_check/log" \
    PG_REGRESS="$pgxs/test/regress/pg_regress" \
    prove -j "$tap_jobs" -I "$perl_lib" -I "$work/tap" "${@/#*\//$work/tap/}"
}
