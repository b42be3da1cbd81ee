/*-------------------------------------------------------------------------
 *
 * check.h
 *		gpusort.verify: what all checks of results have in common.
 *
 * Whatever returns rows in order checks them while it hands them on: each two neighbours by core's
 * comparators, and at the end that the rows that went out are those that came in, by their number
 * and a sum of hashes, which does not depend on their order.  What fails raises an error, so that
 * nothing wrong is handed on.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_CHECK_H
#define GPUSORT_BASE_CHECK_H

#include "nodes/execnodes.h"
#include "utils/sortsupport.h"

#include "base/stat.h"
#include "compat.h"

/* ---- rows in any order ---- */

typedef struct GpusortChecksum
{
	uint64		rows;
	uint64		sum;			/* of the hashes of all rows */
} GpusortChecksum;

static inline void
gpusort_checksum_add(GpusortChecksum *checksum, uint64 hash)
{
	checksum->rows++;
	checksum->sum += hash;
}

/* Adds all rows of another checksum. */
static inline void
gpusort_checksum_join(GpusortChecksum *checksum, const GpusortChecksum *more)
{
	checksum->rows += more->rows;
	checksum->sum += more->sum;
}

static inline bool
gpusort_checksum_equal(const GpusortChecksum *a, const GpusortChecksum *b)
{
	return a->rows == b->rows && a->sum == b->sum;
}

/* Adds a word to a hash.  Another word makes another hash. */
static inline uint64
gpusort_check_hash_word(uint64 hash, uint64 word)
{
	hash = (hash ^ word) * UINT64CONST(0x9E3779B97F4A7C15);
	return hash ^ (hash >> 32);
}

/*
 * Adds a value of a type to a hash: what a copy of the value in a tuple has in common with it.  So a short header
 * counts as a long one, and an expanded object as its flat form.  byval, length: the type's.
 */
extern uint64 gpusort_check_hash_value(uint64 hash, Datum value, bool isnull, bool byval, int length);

/* Returns the hash of a row: all of its columns. */
extern uint64 gpusort_check_hash_slot(TupleTableSlot *slot);

/* ---- neighbours ---- */

/* The columns by which rows are in order, and core's comparators */
typedef struct GpusortCheckOrder
{
	int			n;
	SortSupport keys;			/* ssup_attno is the column in a row */
	MemoryContext cxt;			/* what comparators allocate */
} GpusortCheckOrder;

/* Makes an order by sort operators, as tuplesort_begin_heap() does, in the current memory context. */
extern void gpusort_check_order_init(GpusortCheckOrder *order, int n, const AttrNumber *attnos, const Oid *operators,
									 const Oid *collations, const bool *nulls_first);

/* Compares the rows in two slots.  *column: the one of the order, from 0, that decides; n: all are equal. */
extern int	gpusort_check_compare(const GpusortCheckOrder *order, TupleTableSlot *a, TupleTableSlot *b, int *column);

/* ---- failures ---- */

/* The sort, aggregation or build whose result is checked */
typedef struct GpusortCheckSubject
{
	GpusortStatKind kind;
	const char *name;			/* for the message: GpuSort, index "i" */
	const char *engine;			/* as in GpusortReport */
	PlanState  *node;			/* its plan goes to the log; NULL: there is none */
} GpusortCheckSubject;

/*
 * Counts a failed check, writes the plan to the log, and raises ERRCODE_DATA_CORRUPTED.  detail: a sentence with the numbers
 * and the places.
 */
GPUSORT_NORETURN extern void gpusort_check_fail(const GpusortCheckSubject *subject, const char *detail);

/* Other rows went out than came in. */
GPUSORT_NORETURN extern void gpusort_check_fail_rows(const GpusortCheckSubject *subject, const GpusortChecksum *in,
													 const GpusortChecksum *out);

#endif							/* GPUSORT_BASE_CHECK_H */
