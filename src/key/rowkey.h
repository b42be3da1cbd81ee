/*-------------------------------------------------------------------------
 *
 * rowkey.h
 *		What an ORDER BY list makes of a row: a few 64-bit words whose
 *		unsigned lexicographic order is the list's order.
 *
 * The words decide, but for rows of equal words once gpusort_rowkey_lossy()
 * has become true: these may yet differ, and gpusort_rowkey_compare() settles
 * them.  Rows that the list calls equal always have equal words.
 *
 * How a column becomes words is told in rowkey_column.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_ROWKEY_H
#define GPUSORT_KEY_ROWKEY_H

#include "executor/tuptable.h"

/* One column of an ORDER BY list, as a Sort plan node has it. */
typedef struct GpusortSortColumn
{
	AttrNumber	attno;			/* in the child's tuples, from 1 */
	Oid			sort_operator;	/* < or >, by which DESC is told */
	Oid			collation;		/* 0 for types that have none */
	bool		nulls_first;
	Oid			type;			/* of that attribute; may be a domain */
} GpusortSortColumn;

typedef struct GpusortRowKey GpusortRowKey;

/*
 * NULL if gpusort can order by these columns, else why not: a short phrase
 * (allocated in the current memory context, or static) fit for EXPLAIN and
 * DEBUG1.  Columns are counted from 1 by their place in the list.  Looks into
 * system caches only, and is cheap enough to be asked for every Sort.
 */
extern const char *gpusort_rowkey_refusal(const GpusortSortColumn *columns, int ncolumns);

/*
 * Words of a key of columns that are not refused.  *strings is set to whether
 * these may hold but the beginning of a string.
 */
extern int gpusort_rowkey_plan(const GpusortSortColumn *columns, int ncolumns, bool *strings);

/*
 * Begins to make keys of rows, in the current memory context, which holds all
 * that is allocated here and later; the key is freed with it.  Raises an error
 * for columns that gpusort_rowkey_refusal() refuses.
 */
extern GpusortRowKey *gpusort_rowkey_begin(const GpusortSortColumn *columns, int ncolumns);

/*
 * Words of a key, 1 to GPUSORT_MAX_WORDS.  Columns that come after one whose
 * words are never all there is to it (text under ICU) have none: they only
 * count in comparisons.
 */
extern int gpusort_rowkey_words(const GpusortRowKey *key);

/* Bits of these words that can vary, for EXPLAIN. */
extern int gpusort_rowkey_bits(const GpusortRowKey *key);

/*
 * The words of the row in the slot, most significant first.  Leaves nothing
 * behind in the current memory context.  All words of one key compare with
 * each other, before a reset and after; those of two keys do not: where two
 * values share a word, the one that came first has the better place.
 */
extern void gpusort_rowkey_encode(GpusortRowKey *key, TupleTableSlot *slot, uint64 *words);

/*
 * Whether rows of equal words may be unequal, one of which at least has been
 * encoded since begin or reset.  Where rows of several such times come
 * together, one yes is a yes for all.
 */
extern bool gpusort_rowkey_lossy(const GpusortRowKey *key);

/* Forgets the rows encoded so far, for gpusort_rowkey_lossy(). */
extern void gpusort_rowkey_reset(GpusortRowKey *key);

/*
 * The order of two rows by the columns' own comparators, with DESC and NULLs
 * where the list wants them: < 0, 0, > 0.  The slots must not be the same.
 */
extern int gpusort_rowkey_compare(GpusortRowKey *key, TupleTableSlot *a, TupleTableSlot *b);

/* The same by some of the columns only: those from first, counted from 0, up to past. */
extern int gpusort_rowkey_compare_part(GpusortRowKey *key, TupleTableSlot *a, TupleTableSlot *b,
									   int first, int past);

/*
 * The first column of the list, from 0, that the words of a row, which was
 * encoded before, leave open, or -1 if they hold all of it.  Rows of equal
 * words nearly always have equal values before it; those that share the word
 * next to NULL's may not.
 */
extern int gpusort_rowkey_open_column(GpusortRowKey *key, TupleTableSlot *slot);

/* Is a column in descending order? */
extern bool gpusort_rowkey_descends(const GpusortRowKey *key, int column);

/* The order of two values of a column, DESC and NULLs included. */
extern int gpusort_rowkey_compare_values(GpusortRowKey *key, int column, Datum a, bool a_isnull,
										 Datum b, bool b_isnull);

/* Is a column ordered by bytes: memcmp, then the shorter first, complemented by DESC? */
extern bool gpusort_rowkey_by_bytes(const GpusortRowKey *key, int column);

/*
 * The bytes that a value, not NULL, of such a column is ordered by.  They are
 * the value's own, or, if it is compressed or stored apart, allocated in the
 * current memory context.
 */
extern void gpusort_rowkey_bytes(const GpusortRowKey *key, int column, Datum value,
								 const char **bytes, Size *length);

/* How many bytes gpusort_rowkey_bytes() would allocate. */
extern Size gpusort_rowkey_remote_bytes(Datum value);

#endif							/* GPUSORT_KEY_ROWKEY_H */
