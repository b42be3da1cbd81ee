/*-------------------------------------------------------------------------
 *
 * fault.c
 *		Fault injection, in the build with the stand-in device.
 *
 * A site is a call in the code that can be made to fail: an allocation, an open
 * or a copy.  A test makes the first pass of a site fail, then the second, and
 * so on until a sort passes the site less often than that.  Each pass fails once
 * alone, like a passing shortage, and once together with all later passes, like
 * a lost device or a full disk.  SQLite's tests use this method
 * (test/malloc_common.tcl there).  test/t/005_standin_faults.pl covers every
 * site and kind of sort.
 *
 * The fault plan says which site fails and how.  It lies in shared memory,
 * because it also applies to the GPU service and to parallel workers, and belongs to the
 * backend that set it.  Other backends ignore it.  Superusers set it by gpusort.fault
 * (test/fault/setting.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/spin.h"

#include "base/shmem.h"
#include "fault/fault.h"

const GpusortFaultSiteInfo gpusort_fault_sites[GPUSORT_FAULT_SITES] = {
	[GPUSORT_FAULT_NONE] = {"", 0},
	[GPUSORT_FAULT_WORKER] = {"worker", GPUSORT_FAULT_REFUSES},
	[GPUSORT_FAULT_REQUEST] = {"request", GPUSORT_FAULT_REFUSES},
	[GPUSORT_FAULT_ARENA] = {"arena", GPUSORT_FAULT_REFUSES},
	[GPUSORT_FAULT_MEMORY] = {"memory", GPUSORT_FAULT_RAISES},
	[GPUSORT_FAULT_SCRATCH] = {"scratch", GPUSORT_FAULT_REFUSES},
	[GPUSORT_FAULT_ROWSTORE] = {"rowstore", GPUSORT_FAULT_RAISES},
	[GPUSORT_FAULT_SPILL_FILE] = {"spill_file", GPUSORT_FAULT_RAISES},
	[GPUSORT_FAULT_SPILL_WRITE] = {"spill_write", GPUSORT_FAULT_RAISES},
	[GPUSORT_FAULT_SPILL_READ] = {"spill_read", GPUSORT_FAULT_RAISES},
	[GPUSORT_FAULT_SORTED] = {"sorted", GPUSORT_FAULT_BREAKS},
	[GPUSORT_FAULT_RESULT] = {"result", GPUSORT_FAULT_BREAKS},
	[GPUSORT_FAULT_ROW] = {"row", GPUSORT_FAULT_BREAKS},
	[GPUSORT_FAULT_WINDOW] = {"window", GPUSORT_FAULT_BREAKS},
	[GPUSORT_FAULT_MERGED] = {"merged", GPUSORT_FAULT_BREAKS},
	[GPUSORT_FAULT_INDEX_PAGE] = {"index_page", GPUSORT_FAULT_REFUSES},
	[GPUSORT_FAULT_INDEX_ORDER] = {"index_order", GPUSORT_FAULT_REFUSES},
	[GPUSORT_FAULT_INDEX_ITEM] = {"index_item", GPUSORT_FAULT_REFUSES},
	[GPUSORT_FAULT_INDEX_COUNT] = {"index_count", GPUSORT_FAULT_REFUSES},
	[GPUSORT_FAULT_INDEX_HIGH_KEY] = {"index_high_key", GPUSORT_FAULT_REFUSES},
	[GPUSORT_FAULT_INDEX_POINTER] = {"index_pointer", GPUSORT_FAULT_REFUSES},
	[GPUSORT_FAULT_INDEX_UNIQUE] = {"index_unique", GPUSORT_FAULT_REFUSES},
	[GPUSORT_FAULT_MAP] = {"map", GPUSORT_FAULT_REFUSES},
	[GPUSORT_FAULT_OPEN] = {"open", GPUSORT_FAULT_RETURNS},
	[GPUSORT_FAULT_REGISTER] = {"register", GPUSORT_FAULT_RETURNS},
	[GPUSORT_FAULT_UNREGISTER] = {"unregister", GPUSORT_FAULT_RETURNS},
	[GPUSORT_FAULT_LANE] = {"lane", GPUSORT_FAULT_RETURNS},
	[GPUSORT_FAULT_RESERVE] = {"reserve", GPUSORT_FAULT_RETURNS},
	[GPUSORT_FAULT_ALLOCATE] = {"allocate", GPUSORT_FAULT_RETURNS},
	[GPUSORT_FAULT_UPLOAD] = {"upload", GPUSORT_FAULT_RETURNS},
	[GPUSORT_FAULT_UPLOADED] = {"uploaded", GPUSORT_FAULT_RETURNS},
	[GPUSORT_FAULT_SORT] = {"sort", GPUSORT_FAULT_RETURNS},
	[GPUSORT_FAULT_TIES] = {"ties", GPUSORT_FAULT_RETURNS},
	[GPUSORT_FAULT_ARRANGE] = {"arrange", GPUSORT_FAULT_RETURNS},
	[GPUSORT_FAULT_GATHER] = {"gather", GPUSORT_FAULT_RETURNS},
	[GPUSORT_FAULT_DOWNLOAD] = {"download", GPUSORT_FAULT_RETURNS},
	[GPUSORT_FAULT_DOWNLOADED] = {"downloaded", GPUSORT_FAULT_RETURNS},
};

typedef struct SharedPlan
{
	slock_t		lock;
	pg_atomic_uint32 site;		/* GpusortFaultSite; set last, cleared first */
	int			owner;			/* pid of the backend that set the plan */
	GpusortFaultPlan plan;		/* constant while site is set */
	pg_atomic_uint32 passes;	/* passes of the site since the plan was set */
	int			lanes;			/* lanes that the stand-in device has open */
} SharedPlan;

