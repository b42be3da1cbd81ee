/*-------------------------------------------------------------------------
 *
 * version.c
 *		Detects that different versions of gpusort meet.
 *
 * A new version is installed while the server runs.  Sessions that have loaded the
 * old library keep it, and sessions that load it later get the new one, unless
 * gpusort is in shared_preload_libraries.  So versions meet
 *
 * - in shared memory: the process that makes it leaves its version there.  A process
 *   of another version does not use it, sorts on the CPU by one thread, and says so
 *   in gpusort_status() (base/shmem.c);
 * - in a parallel query: a worker loads the new library and gets a plan from a leader
 *   that has the old one.  Each plan node of gpusort has the leader's version;
 * - in a database whose SQL objects are of another version than the library.  A C
 *   function whose declaration changes gets a new name, as in pg_stat_statements, so
 *   that PostgreSQL does not find it in an older library.  Under its old name, it
 *   checks the number of columns.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/value.h"

#include "base/version.h"

void
gpusort_version_check_columns(TupleDesc declared, int columns)
{
	if (declared->natts != columns)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("gpusort's library and its SQL objects are of different versions"),
				 errdetail("The function is declared with %d columns, but in the library, which is of version %s, it has %d.",
						   declared->natts, GPUSORT_VERSION, columns),
				 errhint("Execute ALTER EXTENSION gpusort UPDATE in this database.")));
}

void
gpusort_version_mark(CustomScan *scan)
{
	scan->custom_private = lappend(scan->custom_private, makeString(pstrdup(GPUSORT_VERSION)));
}

void
gpusort_version_check(const CustomScan *scan)
{
	Node	   *last = scan->custom_private == NIL ? NULL : llast(scan->custom_private);
	const char *version = last != NULL && IsA(last, String) ? strVal(last) : "unknown";

	if (strcmp(version, GPUSORT_VERSION) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the processes of this parallel query have loaded different versions of gpusort"),
				 errdetail("The session has version %s, and its worker has version %s.",
						   version, GPUSORT_VERSION),
				 errhint("Reconnect, so that the session loads the new version.")));
}
