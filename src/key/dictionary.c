/*-------------------------------------------------------------------------
 *
 * dictionary.c
 *		The distinct strings of a column whose words hold only a prefix.
 *
 * Two hash tables with open addressing and linear probing have the entries by
 * their bytes and by their words.  Entries are never removed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "compat.h"
#include "key/dictionary.h"

/* The most strings; a table has four times as many slots. */
#define MAX_ENTRIES		1024
#define SLOTS			(4 * MAX_ENTRIES)

typedef struct Entry
{
	uint64		words[GPUSORT_DICTIONARY_WORDS];
	uint32		hash;			/* of its bytes */
	struct varlena *string;		/* a copy, with a header of 4 bytes */
} Entry;

struct GpusortDictionary
{
	MemoryContext cxt;
	SortSupport comparator;		/* the column's */
	bool		closed;
	Size		room;			/* bytes that further strings may take */
	Size		bytes;			/* bytes of this struct and all strings */
	int			count;			/* entries in use */
	Entry		entries[MAX_ENTRIES];
	uint16		by_bytes[SLOTS];	/* 1 + number of an entry; 0: the slot is empty */
	uint16		by_words[SLOTS];
};

GpusortDictionary *
gpusort_dictionary_begin(SortSupport comparator, Size memory)
{
	GpusortDictionary *dictionary = palloc0(sizeof(GpusortDictionary));

	dictionary->cxt = CurrentMemoryContext;
	dictionary->comparator = comparator;
	dictionary->bytes = sizeof(GpusortDictionary);
	dictionary->room = memory > dictionary->bytes ? memory - dictionary->bytes : 0;
	return dictionary;
}

bool
gpusort_dictionary_closed(const GpusortDictionary *dictionary)
{
	return dictionary->closed;
}

void
gpusort_dictionary_close(GpusortDictionary *dictionary)
{
	dictionary->closed = true;
}

Size
gpusort_dictionary_bytes(const GpusortDictionary *dictionary)
{
	return dictionary->bytes;
}

/* Mixes 64 bits into a hash value. */
static inline uint64
mix(uint64 hash, uint64 bits)
{
	hash = (hash ^ bits) * UINT64CONST(0x9E3779B97F4A7C15);
	return hash ^ hash >> 32;
}

uint32
gpusort_dictionary_hash(const char *bytes, Size length)
{
	uint64		hash = mix(0, length);
	uint64		word;

	for (; length > sizeof(word); bytes += sizeof(word), length -= sizeof(word))
	{
		memcpy(&word, bytes, sizeof(word));
		hash = mix(hash, word);
	}
	word = 0;
	memcpy(&word, bytes, length);
	/* the second multiplication lets all bytes of the last word change the low bits */
	return (uint32) mix(mix(hash, word), length);
}

bool
gpusort_dictionary_find(const GpusortDictionary *dictionary, GpusortDictionaryProbe *probe,
						uint64 *words)
{
	uint32		slot;

	probe->hash = gpusort_dictionary_hash(probe->bytes, probe->length);
	for (slot = probe->hash % SLOTS; dictionary->by_bytes[slot] != 0; slot = (slot + 1) % SLOTS)
	{
		const Entry *entry = &dictionary->entries[dictionary->by_bytes[slot] - 1];

		if (entry->hash == probe->hash && VARSIZE(entry->string) - VARHDRSZ == probe->length &&
			memcmp(VARDATA(entry->string), probe->bytes, probe->length) == 0)
		{
			memcpy(words, entry->words, sizeof(entry->words));
			return true;
		}
	}
	return false;
}

bool
gpusort_dictionary_add(GpusortDictionary *dictionary, const GpusortDictionaryProbe *probe,
					   const uint64 *words)
{
	Size		bytes = probe->length + VARHDRSZ;
	Entry	   *entry;
	uint32		slot;

	if (dictionary->count == MAX_ENTRIES || bytes > dictionary->room)
	{
		dictionary->closed = true;
		return false;
	}
	entry = &dictionary->entries[dictionary->count++];
	entry->hash = probe->hash;
	memcpy(entry->words, words, sizeof(entry->words));
	entry->string = MemoryContextAlloc(dictionary->cxt, bytes);
	SET_VARSIZE(entry->string, bytes);
	bytes = GetMemoryChunkSpace(entry->string);
	dictionary->room -= Min(bytes, dictionary->room);
	dictionary->bytes += bytes;
	memcpy(VARDATA(entry->string), probe->bytes, probe->length);

	for (slot = probe->hash % SLOTS; dictionary->by_bytes[slot] != 0;)
		slot = (slot + 1) % SLOTS;
	dictionary->by_bytes[slot] = dictionary->count;

	/* strings that share words must be equal, as 'a' and 'A' may be under ICU */
	for (slot = mix(mix(mix(0, words[0]), words[1]), 0) % SLOTS; dictionary->by_words[slot] != 0; slot = (slot + 1) % SLOTS)
	{
		const Entry *other = &dictionary->entries[dictionary->by_words[slot] - 1];

		if (memcmp(other->words, words, sizeof(other->words)) == 0 &&
			ApplySortComparator(PointerGetDatum(other->string), false,
								PointerGetDatum(entry->string), false, dictionary->comparator) != 0)
		{
			dictionary->closed = true;
			return false;
		}
	}
	dictionary->by_words[slot] = dictionary->count;
	return true;
}
