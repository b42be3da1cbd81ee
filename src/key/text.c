/*-------------------------------------------------------------------------
 *
 * text.c
 *		Words of strings.
 *
 * Where bytes decide (memcmp, and then the length), two words hold the first
 * 15 bytes, padded with zeros, and in the last byte the length plus one, or 17
 * if it is more than 15.  The length keeps apart what the padding makes the
 * same: strings of up to 15 bytes whose padded bytes agree are one the other's
 * head, with nothing but zero bytes after it (bytea has them), and the shorter
 * one sorts first.  So such a string's words hold all of it; of longer ones
 * they are a prefix, and no shorter one has the same.
 *
 * The last byte is 1 to 17, or that complemented: never all zeros or all ones,
 * which are left to NULL.
 *
 * Where ICU decides, there is one word, of the primary weights that the string
 * begins with (icu.c).  Where that cannot be made, it is the head of
 * ICU's sort key, as PostgreSQL itself makes it to abbreviate the sort's first
 * column.  tuplesort gives abbreviated keys up when they turn out to tell too
 * few strings apart (abbrev_abort).  A key's words are on their way by then, so
 * that is not done here: they cost time in that case, and leave the ties to the
 * comparator as it would have had them without.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"

#include "key/column.h"
#include "key/icu.h"

/* Bytes of a string in its words */
#define HEAD_BYTES	15

/* The words of a string of length bytes, of which data has HEAD_BYTES or all. */
static inline void
encode_bytes(const GpusortRowColumn *column, const char *data, Size length, uint64 *words)
{
	uint64		word0 = 0;
	uint64		word1 = 0;

	if (length >= HEAD_BYTES)
	{
		word0 = gpusort_load_be64(data);
		word1 = gpusort_load_be64(data + 7) << 8;
	}
	else if (length >= 8)
	{
		word0 = gpusort_load_be64(data);
		/* the last eight bytes, less those that word0 has */
		if (length > 8)
			word1 = gpusort_load_be64(data + length - 8) << (8 * (16 - length));
	}
	else if (length >= 4)
	{
		/* likewise, of four */
		uint64		tail = gpusort_load_be32(data + length - 4);

		word0 = (uint64) gpusort_load_be32(data) << 32 | (uint32) (tail << (8 * (8 - length)));
	}
	else
	{
		for (Size i = 0; i < length; i++)
			word0 |= (uint64) (unsigned char) data[i] << (56 - 8 * i);
	}
	word1 |= Min(length, HEAD_BYTES + 1) + 1;

	words[0] = word0 ^ column->flip;
	words[1] = word1 ^ column->flip_next;
}

/*
 * text, varchar, bytea and bpchar.  Of a value that is stored elsewhere only
 * the head is fetched, but for bpchar: where its blanks begin shows in all.
 */
bool
gpusort_rowtext_encode(const GpusortRowColumn *column, Datum value, uint64 *words)
{
	struct varlena *datum = (struct varlena *) DatumGetPointer(value);
	struct varlena *copy = NULL;
	Size		length;

	if (likely(!gpusort_varlena_remote(datum)))
		length = VARSIZE_ANY_EXHDR(datum);
	else if (column->kind == GPUSORT_ROW_BPCHAR)
	{
		datum = copy = pg_detoast_datum_packed(datum);
		length = VARSIZE_ANY_EXHDR(datum);
	}
	else
	{
		length = toast_raw_datum_size(value) - VARHDRSZ;
		datum = copy = detoast_attr_slice(datum, 0, HEAD_BYTES);
	}
	if (column->kind == GPUSORT_ROW_BPCHAR)
		length = bpchartruelen(VARDATA_ANY(datum), length);

	encode_bytes(column, VARDATA_ANY(datum), length, words);

	if (unlikely(copy != NULL))
		pfree(copy);
	return length <= HEAD_BYTES;
}

/* name: NAMEDATALEN bytes, padded with zeros and unlike text of fixed size */
bool
gpusort_rowname_encode(const GpusortRowColumn *column, Datum value, uint64 *words)
{
	const char *data = NameStr(*DatumGetName(value));
	Size		length = strnlen(data, NAMEDATALEN);

	encode_bytes(column, data, length, words);
	return length <= HEAD_BYTES;
}

void
gpusort_rowicu_begin(GpusortRowColumn *column, const GpusortSortColumn *from)
{
	SortSupport ssup;

	column->icu = gpusort_icu_find(from->collation);
	if (column->icu != NULL)
		return;

	ssup = palloc0(sizeof(SortSupportData));
	ssup->ssup_cxt = CurrentMemoryContext;
	ssup->ssup_collation = from->collation;
	ssup->ssup_nulls_first = from->nulls_first;
	ssup->ssup_attno = from->attno;
	ssup->abbreviate = true;
	PrepareSortSupportFromOrderingOp(from->sort_operator, ssup);

	/* only unsigned integers are of use */
	if (ssup->abbrev_converter == NULL || ssup->comparator != ssup_datum_unsigned_cmp)
		elog(ERROR, "collation %u has no abbreviated keys", from->collation);
	column->abbreviation = ssup;
}

/* The word of a value by its weights, all of which is fetched, as core does. */
static inline uint64
encode_weights(const GpusortRowColumn *column, Datum value)
{
	struct varlena *datum = (struct varlena *) DatumGetPointer(value);
	struct varlena *copy = NULL;
	Size		length;
	uint64		word;

	if (unlikely(gpusort_varlena_remote(datum)))
		datum = copy = pg_detoast_datum_packed(datum);
	length = VARSIZE_ANY_EXHDR(datum);
	if (column->blank_padded)
		length = bpchartruelen(VARDATA_ANY(datum), length);
	word = gpusort_icu_word(column->icu, VARDATA_ANY(datum), length);
	if (unlikely(copy != NULL))
		pfree(copy);
	return word;
}

/*
 * Either word leaves a bit for NULL's flag: an abbreviated key is a Datum, 4
 * or 8 bytes, of which the last bit is given up.
 */
uint64
gpusort_rowicu_encode(const GpusortRowColumn *column, Datum value)
{
	SortSupport ssup = column->abbreviation;
	uint64		head;

	if (column->icu != NULL)
		head = encode_weights(column, value);
	else
		head = ((uint64) ssup->abbrev_converter(value, ssup) << (64 - 8 * SIZEOF_DATUM)) >> 1;
	return (head ^ column->flip) | column->base;
}
