/*-------------------------------------------------------------------------
 *
 * packed.c
 *		Packs arrays, ranges, rows and bit strings into bit strings.
 *
 * key/packed.h explains the packing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/tupmacs.h"
#include "storage/itemptr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/inet.h"
#include "utils/rangetypes.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"
#include "utils/varbit.h"

#include "key/packed.h"

/* Bytes of a string in each part of its packing */
#define PART_BYTES	7

/*
 * Bytes that are fetched of a TOASTed array or bit string for n bits.  A bool takes
 * the most bytes for its bits: one byte for 3 bits.
 */
#define SLICE_BYTES(n)	((n) / 2 + 64)

/* A bit string that is being written; see gpusort_packed_bits(). */
typedef struct Bits
{
	uint64	   *words;			/* zeros behind the bits that are used */
	Size		used;
	Size		most;			/* no bits need be written from this one on */
} Bits;

/* Appends the lower n bits of a number, 1 to 64, whose other bits are 0. */
static inline void
put(Bits *bits, uint64 number, int n)
{
	if (likely(bits->used < bits->most))
		gpusort_append_bits(bits->words, bits->used, number, n);
	bits->used += n;
}

static inline bool
full(const Bits *bits)
{
	return bits->used >= bits->most;
}

/* ---- fields ---- */

/* Counts a string of n bits, for which there is no room. */
static void
count_string(Bits *bits, Size n)
{
	bits->used += Max((n + 8 * PART_BYTES - 1) / (8 * PART_BYTES), 1) * (8 * PART_BYTES + 6);
}

/* Appends a string of n bits, which begins at bytes and is padded with zeros. */
static void
put_string(Bits *bits, const char *bytes, Size n)
{
	char		last[sizeof(uint64)] = {0};

	for (; n > 8 * PART_BYTES && !full(bits); n -= 8 * PART_BYTES, bytes += PART_BYTES)
	{
		/* there is an eighth byte */
		put(bits, gpusort_load_be64(bytes) >> 8, 8 * PART_BYTES);
		put(bits, 8 * PART_BYTES + 1, 6);
	}
	if (full(bits))
	{
		count_string(bits, n);
		return;
	}
	memcpy(last + 1, bytes, (n + 7) / 8);
	put(bits, gpusort_load_be64(last), 8 * PART_BYTES);
	put(bits, n, 6);
}

static void
put_varlena(Bits *bits, const GpusortRowColumn *column, Datum value)
{
	struct varlena *datum = (struct varlena *) DatumGetPointer(value);
	struct varlena *plain;
	Size		length;

	if (full(bits))
	{
		/* trailing blanks count as well here */
		count_string(bits, 8 * (toast_raw_datum_size(value) - VARHDRSZ));
		return;
	}
	plain = gpusort_varlena_remote(datum) ? pg_detoast_datum_packed(datum) : datum;
	length = VARSIZE_ANY_EXHDR(plain);
	if (column->blank_padded)
		length = bpchartruelen(VARDATA_ANY(plain), length);
	put_string(bits, VARDATA_ANY(plain), 8 * length);
	if (plain != datum)
		pfree(plain);
}

