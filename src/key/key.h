/*-------------------------------------------------------------------------
 *
 * key.h
 *		Values as unsigned integers whose order is theirs.
 *
 * There are three kinds of them:
 *
 *	keys of values	One integer of 4 or 8 bytes, of which the value can be made again (key/keybits.h).
 *				They serve SQL functions, aggregates and sorts of a single column.
 *
 *	scaled numerics	A column of numeric(precision, scale) has no digits behind its scale, so that its values can be
 *				kept as integers of 8 bytes.
 *
 *	row keys	64-bit words whose unsigned lexicographic order is the order of the rows by an ORDER BY list.  Rows
 *				that are equal by the list always have equal words.  Rows with equal words may differ in columns
 *				that gpusort_rowkey_doubt() names; comparing breaks the tie.  A row key belongs to one backend and
 *				is not thread-safe.
 *
 * Row keys of whole pages are made from where the values lie in their tuples.  These places are found here, too.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_H
#define GPUSORT_KEY_H

#include <locale.h>

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "nodes/primnodes.h"

#include "key/keybits.h"

/* ---- keytype.c: keys of values ---- */

/* The map from a value's bits to a key (key/keybits.h) */
typedef enum GpusortKind
{
	GPUSORT_KIND_INT2,
	GPUSORT_KIND_INT4,
	GPUSORT_KIND_INT8,
	GPUSORT_KIND_FLOAT4,
	GPUSORT_KIND_FLOAT8
} GpusortKind;

typedef struct GpusortType
{
	Oid			typid;			/* the type itself, not a domain */
	const char *name;			/* the type's SQL name, for reports */
	GpusortKind kind;
	uint8		value_bytes;	/* typlen: 2, 4 or 8; an array has no gaps between values */
	uint8		key_bytes;		/* 4 or 8 */
	int8		scale;			/* of values of numeric that are kept as integers (numeric.c); else 0 */
} GpusortType;

/*
 * Returns the entry of a type or of a domain's base type; it is static.  Raises
 * an error that lists the supported types if the type is not one of them.
 */
extern const GpusortType *gpusort_type_get(Oid typid);

/* The same, but returns NULL if the type is not supported. */
extern const GpusortType *gpusort_type_find(Oid typid);

/*
 * Returns the encoding for gpusort_encode() of a type whose value_bytes and key_bytes are equal (all types except
 * smallint).  rank: make rank keys, which are equal for equal values, instead of value keys.
 */
extern GpusortEncoding gpusort_type_encoding(const GpusortType *type, bool descending,
											 bool rank);

/* Decodes count value keys.  values may be the array of keys if value_bytes equals key_bytes. */
extern void gpusort_type_decode(const GpusortType *type, const void *keys,
								size_t count, bool descending, void *values);

/*
 * Writes the value key of one value to *to, which is aligned and has room for a
 * key of this kind: 4 or 8 bytes.  flip: 0, or all ones for descending order.
 */
static inline void
gpusort_type_store_key(GpusortKind kind, Datum value, uint64 flip, void *to)
{
	switch (kind)
	{
		case GPUSORT_KIND_INT2:
			*(uint32 *) to = gpusort_key_int2(DatumGetInt16(value)) ^ (uint32) flip;
			break;
		case GPUSORT_KIND_INT4:
			*(uint32 *) to = gpusort_key_int4(DatumGetInt32(value)) ^ (uint32) flip;
			break;
		case GPUSORT_KIND_FLOAT4:
			*(uint32 *) to = gpusort_key_float4(DatumGetUInt32(value)) ^ (uint32) flip;
			break;
		case GPUSORT_KIND_INT8:
			*(uint64 *) to = gpusort_key_int8(DatumGetInt64(value)) ^ flip;
			break;
		case GPUSORT_KIND_FLOAT8:
			*(uint64 *) to = gpusort_key_float8((uint64) DatumGetInt64(value)) ^ flip;
			break;
	}
}

/* ---- numeric.c: values of numeric(precision, scale) as integers ---- */

/*
 * Returns the entry of a type whose values are those of numeric with this typmod, times ten to the power of its scale, as
 * bigint.  It is static; its typid is numeric's.  NULL: there is no typmod, or they do not fit in 64 bits.
 */
extern const GpusortType *gpusort_scaled_type(int32 typmod);

