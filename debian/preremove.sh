#!/bin/sh
# The package's script before its removal: names the settings that load the library in the server's clusters.
# With such a setting and without the library, no session can begin.  It warns only, and never fails.
#
# The builds of Debian's and RPM's packages fill in PostgreSQL's major version.

# look CLUSTER OWNER COMMAND...: asks a cluster by this psql.
look() {
  cluster=$1
  owner=$2
  shift 2
  found=$(cd / && PGCONNECT_TIMEOUT=5 runuser -u "$owner" -- "$@" -XAtq -d postgres 2>/dev/null <<'SQL'
SELECT concat('ALTER ', CASE WHEN setrole = 0 AND setdatabase <> 0 THEN 'DATABASE ' || quote_ident(datname)
    ELSE 'ROLE ' || coalesce(quote_ident(rolname), 'ALL') || coalesce(' IN DATABASE ' || quote_ident(datname), '') END,
    ' RESET session_preload_libraries;')
  FROM pg_db_role_setting CROSS JOIN unnest(setconfig) entry
    LEFT JOIN pg_database d ON d.oid = setdatabase LEFT JOIN pg_roles r ON r.oid = setrole
  WHERE entry ~ '^session_preload_libraries=(.*[,/" ])?gpusort(\.so)?($|[," ])'
UNION ALL
SELECT concat(name, ' in ', coalesce(sourcefile, source)) FROM pg_settings
  WHERE name IN ('session_preload_libraries', 'shared_preload_libraries') AND source IN ('configuration file', 'command line')
    AND setting ~ '(^|[,/" ])gpusort(\.so)?($|[," ])';
SQL
  ) || return 0
  [ -n "$found" ] || return 0
  echo "gpusort: these settings of cluster $cluster load the library that is being removed." >&2
  echo "Without it no session can begin where they are in force.  Reset them:" >&2
  echo "$found" | sed 's/^/  /' >&2
}

case ${1:-} in
remove | 0)
  if command -v pg_lsclusters >/dev/null; then
    pg_lsclusters -h | while read -r version name _ status owner _; do
      [ "$version" = @VERSION@ ] || continue
      case $status in
      online*) look "$version/$name" "$owner" env PGCLUSTER="$version/$name" psql ;;
      *) echo "gpusort: cluster $version/$name is $status; look there for settings that load gpusort" >&2 ;;
      esac
    done
  elif [ -x /usr/pgsql-@VERSION@/bin/psql ]; then
    look @VERSION@ postgres /usr/pgsql-@VERSION@/bin/psql
  fi
  ;;
esac || true

#DEBHELPER#
