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
#ifndef GPUSORT_FAULT_H
#define GPUSORT_FAULT_H

/* Where something can be made to fail; fault.c has the names. */
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

/*
 * Passes a site.  Returns 0, or if the plan says so, a status that is not; may
 * raise the planned error instead.
 */
extern int	gpusort_fault_pass(GpusortFaultSite site);

/* Defines the settings gpusort.fault and gpusort.fault_report. */
extern void gpusort_fault_define(void);

/* For the stand-in device: names, and its open lanes, which the report shows. */
extern const char *gpusort_fault_name(GpusortFaultSite site);
extern int	gpusort_fault_status(const char *name);
extern void gpusort_fault_count_lanes(int lanes);

/* For the same: from now on, this process gets stuck when it ends. */
extern void gpusort_fault_block_end(void);

#define GPUSORT_FAULT(site)		gpusort_fault_pass(GPUSORT_FAULT_##site)

#else

#define GPUSORT_FAULT(site)		0

#endif

#endif							/* GPUSORT_FAULT_H */