/* Appends a value that is not NULL. */
static inline void
put_field(Bits *bits, const GpusortRowColumn *column, Datum value)
{
	uint64		words[2];

	switch (column->kind)
	{
		case GPUSORT_ROW_BYTE:
			put(bits, DatumGetUInt8(value), column->width);
			break;
		case GPUSORT_ROW_INT2:
			put(bits, DatumGetUInt16(value) ^ column->masks.flip[0], 16);
			break;
		case GPUSORT_ROW_INT4:
			put(bits, DatumGetUInt32(value) ^ column->masks.flip[0], 32);
			break;
		case GPUSORT_ROW_FLOAT4:
			put(bits, gpusort_rank_float4(DatumGetUInt32(value)), 32);
			break;
		case GPUSORT_ROW_ENUM:
			put(bits, gpusort_rowenum_encode(column, value), 32);
			break;
		case GPUSORT_ROW_MACADDR:
			put(bits, gpusort_macaddr_bits(DatumGetMacaddrP(value)), 48);
			break;
		case GPUSORT_ROW_TID:
			put(bits, gpusort_tid_bits((ItemPointer) DatumGetPointer(value)), 48);
			break;
		case GPUSORT_ROW_FLOAT8:
			put(bits, gpusort_rank_float8((uint64) DatumGetInt64(value)), 64);
			break;
		case GPUSORT_ROW_INT8:
			put(bits, (uint64) DatumGetInt64(value) ^ column->masks.flip[0], 64);
			break;
		case GPUSORT_ROW_MACADDR8:
			put(bits, gpusort_load_be64(DatumGetPointer(value)), 64);
			break;
		case GPUSORT_ROW_UUID:
			put(bits, gpusort_load_be64(DatumGetUUIDP(value)->data), 64);
			put(bits, gpusort_load_be64(DatumGetUUIDP(value)->data + 8), 64);
			break;
		case GPUSORT_ROW_INTERVAL:
			gpusort_rowinterval_encode(column, value, words);
			put(bits, words[0], column->width);
			put(bits, words[1], column->bits - column->width - 1);
			break;
		case GPUSORT_ROW_TIMETZ:
			gpusort_rowtimetz_encode(column, value, words);
			put(bits, words[0], column->width);
			put(bits, words[1], column->bits - column->width - 1);
			break;
		case GPUSORT_ROW_TEXT:
			put_varlena(bits, column, value);
			break;
		case GPUSORT_ROW_NAME:
			put_string(bits, NameStr(*DatumGetName(value)),
					   8 * strnlen(NameStr(*DatumGetName(value)), NAMEDATALEN));
			break;
		default:
			elog(ERROR, "values of kind %d cannot be packed", column->kind);
	}
}

/* Appends a field of fixed width that is stored at any address. */
static inline void
put_stored(Bits *bits, const GpusortField *field, const char *stored)
{
	union
	{
		char		bytes[GPUSORT_PACKED_STORED_BYTES];
		int64		aligned;
	}			copy;
	Datum		value;

	switch (field->by_value ? field->length : 0)
	{
		case 1:
			value = UInt8GetDatum(*(const uint8 *) stored);
			break;
		case 2:
			memcpy(copy.bytes, stored, 2);
			value = Int16GetDatum(*(int16 *) copy.bytes);
			break;
		case 4:
			memcpy(copy.bytes, stored, 4);
			value = Int32GetDatum(*(int32 *) copy.bytes);
			break;
		case 8:
			memcpy(copy.bytes, stored, 8);
			value = Int64GetDatum(copy.aligned);
			break;
		default:
			memcpy(copy.bytes, stored, field->length);
			value = PointerGetDatum(copy.bytes);
			break;
	}
	put_field(bits, &field->column, value);
}

/* ---- values ---- */

/*
 * The functions below take the address that a value's header of 4 bytes has, or
 * would have.  The value is not aligned if its header is short.
 */

static inline int32
int_at(const char *place)
{
	int32		number;

	memcpy(&number, place, sizeof(number));
	return number;
}

/* Appends the shape of an array, whose dimensions and then lower bounds are at dims. */
static void
put_shape(Bits *bits, int ndims, int nitems, const char *dims)
{
	int32		lower = ndims > 0 ? int_at(dims + ndims * sizeof(int32)) : 1;

	if (ndims == 0 || (ndims == 1 && nitems > 0 && lower == 1))
		put(bits, 1, 2);
	else if (ndims == 1 && nitems > 0 && lower < 1)
	{
		put(bits, 0, 2);
		put(bits, gpusort_key_int4(lower), 32);
	}
	else
	{
		put(bits, 2, 2);
		put(bits, ndims, 3);
		for (int i = 0; i < 2 * ndims; i++)
			put(bits, gpusort_key_int4(int_at(dims + i * sizeof(int32))), 32);
	}
}

static void
pack_array(Bits *bits, const GpusortPacking *packing, const char *array)
{
	const GpusortField *field = packing->fields;
	int			ndims = int_at(array + offsetof(ArrayType, ndim));
	int			offset = int_at(array + offsetof(ArrayType, dataoffset));
	const char *dims = array + sizeof(ArrayType);
	const uint8 *nulls = offset > 0 ? (const uint8 *) dims + 2 * sizeof(int32) * ndims : NULL;
	int			nitems = ndims > 0 ? 1 : 0;

	for (int i = 0; i < ndims; i++)
		nitems *= int_at(dims + i * sizeof(int32));
	if (offset == 0)
		offset = ARR_OVERHEAD_NONULLS(ndims);
	for (int i = 0; i < nitems && !full(bits); i++)
	{
		if (nulls != NULL && att_isnull(i, nulls))
		{
			put(bits, 3, 2);
			continue;
		}
		put(bits, 2, 2);
		offset = att_align_nominal(offset, field->align);
		put_stored(bits, field, array + offset);
		offset += field->length;
	}
	if (full(bits))
	{
		bits->used = bits->most + 1;	/* the end is missing */
		return;
	}
	put(bits, 0, 1);
	put_shape(bits, ndims, nitems, dims);
}

