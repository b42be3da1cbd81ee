#!/bin/bash
#
# restore.sh - the indexes of a pg_restore, built by core and by gpusort.
#
#   bench/restore.sh
#   ROWS=200000 bench/restore.sh            of each of the five tables; default: 2 million
#   ROUNDS=5 bench/restore.sh               default: 3
#   JOBS=4 bench/restore.sh                 connections of pg_restore; default: 2
#   MEMORY=1GB bench/restore.sh             maintenance_work_mem; default: 256MB
#
# Dumps five tables with a primary key and two indexes each, and restores them into new databases.
# It times pg_restore's last section, post-data: constraints and indexes.  Core and gpusort
# take turns, after one round to warm up.  Prints medians.  It measures the library that make has
# built in this tree, on a private cluster (test/cluster.sh) that does not wait for the disk.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
rows=${ROWS:-2000000}
rounds=${ROUNDS:-3}
jobs=${JOBS:-2}
memory=${MEMORY:-256MB}

# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"
start_cluster_of_tree "shared_buffers = $((1024 + rows * 3000 / 1048576))MB" "fsync = off" "max_wal_size = 20GB" \
  "min_wal_size = 4GB" "autovacuum = off" "maintenance_work_mem = $memory" "session_preload_libraries = gpusort"

psql -qX -d postgres -c 'CREATE DATABASE source TEMPLATE template0 ENCODING '"'UTF8' LOCALE 'C'"
for table in 1 2 3 4 5; do
  psql -qX -d source -v ON_ERROR_STOP=1 <<SQL
CREATE TABLE t$table AS SELECT i AS id, md5((i * $table)::text) AS name, hashint8(i * $table)::int8 * 1000 AS amount,
  timestamptz '2024-01-01' + hashint4(i) * interval '1 second' AS at FROM generate_series(1, $rows) i;
ALTER TABLE t$table ADD PRIMARY KEY (id);
CREATE INDEX ON t$table (name);
CREATE INDEX ON t$table (at, amount);
SQL
done
pg_dump -Fc -Z 0 -f "$work/dump" source

# Restores into a new database, and prints the seconds of the last section.
restore() {
  local begun
  psql -qX -d postgres -c 'DROP DATABASE IF EXISTS target' -c 'CREATE DATABASE target TEMPLATE template0 ENCODING '"'UTF8' LOCALE 'C'" 2>/dev/null
  pg_restore --section=pre-data --section=data -d target "$work/dump"
  psql -qX -d postgres -c CHECKPOINT
  begun=$EPOCHREALTIME
  PGOPTIONS="-c gpusort.index_build=$1" pg_restore -j "$jobs" --section=post-data -d target "$work/dump"
  echo "$begun $EPOCHREALTIME" | awk '{printf "%.2f\n", $2 - $1}'
}

median() {
  sort -n "$1" | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'
}

say "5 tables of $rows rows, $jobs jobs, maintenance_work_mem = $memory, $(nproc) processors;$(uptime | sed 's/.*load/ load/')"
for ((round = 0; round <= rounds; round++)); do
  for setting in off on; do
    seconds=$(restore "$setting")
    [ "$round" = 0 ] || echo "$seconds" >>"$work/$setting"
  done
done
core=$(median "$work/off")
ours=$(median "$work/on")
echo "core $core s, gpusort $ours s: $(awk "BEGIN {printf \"%.2f\", $core / $ours}") times core's speed"
