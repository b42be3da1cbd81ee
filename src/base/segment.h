/*-------------------------------------------------------------------------
 *
 * segment.h
 *		Segments of dynamic shared memory, without errors.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_SEGMENT_H
#define GPUSORT_BASE_SEGMENT_H

#include "storage/dsm.h"

/* Bytes of a message of gpusort_segment_open() */
#define GPUSORT_SEGMENT_MESSAGE		160

/*
 * Makes a segment of so many bytes if handle is DSM_HANDLE_INVALID, else maps the
 * segment of that handle.  This process has the segment mapped until dsm_detach(),
 * whatever happens to transactions.  A new segment exists as long as a process has
 * it mapped, until the caller pins it.
 *
 * Returns NULL if that fails, and then fills in message, of GPUSORT_SEGMENT_MESSAGE
 * bytes; *gone tells whether the reason is that the segment's file does not exist.
 */
extern dsm_segment *gpusort_segment_open(dsm_handle handle, Size bytes, char *message, bool *gone);

#endif							/* GPUSORT_BASE_SEGMENT_H */
