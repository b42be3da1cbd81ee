/*-------------------------------------------------------------------------
 *
 * fault.c
 *		Faults on demand, in builds for tests.
 *
 * Fault injection.  What must work when something fails is tested as SQLite
 * tests it (test/malloc_common.tcl there): fail the first allocation, or
 * whatever the site does, then the second, and so on until the work gets done
 * without passing the site so often; each once alone, as a hiccup, and once
 * with all that follow, as a device that is gone or a disk that is full.
 * test/t/005_standin_faults.pl does that for every site and kind of sort.
 *
 * A superuser sets gpusort.fault to "site:N:code" or "site:N+:code": from then
 * on, the N-th pass of the site by this backend or by the GPU service fails,
 * or the N-th and all later ones.  sites[] below tells the sites and what they
 * can fail with: a SQLSTATE is raised as an error; "refused" stands for a
 * call that says that there is none; a status of gpusort_cuda.h is what the
 * stand-in device answers.  The plan lies in the control block, so that the
 * service finds it, and belongs to the backend that set it, until that sets
 * another or ends.  gpusort.fault_report tells how often the site was passed
 * since, which is whether it has failed, and what is held of everything that
 * nobody may hold between two sorts.
 *
 * Only "make WITH_CUDA=standin" builds this; in all other builds,
 * GPUSORT_FAULT() is 0 and the settings are not there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/parallel.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/guc.h"

#include "control.h"
#include "fault.h"
#include "gpusort_cuda.h"
#include "request.h"

/* What a site can fail with. */
#define REFUSAL		1
#define ERROR_CODE	2
#define STATUS		4

static const struct
{
	const char *name;
	int			fails_with;
}			sites[GPUSORT_FAULT_SITES] = {
	[GPUSORT_FAULT_NONE] = {"", 0},
	[GPUSORT_FAULT_WORKER] = {"worker", REFUSAL},
	[GPUSORT_FAULT_REQUEST] = {"request", REFUSAL},
	[GPUSORT_FAULT_CHUNK] = {"chunk", REFUSAL},
	[GPUSORT_FAULT_SEGMENT] = {"segment", ERROR_CODE},
	[GPUSORT_FAULT_PIECE] = {"piece", REFUSAL},
	[GPUSORT_FAULT_MEMORY] = {"memory", ERROR_CODE},
	[GPUSORT_FAULT_SCRATCH] = {"scratch", REFUSAL},
	[GPUSORT_FAULT_ROWSTORE] = {"rowstore", ERROR_CODE},
	[GPUSORT_FAULT_SPILL_FILE] = {"spill_file", ERROR_CODE},
	[GPUSORT_FAULT_SPILL_WRITE] = {"spill_write", ERROR_CODE},
	[GPUSORT_FAULT_SPILL_READ] = {"spill_read", ERROR_CODE},
	[GPUSORT_FAULT_FREE_CHUNK] = {"free_chunk", REFUSAL},
	[GPUSORT_FAULT_MAP] = {"map", REFUSAL | ERROR_CODE},
	[GPUSORT_FAULT_OPEN] = {"open", STATUS},
	[GPUSORT_FAULT_REGISTER] = {"register", STATUS},
	[GPUSORT_FAULT_UNREGISTER] = {"unregister", STATUS},
	[GPUSORT_FAULT_LANE] = {"lane", STATUS},
	[GPUSORT_FAULT_ALLOCATE] = {"allocate", STATUS},
	[GPUSORT_FAULT_UPLOAD] = {"upload", STATUS},
	[GPUSORT_FAULT_UPLOADED] = {"uploaded", STATUS},
	[GPUSORT_FAULT_SORT] = {"sort", STATUS},
	[GPUSORT_FAULT_DOWNLOAD] = {"download", STATUS},
	[GPUSORT_FAULT_DOWNLOADED] = {"downloaded", STATUS},
};

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

static char *fault_setting;
static char *report_setting;

const char *
gpusort_fault_name(GpusortFaultSite site)
{
	return sites[site].name;
}

/* The status of that name, or 0. */
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

int
gpusort_fault_pass(GpusortFaultSite site)
{
	GpusortFaultPlan *plan;
	uint32		pass;

	if (gpusort_control == NULL)
		return 0;
	plan = &gpusort_control->fault;
	if (pg_atomic_read_u32(&plan->site) != site)
		return 0;
	pg_read_barrier();
	if (plan->owner != MyProcPid && gpusort_control->service_pid != MyProcPid)
		return 0;
	pass = pg_atomic_add_fetch_u32(&plan->passes, 1);
	if (pass < plan->from || (pass > plan->from && !plan->persistent))
		return 0;
	if (plan->sqlstate != 0)
		ereport(ERROR,
				(errcode(plan->sqlstate),
				 errmsg("gpusort.fault: %s failed", sites[site].name)));
	return plan->status;
}

void
gpusort_fault_count_lanes(int lanes)
{
	gpusort_control->fault.lanes = lanes;
}

/* ----------------------------------------------------------------
 *		The settings
 * ----------------------------------------------------------------
 */

/* "site:N:code" or "site:N+:code" */
typedef struct ParsedPlan
{
	GpusortFaultSite site;		/* NONE: nothing is to fail */
	uint32		from;
	bool		persistent;
	int			sqlstate;
	int			status;
} ParsedPlan;

static const char *
list_sites(void)
{
	static char list[512] = "The sites are";

	if (strchr(list, ':') == NULL)
	{
		for (int i = 1; i < GPUSORT_FAULT_SITES; i++)
			snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s %s", i == 1 ? ":" : ",", sites[i].name);
	}
	return list;
}

