#!/bin/bash
#
# pg_upgrade.sh - make test-upgrade: runs pg_upgrade from one major version of PostgreSQL
# to another, on databases whose indexes, views and privileges use gpusort.
#
#   test/pg_upgrade.sh OLD_PG_CONFIG NEW_PG_CONFIG
#   make test-upgrade OLD_PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config PG_CONFIG=...
#
#   WITH_CUDA=no    the kind of build; see the Makefile
#
# It builds gpusort for both servers and installs it there.  The same queries must give the
# same answers before and after the upgrade.  The last line has the counts.
#
# A suite of Debian has one version of PostgreSQL.  An older one can be installed beside it from
# an older suite: add that suite to apt's sources, give it the priority 100 in apt's
# preferences, and install postgresql-15 and postgresql-server-dev-15.
#
# The new server must not be of an earlier minor release than the old one: 17.11 cannot
# restore columns of 15.20, which have an option that it does not know ("pg_attver").

set -euo pipefail

[ $# = 2 ] && [ -n "$1" ] && [ -n "$2" ] || { sed -n 's/^#   \(test.*\)/usage: \1/p' "$0" >&2; exit 2; }
old=$1
new=$2
tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"
# shellcheck source=test/suites.sh
. "$tree/test/suites.sh"

# use PG_CONFIG NAME: the next commands use this server and the cluster of that name.
use() {
  PG_CONFIG=$1
  PGDATA=$work/$2
  use_server
}

make_cluster() {
  # from PostgreSQL 18 on, clusters have checksums unless told otherwise, and both need the same
  as_cluster_user "$bindir/initdb" -D "$PGDATA" -k -A trust -U postgres -E UTF8 --locale=C.UTF-8 >"$work/initdb.log"
  {
    echo "listen_addresses = ''"
    echo "unix_socket_directories = '$work'"
    echo "port = $PGPORT"
    echo "fsync = off"
    echo "session_preload_libraries = 'gpusort'"
    echo "gpusort.force = on"
    echo "gpusort.min_rows = 1000"
    echo "gpusort.engine = cpu"
  } >>"$PGDATA/postgresql.conf"
}

start() {
  as_cluster_user "$bindir/pg_ctl" -D "$PGDATA" -w -t 120 -l "$work/server.log" start >/dev/null ||
    { tail -30 "$work/server.log"; return 1; }
}

# sql DATABASE QUERIES
sql() {
  "$bindir/psql" -XAtq -v ON_ERROR_STOP=1 -d "$1" -c "$2"
}

# check NAME COMMAND...: counts whether a command succeeds, and shows its output if not.
check() {
  local name=$1
  shift
  if "$@" >"$work/check.log" 2>&1; then
    count "$name" 1 0
  else
    tail -40 "$work/check.log"
    count "$name" 0 1
  fi
}

# same EXPECTED ACTUAL: succeeds if the answers are the same, and shows the differences if not.
same() {
  diff <(echo "$1") <(echo "$2")
}

objects="
CREATE TABLE t AS SELECT i AS id, hashint8(i) AS k, md5(i::text) AS word FROM generate_series(1, 100000) AS i;
CREATE TABLE arrays AS SELECT i AS id, ARRAY[hashint4(i), i, hashint4(-i)] AS a FROM generate_series(1, 10000) AS i;
CREATE INDEX arrays_sorted ON arrays (gpu_sort(a));
CREATE UNIQUE INDEX arrays_places ON arrays (gpu_argsort(a, true), id);
CREATE VIEW groups AS SELECT id % 10 AS g, gpu_sort_agg(k) AS a FROM t GROUP BY 1;
CREATE MATERIALIZED VIEW sorted AS SELECT row_number() OVER () AS place, id, word FROM (SELECT id, word FROM t ORDER BY word, id) AS s;
CREATE VIEW watch AS SELECT pid, phase, rows, bytes, engine, started FROM gpusort_activity;
REVOKE EXECUTE ON FUNCTION gpusort_stat_list() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION gpusort_stat_list() TO measures;
REVOKE SELECT ON gpusort_activity FROM PUBLIC;
GRANT SELECT ON gpusort_activity TO watches;
ANALYZE;"
queries="
SELECT md5(string_agg(g::text, ' ' ORDER BY g)) FROM groups AS g;
SELECT md5(string_agg(s::text, ' ' ORDER BY place)) FROM sorted AS s;
REFRESH MATERIALIZED VIEW sorted;
SELECT md5(string_agg(s::text, ' ' ORDER BY place)) FROM sorted AS s;
SELECT md5(string_agg(s::text, ' ')) FROM (SELECT id, k, word FROM t ORDER BY k, word, id OFFSET 0) AS s;
SET enable_seqscan = off;
SELECT id FROM arrays WHERE gpu_sort(a) = (SELECT gpu_sort(a) FROM arrays WHERE id = 7);
SELECT count(*) FROM arrays WHERE gpu_argsort(a, true) = '{1,2,3}';
SELECT has_function_privilege('measures', 'gpusort_stat_list()', 'EXECUTE'),
  has_function_privilege('watches', 'gpusort_stat_list()', 'EXECUTE'),
  has_table_privilege('watches', 'gpusort_activity', 'SELECT'), has_table_privilege('measures', 'gpusort_activity', 'SELECT');"
version="SELECT extversion FROM pg_extension WHERE extname = 'gpusort'"
activity="SELECT count(*) FROM watch; SELECT count(*) FROM gpusort_activity"
plan="EXPLAIN (COSTS OFF) SELECT * FROM t ORDER BY k"

for pg_config in "$old" "$new"; do
  use "$pg_config" none
  folder=$work/build-$(server_major)
  copy_tree "$folder"
  build_and_install "$folder" WITH_CUDA="${WITH_CUDA:-no}" PG_CONFIG="$pg_config"
done

use "$old" old
old_bindir=$bindir
say "$(server_major): a cluster with gpusort"
make_cluster
start
sql postgres "CREATE ROLE measures; CREATE ROLE watches"
sql postgres "CREATE DATABASE present"
sql present "CREATE EXTENSION gpusort"
sql present "$objects"
before=$(sql present "$queries")
present=$(sql present "$version")
check "GpuSort sorts" grep -q GpuSort <(sql present "$plan")
stop_cluster

use "$new" new
say "pg_upgrade to $(server_major)"
make_cluster
upgrade=("$bindir/pg_upgrade" --no-sync -b "$old_bindir" -B "$bindir" -d "$work/old" -D "$work/new" -s "$work")
check "pg_upgrade --check" as_cluster_user "${upgrade[@]}" --check
before_upgrade=$failed
check "pg_upgrade" as_cluster_user "${upgrade[@]}"
if ((failed > before_upgrade)); then
  find "$work/new/pg_upgrade_output.d" -name 'pg_upgrade_dump_*.log' -exec grep -h -B 2 -A 8 -E 'ERROR|FATAL' {} + || true
  show_sum || exit 1
fi
start
check "GpuSort sorts" grep -q GpuSort <(sql present "$plan")
check "the version is the same" same "$present" "$(sql present "$version")"
check "the answers are the same" same "$before" "$(sql present "$queries")"
check "the view works" sql present "$activity"
check "dumped and restored" as_cluster_user bash -c \
  "'$bindir/createdb' restored && '$bindir/pg_dump' present | '$bindir/psql' -Xq -v ON_ERROR_STOP=1 restored"
check "restored: the answers are the same" same "$before" "$(sql restored "$queries")"

show_sum
