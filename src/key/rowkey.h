/*-------------------------------------------------------------------------
 *
 * rowkey.h
 *		Row keys: 64-bit words whose unsigned lexicographic order is the order
 *		of the rows by an ORDER BY list.
 *
 * Rows that are equal by the list always have equal words.  Rows with equal
 * words are equal by the list unless gpusort_rowkey_lossy() returns true: then
 * gpusort_rowkey_compare() has to break ties.
 *
 * key/column.h explains how a column becomes words.
 *
 * A row key belongs to one backend and is not thread-safe.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_ROWKEY_H
#define GPUSORT_KEY_ROWKEY_H

#include "executor/tuptable.h"
#include "nodes/primnodes.h"

/* One column of an ORDER BY list, as a Sort plan node has it. */
typedef struct GpusortSortColumn
{
	AttrNumber	attno;			/* attribute of the child's tuples, from 1 */
	Oid			sort_operator;	/* "<" operator of a btree family, or ">" for DESC */
	Oid			collation;		/* InvalidOid for types without collations */
	bool		nulls_first;
	Oid			type;			/* type of the attribute; may be a domain */
	TupleDesc	row;			/* of type record: the columns that all values have; NULL:
								 * not known, or another type */
} GpusortSortColumn;

typedef struct GpusortRowKey GpusortRowKey;

/*
 * If an expression is ROW(...) of type record, returns the columns of its values in the
 * current memory context, else NULL.
 */
extern TupleDesc gpusort_rowkey_row_type(Expr *expr);

/* How core compares values of a column, by what takes the time */
typedef enum GpusortComparison
{
	GPUSORT_COMPARISON_FAST,
	GPUSORT_COMPARISON_LIBC,	/* by strcoll() */
	GPUSORT_COMPARISON_CITEXT	/* both in small letters, which are made for each comparison */
} GpusortComparison;

/*
 * Returns the slowest way in which core may compare values of this type under this
 * collation.  Takes some nanoseconds: it opens no locale, and does not look up the type.
 */
extern GpusortComparison gpusort_rowkey_slowest(Oid type, Oid collation);

/* How a key is made of the columns of an ORDER BY list */
typedef struct GpusortKeyPlan
{
	const char *refusal;		/* why gpusort cannot order by them: a short phrase for EXPLAIN and
								 * DEBUG1, which numbers columns from 1; NULL: it can, and the
								 * rest is set */
	const GpusortSortColumn *from;	/* the list */
	int			ncolumns;
	struct GpusortRowColumn *columns;	/* ncolumns entries (key/column.h) */
	int			nencoded;		/* columns that have words: the first nencoded */
	int			words;			/* of a key, 1 to GPUSORT_MAX_WORDS */
	bool		strings;		/* a column with words is a string, of which they may hold only a prefix */
	bool		few_values;		/* all columns are booleans, enums or single characters ("char") */
	bool		shareable;		/* several processes can make good keys, each by itself: no
								 * words are chosen by a sample of the rows */
	GpusortComparison comparison;	/* how core compares the first column */
} GpusortKeyPlan;

/*
 * Plans a key in the current memory context, where the list must stay.  Takes some 0.3 us for
 * each column; the first column under a locale of libc takes up to a millisecond, because
 * the locale is opened.
 */
extern GpusortKeyPlan gpusort_rowkey_plan(const GpusortSortColumn *columns, int ncolumns);

/*
 * Creates an encoder for rows in the current memory context, which also has the plan; no other
 * key may be made by it.  Raises an error if the plan is a refusal.
 */
extern GpusortRowKey *gpusort_rowkey_begin(const GpusortKeyPlan *plan);

/*
 * Makes words that do not depend on which row is encoded first, so that those of
 * several processes can be compared: the keys of all must have been made for the same
 * columns and shared, and none may be settled.  Must be called before any row is encoded.
 */
extern void gpusort_rowkey_share(GpusortRowKey *key);

/*
 * Are there columns whose words depend on what the first rows show?  Then the
 * caller should pass these to gpusort_rowkey_settle() before it encodes any row.
 */
extern bool gpusort_rowkey_wants_sample(const GpusortRowKey *key);

/*
 * Returns row i of a sample in a slot, which is valid until the next call.  It is called
 * in a memory context that lives only as long as gpusort_rowkey_settle() runs.
 */
typedef TupleTableSlot *(*GpusortSampleRow) (void *arg, uint32 i);

/*
 * Chooses the words of the columns by a sample of n rows, which row() returns, of
 * about as many rows as expected (key/sample.c).  Allocates lasting state in the current
 * memory context.  Must be called before any row is encoded.
 */
extern void gpusort_rowkey_settle(GpusortRowKey *key, GpusortSampleRow row, void *arg, uint32 n,
								  double expected);

/*
 * Returns the number of words of a key, 1 to GPUSORT_MAX_WORDS.  Columns after
 * one whose words are always a prefix (text under ICU) have no words: only
 * comparisons look at them.  The same holds for columns that
 * gpusort_rowkey_settle() has left open.
 */
extern int gpusort_rowkey_words(const GpusortRowKey *key);

/* Returns the number of bits of a key that can vary, for EXPLAIN. */
extern int gpusort_rowkey_bits(const GpusortRowKey *key);

/*
 * Writes the words of the slot's row, gpusort_rowkey_words() of them, the most
 * significant first.  Leaves nothing allocated in the current memory context.
 *
 * Words made with one GpusortRowKey can be compared with each other, before and
 * after a reset.  Words made with two of them cannot: where two values share
 * words, the result depends on which value was encoded first.  gpusort_rowkey_share()
 * makes an exception.
 */