/* Returns NULL, or what is wrong with the text. */
static const char *
parse_plan(const char *text, ParsedPlan *plan)
{
	char		name[32];
	int			used = 0;
	const char *code;
	int			fails_with = 0;

	memset(plan, 0, sizeof(*plan));
	if (text == NULL || text[0] == '\0')
		return NULL;
	if (sscanf(text, "%31[^:]:%u%n", name, &plan->from, &used) < 2 || plan->from < 1)
		return "It is not of the form site:N:code or site:N+:code.";
	plan->persistent = text[used] == '+';
	code = text + used + plan->persistent;
	if (*code++ != ':')
		return "It is not of the form site:N:code or site:N+:code.";

	for (int i = 1; i < GPUSORT_FAULT_SITES; i++)
	{
		if (strcmp(name, sites[i].name) == 0)
		{
			plan->site = i;
			fails_with = sites[i].fails_with;
		}
	}
	if (plan->site == GPUSORT_FAULT_NONE)
		return list_sites();
	if ((fails_with & REFUSAL) != 0 && strcmp(code, "refused") == 0)
		plan->status = 1;
	else if ((fails_with & STATUS) != 0)
		plan->status = gpusort_fault_status(code);
	else if ((fails_with & ERROR_CODE) != 0 && strspn(code, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 && code[5] == '\0')
		plan->sqlstate = MAKE_SQLSTATE(code[0], code[1], code[2], code[3], code[4]);
	return plan->status == 0 && plan->sqlstate == 0 ? "The site does not fail with this code." : NULL;
}

static bool
check_fault(char **newval, void **extra, GucSource source)
{
	ParsedPlan plan;
	const char *reason = parse_plan(*newval, &plan);

	if (reason != NULL)
		GUC_check_errdetail("%s", reason);
	return reason == NULL;
}

/* Ends the plan, if it is this process's, or puts another in its place. */
static void
set_plan(const ParsedPlan *new)
{
	GpusortFaultPlan *plan = &gpusort_control->fault;

	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	if (plan->owner == MyProcPid || new->site != GPUSORT_FAULT_NONE)
	{
		pg_atomic_write_u32(&plan->site, GPUSORT_FAULT_NONE);
		pg_write_barrier();
		plan->owner = MyProcPid;
		plan->from = new->from;
		plan->persistent = new->persistent;
		plan->sqlstate = new->sqlstate;
		plan->status = new->status;
		if (new->site != GPUSORT_FAULT_NONE)
			pg_atomic_write_u32(&plan->passes, 0);
		/* a service that has failed need not be waited for */
		gpusort_control->retry_at = 0;
		pg_write_barrier();
		pg_atomic_write_u32(&plan->site, new->site);
	}
	LWLockRelease(&gpusort_control->lock);
}

static void
wait_for_ever(int code, Datum arg)
{
	for (;;)
		pause();
}

/* As if another thread were stuck with a lock that this needs. */
void
gpusort_fault_block_end(void)
{
	before_shmem_exit(wait_for_ever, 0);
}

static void
end_plan(int code, Datum arg)
{
	static const ParsedPlan none;

	set_plan(&none);
}

static void
assign_fault(const char *newval, void *extra)
{
	static bool exit_registered = false;
	ParsedPlan plan;
	const char *reason;

	if (!IsUnderPostmaster || IsParallelWorker() || parse_plan(newval, &plan) != NULL ||
		(plan.site == GPUSORT_FAULT_NONE && gpusort_control == NULL) || !gpusort_control_attach(&reason))
		return;
	if (plan.site != GPUSORT_FAULT_NONE && !exit_registered)
	{
		before_shmem_exit(end_plan, 0);
		exit_registered = true;
	}
	set_plan(&plan);
}

static const char *
show_report(void)
{
	static char report[128];
	int			requests = 0;
	int			chunks = 0;
	int			making = 0;

	if (gpusort_control == NULL)
		return "passes=0";
	LWLockAcquire(&gpusort_control->lock, LW_SHARED);
	for (int i = 0; i < GPUSORT_MAX_REQUESTS; i++)
		requests += gpusort_request_state(&gpusort_control->requests[i]) != GPUSORT_REQUEST_FREE;
	for (int i = 0; i < GPUSORT_MAX_CHUNKS; i++)
		chunks += gpusort_control->chunks[i].request >= 0;
	for (int i = 0; i < GPUSORT_MAX_SEGMENTS; i++)
		making += gpusort_control->segments[i].creating;
	snprintf(report, sizeof(report), "passes=%u requests=%d of_these=%d chunks=%d segments_being_made=%d lanes=%d",
			 pg_atomic_read_u32(&gpusort_control->fault.passes), requests, gpusort_requests_held(), chunks, making,
			 gpusort_control->service_pid != 0 ? gpusort_control->fault.lanes : 0);
	LWLockRelease(&gpusort_control->lock);
	return report;
}

void
gpusort_fault_define(void)
{
	DefineCustomStringVariable("gpusort.fault",
							   "Makes a pass of a site fail, as \"site:N:code\" or \"site:N+:code\".",
							   "For tests.",
							   &fault_setting,
							   "",
							   PGC_SUSET, GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   check_fault, assign_fault, NULL);

	DefineCustomStringVariable("gpusort.fault_report",
							   "Shows how often the site was passed, and what sorts hold.",
							   "For tests.",
							   &report_setting,
							   "",
							   PGC_INTERNAL, GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   NULL, NULL, show_report);
}
