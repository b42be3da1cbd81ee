/*-------------------------------------------------------------------------
 *
 * pack.c
 *		Rows as words of 8 bytes, which cost a third of rows to sort, and less to keep and to spill.
 *
 * The columns of a row are groups and values, most of them integers, times and numbers with few digits.  Each gets a field of
 * the word, wide enough for what the first rows show, and for as much more as the word has room for.  A later row that does not
 * fit is kept as a row (order.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "aggregate/aggregate_state.h"

/* The difference of the greatest key and the least one that have codes in a field of this many bits */
static uint64
span_of(const GpusortField *field, int bits)
{
	return (bits >= 64 ? PG_UINT64_MAX : (UINT64CONST(1) << bits) - 1) - (field->nullable ? 1 : 0);
}

/* Finds the least key and the greatest one of a column, and how many bits they need. */
static void
find_range(GpusortField *field, const uint64 *keys, const bool *nulls, int n, int columns)
{
	field->least = PG_UINT64_MAX;
	field->most = 0;
	for (int row = 0; row < n; row++)
	{
		if (nulls[row * columns])
			continue;
		field->least = Min(field->least, keys[row * columns]);
		field->most = Max(field->most, keys[row * columns]);
	}
	if (field->least > field->most)
		field->least = field->most = 0;
	field->bits = 1;
	while (field->bits < gpusort_pack_full_bits(field) && span_of(field, field->bits) < field->most - field->least)
		field->bits++;
}

/* Gives keys on both sides of the range the codes that the field still has. */
static void
widen(GpusortField *field)
{
	uint64		greatest = field->type->key_bytes == sizeof(uint32) ? PG_UINT32_MAX : PG_UINT64_MAX;
	uint64		span = span_of(field, field->bits);

	if (span >= greatest)
	{
		field->least = 0;
		field->most = greatest;
		return;
	}
	field->least -= Min(field->least, (span - (field->most - field->least)) / 2);
	field->least = Min(field->least, greatest - span);
	field->most = field->least + span;
}

bool
gpusort_pack_choose(GpusortPacking *packing, const uint64 *keys, const bool *nulls, int n)
{
	int			used = 0;
	int			full = 0;
	int			shift = 0;

	for (int i = 0; i < packing->n; i++)
	{
		find_range(&packing->fields[i], keys + i, nulls + i, n, packing->n);
		used += packing->fields[i].bits;
		full += gpusort_pack_full_bits(&packing->fields[i]);
	}
	if (used > 64)
		return false;
	for (int i = 0; used < Min(full, 64); i = (i + 1) % packing->n)
	{
		if (packing->fields[i].bits == gpusort_pack_full_bits(&packing->fields[i]))
			continue;
		packing->fields[i].bits++;
		used++;
	}
	for (int i = packing->n - 1; i >= 0; i--)
	{
		widen(&packing->fields[i]);
		packing->fields[i].shift = shift;
		shift += packing->fields[i].bits;
	}
	return true;
}
