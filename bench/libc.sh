#!/bin/bash
#
# libc.sh - ORDER BY text under the C library's locales, with GpuSort against core's Sort.
#
#   bench/libc.sh
#   LOCALES="sv_SE.UTF-8" bench/libc.sh      default: C.UTF-8 en_US.UTF-8 de_DE.UTF-8 cs_CZ.UTF-8
#   DATA="names md5" bench/libc.sh           default: names md5 urls sentences
#   ROWS="2000000" bench/libc.sh             default: 1,000, 10,000, 100,000, 1 million, 2 million
#   ROUNDS=3 bench/libc.sh                   default: 5
#
# Measures the library that make has built in this tree, on a private cluster
# (test/cluster.sh) that it removes at the end.  Builds and installs nothing.  It makes the
# locales that the system may lack (test/locales.sh).  C.UTF-8 is the default collation
# of the database, and the others are named in the query.
#
# The query is SELECT k FROM t ORDER BY k, whose rows are discarded (OFFSET 1e10).
# Nothing is forced: the column "node" says which node the planner chose.  Three
# contenders run by turns in one session: core, GpuSort with one thread, and GpuSort with
# a thread for each processor.  None uses parallel workers.  A query that takes less than
# 20 ms is repeated until 20 ms have passed.  Prints medians, and core's time divided
# by GpuSort's.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=test/cluster.sh
. "$tree/test/cluster.sh"

read -ra locales <<<"${LOCALES:-C.UTF-8 en_US.UTF-8 de_DE.UTF-8 cs_CZ.UTF-8}"
read -ra kinds <<<"${DATA:-names md5 urls sentences}"
read -ra sizes <<<"${ROWS:-1000 10000 100000 1000000 2000000}"
rounds=${ROUNDS:-5}

made=()
for locale in "${locales[@]}"; do
  [ "$locale" = C.UTF-8 ] || made+=("$locale")
done
bash "$tree/test/locales.sh" "$work/locales" "${made[@]}"
server_environment+=("LOCPATH=$work/locales")
start_cluster_of_tree "shared_buffers = 1GB" "autovacuum = off" "work_mem = 2GB" \
  "max_worker_processes = 64" "max_parallel_workers = 64" "parallel_setup_cost = 1000000000"

bench() {
  PGOPTIONS='-c client_min_messages=error -c session_preload_libraries=gpusort' psql -qXtA -v ON_ERROR_STOP=1 "$@"
}

bench <<'SQL'
CREATE FUNCTION rnd(n float8) RETURNS int LANGUAGE sql VOLATILE AS 'SELECT floor(random() * n)::int';
CREATE FUNCTION one_of(words text[]) RETURNS text LANGUAGE sql VOLATILE AS 'SELECT words[1 + rnd(cardinality(words))]';

-- A first name and a family name, 5 to 20 letters.
CREATE FUNCTION names() RETURNS text LANGUAGE sql VOLATILE AS $$
  SELECT one_of('{Anna,Björn,Chiara,Dušan,Eva,François,Greta,Hélène,Ivan,Jana,Karl,Lucie,Marie,Nils,Olga,Petr,René,Šárka,Tomáš,Zoë}')
    || ' ' || initcap(one_of('{ba,ko,mül,nová,sen,ri,tra,ve,wag,bel,cer,du,fel,gra,hor,kra}')
    || one_of('{ler,ner,ček,ro,tin,vic,man,dra,li,mo,chal,so}') || one_of('{"",ová,sen,son,ski,er,in,a}')
    || chr(97 + rnd(26)) || chr(97 + rnd(26)))
$$;
CREATE FUNCTION md5() RETURNS text LANGUAGE sql VOLATILE AS 'SELECT md5(random()::text)';
CREATE FUNCTION urls() RETURNS text LANGUAGE sql VOLATILE AS $$
  SELECT 'https://www.example.com/' || one_of('{catalogue,shop,help,news}') || '/'
    || one_of('{books,music,films,games,tools,toys}') || '/item-' || rnd(1e6) || '?page=' || rnd(20)
