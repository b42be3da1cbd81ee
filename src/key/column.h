/*-------------------------------------------------------------------------
 *
 * column.h
 *		How one column of an ORDER BY list becomes words of a row's key.
 *
 * A column takes one or two words of its own.  DESC complements the bits of
 * the value; where a NULL goes does not depend on it.  So that NULLs and
 * values never meet, there are three plans:
 *
 *	flag		The value has bits to spare in its first word.  The bit above
 *				the value's says on which side of the NULLs it is; a NULL is
 *				that bit's other setting over zeros.
 *	code		Some words are no value's, zero and all ones among them: one of
 *				these is NULL.
 *	crowded		All 64 or 128 bits are the value's.  NULL takes the word at its
 *				end of the order, zero or all ones.  The value that would have
 *				had that word moves in with its neighbour, the one value next
 *				to it, for instance 'infinity' with the microsecond before.
 *
 * Two values of one word are a matter for the columns after this one, too:
 * their words must not decide between rows that this column has not decided.
 * So in a row where a column's words are only a prefix of the value, all words
 * after them are set alike (to zero), and the tie is left to the comparators.
 * That is right because the words of a prefix are never those of a whole
 * value: each plan for prefixes has a bit or byte to tell them apart.
 *
 * Of the two values in a crowded word, whichever came first keeps exact words
 * in what follows.  The other's are set to zeros if it sorts below, or to ones
 * if above (in bits that vary at all), which puts it entirely on the right
 * side of the first.  (The tie that is possible, with a first one that happens
 * to be followed by zeros, is left to the comparators likewise.)  So a column
 * of timestamps that are often 'infinity' costs nothing, unless the
 * microsecond before turns up.
 *
 * Nothing here depends on the order in which an engine takes the words up.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_COLUMN_H
#define GPUSORT_KEY_COLUMN_H

#include "port/pg_bswap.h"
#include "utils/sortsupport.h"

#include "key/rowkey.h"

typedef enum GpusortRowKind
{
	/* flag, one word */
	GPUSORT_ROW_BYTE,			/* bool, "char" */
	GPUSORT_ROW_INT2,
	GPUSORT_ROW_INT4,			/* int4, date; oid without the sign */
	GPUSORT_ROW_FLOAT4,
	GPUSORT_ROW_ENUM,			/* the label's enumsortorder, a float4 */
	GPUSORT_ROW_MACADDR,
	GPUSORT_ROW_TID,
	/* code, one word */
	GPUSORT_ROW_FLOAT8,
	/* crowded, one word */
	GPUSORT_ROW_INT8,			/* and all that is stored as one */
	GPUSORT_ROW_MACADDR8,
	/* crowded, two words */
	GPUSORT_ROW_UUID,
	/* code, two words */
	GPUSORT_ROW_TEXT,			/* varchar, bytea too: bytes, then the length */
	GPUSORT_ROW_BPCHAR,			/* likewise, less trailing blanks */
	GPUSORT_ROW_NAME,
	/* flag, two words */
	GPUSORT_ROW_NUMERIC,
	GPUSORT_ROW_INTERVAL,
	GPUSORT_ROW_TIMETZ,
	GPUSORT_ROW_INET,
	GPUSORT_ROW_ABBREVIATED		/* text and bpchar under ICU: always a prefix */
} GpusortRowKind;

/* The two values of a crowded word */
#define GPUSORT_CROWD_OUTER		1	/* the one that NULL has displaced */
#define GPUSORT_CROWD_INNER		2	/* its neighbour */

typedef struct GpusortEnumRanks GpusortEnumRanks;

typedef struct GpusortRowColumn
{
	GpusortRowKind kind;
	int			attribute;		/* index into a slot's values */
	uint8		words;			/* 1 or 2 */
	uint8		bits;			/* of these that can vary */
	uint8		width;			/* flag: bits of the value in its first word */
	bool		prefix;			/* no value's words are all there is to it */
	bool		descending;
	bool		nulls_first;
	uint8		crowd;			/* which of the two came first, or 0 */
	uint64		null_word;		/* of a NULL, its first word */
	uint64		null_next;		/* and its second */
	uint64		flip;			/* sign bit and complement, of the first word */
	uint64		flip_next;		/* complement, of the second word */
	uint64		greatest;		/* all bits of the first word that can vary */
	uint64		greatest_next;	/* and of the second; both flips are within */
	uint64		base;			/* flag: the bit on the values' side */
	GpusortEnumRanks *ranks;	/* enum */
	struct GpusortIcu *icu;		/* text under ICU, by its weights */
	SortSupport abbreviation;	/* the same, by ICU's sort keys if icu is NULL */
	bool		blank_padded;	/* text under ICU: trailing blanks do not count */
} GpusortRowColumn;

/*
 * Fills in *column for the list's place-th column, but not what hangs on it.
 * NULL, or why gpusort cannot order by it.
 */
extern const char *gpusort_rowtype_resolve(const GpusortSortColumn *from, int place,
										   GpusortRowColumn *column);

/*
 * Encoders for a value that is not NULL: false if the words hold but a prefix
 * of it.
 */
extern bool gpusort_rowtext_encode(const GpusortRowColumn *column, Datum value, uint64 *words);
extern bool gpusort_rowname_encode(const GpusortRowColumn *column, Datum value, uint64 *words);
extern bool gpusort_rownumeric_encode(const GpusortRowColumn *column, Datum value, uint64 *words);
extern bool gpusort_rowinet_encode(const GpusortRowColumn *column, Datum value, uint64 *words);

/* Encoders whose words hold all of a value. */
extern void gpusort_rowinterval_encode(const GpusortRowColumn *column, Datum value, uint64 *words);
extern void gpusort_rowtimetz_encode(const GpusortRowColumn *column, Datum value, uint64 *words);

/* The same for text under ICU, whose two words are always a prefix. */
extern void gpusort_rowicu_encode(const GpusortRowColumn *column, Datum value, uint64 *words);

/* The one word of a label. */
extern uint64 gpusort_rowenum_encode(const GpusortRowColumn *column, Datum value);

/* What hangs on such a column, in the current memory context. */
extern void gpusort_rowenum_begin(GpusortRowColumn *column);
extern void gpusort_rowicu_begin(GpusortRowColumn *column, const GpusortSortColumn *from);

/* A varlena that is stored elsewhere or compressed, or an expanded object */
static inline bool
gpusort_varlena_remote(const void *pointer)
{
	return VARATT_IS_COMPRESSED(pointer) || VARATT_IS_EXTERNAL(pointer);
}

/* The eight bytes at a pointer, the first one the most significant */
static inline uint64
gpusort_load_be64(const void *pointer)
{
	uint64		word;

	memcpy(&word, pointer, sizeof(word));
	return pg_ntoh64(word);
}

static inline uint32
gpusort_load_be32(const void *pointer)
{
	uint32		word;

	memcpy(&word, pointer, sizeof(word));
	return pg_ntoh32(word);
}

static inline uint16
gpusort_load_be16(const void *pointer)
{
	uint16		word;

	memcpy(&word, pointer, sizeof(word));
	return pg_ntoh16(word);
}

#endif							/* GPUSORT_KEY_COLUMN_H */
