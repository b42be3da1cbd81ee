/*-------------------------------------------------------------------------
 *
 * packed.h
 *		Bit strings that have the order of composite values, for kind PACKED.
 *
 * Arrays, ranges, rows and bit strings consist of parts that compare one after the
 * other.  Each value is packed into a bit string: the unsigned order of the bit
 * strings, compared from their first bits on, is the order of the values.  No
 * value's bit string is the beginning of another one's, and equal values have equal
 * bit strings.  So the first bits of a bit string are a word of a key, and all of
 * them decide without the type's comparator.
 *
 * A field is a value within the value, in its own type's order: the bits of a
 * fixed-width type, or a string of bytes.
 *
 *	string	for each 7 bytes these, padded with zeros, and 6 bits for the number of
 *			bits in them, 0 to 56, or 57 if more bytes follow.  A bit string is packed
 *			like that, too (bit_cmp in varbit.c)
 *
 *	array	for each element 10 and a field, or 11 for NULL; then 0 and the shape.
 *			The shape is 01 if the array is empty or has one dimension that begins
 *			at 1; 00 and the lower bound if that is less than 1; else 10, the number
 *			of dimensions, their lengths and their lower bounds (array_cmp in
 *			arrayfuncs.c)
 *
 *	range	0 if it is empty, else 1 and two bounds.  The lower one is 0 if it is
 *			infinite, else 1, a field, and 0 if inclusive or 1 if exclusive.
 *			The upper one is 0, a field, and 0 if exclusive or 1 if inclusive; or
 *			1 if it is infinite (range_cmp in rangetypes.c)
 *
 *	row		for each column 0 and a field, or 1 for NULL (record_cmp in rowtypes.c)
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_PACKED_H
#define GPUSORT_KEY_PACKED_H

#include "key/column.h"

/* The longest elements of arrays and bounds of ranges, in bytes: uuid and interval */
#define GPUSORT_PACKED_STORED_BYTES	16

typedef enum GpusortPackingKind
{
	GPUSORT_PACKING_ARRAY,
	GPUSORT_PACKING_RANGE,
	GPUSORT_PACKING_ROW,
	GPUSORT_PACKING_BITS
} GpusortPackingKind;

/* A type of the fields: an array's elements, a range's bounds, or a row's column. */
typedef struct GpusortField
{
	Oid			type;
	Oid			collation;
	int			attribute;		/* of a row: from 0; dropped columns have no field */
	int16		length;			/* as in pg_type: bytes, or -1 */
	bool		by_value;
	char		align;
	GpusortRowColumn column;	/* how a value is encoded: kind, width, bits, flip and
								 * ranks, for ascending order */
} GpusortField;

/* How values of a type are packed. */
struct GpusortPacking
{
	GpusortPackingKind kind;
	int			nfields;		/* 0 of bit strings, 1 of arrays and ranges */
	GpusortField *fields;
	TupleDesc	desc;			/* of a row, else NULL */
	Datum	   *values;			/* of a row: room for its columns */
	bool	   *nulls;
};

/*
 * Returns the packing, without the fields' columns, of values that sort by a btree support
 * function of PostgreSQL; NULL if there is none.  row: the columns of type record, else NULL.
 */
extern GpusortPacking *gpusort_packed_plan(Oid compare, Oid type, TupleDesc row);

/* Can a column of this kind be a field? */
static inline bool
gpusort_packed_field(GpusortRowKind kind)
{
	return kind < GPUSORT_ROW_ABBREVIATED && kind != GPUSORT_ROW_NUMERIC && kind != GPUSORT_ROW_INET &&
		kind != GPUSORT_ROW_PACKED;
}

/*
 * Writes the first bits of a value, at least most of them if there are, to words,
 * the first in the uppermost bit; the last bits of the last word are 0 or further
 * bits.  words has GPUSORT_PACKED_WORDS(most).  Returns the length in bits, or more than
 * most if it is longer than that; of a row, not less than the length then.
 */
extern Size gpusort_packed_bits(const GpusortRowColumn *column, Datum value, Size most, uint64 *words);

/* Words of an array for most bits: the last field to be written may exceed them by up to 64 bits. */
#define GPUSORT_PACKED_WORDS(most)	((most) / 64 + 3)

#endif							/* GPUSORT_KEY_PACKED_H */
