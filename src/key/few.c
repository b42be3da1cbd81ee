/*-------------------------------------------------------------------------
 *
 * few.c
 *		The few values of a column whose words hold only a prefix.
 *
 * In a column of a few long strings, such as names of countries or web addresses, all
 * rows would tie, although hardly ever two different strings have the same words.  So
 * the strings are kept by their words as long as they are few, and each value is
 * compared with the one that has its words.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "key/column.h"

#define MAX_VALUES		1024
#define MAX_BYTES		(128 * 1024)
#define LOG_SLOTS		11

typedef struct GpusortFew
{
	MemoryContext cxt;			/* holds this struct and the bytes */
	int			count;			/* values */
	Size		bytes;			/* of all values */
	bool		repeated;
	struct
	{
		uint64		words[GPUSORT_COLUMN_MAX_WORDS];
		const char *bytes;		/* NULL: the slot is empty */
		Size		length;
	}			slots[1 << LOG_SLOTS];
} GpusortFew;

void
gpusort_few_begin(GpusortRowColumn *column)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "GpuSort few values", ALLOCSET_DEFAULT_SIZES);

	column->few = MemoryContextAllocZero(cxt, sizeof(GpusortFew));
	column->few->cxt = cxt;
}

void
gpusort_few_end(GpusortRowColumn *column)
{
	MemoryContextDelete(column->few->cxt);
	column->few = NULL;
}

bool
gpusort_few_repeat(const GpusortRowColumn *column)
{
	return column->few != NULL && column->few->repeated;
}

bool
gpusort_few_decide(GpusortRowColumn *column, Datum value, const uint64 *words)
{
	GpusortFew *few = column->few;
	const void *varlena = DatumGetPointer(value);
	const char *bytes = VARDATA_ANY(varlena);
	Size		length = VARSIZE_ANY_EXHDR(varlena);
	Size		size = column->words * sizeof(uint64);
	uint64		hash = 0;
	uint32		slot;
	char	   *copy;

	for (int i = 0; i < column->words; i++)
		hash = gpusort_mix(hash, words[i]);
	for (slot = hash >> (64 - LOG_SLOTS); few->slots[slot].bytes != NULL; slot = (slot + 1) % lengthof(few->slots))
	{
		if (memcmp(few->slots[slot].words, words, size) != 0)
			continue;
		few->repeated = few->slots[slot].length == length && !gpusort_varlena_remote(varlena) &&
			memcmp(few->slots[slot].bytes, bytes, length) == 0;
		if (!few->repeated)
			gpusort_few_end(column);
		return column->few != NULL;
	}
	if (few->count == MAX_VALUES || few->bytes + length > MAX_BYTES || gpusort_varlena_remote(varlena))
	{
		gpusort_few_end(column);
		return false;
	}
	copy = MemoryContextAlloc(few->cxt, length + 1);
	memcpy(copy, bytes, length);
	memcpy(few->slots[slot].words, words, size);
	few->slots[slot].bytes = copy;
	few->slots[slot].length = length;
	few->count++;
	few->bytes += length;
	return true;
}