/* Is it such an entry? */
static inline bool
gpusort_scaled_is(const GpusortType *type)
{
	return type->typid == NUMERICOID;
}

/*
 * Converts a numeric to the bigint.  NaN, which is greater than all others, becomes the greatest bigint.  Returns
 * false if the value cannot be made of the bigint again: it is infinite, or it has another scale than its type, or
 * too many digits.
 */
extern bool gpusort_scaled_from(const GpusortType *type, Datum value, int64 *scaled);

/* The reverse: returns a numeric in the current memory context. */
extern Datum gpusort_scaled_value(const GpusortType *type, int64 scaled);

/* ---- tuple.c: where columns lie in heap tuples ----
 *
 * In front of the first value of variable length, a column lies at the same offset in all tuples without NULLs.  One
 * behind it is found by a walk over the values of the tuple.  A walk is made once for all columns and for all tuples of
 * a page, by what the descriptor says of the columns in a few bytes.
 */

/* The most columns that a walk goes over */
#define GPUSORT_PLACES_MAX	64

/* Places are offsets in bytes from the first byte of a tuple's header.  These are none: */
#define GPUSORT_PLACE_NULL		0	/* the column is NULL */
#define GPUSORT_PLACE_UNKNOWN	1	/* the tuple is older than one of the columns: all are unknown */

/* Where the first columns lie in tuples.  Columns and tuples have numbers from 0. */
typedef struct GpusortPlaces
{
	TupleDesc	desc;			/* of the tuples */
	MemoryContext cxt;			/* owns found */
	int			natts;			/* columns that are found */
	int			fixed;			/* the first of them have these places in all tuples that are plain: */
	uint16		offsets[GPUSORT_PLACES_MAX];
	int			first;			/* a walk begins with this column, */
	int			begin;			/* which has at least this offset */
	struct
	{
		int16		bytes;		/* -1: a varlena */
		uint16		mask;		/* its alignment, less 1 */
	}			columns[GPUSORT_PLACES_MAX];

	/* of the tuples that were given last */
	bool		plain;			/* none of them has a NULL, lacks a column, or has a longer header */
	bool		known;			/* none of them lacks a column */
	int			reach;			/* the place of the last column, in the last tuple */
	uint16	   *found;			/* [tuple * natts + column], unless they are plain and all columns fixed */
} GpusortPlaces;

/* Begins with no columns of tuples of this descriptor.  It and the context must live as long as the places. */
extern void gpusort_places_begin(GpusortPlaces *places, TupleDesc desc, MemoryContext cxt);

/*
 * Has at least the first natts columns found in the tuples that are given from now on.  Returns false if they are more than
 * GPUSORT_PLACES_MAX, or if one has C strings.
 */
extern bool gpusort_places_cover(GpusortPlaces *places, int natts);

/* Finds the columns in these tuples, MaxHeapTuplesPerPage at most. */
extern void gpusort_places_find(GpusortPlaces *places, const HeapTupleHeader *tuples, int n);

/* A column of rows that is none of their tuples': the same value in all of them */
typedef struct GpusortConstant
{
	Datum		value;
	const char *bytes;			/* the value as in a tuple; NULL: it is NULL */
	int16		length;			/* -1: a varlena */
	bool		byval;
} GpusortConstant;

/* Has a column the same place in all tuples that were given?  It is offsets[column]. */
static inline bool
gpusort_places_agree(const GpusortPlaces *places, int column)
{
	return places->plain && column < places->fixed;
}

/* Returns the place of a column in a tuple. */
static inline uint16
gpusort_places_at(const GpusortPlaces *places, int tuple, int column)
{
	return gpusort_places_agree(places, column) ? places->offsets[column] : places->found[tuple * places->natts + column];
}

/* Returns where a column's value lies, which is known; NULL: it is NULL. */
static inline const char *
gpusort_places_value(const GpusortPlaces *places, const HeapTupleHeader *tuples, int tuple, int column)
{
	uint16		place = gpusort_places_at(places, tuple, column);

	return unlikely(place == GPUSORT_PLACE_NULL) ? NULL : (const char *) tuples[tuple] + place;
}

/* ---- rowkey.c, column_plan.c, settle.c: keys of rows ---- */

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

