#!/bin/bash
#
# check-core.sh - make check-core: runs PostgreSQL's own test suites, with gpusort doing
# every Sort that it can.
#
# The suites core (parallel_schedule), isolation, citext and intarray come from the source of the installed
# version, or of the nearest available version with the same major number.  The server
# package's pg_regress runs them against a private cluster that preloads gpusort.  Each
# configuration first runs on the stock server.  Where that output differs from the
# expected one, it becomes one more expected output, so that differences of another
# minor version or of a setting are not attributed to gpusort.  check_core.pl
# distinguishes legal differences (plans, and the order of equal rows) from faults.
#
# The last line has the sums.  The exit status is 0 if nothing was wrong, nothing crashed
# or leaked, and all suites ran to the end, and 3 if there is no source.
#
#   SUITE="core citext"         the suites to run; core and isolation by default
#   CONF="a=1 b=2 | c=3"        configurations, instead of the three below
#   LOCALE=en_US.UTF-8          the locale of the databases, C by default; another one
#                               is made by locales.sh, with those of collate.linux.utf8
#   PGSRC=folder                PostgreSQL's source
#   PRELOAD=library             preload this library; nothing is built or installed
#
# Reports, logs and the source are kept in build/.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"
# shellcheck source=test/source.sh
. "$tree/test/source.sh"

read -ra suites <<<"${SUITE:-core isolation}"
reports=$tree/build/check-core
force="gpusort.force=on gpusort.min_rows=0"

# Makes what the suites load: regress.so, and two modules of contrib.
make_modules() {
  local module
  mkdir -p "$work/lib"
  # shellcheck disable=SC2046
  ${CC:-cc} -O2 -fPIC -shared -fwrapv -fno-strict-aliasing -w $("$PG_CONFIG" --cppflags) \
    -I"$("$PG_CONFIG" --includedir-server)" -o "$work/lib/regress.so" "$source/src/test/regress/regress.c"
  for module in refint autoinc; do
    ln -sf "$("$PG_CONFIG" --pkglibdir)/$module.so" "$work/lib/$module.so"
  done
}

# Sets up LOCALE for servers: the locales that the suites need, and a program that
# shows them to initdb.
use_locale() {
  local locales=("$LOCALE" de_DE.UTF-8 en_US.UTF-8 sv_SE.UTF-8 tr_TR.UTF-8)
  bash "$tree/test/locales.sh" "$work/locales" "${locales[@]}"
  # collate.linux.utf8 sets lc_time to this name
  ln -s tr_TR.utf8 "$work/locales/tr_TR"
  mkdir "$work/bin"
  printf '#!/bin/sh\nprintf "%%s\\n" C POSIX C.utf8 %s\n' "${locales[*]//UTF-8/utf8}" >"$work/bin/locale"
  chmod -R a+rX "$work/locales" "$work/bin"
  chmod a+x "$work/bin/locale"
  server_environment+=("LOCPATH=$work/locales" "PATH=$work/bin:$PATH")
  cluster_locale=$LOCALE
}

# folder_of NAME: a suite's folder in the source.
folder_of() {
  case $1 in
    core) echo "$source/src/test/regress" ;;
    isolation) echo "$source/src/test/isolation" ;;
    *) echo "$source/contrib/$1" ;;
  esac
}

# copy_suite NAME: makes a private copy of a suite with its expected output.
copy_suite() {
  local name=$1 from part
  from=$(folder_of "$name")
  rm -rf "${work:?}/in/$name"
  mkdir -p "$work/in/$name"
  for part in sql specs expected data parallel_schedule isolation_schedule resultmap; do
    [ ! -e "$from/$part" ] || cp -r "$from/$part" "$work/in/$name/"
  done
}

# config_lines CONFIGURATION: prints "a=1 b=2" as lines for postgresql.conf.
config_lines() {
  local setting
  for setting in $1; do
    printf "%s = '%s'\n" "${setting%%=*}" "${setting#*=}"
  done
}

