/*-------------------------------------------------------------------------
 *
 * row.h
 *		A row as the stores of a sort keep it, in memory and in temporary files.
 *
 * A row is either a minimal tuple or bare.  The header of a tuple takes 16 bytes, as
 * much as many values.  So if the rows of a sort have a single column and that is a
 * varlena, they are bare: a row is the value itself, without a tuple.  The bare row of
 * NULL is a uint32 of 0, which no varlena begins with.
 *
 * Rows are MAXALIGNed, and 4 bytes can be read of each, even if it is shorter.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_STORE_ROW_H
#define GPUSORT_STORE_ROW_H

#include "access/htup_details.h"
#include "executor/tuptable.h"

#include "compat.h"

/* Is a bare row the row of NULL? */
static inline bool
gpusort_row_is_null(const void *row)
{
	return *(const uint32 *) row == 0;
}

/* Returns a row's size in bytes, without padding. */
static inline Size
gpusort_row_bytes(const void *row, bool bare)
{
	if (!bare)
		return ((const MinimalTupleData *) row)->t_len;
	return gpusort_row_is_null(row) ? sizeof(uint32) : VARSIZE_ANY(row);
}

/* Copies the first and the last bytes, which may overlap, and loads both before it stores them. */
#define COPY_ENDS(type) \
	do { \
		type		first; \
		type		last; \
\
		memcpy(&first, from, sizeof(type)); \
		memcpy(&last, from + bytes - sizeof(type), sizeof(type)); \
		memcpy(to, &first, sizeof(type)); \
		memcpy(to + bytes - sizeof(type), &last, sizeof(type)); \
	} while (0)

/* memmove() for short rows and values, without a call: to is not above from, or they do not overlap. */
static pg_attribute_always_inline void
gpusort_row_copy(char *to, const char *from, Size bytes)
{
	/* each step loads before it stores, and the last bytes are loaded first */
	if (likely(bytes >= 16 && bytes <= 128))
	{
		uint64		last[2];

		memcpy(last, from + bytes - 16, 16);
		for (Size i = 0; i < bytes - 16; i += 16)
		{
			uint64		part[2];

			memcpy(part, from + i, 16);
			memcpy(to + i, part, 16);
		}
		memcpy(to + bytes - 16, last, 16);
	}
	else if (likely(bytes >= 8 && bytes < 16))
		COPY_ENDS(uint64);
	else if (likely(bytes >= 4 && bytes < 8))
		COPY_ENDS(uint32);
	else
		memmove(to, from, bytes);
}

#undef COPY_ENDS

/*
 * Puts a row into a slot, which must be virtual if rows are bare, and else of minimal
 * tuples.  The row stays where it is.
 */
static inline void
gpusort_row_put(const void *row, bool bare, TupleTableSlot *slot)
{
	if (!bare)
	{
		ExecStoreMinimalTuple((MinimalTuple) row, slot, false);
		return;
	}
	ExecClearTuple(slot);
	slot->tts_values[0] = PointerGetDatum(row);
	slot->tts_isnull[0] = gpusort_row_is_null(row);
	ExecStoreVirtualTuple(slot);
}

#endif							/* GPUSORT_STORE_ROW_H */
