/*-------------------------------------------------------------------------
 *
 * merge.cc
 *		The CPU engine: merges sorted pieces of keys of one word.
 *
 * The output, not the pieces, is divided among the threads: each thread
 * produces one slice of it, and all slices are equally long.  A selection
 * among all pieces finds where in each piece a slice begins (Varman,
 * Scheufler, Iyer, Ricard, "Merging multiple lists on hierarchical-memory
 * multiprocessors", J. Parallel Distrib. Comput. 12, 1991).  That paper selects
 * by exchanging elements; this file bisects the value of the key, which is
 * simpler and takes at most 64 steps.  After the selection the threads are
 * independent of each other.
 *
 * A thread merges with a loser tree (base/losertree.h).  Passes of two-way
 * merges would take 2.6 ns a key and pass, so they would win for 2 and 3
 * pieces only, and they would need a second buffer.
 *
 *-------------------------------------------------------------------------
 */
#include "cpu/merge.h"

#include <string.h>

#include <type_traits>

#include "base/losertree.h"
#include "cpu/crew.h"

namespace
{

/* Keys merged between two checks of the cancel flag: a few milliseconds. */
constexpr size_t STRIDE = 256 * 1024;

/* The loser tree's entries for keys of this type. */
template <typename Key>
using Entry = std::conditional_t<sizeof(Key) == 4, uint64_t, unsigned __int128>;

template <typename Key>
using Tree = GpusortLoserTree<Entry<Key>>;

/* The keys of a piece that a thread has not merged yet, and their rows. */
template <typename Key>
struct Cursor
{
	const Key  *key;
	const Key  *end;
	const uint32_t *row;		/* NULL if the pieces have no rows */
};

/* The position of the first of keys[begin, end) that is above key, or end. */
template <typename Key>
size_t
upper_bound(const Key *keys, size_t begin, size_t end, Key key)
{
	while (begin < end)
	{
		size_t		middle = begin + (end - begin) / 2;

		if (keys[middle] <= key)
			begin = middle + 1;
		else
			end = middle;
	}
	return begin;
}

/*
 * Selects the first rank keys, in output order, of all that have not been
 * taken.  They are piece i's keys before position end[i].  end has npieces
 * elements, scratch twice as many.
 */
template <typename Key>
void
select_first(const GpusortSortedPiece *pieces, size_t npieces, size_t rank,
			 size_t *end, size_t *scratch)
{
	Key			low = 0;
	Key			high = Key(~Key(0));
	size_t	   *begin = scratch;

	/*
	 * Invariant: the key at rank is in [low, high]; piece i's keys before
	 * begin[i] are below low, and those from end[i] on are above high.
	 */
	size_t	   *middle = scratch + npieces;

	for (size_t i = 0; i < npieces; i++)
	{
		begin[i] = pieces[i].taken;
		end[i] = pieces[i].count;
	}
	while (low < high)
	{
		Key			key = low + (high - low) / 2;
		size_t		below = 0;

		for (size_t i = 0; i < npieces; i++)
		{
			middle[i] = upper_bound(static_cast<const Key *>(pieces[i].keys), begin[i], end[i], key);
			below += middle[i] - pieces[i].taken;
		}
		if (below >= rank)
		{
			high = key;
			memcpy(end, middle, npieces * sizeof(size_t));
		}
		else
		{
			low = key + 1;
			memcpy(begin, middle, npieces * sizeof(size_t));
		}
	}

	/* of the keys equal to the one at rank, those of earlier pieces come first */
	for (size_t i = 0; i < npieces; i++)
		rank -= begin[i] - pieces[i].taken;
	for (size_t i = 0; i < npieces; i++)
	{
		size_t		equal = end[i] - begin[i];

		equal = equal < rank ? equal : rank;
		end[i] = begin[i] + equal;
		rank -= equal;
	}
}

/* The loser tree's entry for a cursor's next key. */
template <typename Key>
Entry<Key>
head(const Cursor<Key> &cursor, uint32_t piece)
{
	return cursor.key < cursor.end ? gpusort_losertree_entry<Entry<Key>>(*cursor.key, piece) :
		gpusort_losertree_ended<Entry<Key>>();
}

/*
 * Writes the next count keys, or their rows, and advances the cursors, which
 * have at least that many keys left.
 */
template <typename Key, bool ROWS>
void
take(Tree<Key> *saved, Cursor<Key> *cursors, size_t count, Key *keys_out, uint32_t *rows_out)
{
	Tree<Key>	tree = *saved;	/* a local copy stays in registers */

	for (size_t i = 0; i < count; i++)
	{
		uint32_t	piece = gpusort_losertree_input(&tree);
		Cursor<Key> *cursor = &cursors[piece];

		if (ROWS)
			rows_out[i] = *cursor->row++;
		else
			keys_out[i] = Key(gpusort_losertree_key(&tree));
		cursor->key++;
		gpusort_losertree_replace(&tree, head(*cursor, piece), NULL, NULL);
	}
	*saved = tree;
}

/*
 * Merges each piece's keys from position begin[i] to end[i], and writes the
 * result to out from position on.
 */
template <typename Key, bool ROWS>
void
merge_slice(const GpusortSortedPiece *pieces, size_t npieces, const size_t *begin,
			const size_t *end, void *out, size_t position, Crew *crew, int thread)
{
	size_t		count = 0;
	Key		   *keys_out = static_cast<Key *>(out) + position;
	uint32_t   *rows_out = static_cast<uint32_t *>(out) + position;

	Cursor<Key> *cursors = allocate<Cursor<Key>>(npieces);
	Entry<Key> *nodes = allocate<Entry<Key>>(gpusort_losertree_nodes(npieces));

	if (cursors == NULL || nodes == NULL)
		crew->no_memory = true;
	else
	{
		Tree<Key>	tree;

		gpusort_losertree_init(&tree, npieces, nodes);
		for (size_t i = 0; i < npieces; i++)
		{
			const Key  *keys = static_cast<const Key *>(pieces[i].keys);

			cursors[i] = {keys + begin[i], keys + end[i], ROWS ? pieces[i].rows + begin[i] : NULL};
			count += end[i] - begin[i];
			gpusort_losertree_set(&tree, i, head(cursors[i], i));
		}
		gpusort_losertree_build(&tree, NULL, NULL);

		while (count > 0 && !crew->stopped(thread))
		{
			size_t		now = count < STRIDE ? count : STRIDE;

			take<Key, ROWS>(&tree, cursors, now, keys_out, rows_out);
			keys_out += now;
			rows_out += now;
			count -= now;
		}
	}
	release(cursors, npieces);
	release(nodes, gpusort_losertree_nodes(npieces));
}

template <typename Key>
GpusortCpuStatus
merge(GpusortSortedPiece *pieces, size_t npieces, size_t count, void *out,
	  const GpusortCpuOptions *options)
{
	Crew		crew(options);
	int			threads = crew.threads;

	/*
	 * The npieces positions from bounds + t * npieces on are where thread t's
	 * slice begins; the next npieces are where it ends.  After the end of the
	 * last slice there is room for select_first's scratch.
	 */
	size_t		nbounds = (threads + 3) * npieces;
	size_t	   *bounds = allocate<size_t>(nbounds);
	size_t	   *last = bounds + threads * npieces;

	if (bounds == NULL)
		return GPUSORT_CPU_NO_MEMORY;
	for (int t = 0; t <= threads; t++)
		select_first<Key>(pieces, npieces, count * t / threads, bounds + t * npieces,
						  last + npieces);

	in_parallel(threads, [&](int thread) {
		const size_t *begin = bounds + thread * npieces;
		size_t		position = count * thread / threads;

		if (npieces > 0 && pieces[0].rows != NULL)
			merge_slice<Key, true>(pieces, npieces, begin, begin + npieces, out, position, &crew, thread);
		else
			merge_slice<Key, false>(pieces, npieces, begin, begin + npieces, out, position, &crew, thread);
	});

	for (size_t i = 0; i < npieces && crew.status() == GPUSORT_CPU_OK; i++)
		pieces[i].taken = last[i];
	release(bounds, nbounds);
	return crew.status();
}

}								/* namespace */

GpusortCpuStatus
gpusort_cpu_merge(GpusortSortedPiece *pieces, size_t npieces, int key_bytes,
				  size_t count, void *out, const GpusortCpuOptions *options)
{
	return key_bytes == 4 ? merge<uint32_t>(pieces, npieces, count, out, options) :
		merge<uint64_t>(pieces, npieces, count, out, options);
}