/* Makes one, whose values this expression computes. */
extern GpusortSortColumn gpusort_rowkey_column(AttrNumber attno, Oid sort_operator, Oid collation, bool nulls_first,
											   Expr *expr);

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
 * Returns the collation under which it costs least to put values side by side that this operator finds equal: "C" for
 * strings that are equal if their bytes are, as under each deterministic collation, else the values' own.
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
 * Chooses the words by a sample of n rows, which row() returns, of about as many rows as expected (key/settle.c).
 * Allocates lasting state in the current memory context.  Must be called before any row is encoded.
 */
extern void gpusort_rowkey_settle(GpusortRowKey *key, GpusortSampleRow row, void *arg, uint32 n,
								  double expected);

/*
 * If the settled key keeps values (key/few.c), has it keep those of the sample and no others.  For a sort by several
 * processes: one that has met other values cannot know that words do not decide.
 */
extern void gpusort_rowkey_keep_sample(GpusortRowKey *key, GpusortSampleRow row, void *arg, uint32 n);

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
 * Words can be compared if they are made with one key, before and after a reset, or by several processes with keys
 * for the same columns that are not settled, or settled by the same sample and keep the same values.
 */
extern void gpusort_rowkey_encode(GpusortRowKey *key, TupleTableSlot *slot, uint64 *words);

/*
 * Does the same for n tuples of a heap page, from number first on, whose columns have been found, none of them
 * unknown: words has their keys one after the other.  attnos: column i of a slot's row is column attnos[i] of these,
 * from 1, or if that is 0, constants[i]; NULL: they have the same columns.
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
 * Ends the few values that the key keeps (few.c).  Another process has met values that this key does not keep, and
 * that may have a kept one's words.  gpusort_rowkey_add_doubt() does the same.
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

/* A locale of libc, kept until the backend exits (libc.c) */
typedef struct GpusortLibc
{
	struct GpusortLibc *next;
	char	   *collate;		/* names of the locale's LC_COLLATE and LC_CTYPE */
	char	   *ctype;
	locale_t	locale;
	bool		by_bytes;		/* strings order by their bytes */
	struct GpusortLibcLetters *letters; /* of one letter and of two; NULL: none yet */
	bool		distrusted;		/* weights have proposed a wrong order too often */
} GpusortLibc;

/* How the values of a column compare */
typedef struct GpusortColumnOrder
{
	bool		descending;
	bool		by_bytes;		/* by memcmp(), then the shorter value first, and all that reversed
								 * if descending; gpusort_rowkey_bytes() returns the bytes */
	GpusortLibc *libc;			/* strings compare by strcoll() in this locale, and by their bytes
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

extern void gpusort_rowkey_encode_entry(GpusortRowKey *key, TupleTableSlot *slot, uint64 *words, uint64 *tail,
										NullableDatum *values);
extern int gpusort_rowkey_compare_taken(GpusortRowKey *key, const NullableDatum *a, const NullableDatum *b);

/*
 * Returns the bytes by which a value, not NULL, of a column that compares by bytes compares.  They lie within the
 * value, or, if gpusort_rowkey_copied_bytes() is not 0, in memory that is allocated.
 */
extern void gpusort_rowkey_bytes(const GpusortRowKey *key, int column, Datum value,
								 const char **bytes, Size *length);

/* Returns about how many bytes gpusort_rowkey_bytes() would allocate. */
extern Size gpusort_rowkey_copied_bytes(const GpusortRowKey *key, int column, Datum value);

/* Returns the size of a value that is compressed or stored out of line, else 0. */
extern Size gpusort_rowkey_remote_bytes(Datum value);

/* ---- text.c: case-insensitive text, citext of PostgreSQL's contrib ---- */

/* Room on the stack for most strings */
#define GPUSORT_CITEXT_ROOM		1024

/*
 * Returns a string in small letters, as citext_cmp() makes them, and sets *lowered to its length, which may differ
 * from length.  The result is in room, of size bytes, if it fits, and else allocated in the current memory context;
 * no zero byte is behind it.  The string has whole characters.  Raises the errors of lower().
 */
extern char *gpusort_citext_lower(const char *data, Size length, char *room, Size size, Size *lowered);

/*
 * Returns a table of 256 bytes: the small letter of each ASCII letter, whatever its neighbours are.  It is 0 for 0,
 * for bytes beyond ASCII, and for letters whose small letter is no ASCII letter, as that of I in Turkish.  The table
 * lives until the backend exits.
 */
extern const uint8 *gpusort_citext_ascii(void);

#endif							/* GPUSORT_KEY_H */
