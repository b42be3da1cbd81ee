/*-------------------------------------------------------------------------
 *
 * fault.h
 *		Fault injection, in the build with the stand-in device.
 *
 * src/base/fault.h has the macro by which src/ passes a site.  This header uses no types of
 * PostgreSQL or CUDA, because the stand-in device includes it, too.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_TEST_FAULT_H
#define GPUSORT_TEST_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The sites where a fault can be injected.  gpusort_fault_sites[] has their names. */
typedef enum GpusortFaultSite
{
	GPUSORT_FAULT_NONE,
	/* sites in a backend */
	GPUSORT_FAULT_WORKER,		/* registering the service's background worker */
	GPUSORT_FAULT_REQUEST,		/* taking a slot for a request */
	GPUSORT_FAULT_ARENA,		/* allocating in an arena */
	GPUSORT_FAULT_MEMORY,		/* allocating a large buffer */
	GPUSORT_FAULT_SCRATCH,		/* allocating the CPU engine's memory */
	GPUSORT_FAULT_ROWSTORE,		/* allocating memory for rows */
	GPUSORT_FAULT_SPILL_FILE,	/* creating a temporary file */
	GPUSORT_FAULT_SPILL_WRITE,	/* writing an extent */
	GPUSORT_FAULT_SPILL_READ,	/* reading an extent */
	/* sites in a backend that break a result (gpusort.verify) */
	GPUSORT_FAULT_SORTED,		/* of an engine: row numbers or keys */
	GPUSORT_FAULT_RESULT,		/* of a sort in memory, complete */
	GPUSORT_FAULT_ROW,			/* the bytes of its first row */
	GPUSORT_FAULT_WINDOW,		/* rows that are copied ahead, or have come from the device */
	GPUSORT_FAULT_MERGED,		/* a row or a value of the merge of spilled runs */
	GPUSORT_FAULT_INDEX_PAGE,	/* reading a page of a table for a build, without core */
	/* what a build of a btree makes wrong, in a leaf or for it */
	GPUSORT_FAULT_INDEX_ORDER,	/* the order of the first items */
	GPUSORT_FAULT_INDEX_ITEM,	/* the TID of the first item */
	GPUSORT_FAULT_INDEX_COUNT,	/* the first item, which is left out */
	GPUSORT_FAULT_INDEX_HIGH_KEY,	/* the high key */
	GPUSORT_FAULT_INDEX_POINTER,	/* the pointer to the page, in the level above */
	GPUSORT_FAULT_INDEX_UNIQUE, /* that a key comes again, which is not reported */
	/* sites in a backend and in the service */
	GPUSORT_FAULT_MAP,			/* mapping a file of another process */
	/* sites in the stand-in device */
	GPUSORT_FAULT_OPEN,			/* opening the device */
	GPUSORT_FAULT_REGISTER,		/* pinning a part of a file */
	GPUSORT_FAULT_UNREGISTER,	/* unpinning it */
	GPUSORT_FAULT_LANE,			/* opening a lane */
	GPUSORT_FAULT_RESERVE,		/* making room on the device for keys or rows */
	GPUSORT_FAULT_ALLOCATE,		/* allocating device memory for a sort */
	GPUSORT_FAULT_UPLOAD,		/* starting an upload */
	GPUSORT_FAULT_UPLOADED,		/* asking whether uploads are complete */
	GPUSORT_FAULT_SORT,			/* sorting */
	GPUSORT_FAULT_TIES,			/* marking the ties of a sort */
	GPUSORT_FAULT_ARRANGE,		/* dividing sorted rows into windows */
	GPUSORT_FAULT_GATHER,		/* copying the rows of a window */
	GPUSORT_FAULT_DOWNLOAD,		/* starting a download */
	GPUSORT_FAULT_DOWNLOADED,	/* asking whether downloads are complete */
	GPUSORT_FAULT_SITES			/* number of the above */
} GpusortFaultSite;