extern void gpusort_rowkey_encode(GpusortRowKey *key, TupleTableSlot *slot, uint64 *words);

/* ---- rowkey_open.c ---- */

/*
 * Returns true if a row encoded since the beginning or the last reset may have
 * the same words as another row and yet be unequal to it.  A caller that merges
 * rows from before and after a reset has to break ties if this was true for
 * either part.
 */
extern bool gpusort_rowkey_lossy(const GpusortRowKey *key);

/* Makes gpusort_rowkey_lossy() forget the rows encoded so far. */
extern void gpusort_rowkey_reset(GpusortRowKey *key);

/* Properties of the rows encoded so far, for the process that sorts them with others */
typedef struct GpusortKeyFlags
{
	bool		lossy;			/* gpusort_rowkey_lossy() */
	uint64		crowded;		/* bit i: two values of column i may share words */
} GpusortKeyFlags;

extern GpusortKeyFlags gpusort_rowkey_flags(const GpusortRowKey *key);
extern void gpusort_rowkey_add_flags(GpusortRowKey *key, GpusortKeyFlags flags);

/*
 * A column whose words only propose an order: text under libc.  Its values compare
 * by strcoll() in this locale, and by their bytes if that finds them equal.
 */
typedef struct GpusortProposal
{
	int			column;			/* of the list, from 0; the last one with words */
	int			first_word;		/* number of its first word: the words before decide */
	struct GpusortLibc *libc;	/* the locale */
	bool		is_name;		/* the values are names */
	bool		blank_padded;	/* trailing blanks do not count */
	bool		lowered;		/* the values are citext: they compare in small letters */
	bool		descending;
} GpusortProposal;

/*
 * Fills in *proposal if the key has such a column, and otherwise returns false.  Then
 * the order by words is not final: see node/verify.c.
 */
extern bool gpusort_rowkey_proposal(const GpusortRowKey *key, GpusortProposal *proposal);

/* Returns the number of words before those of such a column, or of all words if there is none. */
extern int	gpusort_rowkey_deciding_words(const GpusortRowKey *key);

/*
 * Returns the number of words that decide between rows, up to ties: all, or those
 * before the proposing column if its locale is distrusted.  Then
 * gpusort_rowkey_lossy() is true.
 */
extern int gpusort_rowkey_trusted_words(const GpusortRowKey *key);

/*
 * From now on, makes keys without the proposing column's words.  They may have no
 * word at all.  Returns the number of words.
 */
extern int gpusort_rowkey_stop_proposing(GpusortRowKey *key);

/*
 * Compares two rows by the columns' comparators, DESC and NULLS FIRST included.
 * Returns a value below, equal to or above 0.  The slots must differ.  Raises
 * the errors of the comparators.
 */
extern int gpusort_rowkey_compare(GpusortRowKey *key, TupleTableSlot *a, TupleTableSlot *b);

/* The same by columns first (from 0) to past - 1 of the list only. */
extern int gpusort_rowkey_compare_part(GpusortRowKey *key, TupleTableSlot *a, TupleTableSlot *b,
									   int first, int past);

/*
 * Returns the first column of the list, from 0, that the row's trusted words do not
 * decide, or -1 if they decide all columns.  The row must have been encoded with
 * this key before.  Rows with equal words nearly always have equal values in the
 * columns before; gpusort_rowkey_crowded() says whether they may differ.
 */
extern int gpusort_rowkey_open_column(GpusortRowKey *key, TupleTableSlot *slot);

/*
 * Can two rows with equal words have different values in the columns before this
 * one, because of a crowded column among them?
 */
extern bool gpusort_rowkey_crowded(const GpusortRowKey *key, int column);

/* Is a column of the list (from 0) in descending order? */
extern bool gpusort_rowkey_descends(const GpusortRowKey *key, int column);

/* Compares two values of a column, DESC and NULLS FIRST included. */
extern int gpusort_rowkey_compare_values(GpusortRowKey *key, int column, Datum a, bool a_isnull,
										 Datum b, bool b_isnull);

/*
 * Does a column compare by bytes: by memcmp(), then the shorter value first, and
 * all that reversed if DESC?
 */
extern bool gpusort_rowkey_by_bytes(const GpusortRowKey *key, int column);

/*
 * Returns the first column of the list, from 0, that the words of the rows encoded so
 * far do not always decide, if its values are strings that compare by the bytes that
 * they are stored with, and sets *blank_padded: trailing blanks do not count.
 * Otherwise returns -1.  Rows with equal words have equal values in the columns before.
 * Does not know the rows that other processes have encoded, whose keys never have such
 * strings: see gpusort_rowkey_shareable().
 */
extern int	gpusort_rowkey_tied_strings(const GpusortRowKey *key, bool *blank_padded);

/*
 * Returns the bytes by which a value of a column that compares by bytes compares;
 * it must not be NULL.  They lie within the value, or, if gpusort_rowkey_copied_bytes() is not 0, in
 * memory that is allocated in the current memory context, which the caller's context
 * frees.
 */
extern void gpusort_rowkey_bytes(const GpusortRowKey *key, int column, Datum value,
								 const char **bytes, Size *length);

/* Returns about how many bytes gpusort_rowkey_bytes() would allocate. */
extern Size gpusort_rowkey_copied_bytes(const GpusortRowKey *key, int column, Datum value);

/* Returns the size of a value that is compressed or stored out of line, else 0. */
extern Size gpusort_rowkey_remote_bytes(Datum value);

#endif							/* GPUSORT_KEY_ROWKEY_H */
