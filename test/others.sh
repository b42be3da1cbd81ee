#!/bin/bash
#
# others.sh - make test-others: gpusort beside what people run with it.
#
# Installs the extensions that Debian has for this server, and starts private clusters that load
# all of them: with gpusort first of shared_preload_libraries, with gpusort last, and with
# gpusort in session_preload_libraries only.  Each cluster has two databases, which are alike
# except that gpusort does all sorts in one (gpusort.force), and none in the other.
#
#   test/others/*.sql   run in both databases, and must print the same there.  What follows a
#                       line "\echo == NAME" is a check.  They raise errors for what must be
#                       true in both, such as that a plan has a GpuSort or core's Sort
#   auto_explain, pg_repack, pg_dump, a standby, a subscription and pg_cron
#                       are checks of this script, because they need more than a session
#
#   ORDERS="first"      the clusters to run; default: first last session
#
# An extension that this server cannot have here is named as skipped, and is no failure.  The
# last line has the counts, and the exit status is 0 if nothing failed.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"
# shellcheck source=test/suites.sh
. "$tree/test/suites.sh"

# Debian's packages, postgresql-NN-..., of those extensions that are not in contrib
declare -A packages=([postgis]=postgis-3 [pg_hint_plan]=pg-hint-plan [hypopg]=hypopg [pg_repack]=repack [pg_cron]=cron
  [pg_qualstats]=pg-qualstats [pg_stat_kcache]=pg-stat-kcache [pg_partman]=partman [vector]=pgvector)

# Libraries that servers load at their start, in this order: pg_stat_kcache needs
# pg_stat_statements before it.
libraries=(pg_stat_statements pg_stat_kcache pg_qualstats auto_explain pg_hint_plan pg_cron pg_partman_bgw)

# have NAME: has the server an extension or a library of this name?
have() {
  [ -f "$("$PG_CONFIG" --sharedir)/extension/$1.control" ] || [ -f "$("$PG_CONFIG" --pkglibdir)/$1.so" ]
}

install_extensions() {
  local name package
  for name in "${!packages[@]}"; do
    package=postgresql-$(server_major)-${packages[$name]}
    if ! have "$name" && server_is_debian && apt-cache show "$package" >/dev/null 2>&1; then
      apt_install "$package"
    fi
    have "$name" || skip "$name" "the server does not have it, and there is no package $package"
  done
}

# query DATABASE QUERY...: prints the last query's result.
query() {
  local database=$1 arguments=() query
  shift
  for query; do arguments+=(-c "$query"); done
  psql -qXtA -v ON_ERROR_STOP=1 -d "$database" "${arguments[@]}" 2>&1 || true
}

# wait_for DATABASE QUERY: waits until the query returns t.  If it does not within two minutes, a check fails.
wait_for() {
  local tries=0
  until [ "$(query "$@")" = t ]; do
    tries=$((tries + 1))
    if [ "$tries" -ge 600 ]; then
      check "within two minutes: $2" t "$(query "$@")"
      return
    fi
    sleep 0.2
  done
}

# ---- the clusters ----

databases=(with_gpusort without_gpusort)

