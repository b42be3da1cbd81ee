/*-------------------------------------------------------------------------
 *
 * rowkey.h
 *		Row keys: 64-bit words whose unsigned lexicographic order is the order
 *		of the rows by an ORDER BY list.
 *
 * Rows that are equal by the list always have equal words.  Rows with equal words
 * may differ in columns that gpusort_rowkey_doubt() names; comparing breaks the tie.
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

#include "key/tuple.h"

/* One column of an ORDER BY list, as a Sort plan node has it. */
typedef struct GpusortSortColumn
{
	AttrNumber	attno;			/* attribute of the child's tuples, from 1 */
	Oid			sort_operator;	/* "<" operator of a btree family, or ">" for DESC */
	Oid			collation;		/* InvalidOid for types without collations */
	bool		nulls_first;
	Oid			type;			/* type of the attribute; may be a domain */
} GpusortSortColumn;

typedef struct GpusortRowKey GpusortRowKey;

/* Makes one, whose values this expression computes.  Allocates in the current memory context. */
extern GpusortSortColumn gpusort_rowkey_column(AttrNumber attno, Oid sort_operator, Oid collation, bool nulls_first, Expr *expr);

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

/*
 * Returns the collation under which it costs least to put values side by side that this operator finds equal: "C" for strings
 * that are equal if their bytes are, as under each deterministic collation, else the values' own.
 */
extern Oid	gpusort_rowkey_equality_collation(Oid equals, Oid collation);

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
	GpusortComparison comparison;	/* how core compares the first column */
} GpusortKeyPlan;

/*
 * Plans a key in the current memory context, where the list must stay.  The first column under
 * a locale of libc takes up to a millisecond, because the locale is opened.
 */
extern GpusortKeyPlan gpusort_rowkey_plan(const GpusortSortColumn *columns, int ncolumns);

/*
 * Creates an encoder for rows in the current memory context, which also has the plan; no other
 * key may be made by it.  Raises an error if the plan is a refusal.
 */
extern GpusortRowKey *gpusort_rowkey_begin(const GpusortKeyPlan *plan);

/*
 * Does a settled key keep values (key/few.c)?  Then its doubt depends on which values it has met: another process, which
 * meets others, cannot know that words do not decide.  So each process encodes the rows of the sample first, and then
 * has its key keep no other values.
 */
extern bool gpusort_rowkey_keeps_values(const GpusortRowKey *key);
extern void gpusort_rowkey_keep_no_more(GpusortRowKey *key);

/*
 * Are there columns whose words depend on what the first rows show?  Then the
 * caller should pass these to gpusort_rowkey_settle() before it encodes any row.
 */
extern bool gpusort_rowkey_wants_sample(const GpusortRowKey *key);

/*
 * Returns row i of a sample in a slot, which is valid until the next call.  It is called
 * in a memory context that lives only as long as gpusort_rowkey_settle() runs.
 */
typedef TupleTableSlot *(*GpusortSampleRow) (void *arg, uint64 i);

/*
 * Chooses the words by a sample of n rows, which row() returns, of about as many rows as
 * expected (key/sample.c).  Allocates lasting state in the current
 * memory context.  Must be called before any row is encoded.
 */
extern void gpusort_rowkey_settle(GpusortRowKey *key, GpusortSampleRow row, void *arg, uint32 n,
								  double expected);

/*
 * Returns the number of words of a key.  Columns after one whose words are always a prefix
 * (text under ICU) have none, and neither have those that gpusort_rowkey_settle() has left open.
 */
extern int gpusort_rowkey_words(const GpusortRowKey *key);

/* The same, of the first columns of the list: as many words as they have. */
extern int gpusort_rowkey_first_words(const GpusortRowKey *key, int columns);

/* Returns the number of bits of a key that can vary, for EXPLAIN. */
extern int gpusort_rowkey_bits(const GpusortRowKey *key);

/*
 * Writes the words of the slot's row, the most significant first.  Leaves nothing allocated.
 *
 * Words can be compared if they are made with one key, before and after a reset, or by several
 * processes with keys for the same columns that are not settled, or settled by the same sample and keep
 * the same values.
 */
extern void gpusort_rowkey_encode(GpusortRowKey *key, TupleTableSlot *slot, uint64 *words);

/*
 * Does the same for n tuples of a heap page, from number first on, whose columns have been found, none of them unknown: words
 * has their keys one after the other.  attnos: column i of a slot's row is column attnos[i] of these, from 1, or if that is 0,
 * constants[i]; NULL: they have the same columns.
 */
extern void gpusort_rowkey_encode_rows(GpusortRowKey *key, const GpusortPlaces *places, const AttrNumber *attnos,
									   const GpusortConstant *constants, const HeapTupleHeader *tuples, int first, int n,
									   uint64 *words);

/* ---- doubt.c ---- */

/* The doubts that the words leave between the rows that were encoded since the last reset */
typedef struct GpusortDoubt
{
	uint32		undecided;		/* bit i: rows with equal words may differ in column i of the
								 * list and in those behind it; 0: such rows are equal */
	uint32		crowded;		/* bit i: two values of column i may share words, so that rows
								 * with equal words may differ in it, too */
	int			words;			/* the first words of a key, by which tied rows are found: all,
								 * or the deciding ones if the locale is distrusted */
	int			deciding;		/* the first words, whose order is final up to ties: all, or those in front of: */
	int			proposed;		/* the column whose words only propose an order (node/verify.c); -1: none */
} GpusortDoubt;

