/*-------------------------------------------------------------------------
 *
 * few.c
 *		The few values of a column whose words hold only a prefix.
 *
 * In a column of a few long strings, such as names of countries or web addresses, all rows would tie, although two
 * different strings hardly ever have the same words.  So the strings and their words are kept as long as they are few
 * and no two of them have the same words.  A string that is found needs no encoding.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "key/column.h"

#define MAX_VALUES		1024
#define MAX_BYTES		(128 * 1024)
#define LOG_SLOTS		11

/* The values that are looked at for repetitions.  If these are all different, there are hardly less than 3,000. */
#define REPEAT_VALUES	128

typedef struct Slot
{
	uint64		words[GPUSORT_COLUMN_MAX_WORDS];
	const char *bytes;			/* NULL: the slot is empty */
	uint32		length;
	uint32		hash;
} Slot;

typedef struct GpusortFew
{
	MemoryContext cxt;			/* holds this struct and the bytes */
	GpusortEncoder encode;		/* of the column's kind */
	int			count;			/* values */
	Size		bytes;			/* of all values */
	bool		repeated;
	bool		complete;		/* no other value is kept */
	uint64		words[MAX_VALUES];	/* hashes of the values' words */
	Slot		slots[1 << LOG_SLOTS];
} GpusortFew;

static void
end(GpusortRowColumn *column)
{
	column->encode = column->few->encode;
	MemoryContextDelete(column->few->cxt);
	column->few = NULL;
}

void
gpusort_rowkey_end_few(GpusortRowKey *key)
{
	GpusortRowColumn *last = &key->columns[key->ncolumns - 1];

	if (last->few != NULL)
		end(last);
}

/* Hashes a string by its words of 8 bytes, of which the last two may overlap. */
static inline uint64
hash_string(const char *bytes, Size length)
{
	uint64		hash = length;

	if (length < sizeof(uint64))
	{
		uint64		word = 0;

		for (Size i = 0; i < length; i++)
			word = word << 8 | (unsigned char) bytes[i];
		return gpusort_mix(hash, word);
	}
	for (Size i = 0; i < length - sizeof(uint64); i += sizeof(uint64))
		hash = gpusort_mix(hash, gpusort_load_be64(bytes + i));
	return gpusort_mix(hash, gpusort_load_be64(bytes + length - sizeof(uint64)));
}

/* Adds a value.  Returns false if it cannot be kept or if another one has its words. */
static bool
add_value(GpusortFew *few, Slot *slot, const char *bytes, Size length, const uint64 *words, int nwords)
{
	uint64		hash = 0;
	char	   *copy;

	for (int i = 0; i < nwords; i++)
		hash = gpusort_mix(hash, words[i]);
	for (int i = 0; i < few->count; i++)
	{
		if (few->words[i] == hash)
			return false;
	}
	if (few->count == MAX_VALUES || few->bytes + length > MAX_BYTES)
		return false;

	copy = MemoryContextAlloc(few->cxt, length + 1);
	memcpy(copy, bytes, length);
	memcpy(slot->words, words, nwords * sizeof(uint64));
	slot->bytes = copy;
	slot->length = length;
	few->words[few->count++] = hash;
	few->bytes += length;
	return true;
}

/* Encodes a value as the encoder of its kind does, but words of a value that is kept decide. */
static bool
encode(GpusortRowColumn *column, Datum value, uint64 *words)
{
	GpusortFew *few = column->few;
	const void *varlena = DatumGetPointer(value);
	bool		remote = gpusort_varlena_remote(varlena);
	const char *bytes = VARDATA_ANY(varlena);
	Size		length = VARSIZE_ANY_EXHDR(varlena);
	Slot	   *slot = NULL;
	uint32		hash = 0;

	if (likely(!remote))
	{
		uint64		mixed = hash_string(bytes, length);
		uint32		place = mixed >> (64 - LOG_SLOTS);

		hash = (uint32) mixed;
		for (;; place = (place + 1) % lengthof(few->slots))
		{
			slot = &few->slots[place];
			if (slot->bytes == NULL)
				break;
			if (slot->hash == hash && slot->length == length && memcmp(slot->bytes, bytes, length) == 0)
			{
				for (int i = 0; i < column->words; i++)
					words[i] = slot->words[i];
				few->repeated = true;
				return true;
			}
		}
	}
	if (few->encode(column, value, words))
		return true;
	if (!remote && !few->complete && add_value(few, slot, bytes, length, words, column->words))
	{
		slot->hash = hash;
		return true;
	}
	end(column);
	return false;
}

void
gpusort_few_begin(const GpusortSample *sample)
{
	GpusortRowKey *key = sample->key;
	GpusortRowColumn *last = &key->columns[key->ncolumns - 1];
	MemoryContext cxt;

	if (key->nencoded < key->ncolumns || !last->is_string)
		return;
	cxt = AllocSetContextCreate(CurrentMemoryContext, "GpuSort few values", ALLOCSET_DEFAULT_SIZES);
	last->few = MemoryContextAllocZero(cxt, sizeof(GpusortFew));
	last->few->cxt = cxt;
	last->few->encode = last->encode;
	last->encode = encode;
	for (int i = 0; i < REPEAT_VALUES && last->few != NULL; i++)
	{
		bool		isnull;
		Datum		value = gpusort_sample_value(sample, (uint64) i * sample->n / REPEAT_VALUES, last, &isnull);
		uint64		words[GPUSORT_COLUMN_MAX_WORDS];

		/* to fetch such values would take too long */
		if (!isnull && gpusort_varlena_remote(DatumGetPointer(value)))
			break;
		gpusort_rowkey_encode_column(last, value, isnull, words);
	}
	if (last->few != NULL && !last->few->repeated)
		end(last);
}

void
gpusort_rowkey_keep_sample(GpusortRowKey *key, GpusortSampleRow row, void *arg, uint32 n)
{
	GpusortRowColumn *last = &key->columns[key->ncolumns - 1];
	uint64		words[GPUSORT_MAX_WORDS];

	for (uint32 i = 0; i < n && last->few != NULL; i++)
		gpusort_rowkey_encode(key, row(arg, i), words);
	if (last->few != NULL)
		last->few->complete = true;
}