static SharedPlan *shared = NULL;	/* NULL until attached */
static bool serves = false;		/* this process is the GPU service */
static int	followed = 0;		/* pid of the leader whose parallel worker this process is, or 0 */

static void
init_shared(void *made)
{
	memset(made, 0, sizeof(SharedPlan));
	SpinLockInit(&((SharedPlan *) made)->lock);
	pg_atomic_init_u32(&((SharedPlan *) made)->site, GPUSORT_FAULT_NONE);
	pg_atomic_init_u32(&((SharedPlan *) made)->passes, 0);
}

static bool
attach(void)
{
	static GpusortShmem shmem = {GPUSORT_SHMEM_NAME("faults"), sizeof(SharedPlan), init_shared};

	if (shared == NULL && gpusort_shmem_attach(&shmem))
		shared = shmem.mem;
	return shared != NULL;
}

int
gpusort_fault_pass(GpusortFaultSite site)
{
	const GpusortFaultPlan *plan;
	uint32		pass;

	if (shared == NULL || pg_atomic_read_u32(&shared->site) != site)
		return 0;
	pg_read_barrier();
	if (shared->owner != MyProcPid && shared->owner != followed && !serves)
		return 0;
	plan = &shared->plan;
	pass = pg_atomic_add_fetch_u32(&shared->passes, 1);
	if (pass < plan->from || (pass > plan->from && !plan->persistent))
		return 0;
	if (plan->sqlstate != 0)
		ereport(ERROR,
				(errcode(plan->sqlstate),
				 errmsg("gpusort.fault: %s failed", gpusort_fault_sites[site].name)));
	return plan->status;
}

void
gpusort_fault_break(GpusortFaultSite site, void *elements, size_t width, uint64_t *n)
{
	int			way = gpusort_fault_pass(site);
	char	   *first = elements;

	for (size_t i = 0; way == GPUSORT_FAULT_BREAK_ORDER && *n > 1 && i < width; i++)
	{
		char	   *last = first + (*n - 1) * width + i;
		char		byte = first[i];

		first[i] = *last;
		*last = byte;
	}
	if (way == GPUSORT_FAULT_BREAK_BIT && *n > 0)
		first[width == sizeof(uint32_t) || width == sizeof(uint64_t) ? 0 : width - 1] ^= 1;
	if (way == GPUSORT_FAULT_BREAK_DROPPED && *n > 0)
		memmove(first, first + width, --*n * width);
	if (way == GPUSORT_FAULT_BREAK_TWICE && *n > 1)
		memcpy(first + width, first, width);
}

static void
end_plan(int code, Datum arg)
{
	static const GpusortFaultPlan none;

	(void) gpusort_fault_set_plan(&none);
}

bool
gpusort_fault_set_plan(const GpusortFaultPlan *plan)
{
	static bool exit_registered = false;

	if (plan->site == GPUSORT_FAULT_NONE && shared == NULL)
		return true;
	if (!attach())
		return false;
	if (plan->site != GPUSORT_FAULT_NONE && !exit_registered)
	{
		before_shmem_exit(end_plan, 0);
		exit_registered = true;
	}
	SpinLockAcquire(&shared->lock);
	if (shared->owner == MyProcPid || plan->site != GPUSORT_FAULT_NONE)
	{
		pg_atomic_write_u32(&shared->site, GPUSORT_FAULT_NONE);
		pg_write_barrier();
		shared->owner = MyProcPid;
		shared->plan = *plan;
		if (plan->site != GPUSORT_FAULT_NONE)
			pg_atomic_write_u32(&shared->passes, 0);
		pg_write_barrier();
		pg_atomic_write_u32(&shared->site, plan->site);
	}
	SpinLockRelease(&shared->lock);
	return true;
}

void
gpusort_fault_serve(void)
{
	serves = attach();
}

void
gpusort_fault_follow(void)
{
	if (attach() && MyProc->lockGroupLeader != NULL)
		followed = MyProc->lockGroupLeader->pid;
}

void
gpusort_fault_counts(unsigned *passes, int *lanes)
{
	bool		attached = attach();

	*passes = attached ? pg_atomic_read_u32(&shared->passes) : 0;
	*lanes = attached ? shared->lanes : 0;
}

void
gpusort_fault_count_lanes(int lanes)
{
	if (shared != NULL)
		shared->lanes = lanes;
}

int
gpusort_fault_patience(int ms)
{
	const char *patience = getenv("GPUSORT_STANDIN_PATIENCE");

	return patience != NULL ? atoi(patience) : ms;
}

static void
wait_for_ever(int code, Datum arg)
{
	for (;;)
		pause();
}

/* Makes the exit of this process wait forever, as if another thread held a lock that it needs. */
void
gpusort_fault_block_end(void)
{
	before_shmem_exit(wait_for_ever, 0);
}
