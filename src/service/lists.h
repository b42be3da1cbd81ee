/*-------------------------------------------------------------------------
 *
 * lists.h
 *		What a request says of the files of its session, as the GPU service has read it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_LISTS_H
#define GPUSORT_SERVICE_LISTS_H

#include "gpu/lists.h"
#include "service/files.h"

/* Places that have been checked, and files that are open.  It begins with all fields 0. */
typedef struct GpusortJobInput
{
	GpusortLists lists;
	const GpusortListedKeys *keys;
	const GpusortListedRows *rows;
	GpusortServiceFile **files;
	int			nopen;			/* of files */
	uint64		row_bytes;		/* bytes of rows and directories on the device; 0: rows stay where they are */
} GpusortJobInput;

static inline Size
gpusort_input_width(const GpusortRequest *request)
{
	return (Size) request->key_bytes * request->words;
}

static inline uint64
gpusort_input_key_bytes(const GpusortRequest *request)
{
	return request->rows * gpusort_input_width(request);
}

static inline uint64
gpusort_input_result_bytes(const GpusortRequest *request)
{
	return request->rows * (request->positions ? sizeof(uint32) : request->key_bytes);
}

/*
 * Reads and checks the lists of a request, and opens its files; sets request->pinned.  The memory is in
 * cxt.  Returns NULL, or a reason, a static text.  The caller ends the input in any case.
 */
extern const char *gpusort_input_read(GpusortJobInput *in, GpusortRequest *request, MemoryContext cxt);

/* Closes the files. */
extern void gpusort_input_end(GpusortJobInput *in);

#endif							/* GPUSORT_SERVICE_LISTS_H */
