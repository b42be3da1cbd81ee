#!/bin/bash
#
# latency.sh - how long a session lets an interrupt wait, with gpusort and in core.
#
#   bench/latency.sh
#   ROWS=100000000 bench/latency.sh         default: 20 million
#   MOMENTS=20 bench/latency.sh             of each interrupt that ends the query; default: 5
#   SHAPES='index|gpu_sort' bench/latency.sh the shapes whose names match this regular expression
#   KINDS='barrier|log line' bench/latency.sh the interrupts whose names match this one
#   ENGINES="core cpu cuda" bench/latency.sh default: core and cpu, and cuda if there is a device
#   WORKERS=2 bench/latency.sh              max_parallel_workers_per_gather and _maintenance_workers
#   OUT=file.csv bench/latency.sh           each latency also as CSV
#
# A session runs a query, and another one sends it an interrupt.  The moments are spread evenly over the
# time that the query took before, each at random within its part.  The table has the median and the
# maximum in milliseconds from sending to the answer:
#
#   cancel               pg_cancel_backend(), until the session has its error
#   terminate            pg_terminate_backend(), until the session's client has its error
#   statement_timeout    the time beyond the timeout, until the session has its error
#   transaction_timeout  the same (PostgreSQL 17 and later)
#   barrier              DROP DATABASE of another database, which waits until all processes have
#                        closed its files: for how long it waits
#   log line             pg_log_backend_memory_contexts(), until the server's log has the answer: the
#                        server must have a logging collector
#   recovery conflict    a lock of the table on the primary, until a query on a standby with
#                        max_standby_streaming_delay = 0 has its error, replay included
#
# The session answers barriers and requests for log lines and goes on, so that there are many of them in one
# run: one after the other until the query ends.  The last one needs the script's own servers.
#
# If PGHOST or PGPORT is set, it uses the server there, which must have gpusort and dblink
# installed, as a superuser, in a database of its own.  Else it measures the library that
# make has built in this tree, on a private cluster (test/cluster.sh) with a standby.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
rows=${ROWS:-20000000}
moments=${MOMENTS:-5}
shapes=${SHAPES:-.}
kinds=${KINDS:-.}
workers=${WORKERS:-2}
db=gpusort_latency
standby=

# start_standby: starts a standby of the private cluster in $work/standby, on the next port.
start_standby() {
  # shellcheck disable=SC2154 # they are cluster.sh's
  as_cluster_user "$bindir/pg_basebackup" -D "$work/standby" -R -c fast -h "$work" -p "$PGPORT" -U postgres
  printf '%s\n' "port = $((PGPORT + 1))" "max_standby_streaming_delay = 0" >>"$work/standby/postgresql.conf"
  as_cluster_user env "${server_environment[@]}" "$bindir/pg_ctl" -D "$work/standby" -w -t 600 -l "$work/standby.log" start >/dev/null
  standby="host=$work port=$((PGPORT + 1))"
}

if [ -n "${PGHOST:-}${PGPORT:-}" ]; then
  trap 'psql -qX -d postgres -c "DROP DATABASE IF EXISTS $db WITH (FORCE)" 2>/dev/null' EXIT
  trap 'exit 1' INT TERM
else
  # shellcheck source=test/cluster.sh
  . "$tree/test/cluster.sh"
  start_cluster_of_tree "shared_buffers = $((512 + rows * 100 / 1048576))MB" "max_wal_size = 20GB" "autovacuum = off" \
    "max_worker_processes = $((workers + 16))" "logging_collector = on" "log_filename = 'server.log'" "log_rotation_size = 0"
fi
psql -qX -d postgres -c "DROP DATABASE IF EXISTS $db" \
  -c "CREATE DATABASE $db TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'" 2>/dev/null
export PGDATABASE=$db
export PGOPTIONS="${PGOPTIONS:-} -c client_min_messages=error"

bench() {
  psql -qXtA -v ON_ERROR_STOP=1 "$@"
}