# run_suite SUITE SERVER: runs a suite on the running server, which is called SERVER in
# messages.  Results go to $work/out/SUITE.
run_suite() {
  local name=$1 program=$pgxs/test/regress/pg_regress arguments=() rc=0 begun=$SECONDS
  case $name in
    core) arguments=(--dbname=regression "--schedule=$work/in/core/parallel_schedule" --max-concurrent-tests=20) ;;
    isolation)
      program=$pgxs/test/isolation/pg_isolation_regress
      arguments=(--dbname=isolation_regression "--schedule=$work/in/isolation/isolation_schedule")
      ;;
    *) read -ra arguments <<<"--dbname=contrib_regression $(sed -n 's/^REGRESS = //p' "$(folder_of "$name")/Makefile")" ;;
  esac
  [ -n "${LOCALE:-}" ] || arguments+=(--no-locale)
  rm -rf "${work:?}/out/$name"
  mkdir -p "$work/out/$name"
  # contrib's tests read their data from the folder where they run
  ln -s "$work/in/$name/data" "$work/out/$name/data"
  [ "$(id -u)" != 0 ] || chown -R "$cluster_user" "$work/out" "$work/in"
  as_cluster_user env -C "$work/out/$name" timeout -k 10 1800 "$program" --bindir="$bindir" --dlpath="$work/lib" \
    --inputdir="$work/in/$name" --outputdir="$work/out/$name" --host="$work" --port="$PGPORT" --user=postgres \
    --encoding=UTF8 "${arguments[@]}" >"$work/out/$name/pg_regress.log" 2>&1 || rc=$?
  ran=$(grep -cE '^(test)? +\S+ +\.\.\. |^(not )?ok [0-9]' "$work/out/$name/pg_regress.log" || true)
  differ=$(grep -cE '\.\.\. FAILED|^not ok' "$work/out/$name/pg_regress.log" || true)
  echo "$2 $name: $ran tests, $differ differ, $((SECONDS - begun)) s"
  if [ "$rc" -gt 1 ] || [ "$ran" = 0 ]; then
    tail -5 "$work/out/$name/pg_regress.log"
    echo "$2 $name did not run to its end"
    unfinished=$((unfinished + 1))
  fi
}

# run_baseline CONFIGURATION: runs the suites on the stock server.  Unexpected outputs
# become one more expected output of their tests.
run_baseline() {
  local name test n
  start_cluster "max_prepared_transactions = 2" "$(config_lines "$1")"
  for name in "${suites[@]}"; do
    copy_suite "$name"
    run_suite "$name" stock
    sed -nE 's/^(test)? +(\S+) +\.\.\. FAILED.*/\2/p; s/^not ok [0-9]+ +[-+] (\S+).*/\1/p' \
      "$work/out/$name/pg_regress.log" >"$work/differing"
    while read -r test; do
      n=9
      while [ -e "$work/in/$name/expected/${test}_$n.out" ]; do n=$((n - 1)); done
      cp "$work/out/$name/results/$test.out" "$work/in/$name/expected/${test}_$n.out"
    done <"$work/differing"
  done
  stop_cluster
  rm -f "$work/server.log"
}

# Counts crashes and leaks, which only the server's log and files show.
count_crashes_and_leaks() {
  local log=$work/server.log
  local died='was terminated by signal|was terminated by exception|PANIC:|TRAP: '
  crashes=$(grep -cE "$died" "$log" || true)
  leaks=$(grep -cE "$log_of_leaks" "$log" || true)
  grep -hE "$died|Failed process was running|$log_of_leaks" "$log" | sort | uniq -c | sort -rn | head -10 || true
  find "$PGDATA/base/pgsql_tmp" "$PGDATA/pg_tblspc" -path '*pgsql_tmp*' -type f >"$work/left_files" 2>/dev/null || true
  if [ -s "$work/left_files" ]; then
    echo "temporary files left: $(wc -l <"$work/left_files")"
    leaks=$((leaks + 1))
  fi
}

show_counters() {
  psql -qX -d postgres -c 'CREATE EXTENSION IF NOT EXISTS gpusort' -c 'SELECT kind, engine, count, rows FROM gpusort_stat WHERE count > 0' 2>&1 || true
}

