/*-------------------------------------------------------------------------
 *
 * fault.h
 *		Faults on demand, in builds for tests.
 *
 * No type of PostgreSQL's or CUDA's is in here: the stand-in device has sites
 * as well.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_FAULT_H
#define GPUSORT_BASE_FAULT_H

#include <stdbool.h>

/* Where a fault can be injected; gpusort_fault_sites[] has the names. */
typedef enum GpusortFaultSite
{
	GPUSORT_FAULT_NONE,
	/* a backend's */
	GPUSORT_FAULT_WORKER,		/* registering the service */
	GPUSORT_FAULT_REQUEST,		/* taking a request's slot */
	GPUSORT_FAULT_CHUNK,		/* taking a chunk, which may make a segment */
	GPUSORT_FAULT_SEGMENT,		/* making a segment of chunks */
	GPUSORT_FAULT_PIECE,		/* memory for a sorted piece */
	GPUSORT_FAULT_MEMORY,		/* a large buffer */
	GPUSORT_FAULT_SCRATCH,		/* the CPU engine's memory */
	GPUSORT_FAULT_ROWSTORE,		/* memory for rows */
	GPUSORT_FAULT_SPILL_FILE,	/* making the temporary file */
	GPUSORT_FAULT_SPILL_WRITE,
	GPUSORT_FAULT_SPILL_READ,
	/* a backend's and the service's */
	GPUSORT_FAULT_FREE_CHUNK,	/* finding a chunk that is free */
	GPUSORT_FAULT_MAP,			/* mapping a segment that another process made */
	/* the device's */
	GPUSORT_FAULT_OPEN,
	GPUSORT_FAULT_REGISTER,		/* pinning a segment */
	GPUSORT_FAULT_UNREGISTER,
	GPUSORT_FAULT_LANE,
	GPUSORT_FAULT_ALLOCATE,		/* device memory, for keys or for a sort */
	GPUSORT_FAULT_UPLOAD,
	GPUSORT_FAULT_UPLOADED,		/* asking whether uploads are done */
	GPUSORT_FAULT_SORT,
	GPUSORT_FAULT_DOWNLOAD,
	GPUSORT_FAULT_DOWNLOADED,
	GPUSORT_FAULT_SITES
} GpusortFaultSite;

#ifdef GPUSORT_FAULTS

/* How the site can fail: a set of these. */
#define GPUSORT_FAULT_REFUSES		1	/* the call says that there is none */
#define GPUSORT_FAULT_RAISES		2	/* an error with any SQLSTATE */
#define GPUSORT_FAULT_RETURNS		4	/* a status of gpusort_cuda.h */

typedef struct GpusortFaultSiteInfo
{
	const char *name;
	int			fails_by;		/* GPUSORT_FAULT_REFUSES and so on */
} GpusortFaultSiteInfo;

extern const GpusortFaultSiteInfo gpusort_fault_sites[GPUSORT_FAULT_SITES];

/* What is to fail, and from which pass on. */
typedef struct GpusortFaultPlan
{
	GpusortFaultSite site;		/* GPUSORT_FAULT_NONE: nothing */
	unsigned	from;			/* the first pass to fail, from 1 */
	bool		persistent;		/* later passes fail, too */
	int			sqlstate;		/* of the error to raise, or 0 */
	int			status;			/* to return, if no error is raised */
} GpusortFaultPlan;

/*
 * Passes a site.  Returns 0, or the plan's status if the plan says that this
 * pass fails; may raise the plan's error instead.
 */
extern int	gpusort_fault_pass(GpusortFaultSite site);

/*
 * Replaces the plan in shared memory by one that belongs to this process; one
 * for GPUSORT_FAULT_NONE only ends this process's own.  The plan ends with the
 * process.  False if there is no shared memory for it.
 */
extern bool gpusort_fault_set_plan(const GpusortFaultPlan *plan);

/* The plan of any backend holds in this process from now on, which is the GPU service. */
extern void gpusort_fault_serve(void);

/* How often the plan's site was passed, and how many lanes the stand-in has open. */
extern void gpusort_fault_counts(unsigned *passes, int *lanes);

/* For the stand-in device: tells its open lanes. */
extern void gpusort_fault_count_lanes(int lanes);

/* For the stand-in device: from now on, this process gets stuck when it ends. */
extern void gpusort_fault_block_end(void);

#define GPUSORT_FAULT(site)		gpusort_fault_pass(GPUSORT_FAULT_##site)

#else

#define GPUSORT_FAULT(site)		0

#endif

#endif							/* GPUSORT_BASE_FAULT_H */
