#!/bin/bash
#
# demo_shards.sh - make demo-shards: sorts a table that lies on three servers.
#
# Takes some minutes.  Installs missing packages, builds, and starts four private clusters on
# this machine, which it removes at the end: three shards, and a coordinator that has a
# partitioned table of their foreign tables.  Shows how long one ORDER BY takes if all rows are
# on one server, and on the three shards by each plan of docs/sharding.md.  Compares the
# order of the rows with that of one server.
#
#   ROWS=10000000   rows in all
#   RUNS=5          a time to the first row is the median of this number of runs; a time to
#                   the last row is that of one run

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"

rows=${ROWS:-10000000}
runs=${RUNS:-5}
shards=(1 2 3)

# Shard N listens on a port of its own, in the same folder.
shard_port() {
  echo $((PGPORT + $1))
}

start_shard() {
  local data=$work/shard$1
  as_cluster_user "$bindir/initdb" -D "$data" -A trust -U postgres -E UTF8 --locale=C.UTF-8 >"$work/initdb.log"
  {
    echo "listen_addresses = ''"
    echo "unix_socket_directories = '$work'"
    echo "port = $(shard_port "$1")"
    printf '%s\n' "fsync = off" "max_wal_size = 4GB" "jit = off" "shared_buffers = 512MB" "work_mem = 512MB"
    echo "max_parallel_workers_per_gather = 0"
  } >>"$data/postgresql.conf"
  as_cluster_user "$bindir/pg_ctl" -D "$data" -w -t 120 -l "$work/shard$1.log" start >/dev/null ||
    { tail -30 "$work/shard$1.log"; return 1; }
}

stop_all() {
  for n in "${shards[@]}"; do
    if [ -f "$work/shard$n/postmaster.pid" ]; then
      as_cluster_user "$bindir/pg_ctl" -D "$work/shard$n" -m fast -w stop >/dev/null || true
    fi
  done
  clean_up
}
trap stop_all EXIT

query() {
  PGOPTIONS='-c client_min_messages=error' psql -qXtA -v ON_ERROR_STOP=1 "$@"
}

on_shard() {
  local n=$1
  shift
  query -p "$(shard_port "$n")" "$@"
}

# time_plan NAME SETTINGS QUERY: prints a line of the table: the median of the times to the first
# row, which is left in $first, and the time to the last row.  The session has executed the
# query once before.
time_plan() {
  local last
  IFS='|' read -r last first < <(query -c "$2" -c "
    SELECT round(ms(\$q\$$3\$q\$, true)), (SELECT round(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms(\$q\$$3\$q\$, false)))
      FROM generate_series(1, $runs))")
  printf '  %-52s %7s ms %7s ms\n' "$1" "$first" "$last"
}

# same_order SETTINGS QUERY: has the query the order of table whole?
same_order() {
  [ "$(query -c "$1" -c "SELECT md5(string_agg(id::text, ',')) FROM ($2) q")" = "$reference" ] || {
    echo "DIFFERENT FROM ONE SERVER: $2"
    return 1
  }
}

install_packages
use_server
if [ ! -f "$("$PG_CONFIG" --sharedir)/extension/postgres_fdw.control" ]; then
  echo "postgres_fdw of PostgreSQL's contrib is not installed" >&2
  exit 1
fi
say "building"
use_private_server "$work/server"
build_and_install "$tree"
start_cluster "shared_buffers = 128MB" "work_mem = 512MB" "max_parallel_workers_per_gather = 0" "cursor_tuple_fraction = 1.0"
for n in "${shards[@]}"; do
  start_shard "$n"
done

say "loading $rows rows, in three parts and once more as a whole"
columns="id int, k int, at timestamptz, note text"
values="i, hashint4(i), timestamptz '2026-01-01' + hashint4(i) * interval '1 s', md5(i::text)"
query -c 'CREATE EXTENSION postgres_fdw' -c "CREATE TABLE events ($columns) PARTITION BY HASH (id)"
for n in "${shards[@]}"; do
  query <<SQL