/* gpusort exports all of this for the stand-in device, which is in the library gpusort_cuda. */
#pragma GCC visibility push(default)

/* The ways in which a site can fail, as a bit set */
#define GPUSORT_FAULT_REFUSES		1	/* the call reports that it got nothing */
#define GPUSORT_FAULT_RAISES		2	/* the call raises an error with any SQLSTATE */
#define GPUSORT_FAULT_RETURNS		4	/* the call returns a status of the device */
#define GPUSORT_FAULT_BREAKS		8	/* the result is wrong, in one of these ways: */

typedef enum GpusortFaultBreak
{
	GPUSORT_FAULT_BREAK_NOTHING,
	GPUSORT_FAULT_BREAK_ORDER,	/* the first element and the last one change places */
	GPUSORT_FAULT_BREAK_BIT,	/* the first element has another last bit */
	GPUSORT_FAULT_BREAK_DROPPED,	/* the first element is missing */
	GPUSORT_FAULT_BREAK_TWICE,	/* the first element comes in place of the second one, too */
	GPUSORT_FAULT_BREAK_WAYS
} GpusortFaultBreak;

typedef struct GpusortFaultSiteInfo
{
	const char *name;
	int			fails_by;		/* set of GPUSORT_FAULT_REFUSES and so on */
} GpusortFaultSiteInfo;

extern const GpusortFaultSiteInfo gpusort_fault_sites[GPUSORT_FAULT_SITES];

/* The plan: which site fails, in which passes, and how */
typedef struct GpusortFaultPlan
{
	GpusortFaultSite site;		/* GPUSORT_FAULT_NONE: no site */
	unsigned	from;			/* the first pass to fail, from 1 */
	bool		persistent;		/* all later passes fail, too */
	int			sqlstate;		/* SQLSTATE of the error to raise, or 0 */
	int			status;			/* status to return if sqlstate is 0 */
} GpusortFaultPlan;

/*
 * Passes a site.  Returns 0 if this pass does not fail.  If the plan says that
 * it fails, returns the plan's status, or raises the plan's error.
 */
extern int	gpusort_fault_pass(GpusortFaultSite site);

/* Passes a site that breaks a result of *n elements, of width bytes. */
extern void gpusort_fault_break(GpusortFaultSite site, void *elements, size_t width, uint64_t *n);

/*
 * Replaces the plan in shared memory by this process's plan.  A plan for
 * GPUSORT_FAULT_NONE ends this process's plan, but not another process's.  The
 * plan ends with the process.  Returns false if there is no shared memory for it.
 */
extern bool gpusort_fault_set_plan(const GpusortFaultPlan *plan);

/* Makes every backend's plan apply to this process as well: the GPU service. */
extern void gpusort_fault_serve(void);

/* Makes the plan of a parallel worker's leader apply to this process, the worker, as well. */
extern void gpusort_fault_follow(void);

/* Returns the passes of the plan's site, and the lanes that the stand-in has open. */
extern void gpusort_fault_counts(unsigned *passes, int *lanes);

/* The timeout of a call of the device: GPUSORT_STANDIN_PATIENCE if it is set, in ms. */
extern int	gpusort_fault_patience(int ms);

/* For the stand-in device: records how many lanes it has open. */
extern void gpusort_fault_count_lanes(int lanes);

/* For the stand-in device: makes this process hang when it exits. */
extern void gpusort_fault_block_end(void);

/*
 * The device's status, a GpusortCudaStatus, of a name such as "no_memory"; 0 if no
 * status has this name.  Tests use the names in gpusort.fault and GPUSORT_STANDIN.
 */
extern int	gpusort_fault_status(const char *name);

/* Defines the settings gpusort.fault and gpusort.fault_report.  _PG_init calls it. */
extern void gpusort_fault_define(void);

#pragma GCC visibility pop

#endif							/* GPUSORT_TEST_FAULT_H */
