/*-------------------------------------------------------------------------
 *
 * tuple.c
 *		Finds columns in heap tuples.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "utils/memutils.h"

#include "compat.h"
#include "key/key.h"

/* Bytes of the header of a tuple without NULLs */
#define PLAIN_HEADER	((int) MAXALIGN(SizeofHeapTupleHeader))

/*
 * A walk waits for the memory of each cache line, since it must read one column to find the next.  So the lines of a tuple
 * are prefetched so many tuples ahead: as many bytes as the walk over the last one has come to.
 */
#define AHEAD		4
#define CACHE_LINE	64

void
gpusort_places_begin(GpusortPlaces *places, TupleDesc desc, MemoryContext cxt)
{
	places->desc = desc;
	places->cxt = cxt;
	places->found = NULL;
	places->natts = places->fixed = places->first = places->reach = 0;
	places->begin = PLAIN_HEADER;
}

bool
gpusort_places_cover(GpusortPlaces *places, int natts)
{
	if (natts > GPUSORT_PLACES_MAX)
		return false;
	/* nothing changes in this case: places that have been found stay */
	for (int c = places->natts; c < natts; c++)
	{
		if (GPUSORT_ATTRIBUTE(places->desc, c)->attlen < -1)
			return false;
	}
	for (; places->natts < natts; places->natts++)
	{
		int			c = places->natts;
		int			bytes = GPUSORT_ATTRIBUTE(places->desc, c)->attlen;
		int			mask = gpusort_align(1, places->desc, c) - 1;
		int			aligned = (places->begin + mask) & ~mask;

		places->columns[c].bytes = bytes;
		places->columns[c].mask = mask;
		if (places->first < c)
			continue;
		/* a varlena with a short header is not aligned */
		if (bytes > 0 || aligned == places->begin)
		{
			places->offsets[c] = places->reach = aligned;
			places->fixed = c + 1;
		}
		if (bytes > 0)
		{
			places->begin = aligned + bytes;
			places->first = c + 1;
		}
	}
	return true;
}

/* Walks over the columns from number c on, which begin at this offset or behind it.  bits: NULL, or those of the NULLs. */
static pg_attribute_always_inline void
walk(const GpusortPlaces *places, HeapTupleHeader tuple, int c, int offset, const uint8 *bits, uint16 *found)
{
	const char *begin = (const char *) tuple;

	for (; c < places->natts; c++)
	{
		int			bytes = places->columns[c].bytes;
		int			mask = places->columns[c].mask;

		if (bits != NULL && att_isnull(c, bits))
		{
			found[c] = GPUSORT_PLACE_NULL;
			continue;
		}
		/* what is in front of an aligned varlena is 0, and no header of a short one begins so */
		if (bytes > 0 || begin[offset] == 0)
			offset = (offset + mask) & ~mask;
		found[c] = offset;
		offset += bytes > 0 ? bytes : (int) VARSIZE_ANY(begin + offset);
	}
}

/* Finds the columns in a tuple that is not plain. */
static pg_noinline void
find(const GpusortPlaces *places, HeapTupleHeader tuple, uint16 *found)
{
	if (HeapTupleHeaderGetNatts(tuple) >= places->natts)
		walk(places, tuple, 0, tuple->t_hoff, (tuple->t_infomask & HEAP_HASNULL) != 0 ? tuple->t_bits : NULL, found);
	else
		for (int c = 0; c < places->natts; c++)
			found[c] = GPUSORT_PLACE_UNKNOWN;
}

static inline bool
is_plain(HeapTupleHeader tuple)
{
	return ((tuple->t_infomask & HEAP_HASNULL) == 0) & (tuple->t_hoff == PLAIN_HEADER);
}

void
gpusort_places_find(GpusortPlaces *places, const HeapTupleHeader *tuples, int n)
{
	uint16	   *found;
	int			natts = places->natts;
	int			reach = places->reach;
	bool		plain = true;
	bool		known = true;

	for (int i = 0; i < n; i++)
	{
		for (int line = 0; i + AHEAD < n && line < reach; line += CACHE_LINE)
			__builtin_prefetch((const char *) tuples[i + AHEAD] + line);
		plain &= is_plain(tuples[i]);
		known &= HeapTupleHeaderGetNatts(tuples[i]) >= natts;
	}
	places->known = known;
	places->plain = known && plain;
	if (places->plain && places->fixed >= places->natts)
		return;
	if (places->found == NULL)
		places->found = MemoryContextAlloc(places->cxt, MaxHeapTuplesPerPage * GPUSORT_PLACES_MAX * sizeof(uint16));
	found = places->found;
	for (int i = 0; i < n; i++, found += places->natts)
	{
		if (likely(is_plain(tuples[i]) && HeapTupleHeaderGetNatts(tuples[i]) >= places->natts))
		{
			for (int c = 0; c < places->first; c++)
				found[c] = places->offsets[c];
			walk(places, tuples[i], places->first, places->begin, NULL, found);
		}
		else
			find(places, tuples[i], found);
	}
	places->reach = places->natts > 0 ? found[-1] : 0;
}