CREATE SERVER shard$n FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$work', port '$(shard_port "$n")', dbname 'postgres',
  fetch_size '10000', async_capable 'true', options '-c session_preload_libraries=gpusort');
CREATE USER MAPPING FOR CURRENT_USER SERVER shard$n;
CREATE FOREIGN TABLE events$n PARTITION OF events FOR VALUES WITH (MODULUS 3, REMAINDER $((n - 1))) SERVER shard$n OPTIONS (table_name 'events');
SQL
  # A table of the same form tells which rows the partition takes.
  on_shard "$n" -c "CREATE TABLE parent ($columns) PARTITION BY HASH (id)" \
    -c "CREATE TABLE events PARTITION OF parent FOR VALUES WITH (MODULUS 3, REMAINDER $((n - 1)))" \
    -c "INSERT INTO events SELECT $values FROM generate_series(1, $rows) i
        WHERE satisfies_hash_partition('parent'::regclass, 3, $((n - 1)), i)" -c 'VACUUM ANALYZE events'
done
on_shard 1 -c "CREATE TABLE whole ($columns)" -c "INSERT INTO whole SELECT $values FROM generate_series(1, $rows) i" \
  -c 'VACUUM ANALYZE whole'
query -c "CREATE FOREIGN TABLE whole ($columns) SERVER shard1" -c 'ANALYZE whole, events1, events2, events3'
query <<'SQL'
-- milliseconds to the first row of a query, or to the last
CREATE FUNCTION ms(query text, last boolean) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
  begun timestamptz := clock_timestamp();
  ended timestamptz;
  c refcursor;
  r record;
BEGIN
  OPEN c NO SCROLL FOR EXECUTE query;
  FETCH c INTO r;
  IF last THEN
    MOVE FORWARD ALL IN c;
  END IF;
  ended := clock_timestamp();
  CLOSE c;
  RETURN 1000 * extract(epoch FROM ended - begun);
END $$;
SQL

order="ORDER BY k, id"
gpusort="LOAD 'gpusort'; SET enable_sort = off"
core="SET enable_sort = off"
# OFFSET 0 keeps the planner from asking the shards for an order.
unsorted="SELECT * FROM (SELECT * FROM events OFFSET 0) e $order"

say "the order of the rows is that of one server"
reference=$(query -c "SELECT md5(string_agg(id::text, ',')) FROM (SELECT id FROM whole $order) q")
same_order "$core" "SELECT id FROM events $order"
same_order "$gpusort" "SELECT id FROM events $order"
same_order "LOAD 'gpusort'" "$unsorted"
echo "same in all plans"

say "SELECT * $order, $(nproc) cores                               first row   all rows"
time_plan "one server, which sorts all rows" "$core" "SELECT * FROM whole $order"
sum=0
for n in "${shards[@]}"; do
  time_plan "shard $n alone" "$core" "SELECT * FROM events$n $order"
  sum=$((sum + first))
done
time_plan "Merge Append as core executes it" "$core" "SELECT * FROM events $order"
time_plan "Merge Append below GpuSort Start" "$gpusort" "SELECT * FROM events $order"
together=$first
time_plan "GpuSort on the coordinator, asynchronous Append" "LOAD 'gpusort'" "$unsorted"
time_plan "Sort on the coordinator, asynchronous Append" "SET max_parallel_workers_per_gather = 0" "$unsorted"
time_plan "the planner's choice, with gpusort" "LOAD 'gpusort'" "SELECT * FROM events $order"
echo
echo "started together, the shards' first rows come after $(echo "$together $sum" | awk '{printf "%.2f", $1 / $2}') of the sum of their times"

say "the plans: started together, and the planner's choice"
query -c "$gpusort" -c "EXPLAIN SELECT * FROM events $order"
echo
query -c "LOAD 'gpusort'" -c "EXPLAIN SELECT * FROM events $order"
say "done"