# run_configuration CONFIGURATION: runs the suites with gpusort, after the baseline.
run_configuration() {
  local config=$1 name counts used=0
  say "${config:-defaults}"
  run_baseline "$(tr ' ' '\n' <<<"$config" | grep -v '^gpusort\.' | tr '\n' ' ' || true)"
  start_cluster "max_prepared_transactions = 2" "shared_preload_libraries = '$preload'" "$(config_lines "$config")"
  has_node=$(psql -qXtAc "SELECT count(*) FROM pg_settings WHERE name = 'gpusort.force'")
  for name in "${suites[@]}"; do
    mkdir -p "$reports/$number"
    run_suite "$name" gpusort
    perl "$tree/test/check_core.pl" "$name" "$work/in/$name/expected" "$work/out/$name/results" \
      "$tree/test/core_ties.tsv" "$reports/$number" >"$work/judged" || { echo "check_core.pl failed"; exit 1; }
    sed '$d' "$work/judged"
    read -ra counts <<<"$(tail -1 "$work/judged")"
    for ((i = 0; i < ${#counts[@]}; i += 2)); do
      sums[${counts[i]}]=$((${sums[${counts[i]}]:-0} + counts[i + 1]))
      [ "${counts[i]}" != GPUSORT ] || used=$((used + counts[i + 1]))
    done
    tests=$((tests + ran))
    cp "$work/out/$name/regression.diffs" "$reports/$number/$name.diffs" 2>/dev/null || true
  done
  show_counters
  count_crashes_and_leaks
  stop_cluster
  if [ -f "$PGDATA/postmaster.pid" ]; then
    echo "the server did not stop"
    leaks=$((leaks + 1))
    as_cluster_user "$bindir/pg_ctl" -D "$PGDATA" -m immediate -w stop >/dev/null || true
  fi
  mv "$work/server.log" "$reports/$number/"
  sums[CRASH]=$((sums[CRASH] + crashes))
  sums[LEAK]=$((sums[LEAK] + leaks))
  echo "plans with GpuSort: $used lines"
  # the plans in core's expected output have hundreds of sorts
  if [ "$has_node" = 1 ] && [ "$used" = 0 ] && [[ " ${suites[*]} " = *" core "* && $config = *gpusort.force=on* ]]; then
    echo "no plan of core's suite had a GpuSort: nothing was tested"
    unfinished=$((unfinished + 1))
  fi
}

install_packages
major=$(server_major)
if command -v apt-get >/dev/null; then
  apt_install perl bzip2 ${LOCALE:+locales}
fi
use_server
pgxs=$(dirname "$("$PG_CONFIG" --pgxs)")/..
preload=${PRELOAD:-gpusort}
[ -n "${PRELOAD:-}" ] || build_and_install "$tree"
[ -z "${LOCALE:-}" ] || use_locale
find_source "$tree/build" '*/src/test/regress' '*/src/test/isolation' '*/contrib/citext' '*/contrib/intarray' ||
  { echo "PostgreSQL $major's source was not found; set PGSRC=folder" >&2; exit 3; }
make_modules
chmod a+rx "$work" "$work/lib"
rm -rf "$reports"
mkdir -p "$reports"
say "$("$PG_CONFIG" --version), tests of ${source##*/}"

if [ -n "${CONF:-}" ]; then
  IFS='|' read -ra configurations <<<"$CONF"
else
  parallel=debug_parallel_query
  [ "$major" -ge 16 ] || parallel=force_parallel_mode
  configurations=("$force" "$force work_mem=64kB" "$force $parallel=regress")
fi

declare -A sums=([CRASH]=0 [LEAK]=0)
unfinished=0 tests=0 number=0
for configuration in "${configurations[@]}"; do
  number=$((number + 1))
  run_configuration "$configuration"
done

say "reports: $reports"
echo "passed $((tests - sums[FAULTY])) failed $((sums[FAULTY]))"
echo "wrong ${sums[WRONG]} ties ${sums[TIE]} order ${sums[ORDER]} noorder ${sums[NOORDER]} plan ${sums[PLAN]}" \
  "crash ${sums[CRASH]} leak ${sums[LEAK]}"
[ "$((sums[WRONG] + sums[ORDER] + sums[CRASH] + sums[LEAK] + unfinished))" = 0 ]