# Starts a cluster with everything, gpusort at its place in $order, and makes its databases.
start_order() {
  local preload=() settings name extension
  for name in "${libraries[@]}"; do ! have "$name" || preload+=("$name"); done
  settings=("wal_level = logical" "max_worker_processes = 40" "cron.database_name = 'postgres'" "cron.host = '$work'"
    "pg_partman_bgw.dbname = 'postgres'" "pg_qualstats.sample_rate = 1")
  case $order in
    first) preload=(gpusort "${preload[@]}") ;;
    last) preload+=(gpusort) ;;
    session) settings+=("session_preload_libraries = 'gpusort'") ;;
  esac
  settings+=("shared_preload_libraries = '$(IFS=,; echo "${preload[*]}")'")
  say "$order: ${settings[-1]}"
  stop_cluster
  rm -f "$work"/*.log
  start_cluster "${settings[@]}"
  for name in "${databases[@]}"; do
    query postgres "CREATE DATABASE $name"
    for extension in gpusort amcheck postgres_fdw pg_stat_statements pg_stat_kcache pg_qualstats hypopg pg_repack vector postgis; do
      ! have "$extension" || query "$name" "CREATE EXTENSION $extension"
    done
    ! have pg_partman || query "$name" "CREATE SCHEMA partman" "CREATE EXTENSION pg_partman SCHEMA partman"
    psql -qX -v ON_ERROR_STOP=1 -d "$name" -f "$tree/test/others/setup.sql"
  done
  query postgres "ALTER DATABASE with_gpusort SET gpusort.force = on" "ALTER DATABASE without_gpusort SET gpusort.enabled = off"
}

# Starts the cluster in $work/standby, beside the first one.
other_port=57433
start_standby() {
  echo "port = $other_port" >>"$work/standby/postgresql.conf"
  as_cluster_user "$bindir/pg_ctl" -D "$work/standby" -w -t 120 -l "$work/standby.log" start >/dev/null ||
    { tail -30 "$work/standby.log"; return 1; }
}

# ---- files of SQL ----

# run_file NAME: runs a file in both databases, and compares each of its checks.
run_file() {
  local file=$tree/test/others/$1.sql name titles n
  for name in "${databases[@]}"; do
    rm -rf "${work:?}/$name"
    mkdir "$work/$name"
    psql -qXtA -d "$name" -f "$file" 2>&1 | awk -v folder="$work/$name" '/^== / { n++ } n { print >(folder "/" n) }'
  done
  mapfile -t titles < <(sed -n 's/^\\echo == //p' "$file")
  for n in "${!titles[@]}"; do
    same_answers "${titles[n]}" "$work/without_gpusort/$((n + 1))" "$work/with_gpusort/$((n + 1))"
  done
}

# The checks of the group that runs
good=0
bad=0

# same_answers NAME EXPECTED FOUND: counts whether both files are there and the same, and without
# an error, unless the check's name has that word.  Shows the difference if not.
same_answers() {
  if diff "$2" "$3" >"$work/diff" 2>&1 && { [[ $1 = *error* ]] || ! grep 'ERROR:' "$3" >"$work/diff"; }; then
    good=$((good + 1))
  else
    echo "not ok: $1"
    head -40 "$work/diff"
    bad=$((bad + 1))
  fi
}

# check NAME EXPECTED FOUND: the same for two texts
check() {
  echo "$2" >"$work/expected"
  echo "$3" >"$work/found"
  same_answers "$1" "$work/expected" "$work/found"
}

# succeeds COMMAND...: counts whether a command succeeds, and shows its output if not.
succeeds() {
  local rc=0
  "$@" >"$work/out" 2>&1 || rc=$?
  [ "$rc" = 0 ] || tail -40 "$work/out"
  check "$(basename "$1") succeeds" 0 "$rc"
}

# group NAME COMMAND...: runs a group of checks and counts them.
group() {
  local name=$1
  shift
  good=0
  bad=0
  counted=$SECONDS
  "$@"
  count "$order: $name" "$good" "$bad"
}

# ---- more than a session ----

# Rows and temporary files of GpuSort in the plan that auto_explain writes to the log as JSON,
# with the settings
test_auto_explain() {
  PGOPTIONS="-c auto_explain.log_min_duration=0 -c auto_explain.log_format=json -c auto_explain.log_analyze=on
    -c auto_explain.log_buffers=on -c auto_explain.log_settings=on -c auto_explain.log_nested_statements=on" \
    query with_gpusort "SET max_parallel_workers_per_gather = 0" "SET work_mem = '64kB'" \
    "DO 'BEGIN PERFORM * FROM items ORDER BY n, id; END'" >"$work/out"
  check "the plan in the log" "GpuSort of 30000 rows by n, id, with temporary blocks, gpusort.force is on" "$(perl -MJSON::PP -0777 -ne '
    while (/plan:\n((?:\t.*\n)+)/g)
    {
      my $entry = decode_json($1 =~ s/^\t//mgr);
      my $plan = $entry->{Plan};
      next unless $entry->{"Query Text"} =~ /ORDER BY n, id/ && $plan->{"Custom Plan Provider"};
      printf "%s of %d rows by %s, %s temporary blocks, gpusort.force is %s\n", $plan->{"Custom Plan Provider"}, $plan->{"Actual Rows"},
        join(", ", @{ $plan->{"Sort Key"} }), $plan->{"Temp Written Blocks"} > 0 ? "with" : "without", $entry->{Settings}{"gpusort.force"};
    }' "$work/server.log")"
}

# Tables that pg_repack orders by columns, by the index of CLUSTER, and not at all
test_pg_repack() {
  local options words name before question="SELECT contents('packed'), physical_order('packed'), check_indexes()"
  before=$(query with_gpusort "SELECT contents('packed'), done('index')")
  for options in "--order-by=n,id" "" "--no-order"; do
    read -ra words <<<"$options"
    for name in "${databases[@]}"; do
      query "$name" "UPDATE packed SET pad = pad WHERE id % 3 = 0"
      succeeds "$bindir/pg_repack" -d "$name" -t packed "${words[@]}"
    done
    check "rows, their order and indexes after pg_repack $options" "$(query without_gpusort "$question")" "$(query with_gpusort "$question")"
  done
  check "pg_repack has lost no row, and gpusort has built indexes" "t|t" \
    "$(query with_gpusort "SELECT contents('packed') = '${before%|*}', done('index') - ${before#*|} >= 6")"
}

test_pg_dump() {
  local before question="SELECT contents('items'), contents('packed'), check_indexes() > 10, sorted('SELECT * FROM items ORDER BY n, t')"
  before=$(query with_gpusort "SELECT done('index')")
  query postgres "CREATE DATABASE restored"
  succeeds "$bindir/pg_dump" -Fc -d with_gpusort -f "$work/dump"
  query postgres "ALTER DATABASE restored SET gpusort.force = on"
  succeeds "$bindir/pg_restore" -j 2 -d restored --exit-on-error "$work/dump"
  check "restored: rows and indexes" "$(query with_gpusort "$question")" "$(query restored "$question")"
  check "restored: gpusort has built indexes" t "$(query with_gpusort "SELECT done('index') - $before > 10")"
}

# A standby, which is promoted, and then subscribes to a table of the server that was its primary
test_replication() {
  local lsn primary="host=$work port=$PGPORT user=$PGUSER dbname=with_gpusort"
  local question="SELECT sorted('SELECT * FROM items ORDER BY t, id'), contents('items'), contents('packed'), check_indexes() > 10"
  succeeds as_cluster_user "$bindir/pg_basebackup" -D "$work/standby" -R -X stream -c fast
  start_standby
  query with_gpusort "CREATE INDEX items_nt ON items (n, t)" "UPDATE items SET n = n + 1 WHERE id % 10 = 0" "REINDEX TABLE packed"
  lsn=$(query with_gpusort "SELECT pg_current_wal_lsn()")
  PGPORT=$other_port wait_for with_gpusort "SELECT pg_last_wal_replay_lsn() >= '$lsn'"
  check "standby: sorts, and its indexes are right" "$(query with_gpusort "$question")" "$(PGPORT=$other_port query with_gpusort "$question")"
  check "standby: spills" "$(query with_gpusort "$question")" "$(PGPORT=$other_port query with_gpusort "SET work_mem = '64kB'" "$question")"

  query with_gpusort "CREATE PUBLICATION published FOR TABLE items"
  PGPORT=$other_port query postgres "SELECT pg_promote()" >"$work/out"
  PGPORT=$other_port query with_gpusort "TRUNCATE items" \
    "CREATE SUBSCRIPTION subscribed CONNECTION '$primary' PUBLICATION published" >"$work/out"
  PGPORT=$other_port wait_for with_gpusort "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel"
  check "subscription: the first copy" "$(query with_gpusort "$question")" "$(PGPORT=$other_port query with_gpusort "$question")"
  query with_gpusort "UPDATE items SET n = id % 1000 WHERE id % 2 = 0" "DELETE FROM items WHERE k = 7" \
    "INSERT INTO items SELECT id + 100000, k, t FROM packed WHERE k < 9"
  PGPORT=$other_port query with_gpusort "REINDEX TABLE CONCURRENTLY items"
  lsn=$(query with_gpusort "SELECT pg_current_wal_lsn()")
  wait_for with_gpusort "SELECT confirmed_flush_lsn >= '$lsn' FROM pg_replication_slots WHERE slot_name = 'subscribed'"
  check "subscription: changes, while indexes are built" "$(query with_gpusort "$question")" "$(PGPORT=$other_port query with_gpusort "$question")"
  as_cluster_user "$bindir/pg_ctl" -D "$work/standby" -m fast -w stop >/dev/null
  rm -rf "$work/standby"
}

# A job that sorts.  pg_cron starts it at the next full minute, so it is made first and looked at last.
cron_query="sorted('SELECT id, t FROM packed ORDER BY t')"
start_pg_cron() {
  query with_gpusort "CREATE TABLE cron_answers (answer text)"
  query postgres "CREATE EXTENSION pg_cron" \
    "SELECT cron.schedule_in_database('sort', '* * * * *', \$\$INSERT INTO cron_answers SELECT $cron_query\$\$, 'with_gpusort')" >"$work/out"
}

test_pg_cron() {
  wait_for postgres "SELECT count(*) > 0 FROM cron.job_run_details WHERE status IN ('succeeded', 'failed')"
  check "the job" "succeeded" "$(query postgres "SELECT DISTINCT status FROM cron.job_run_details WHERE status NOT IN ('starting', 'running', 'sending')")"
  check "its answer" "$(query with_gpusort "SELECT $cron_query")" "$(query with_gpusort "SELECT DISTINCT answer FROM cron_answers")"
}

test_settings() {
  local question="SELECT current_setting('gpusort.enabled'), current_setting('gpusort.force')"
  check "settings" "on|on, off|off" "$(query with_gpusort "$question"), $(query without_gpusort "$question")"
  check "gpusort has sorted" t "$(query with_gpusort "SELECT done('sort') > 20")"
  check "no process has crashed" "" "$(grep -E 'PANIC|was terminated by signal' "$work"/*.log || true)"
}

test_order() {
  local file name
  start_order
  ! have pg_cron || start_pg_cron
  for file in "$tree"/test/others/*.sql; do
    name=$(basename "$file" .sql)
    if [ "$name" = server ] || have "$name"; then
      group "$name" run_file "$name"
    fi
  done
  ! have auto_explain || group "auto_explain" test_auto_explain
  ! have pg_repack || group "pg_repack" test_pg_repack
  group "pg_dump" test_pg_dump
  group "replication" test_replication
  ! have pg_cron || group "pg_cron" test_pg_cron
  group "the cluster" test_settings
}

# shellcheck disable=SC2119 # no more packages than that
install_test_packages
use_server
install_extensions
copy_tree "$work/tree"
use_private_server "$work/server"
build_and_install "$work/tree" WITH_CUDA=standin
# shellcheck disable=SC2034 # start_cluster reads it
saved_data=$work/initdb.tar
for order in ${ORDERS:-first last session}; do
  test_order
done

show_sum