if [ -n "${work:-}" ]; then
  # the functions of this tree, of which the server may have another version or none
  script=$tree/sql/gpusort--$(sed -n "s/^default_version = '\(.*\)'/\1/p" "$tree/gpusort.control").sql
  sed -e '/^\\echo/d' -e 's/MODULE_PATHNAME/gpusort/' "$script" | bench
else
  bench -c "CREATE EXTENSION gpusort"
fi
bench -v rows="$rows" <<'SQL'
CREATE EXTENSION dblink;
CREATE TABLE t AS SELECT hashint8(i) AS k, hashint8(i + 1) % 1000 AS few, i AS id FROM generate_series(1, :rows::int8) i;
CREATE TABLE a AS SELECT array_agg(k) AS ks FROM (SELECT k FROM t LIMIT 60000000) s;
CREATE TABLE latencies (shape text, engine text, kind text, ms float8);
VACUUM ANALYZE t, a;

CREATE FUNCTION ms_since(begun timestamptz) RETURNS float8 LANGUAGE sql VOLATILE
  AS 'SELECT 1000 * extract(epoch FROM clock_timestamp() - begun)';

-- The part of the server's log behind a place, or NULL if there is no log to read.
CREATE FUNCTION log_from(place int8) RETURNS text LANGUAGE sql VOLATILE
  AS 'SELECT pg_read_file(pg_current_logfile(), place, 1000000, true)';