static void
pack_range(Bits *bits, const GpusortPacking *packing, const char *range, Size size)
{
	const GpusortField *field = packing->fields;
	int			flags = (unsigned char) range[size - 1];
	int			offset = sizeof(RangeType);

	put(bits, (flags & RANGE_EMPTY) == 0, 1);
	if (flags & RANGE_EMPTY)
		return;
	put(bits, (flags & RANGE_LB_INF) == 0, 1);
	if ((flags & RANGE_LB_INF) == 0)
	{
		offset = att_align_nominal(offset, field->align);
		put_stored(bits, field, range + offset);
		offset += field->length;
		put(bits, (flags & RANGE_LB_INC) == 0, 1);
	}
	put(bits, (flags & RANGE_UB_INF) != 0, 1);
	if ((flags & RANGE_UB_INF) == 0)
	{
		offset = att_align_nominal(offset, field->align);
		put_stored(bits, field, range + offset);
		put(bits, (flags & RANGE_UB_INC) != 0, 1);
	}
}

static void
pack_row(Bits *bits, const GpusortPacking *packing, HeapTupleHeader header)
{
	HeapTupleData tuple = {.t_len = HeapTupleHeaderGetDatumLength(header), .t_data = header};

	heap_deform_tuple(&tuple, packing->desc, packing->values, packing->nulls);
	for (int i = 0; i < packing->nfields; i++)
	{
		const GpusortField *field = &packing->fields[i];
		bool		isnull = packing->nulls[field->attribute];

		put(bits, isnull, 1);
		if (!isnull)
			put_field(bits, &field->column, packing->values[field->attribute]);
	}
}

/* Returns the beginning of a TOASTed array or bit string, enough for most bits. */
static struct varlena *
fetch_slice(const GpusortPacking *packing, struct varlena *datum, Size most)
{
	struct varlena *slice = detoast_attr_slice(datum, 0, SLICE_BYTES(most));

	/* an array's elements come after the bitmap of its NULLs */
	if (packing->kind == GPUSORT_PACKING_ARRAY)
	{
		int32		offset = int_at((char *) slice + offsetof(ArrayType, dataoffset));

		if (offset > 0)
		{
			pfree(slice);
			slice = detoast_attr_slice(datum, 0, offset + SLICE_BYTES(most));
		}
	}
	return slice;
}

Size
gpusort_packed_bits(const GpusortRowColumn *column, Datum value, Size most, uint64 *words)
{
	const GpusortPacking *packing = column->bytes.packing;
	struct varlena *datum = (struct varlena *) DatumGetPointer(value);
	struct varlena *plain = datum;
	const char *start;
	Bits		bits = {.words = words, .most = most};

	memset(words, 0, GPUSORT_PACKED_WORDS(most) * sizeof(uint64));
	/* only a row's columns must be aligned */
	if (packing->kind == GPUSORT_PACKING_ROW)
		plain = pg_detoast_datum(datum);
	else if (unlikely(gpusort_varlena_remote(datum)))
		plain = packing->kind == GPUSORT_PACKING_RANGE ? pg_detoast_datum(datum) :
			fetch_slice(packing, datum, most);
	start = VARDATA_ANY(plain) - VARHDRSZ;
	switch (packing->kind)
	{
		case GPUSORT_PACKING_ARRAY:
			pack_array(&bits, packing, start);
			break;
		case GPUSORT_PACKING_RANGE:
			pack_range(&bits, packing, start, VARSIZE_ANY_EXHDR(plain) + VARHDRSZ);
			break;
		case GPUSORT_PACKING_ROW:
			pack_row(&bits, packing, (HeapTupleHeader) plain);
			break;
		case GPUSORT_PACKING_BITS:
			put_string(&bits, start + offsetof(VarBit, bit_dat), int_at(start + offsetof(VarBit, bit_len)));
			break;
	}
	if (plain != datum)
		pfree(plain);
	return bits.used;
}
