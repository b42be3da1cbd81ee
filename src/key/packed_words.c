/*-------------------------------------------------------------------------
 *
 * packed_words.c
 *		Plans how values of a type are packed, and makes words of them.
 *
 * A column has two words, or three if that makes all values of the sample fit
 * (key/sample.c).  They hold the first 127 or 191 bits of the value's packing.  If most
 * values begin with the same bytes, the first two bits are 0, 1 or 2 if a value sorts
 * before, among or after those with the prefix.  Then come the first bits, of values
 * with the prefix those that follow it.
 *
 * The words of a value that fits never equal those of a prefix: no other value's
 * bit string begins with its bits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "key/icu.h"
#include "key/packed.h"

/* Words for the longest prefix (key/sample_strings.c) and what follows it */
#define HEAD_WORDS	GPUSORT_PACKED_WORDS(8 * GPUSORT_ICU_PREFIX_BYTES + 3 * 64)

static GpusortPacking *
make_packing(GpusortPackingKind kind, int nfields)
{
	GpusortPacking *packing = palloc0(sizeof(GpusortPacking));

	packing->kind = kind;
	packing->nfields = nfields;
	packing->fields = palloc0(sizeof(GpusortField) * Max(nfields, 1));
	return packing;
}

static void
set_field(GpusortField *field, Oid type, Oid collation)
{
	field->type = type;
	field->collation = collation;
	get_typlenbyvalalign(type, &field->length, &field->by_value, &field->align);
}

static GpusortPacking *
plan_row(TupleDesc desc)
{
	GpusortPacking *packing = make_packing(GPUSORT_PACKING_ROW, desc->natts);

	packing->nfields = 0;
	packing->desc = desc;
	packing->values = palloc(sizeof(Datum) * Max(desc->natts, 1));
	packing->nulls = palloc(sizeof(bool) * Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);
		GpusortField *field = &packing->fields[packing->nfields];

		if (attribute->attisdropped)
			continue;
		set_field(field, attribute->atttypid, attribute->attcollation);
		field->attribute = i;
		packing->nfields++;
	}
	return packing;
}

GpusortPacking *
gpusort_packed_plan(Oid compare, Oid type, TupleDesc row)
{
	GpusortPacking *packing = NULL;
	Oid			part;
	TypeCacheEntry *entry;

	type = getBaseType(type);
	switch (compare)
	{
		case F_BTARRAYCMP:
			part = get_element_type(type);
			if (!OidIsValid(part))
				return NULL;	/* anyarray, of which statistics are */
			packing = make_packing(GPUSORT_PACKING_ARRAY, 1);
			set_field(&packing->fields[0], part, InvalidOid);
			break;
		case F_RANGE_CMP:
			entry = lookup_type_cache(type, TYPECACHE_RANGE_INFO);
			if (entry->rngelemtype == NULL)
				return NULL;
			part = entry->rngelemtype->type_id;
			/* a range type may have another order than its subtype */
			if (entry->rng_cmp_proc_finfo.fn_oid != lookup_type_cache(part, TYPECACHE_CMP_PROC)->cmp_proc)
				return NULL;
			packing = make_packing(GPUSORT_PACKING_RANGE, 1);
			set_field(&packing->fields[0], part, entry->rng_collation);
			break;
		case F_BTRECORDCMP:
			if (row == NULL && get_typtype(type) == TYPTYPE_COMPOSITE)
				row = lookup_rowtype_tupdesc_copy(type, -1);
			if (row == NULL)
				return NULL;
			packing = plan_row(row);
			break;
		case F_BITCMP:
		case F_VARBITCMP:
			packing = make_packing(GPUSORT_PACKING_BITS, 0);
			break;
	}
	/* elements and bounds are read from where they are stored; name is too long for that */
	if (packing != NULL && packing->kind != GPUSORT_PACKING_ROW && packing->nfields > 0 &&
		(packing->fields[0].length < 0 || packing->fields[0].length > GPUSORT_PACKED_STORED_BYTES))
		return NULL;
	return packing;
}

/*
 * Packs a value of a column that has a prefix.  Sets *place to 0, 1 or 2 if the value
 * sorts before, among or after those that begin with the prefix.  Sets bits to at least
 * the first room bits of what follows: the value's bits behind the prefix if it has the
 * prefix, else all its bits.  Returns their number.
 */
static Size
pack_behind_prefix(const GpusortRowColumn *column, Datum value, Size room, uint64 *bits, uint64 *place)
{
	uint64		words[HEAD_WORDS];
	Size		skip = column->bytes.prefix_bytes;
	Size		length = gpusort_packed_bits(column, value, 8 * skip + room, words);
	int			order;

	for (int i = 0; i < GPUSORT_PACKED_WORDS(8 * skip + room); i++)
		words[i] = pg_hton64(words[i]);
	order = memcmp(words, column->bytes.prefix, skip);
	*place = order < 0 ? 0 : order == 0 ? 1 : 2;
	if (order != 0)
		skip = 0;
	for (int i = 0; i < column->words; i++)
		bits[i] = gpusort_load_be64((char *) words + skip + sizeof(uint64) * i);
	return length > 8 * skip ? length - 8 * skip : 0;
}

/*
 * Encodes a value of kind PACKED in the column's two or three words.  Returns true if
 * they hold all of it.
 */
bool
gpusort_rowpacked_encode(const GpusortRowColumn *column, Datum value, uint64 *words)
{
	uint64		bits[GPUSORT_PACKED_WORDS(3 * 64)];
	Size		room = 64 * column->words - 1;	/* the first bit is NULL's flag */
	uint64		place = 0;
	int			shift = 1;
	Size		length;

	if (likely(column->bytes.prefix_bytes == 0))
		length = gpusort_packed_bits(column, value, room, bits);
	else
	{
		shift = 3;
		room -= 2;
		length = pack_behind_prefix(column, value, room, bits, &place);
	}
	gpusort_column_set_words(column, place, shift, bits, words);
	return length <= room;
}

Size
gpusort_rowpacked_head(const GpusortRowColumn *column, Datum value, Size most, uint64 *bytes)
{
	Size		bits = gpusort_packed_bits(column, value, 8 * most, bytes);

	for (Size i = 0; i < GPUSORT_PACKED_WORDS(8 * most); i++)
		bytes[i] = pg_hton64(bytes[i]);
	return (bits + 7) / 8;
}

Size
gpusort_rowpacked_size(const GpusortRowColumn *column, Datum value)
{
	uint64		words[GPUSORT_PACKED_WORDS(0)];

	/* columns of a row may be compressed */
	if (column->bytes.packing->kind == GPUSORT_PACKING_ROW)
		return gpusort_packed_bits(column, value, 0, words) / 8 + 64;
	return toast_raw_datum_size(value) * 9 / 8 + 64;
}

char *
gpusort_rowpacked_bytes(const GpusortRowColumn *column, Datum value, Size *length)
{
	/* nearly always enough */
	Size		most = gpusort_rowpacked_size(column, value);

	for (;;)
	{
		uint64	   *bytes = palloc_extended(sizeof(uint64) * GPUSORT_PACKED_WORDS(8 * most), MCXT_ALLOC_HUGE);

		*length = gpusort_rowpacked_head(column, value, most, bytes);
		if (*length <= most)
			return (char *) bytes;
		pfree(bytes);
		most = Max(*length, 2 * most);
	}
}