-- Connects the session v, for the queries, and x, for what no function can do.  Returns the pid of v.
CREATE FUNCTION connect(server text, settings text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  here text := format('host=%s port=%s', split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'));
  dsn text := format(' dbname=%s user=%s', current_database(), current_user);
BEGIN
  PERFORM dblink_disconnect(name) FROM unnest(dblink_get_connections()) name;
  PERFORM dblink_connect('v', coalesce(nullif(server, ''), here) || dsn), dblink_connect('x', here || dsn);
  PERFORM dblink_exec('x', 'DROP INDEX IF EXISTS i'), dblink_exec('v', settings);
  RETURN (SELECT pid FROM dblink('v', 'SELECT pg_backend_pid()') AS p(pid int));
END $$;

CREATE FUNCTION wait_for_v() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE dblink_is_busy('v') = 1 LOOP
    PERFORM pg_sleep(0.0005);
  END LOOP;
END $$;

-- Takes the session's results, and notes whether the last one was an error.
CREATE FUNCTION take_results() RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
  failed bool := false;
BEGIN
  FOR i IN 1 .. 2 LOOP
    BEGIN
      PERFORM * FROM dblink_get_result('v') AS r(x text);
    EXCEPTION WHEN OTHERS OR query_canceled THEN failed := true;
    END;
  END LOOP;
  RETURN failed;
END $$;

-- Sends interrupts that end the query, each to a run of its own, which takes usual_ms.
CREATE PROCEDURE ends(shape text, engine text, kind text, server text, settings text, query text, usual_ms float8, moments int)
LANGUAGE plpgsql AS $$
DECLARE
  pid int;
  begun timestamptz;
  sent timestamptz;
  after_ms int;
  ms float8;
BEGIN
  FOR i IN 1 .. moments LOOP
    pid := connect(server, settings);
    after_ms := 1 + usual_ms * (i - 1 + random()) / moments;
    IF kind LIKE '%timeout' THEN
      PERFORM dblink_exec('v', format('SET %I = %s', kind, after_ms));
    END IF;
    begun := clock_timestamp();
    PERFORM dblink_send_query('v', query);
    PERFORM pg_sleep(after_ms / 1000.0);
    sent := begun + after_ms * interval '1 ms';
    IF kind NOT LIKE '%timeout' THEN
      CONTINUE WHEN dblink_is_busy('v') = 0;
      sent := clock_timestamp();
      IF kind = 'cancel' THEN
        PERFORM pg_cancel_backend(pid);
      ELSIF kind = 'terminate' THEN
        PERFORM pg_terminate_backend(pid);
      ELSE
        PERFORM dblink_exec('x', 'BEGIN; LOCK TABLE t, a IN ACCESS EXCLUSIVE MODE; COMMIT');
      END IF;
    END IF;
    PERFORM wait_for_v();
    ms := ms_since(sent);
    IF take_results() THEN
      INSERT INTO latencies VALUES (shape, engine, kind, ms);
    END IF;
  END LOOP;
END $$;

-- Sends interrupts, after which the query goes on, to one run.
CREATE PROCEDURE goes_on(shape text, engine text, kind text, settings text, query text) LANGUAGE plpgsql AS $$
DECLARE
  pid int := connect('', settings);
  pid_of_x int := (SELECT n FROM dblink('x', 'SELECT pg_backend_pid()') AS p(n int));
  sent timestamptz;
  place int8;
  ms float8;
BEGIN
  IF kind = 'barrier' THEN
    PERFORM dblink_exec('x', format('CREATE DATABASE %I', current_database() || i)) FROM generate_series(1, 20) i;
  END IF;
  PERFORM dblink_send_query('v', query);
  FOR i IN 1 .. CASE WHEN kind = 'barrier' THEN 20 ELSE 5000 END LOOP
    PERFORM pg_sleep(0.02 * random());
    EXIT WHEN dblink_is_busy('v') = 0;
    sent := clock_timestamp();
    ms := 0;
    IF kind = 'barrier' THEN
      PERFORM dblink_send_query('x', format('DROP DATABASE %I', current_database() || i));
      WHILE dblink_is_busy('x') = 1 LOOP
        PERFORM pg_stat_clear_snapshot();
        IF (SELECT wait_event FROM pg_stat_get_activity(pid_of_x)) = 'ProcSignalBarrier' THEN
          ms := ms_since(sent);
        ELSIF ms = 0 THEN
          sent := clock_timestamp();
        END IF;
        PERFORM pg_sleep(0.0005);
      END LOOP;
      PERFORM * FROM dblink_get_result('x') AS r(x text);
      PERFORM * FROM dblink_get_result('x') AS r(x text);
    ELSE
      place := (pg_stat_file(pg_current_logfile())).size;
      PERFORM pg_log_backend_memory_contexts(pid);
      WHILE log_from(place) NOT LIKE '%logging memory contexts of PID ' || pid || '%' AND dblink_is_busy('v') = 1 LOOP
        PERFORM pg_sleep(0.0005);
      END LOOP;
      ms := ms_since(sent);
      -- a request that comes while the session writes its answer is dropped
      WHILE log_from(place) NOT LIKE '%Grand total:%' AND dblink_is_busy('v') = 1 LOOP
        PERFORM pg_sleep(0.0005);
      END LOOP;
    END IF;
    INSERT INTO latencies VALUES (shape, engine, kind, ms);
  END LOOP;
  PERFORM pg_cancel_backend(pid);
  PERFORM wait_for_v();
  IF kind = 'barrier' THEN
    PERFORM dblink_exec('x', format('DROP DATABASE IF EXISTS %I', current_database() || i)) FROM generate_series(1, 20) i;
  END IF;
END $$;
SQL
[ -z "${work:-}" ] || [[ ! "recovery conflict" =~ $kinds ]] || start_standby

engines=${ENGINES:-core cpu $(bench -c "SELECT engine FROM gpusort_status() WHERE engine = 'cuda' AND device IS NOT NULL")}
version=$(bench -c "SHOW server_version_num")
ending=(cancel terminate "statement_timeout")
going_on=(barrier)
[ "$version" -lt 170000 ] || ending+=("transaction_timeout")
[ -z "$standby" ] || ending+=("recovery conflict")
[ -z "$(bench -c "SELECT pg_current_logfile()")" ] || going_on+=("log line")

printf '== PostgreSQL %s, %s rows, %s processors, %s workers;%s\n\n' "$(bench -c 'SHOW server_version' | sed 's/ .*//')" "$rows" \
  "$(nproc)" "$workers" "$(uptime | sed 's/.*load/ load/')"

# measure NAME QUERY: measures a query in all engines.
measure() {
  local name=$1 query=$2 engine kind settings usual server
  [[ $name =~ $shapes ]] || return 0
  for engine in $engines; do
    settings="SET max_parallel_workers_per_gather = $workers; SET max_parallel_maintenance_workers = $workers;
      SET work_mem = '16GB'; SET maintenance_work_mem = '16GB'; LOAD 'gpusort'; SET gpusort.force = on"
    if [ "$engine" = core ]; then
      [[ ! $query =~ gpu_ ]] || continue
      settings="$settings; SET gpusort.enabled = off"
    else
      settings="$settings; SET gpusort.engine = $engine"
    fi
    usual=$(bench -v settings="$settings" -v query="$query" <<'SQL'
SELECT connect('', :'settings') \g /dev/null
SELECT dblink_send_query('v', :'query') \g /dev/null
SELECT clock_timestamp() AS begun \gset
SELECT wait_for_v() \g /dev/null
SELECT ms_since(:'begun');
SQL
)
    for kind in "${ending[@]}"; do
      [[ $kind =~ $kinds ]] || continue
      server=
      if [ "$kind" = "recovery conflict" ]; then
        [[ ! $query =~ INDEX ]] || continue
        server=$standby
      fi
      bench -c "CALL ends('$name', '$engine', '$kind', '$server', \$q\$$settings\$q\$, \$q\$$query\$q\$, $usual, $moments)"
    done
    for kind in "${going_on[@]}"; do
      [[ ! $kind =~ $kinds ]] || bench -c "CALL goes_on('$name', '$engine', '$kind', \$q\$$settings\$q\$, \$q\$$query\$q\$)"
    done
  done
}

measure "rows" "SELECT count(id) FROM (SELECT * FROM t ORDER BY k OFFSET 0) s"
measure "rows, two columns" "SELECT count(id) FROM (SELECT * FROM t ORDER BY few, k OFFSET 0) s"
measure "one column" "SELECT count(k) FROM (SELECT k FROM t ORDER BY k OFFSET 0) s"
measure "one column in order" "SELECT count(id) FROM (SELECT id FROM t ORDER BY id OFFSET 0) s"
measure "gpu_sort of an array" "SELECT cardinality(gpu_sort(ks)) FROM a"
measure "gpu_argsort of an array" "SELECT cardinality(gpu_argsort(ks)) FROM a"
measure "gpu_sort_agg" "SELECT cardinality(gpu_sort_agg(k)) FROM (SELECT k FROM t LIMIT 100000000) s"
measure "count(DISTINCT)" "SELECT count(DISTINCT k) FROM t"
measure "percentile_disc" "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY k) FROM t"
measure "array_agg(ORDER BY), groups" "SELECT count(x) FROM (SELECT array_agg(id ORDER BY k) x FROM t GROUP BY few OFFSET 0) s"
measure "CREATE INDEX" "CREATE INDEX i ON t (k)"
measure "CREATE INDEX, two columns" "CREATE INDEX i ON t (few, id)"

bench -c "SELECT format('%-28s %-5s %-20s %4s %8s %8s', 'shape', 'engine', 'interrupt', 'n', 'median', 'maximum')" \
  -c "SELECT format('%-28s %-6s %-20s %3s %8s %8s', shape, engine, kind, count(*),
        round((percentile_cont(0.5) WITHIN GROUP (ORDER BY ms))::numeric, 1), round(max(ms)::numeric, 1))
      FROM latencies GROUP BY shape, kind, engine ORDER BY min(ctid), shape, kind, engine"
[ -z "${OUT:-}" ] || bench -c "\\copy latencies TO '$OUT' CSV HEADER"