$$;
-- Five to ten words behind the same beginning.
CREATE FUNCTION sentences() RETURNS text LANGUAGE sql VOLATILE AS $$
  SELECT 'The report says that ' || string_agg(one_of('{the,a,new,old,red,blue,small,large,house,garden,river,city,train,book,
    goes,stands,reads,finds,"café","naïve",over,under,near,from,to,with,and,or}'), ' ')
  FROM generate_series(1, 5 + rnd(6))
$$;

CREATE FUNCTION ms_since(begun timestamptz) RETURNS float8 LANGUAGE sql VOLATILE
  AS 'SELECT 1000 * extract(epoch FROM clock_timestamp() - begun)';

-- Measures a query, after one run of each contender to warm up.  Sets figures to core's
-- milliseconds, GpuSort's with one thread and with all, and core's divided by these two.
CREATE PROCEDURE measure(query text, processors int, rounds int, INOUT node text, INOUT figures numeric[]) LANGUAGE plpgsql AS $$
DECLARE
  plan json;
  begun timestamptz;
  repeats int := 1;
  ms float8[] := '{}';
BEGIN
  FOR i IN 0 .. rounds LOOP
    FOR contender IN 1 .. 3 LOOP
      PERFORM set_config('gpusort.enabled', (contender > 1)::text, true),
        set_config('max_parallel_workers_per_gather', CASE contender WHEN 3 THEN processors - 1 ELSE 0 END::text, true);
      begun := clock_timestamp();
      FOR j IN 1 .. repeats LOOP
        EXECUTE query;
      END LOOP;
      IF i = 0 THEN
        repeats := greatest(repeats, ceil(20 / ms_since(begun)));
      ELSE
        ms := ms || ms_since(begun) / repeats;
      END IF;
    END LOOP;
  END LOOP;
  EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
  node := CASE WHEN plan::text LIKE '%GpuSort%' THEN 'GpuSort' ELSE 'core' END;
  SELECT ARRAY[round(m[1], 2), round(m[2], 2), round(m[3], 2), round(m[1] / m[2], 2), round(m[1] / m[3], 2)] INTO figures
  FROM (SELECT array_agg(median::numeric) AS m
    FROM (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) AS median
      FROM unnest(ms) WITH ORDINALITY AS u(x, place) GROUP BY (place - 1) % 3 ORDER BY (place - 1) % 3) s) a;
END $$;
SQL

show() {
  printf '%-10s %8s %-14s %-8s %10s %10s %10s %6s %6s\n' "$@"
}

say "$("$PG_CONFIG" --version), $(nproc) processors,$(uptime | sed 's/.*load/ load/'), $rounds rounds; milliseconds, and times core's speed"
for locale in "${made[@]}"; do
  bench -c "CREATE COLLATION \"${locale%.UTF-8}\" (provider = libc, locale = '$locale')"
done
show data rows locale node core '1 thread' "$(nproc) threads" times times
for data in "${kinds[@]}"; do
  for n in "${sizes[@]}"; do
    bench -c "DROP TABLE IF EXISTS t" -c "SELECT setseed(0.15)" \
      -c "CREATE UNLOGGED TABLE t AS SELECT $data() AS k FROM generate_series(1, $n)" -c "VACUUM ANALYZE t" >/dev/null
    for locale in "${locales[@]}"; do
      collate=" COLLATE \"${locale%.UTF-8}\""
      [ "$locale" != C.UTF-8 ] || collate=
      read -ra figures <<<"$(bench -F ' ' -c "CALL measure('SELECT k FROM t ORDER BY k$collate OFFSET 1e10', $(nproc), $rounds, NULL, NULL)" |
        tr '{,}' ' ')"
      show "$data" "$n" "$locale" "${figures[@]}"
    done
  done
done
