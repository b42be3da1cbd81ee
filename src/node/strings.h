/*-------------------------------------------------------------------------
 *
 * strings.h
 *		Reads the strings of stored rows, for threads.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_NODE_STRINGS_H
#define GPUSORT_NODE_STRINGS_H

#include "cpu/cpu.h"
#include "node/gather.h"

/* A column of strings of the store */
typedef struct GpusortStrings
{
	const GpusortRowStore *store;
	TupleDesc	desc;			/* of the rows */
	int			attribute;		/* the column's, from 0 */
	bool		is_name;		/* the values are names */
	bool		blank_padded;	/* trailing blanks do not count */
	int			fixed;			/* attributes from the first one on whose offsets are the
								 * same in all rows without NULLs, at most attribute */
	uint32		offset;			/* where the first attribute behind these begins, if aligned */
} GpusortStrings;

/* Prepares reading a column (from 0) of the ORDER BY list. */
extern void gpusort_strings_begin(GpusortStrings *strings, GpusortGather *gather, int column,
								  bool is_name, bool blank_padded);

/*
 * Sets *string to the string in a row of the store, which stays there; its bytes
 * are NULL if it is NULL.  Returns false, with *string undefined, if it is longer
 * than GPUSORT_STRING_BYTES, compressed or stored in a TOAST table, or if the row
 * is older than the column.  Any thread may call this: it raises no error, and
 * allocates and changes nothing.
 */
extern bool gpusort_strings_read(const GpusortStrings *strings, uint32 row, GpusortString *string);

#endif							/* GPUSORT_NODE_STRINGS_H */
