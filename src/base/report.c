/*-------------------------------------------------------------------------
 *
 * report.c
 *		Keeps the report of a session's last sort, for gpusort_last_sort().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/report.h"

/* All zero, with a NULL engine, before the session's first sort. */
static GpusortReport last_sort;
static char last_reason[256];	/* last_sort.reason points here, or is NULL */

/*
 * The user for whom the sort was done.  This may be another user than the
 * session's: a SECURITY DEFINER function and SET ROLE change the current user.
 */
static Oid	last_user;

void
gpusort_report_keep(const GpusortReport *report)
{
	last_sort = *report;
	last_user = GetUserId();
	if (report->reason != NULL)
	{
		strlcpy(last_reason, report->reason, sizeof(last_reason));
		last_sort.reason = last_reason;
	}
}

const GpusortReport *
gpusort_report_last(Oid *user)
{
	*user = last_user;
	return &last_sort;
}
