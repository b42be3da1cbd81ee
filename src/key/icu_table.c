/*-------------------------------------------------------------------------
 *
 * icu_table.c
 *		Fills the tables of the primary weights of characters under an ICU collation.
 *
 * key/icu_table.h says what the tables are for.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "key/icu_table.h"

#ifdef GPUSORT_HAVE_ICU

#define CHAR_BITS_BYTES	(0x10000 / 8)

/* Asks ICU for the weights of a character of 16 bits. */
static GpusortIcuChar
describe_char(GpusortIcuTable *table, uint16 character)
{
	GpusortIcuChar result = {0};
	uint32		weights[GPUSORT_ICU_WEIGHTS + 1];
	int			count;

	if (gpusort_icu_interacts(table->reader, character) ||
		(table->jamo_contract && character >= 0xAC00 && character < 0xD7A4) ||
		(count = gpusort_icu_weights(table->reader, &character, 1, weights)) > GPUSORT_ICU_WEIGHTS)
	{
		result.flags = GPUSORT_ICU_CONTEXT;
		return result;
	}
	if (count == 1)
		result = gpusort_icutable_one_weight(weights[0]);
	else
	{
		if (table->nexpansions + count > table->max_expansions)
		{
			/* twice the room is enough: count is less than the first allocation */
			table->expansions = repalloc(table->expansions, table->max_expansions * 2 * sizeof(GpusortIcuChar));
			table->max_expansions *= 2;
		}
		result.weight = table->nexpansions;
		result.count = count;
		result.flags = GPUSORT_ICU_SEVERAL;
		for (int i = 0; i < count; i++)
			table->expansions[table->nexpansions++] = gpusort_icutable_one_weight(weights[i]);
	}
	if (gpusort_icutable_has_bit(table->firsts, character))
		result.flags |= GPUSORT_ICU_FIRST;
	if (gpusort_icutable_has_bit(table->laters, character))
		result.flags |= GPUSORT_ICU_LATER;
	return result;
}

void
gpusort_icutable_make_page(GpusortIcuTable *table, int page)
{
	GpusortIcuChar *chars = MemoryContextAlloc(table->cxt, GPUSORT_ICU_PAGE_CHARS * sizeof(GpusortIcuChar));

	for (int i = 0; i < GPUSORT_ICU_PAGE_CHARS; i++)
		chars[i] = describe_char(table, page * GPUSORT_ICU_PAGE_CHARS + i);
	table->pages[page] = chars;
}

void
gpusort_icutable_begin(GpusortIcuTable *table, GpusortIcuReader *reader, MemoryContext cxt)
{
	uint8	   *bits = MemoryContextAllocZero(cxt, 2 * CHAR_BITS_BYTES);

	memset(table, 0, sizeof(GpusortIcuTable));
	table->reader = reader;
	table->cxt = cxt;
	table->firsts = bits;
	table->laters = bits + CHAR_BITS_BYTES;
	gpusort_icu_contractions(reader, table->firsts, table->laters);
	for (int jamo = 0x1100; jamo < 0x1200; jamo += 8)
		table->jamo_contract |= table->firsts[jamo / 8] != 0 || table->laters[jamo / 8] != 0;
	table->max_expansions = 256;
	table->expansions = MemoryContextAlloc(cxt, table->max_expansions * sizeof(GpusortIcuChar));
	gpusort_icutable_make_page(table, 0);
}

#endif							/* GPUSORT_HAVE_ICU */
