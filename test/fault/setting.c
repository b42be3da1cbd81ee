/*-------------------------------------------------------------------------
 *
 * setting.c
 *		The settings gpusort.fault and gpusort.fault_report of builds for tests.
 *
 * gpusort.fault has the form "site:N:code" or "site:N+:code".  It makes the N-th
 * pass of the site fail, in this backend or in the GPU service; with "+", all
 * later passes fail, too.  gpusort_fault_sites[] (test/fault/fault.c) lists the sites
 * and how each can fail.  The code is one of:
 *
 *	a SQLSTATE: the site raises an error with it;
 *	"refused": the call at the site reports that it got nothing;
 *	the name of a status of kernels/status.h: the stand-in device returns it.
 *
 * gpusort.fault_report shows how often the site was passed since the plan was
 * set, and how many requests and lanes all sorts hold; "of_these" is the number of requests of this
 * backend.  Between two sorts all numbers but the first must be 0.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "fault/fault.h"
#include "gpu/gpu.h"
#include "status.h"

static const struct
{
	const char *name;
	GpusortCudaStatus status;
}			statuses[] = {
	{"busy", GPUSORT_CUDA_BUSY},
	{"no_driver", GPUSORT_CUDA_NO_DRIVER},
	{"old_driver", GPUSORT_CUDA_OLD_DRIVER},
	{"no_device", GPUSORT_CUDA_NO_DEVICE},
	{"no_memory", GPUSORT_CUDA_NO_MEMORY},
	{"unsorted", GPUSORT_CUDA_UNSORTED},
	{"fault", GPUSORT_CUDA_FAULT},
};

/* By GpusortFaultBreak */
static const char *const ways[] = {NULL, "order", "bit", "dropped", "twice"};

StaticAssertDecl(lengthof(ways) == GPUSORT_FAULT_BREAK_WAYS, "all ways have names");

static char *fault_setting;
static char *report_setting;

int
gpusort_fault_status(const char *name)
{
	for (int i = 0; i < lengthof(statuses); i++)
	{
		if (strcmp(name, statuses[i].name) == 0)
			return statuses[i].status;
	}
	return 0;
}

/* A sentence with the names of all sites; static memory. */
static const char *
list_sites(void)
{
	static char list[512] = "The sites are";

	if (strchr(list, ':') == NULL)
	{
		for (int i = 1; i < GPUSORT_FAULT_SITES; i++)
			snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s %s", i == 1 ? ":" : ",", gpusort_fault_sites[i].name);
	}
	return list;
}

/*
 * Parses a value of gpusort.fault.  An empty value is the plan that nothing
 * fails.  Returns NULL, or a static text that explains the error.
 */
static const char *
parse_plan(const char *text, GpusortFaultPlan *plan)
{
	char		name[32];
	int			used = 0;
	const char *code;
	int			fails_by = 0;

	memset(plan, 0, sizeof(*plan));
	if (text == NULL || text[0] == '\0')
		return NULL;
	if (sscanf(text, "%31[^:]:%u%n", name, &plan->from, &used) < 2 || plan->from < 1)
		return "The value must have the form site:N:code or site:N+:code.";
	plan->persistent = text[used] == '+';
	code = text + used + plan->persistent;
	if (*code++ != ':')
		return "The value must have the form site:N:code or site:N+:code.";

	for (int i = 1; i < GPUSORT_FAULT_SITES; i++)
	{
		if (strcmp(name, gpusort_fault_sites[i].name) == 0)
		{
			plan->site = i;
			fails_by = gpusort_fault_sites[i].fails_by;
		}
	}
	if (plan->site == GPUSORT_FAULT_NONE)
		return list_sites();
	if ((fails_by & GPUSORT_FAULT_REFUSES) != 0 && strcmp(code, "refused") == 0)
		plan->status = 1;
	for (int i = 1; (fails_by & GPUSORT_FAULT_BREAKS) != 0 && i < GPUSORT_FAULT_BREAK_WAYS; i++)
	{
		if (strcmp(code, ways[i]) == 0)
			plan->status = i;
	}
	if (plan->status == 0 && (fails_by & GPUSORT_FAULT_RETURNS) != 0)
		plan->status = gpusort_fault_status(code);
	if ((fails_by & GPUSORT_FAULT_RAISES) != 0 && strspn(code, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 && code[5] == '\0')
		plan->sqlstate = MAKE_SQLSTATE(code[0], code[1], code[2], code[3], code[4]);
	return plan->status == 0 && plan->sqlstate == 0 ? "This site cannot fail with this code." : NULL;
}

static bool
check_fault(char **newval, void **extra, GucSource source)
{
	GpusortFaultPlan plan;
	const char *reason = parse_plan(*newval, &plan);

	if (reason != NULL)
		GUC_check_errdetail("%s", reason);
	return reason == NULL;
}

static void
assign_fault(const char *newval, void *extra)
{
	GpusortFaultPlan plan;
	const char *reason;

	if (IsParallelWorker())
	{
		gpusort_fault_follow();
		return;
	}
	if (!IsUnderPostmaster || parse_plan(newval, &plan) != NULL ||
		(plan.site == GPUSORT_FAULT_NONE && gpusort_control == NULL) ||
		!gpusort_control_attach(&reason))
		return;
	/* let the next sort start a service at once, even if one has failed recently */
	gpusort_control->retry_at = 0;
	(void) gpusort_fault_set_plan(&plan);
}

static const char *
show_report(void)
{
	static char report[128];
	int			requests = 0;
	int			mine = 0;
	unsigned	passes;
	int			lanes;

	gpusort_fault_counts(&passes, &lanes);
	if (gpusort_control == NULL)
		return "passes=0";
	for (int i = 0; i < gpusort_control->nrequests; i++)
	{
		GpusortRequest *request = &gpusort_control->requests[i];
		bool		used = gpusort_request_state(request) != GPUSORT_REQUEST_FREE;

		requests += used;
		mine += used && request->pid == MyProcPid;
	}
	snprintf(report, sizeof(report), "passes=%u requests=%d of_these=%d lanes=%d",
			 passes, requests, mine, pg_atomic_read_u32(&gpusort_control->service_pid) != 0 ? lanes : 0);
	return report;
}

void
gpusort_fault_define(void)
{
	DefineCustomStringVariable("gpusort.fault",
							   "Makes the N-th pass of a site fail (\"site:N:code\"), or all from it on (\"site:N+:code\").",
							   "For tests.",
							   &fault_setting,
							   "",
							   PGC_SUSET, GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   check_fault, assign_fault, NULL);

	DefineCustomStringVariable("gpusort.fault_report",
							   "Shows how often the site of gpusort.fault was passed, and what sorts hold.",
							   "For tests.",
							   &report_setting,
							   "",
							   PGC_INTERNAL, GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   NULL, NULL, show_report);
}