extern GpusortDoubt gpusort_rowkey_doubt(const GpusortRowKey *key);

/* Adds what another process has found about its rows, whose key was made for the same columns. */
extern void gpusort_rowkey_add_doubt(GpusortRowKey *key, const GpusortDoubt *doubt);

/*
 * Ends the few values that the key keeps (few.c).  Another process has met values that this key does not keep, and that may have a
 * kept one's words.  gpusort_rowkey_add_doubt() does the same.
 */
extern void gpusort_rowkey_end_few(GpusortRowKey *key);

/*
 * Forgets the rows encoded so far.  A merge of rows from before and after has to break ties
 * if either part had undecided columns.
 */
extern void gpusort_rowkey_reset(GpusortRowKey *key);

/* Makes keys without the words of the proposed column, perhaps without any, from now on. */
extern void gpusort_rowkey_stop_proposing(GpusortRowKey *key);

/* Can rows with equal words differ in the columns before this one, because of a crowded one? */
static inline bool
gpusort_doubt_crowded(const GpusortDoubt *doubt, int column)
{
	return (doubt->crowded & (((uint32) 1 << Min(column, 31)) - 1)) != 0;
}

/*
 * Returns the first column of the list, from 0, that the row's words do not decide, or -1 if
 * they decide all.  The row must have been encoded with this key before.  Rows with
 * equal words have equal values in the columns before, up to crowded ones.
 */
extern int gpusort_rowkey_open_column(GpusortRowKey *key, TupleTableSlot *slot);

/* How the values of a column compare */
typedef struct GpusortColumnOrder
{
	bool		descending;
	bool		by_bytes;		/* by memcmp(), then the shorter value first, and all that reversed
								 * if descending; gpusort_rowkey_bytes() returns the bytes */
	struct GpusortLibc *libc;	/* strings compare by strcoll() in this locale, and by their bytes
								 * if that finds them equal; else NULL */
	bool		is_name;		/* strings are names */
	bool		blank_padded;	/* their trailing blanks do not count */
	bool		lowered;		/* they are citext: they compare in small letters, of which
								 * their bytes are made; else these are in the value */
} GpusortColumnOrder;

extern GpusortColumnOrder gpusort_rowkey_order(const GpusortRowKey *key, int column);

/*
 * Compare two rows by all columns or by columns first to past - 1 of the list, or two values of
 * a column, DESC and NULLS FIRST included.  Return a value below, equal to or above 0.  The
 * slots must differ.  Raise the errors of the comparators.
 */
extern int gpusort_rowkey_compare(GpusortRowKey *key, TupleTableSlot *a, TupleTableSlot *b);
extern int gpusort_rowkey_compare_part(GpusortRowKey *key, TupleTableSlot *a, TupleTableSlot *b,
									   int first, int past);
extern int gpusort_rowkey_compare_values(GpusortRowKey *key, int column, Datum a, bool a_isnull,
										 Datum b, bool b_isnull);

/*
 * What a merge compares rows by.  gpusort_rowkey_encode_entry() writes the words of the slot's row, which must have been
 * encoded with this key before; GPUSORT_TAIL_WORDS, by which rows with equal words compare first, since a string may
 * have more bytes than its words; and the values of all columns of the list, without copying what they point to.
 * gpusort_rowkey_compare_taken() compares two rows by these values.
 */
#define GPUSORT_TAIL_WORDS		6

extern void gpusort_rowkey_encode_entry(GpusortRowKey *key, TupleTableSlot *slot, uint64 *words, uint64 *tail, NullableDatum *values);
extern int gpusort_rowkey_compare_taken(GpusortRowKey *key, const NullableDatum *a, const NullableDatum *b);

/*
 * Returns the bytes by which a value, not NULL, of a column that compares by bytes compares.
 * They lie within the value, or, if gpusort_rowkey_copied_bytes() is not 0, in memory that
 * is allocated.
 */
extern void gpusort_rowkey_bytes(const GpusortRowKey *key, int column, Datum value,
								 const char **bytes, Size *length);

/* Returns about how many bytes gpusort_rowkey_bytes() would allocate. */
extern Size gpusort_rowkey_copied_bytes(const GpusortRowKey *key, int column, Datum value);

/* Returns the size of a value that is compressed or stored out of line, else 0. */
extern Size gpusort_rowkey_remote_bytes(Datum value);

/* ---- citext.c: case-insensitive text, of PostgreSQL's contrib ---- */

/* Room on the stack for most strings */
#define GPUSORT_CITEXT_ROOM		1024

/*
 * Returns a string in small letters, as citext_cmp() makes them, and sets *lowered to
 * its length, which may differ from length.  The result is in room, of size bytes, if
 * it fits, and else allocated in the current memory context; no zero byte is behind it.
 * The string has whole characters.  Raises the errors of lower().
 */
extern char *gpusort_citext_lower(const char *data, Size length, char *room, Size size, Size *lowered);

/*
 * Returns a table of 256 bytes: the small letter of each ASCII letter, whatever its
 * neighbours are.  It is 0 for 0, for bytes beyond ASCII, and for letters whose small
 * letter is no ASCII letter, as that of I in Turkish.  The table lives until the
 * backend exits.
 */
extern const uint8 *gpusort_citext_ascii(void);

#endif							/* GPUSORT_KEY_ROWKEY_H */
