/*-------------------------------------------------------------------------
 *
 * report.h
 *		The report of a sort, which gpusort_last_sort() shows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_REPORT_H
#define GPUSORT_BASE_REPORT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The report of one sort.  Times are in milliseconds.  The last stages overlap: the
 * caller gets the first rows while others are copied from the device.  So each
 * stage is at most the total, but their sum may exceed it.  Runs of a few rows are
 * not timed (run/sort.c); gather_ms, return_ms and total_ms are 0 then.
 */
typedef struct GpusortReport
{
	uint64_t	rows;
	const char *key_type;		/* static */
	const char *engine;			/* "cpu" or "cuda", of an index also "core"; static */
	const char *algorithm;		/* static */
	double		gather_ms;		/* from the begin of the run until its sort */
	uint64_t	gather_bytes;	/* bytes of all keys */
	double		copy_in_ms;		/* copies to the device; 0 if it was not used */
	uint64_t	copy_in_bytes;
	double		kernels_ms;		/* the sort itself, on the device or the CPU */
	double		arrange_ms;		/* finding the places of rows in order, on the device */
	double		wait_ms;		/* that the caller has waited for rows */
	double		copy_out_ms;	/* copies from the device; 0 if it was not used */
	uint64_t	copy_out_bytes;
	double		return_ms;		/* from the end of the sort until the caller has the
								 * result */
	bool		pinned;			/* all keys were in memory registered with CUDA */
	int			blocks;			/* blocks of the largest kernel launch; 0: no device */
	int			threads;		/* threads of a block of that launch, or threads of the CPU
								 * engine */
	int			bins;			/* bins of the first partition: 1 if the CPU engine made
								 * none, 0 if the device did not run mppsort */
	double		total_ms;		/* from the begin of the run until its finish */
	uint64_t	memory;			/* for base/stat.h, of a whole sort of a node: bytes at its peak */
	uint64_t	disk;			/* bytes of temporary files */
	int			runs;			/* spilled ones */
	int			workers;		/* that have gathered rows */
	bool		checked;		/* the result has been checked (gpusort.verify) */
	bool		failed;			/* and was wrong; nothing else is known */
	const char *reason;			/* why the GPU did not sort; NULL if it did or was not
								 * asked for; valid until the run ends */
} GpusortReport;

/*
 * Keeps a copy of the report, and of its reason, as the session's last sort, done
 * for the current user.
 */
extern void gpusort_report_keep(const GpusortReport *report);

/*
 * The report of the session's last sort; static, overwritten by the next gpusort_report_keep().  Its
 * engine is NULL before the session's first sort.  *user: for whom the sort was done.
 */
extern const GpusortReport *gpusort_report_last(Oid *user);

#endif							/* GPUSORT_BASE_REPORT_H */
