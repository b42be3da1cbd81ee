/*-------------------------------------------------------------------------
 *
 * merge.cc
 *		The CPU engine: merges sorted pieces.
 *
 * Threads share out the output, not the pieces: the output is cut into as
 * many stretches of equal length as there are threads, and a selection among
 * all pieces finds where in each of them a stretch begins (Varman, Scheufler,
 * Iyer, Ricard, "Merging multiple lists on hierarchical-memory
 * multiprocessors", J. Parallel Distrib. Comput. 12, 1991, which selects by
 * exchanging elements; bisecting the value of the key is simpler, and takes
 * 64 steps at most).  From there on every thread is on its own.
 *
 * A thread merges by a tree of losers (tournament.h).  Passes of
 * two-way merges take 2.6 ns a key and pass, so they win for 2 and 3 pieces
 * only, and need a second buffer.
 *
 *-------------------------------------------------------------------------
 */
#include "cpu/merge.h"

#include <string.h>

#include "cpu/crew.h"
#include "cpu/tournament.h"

namespace
{

/* Keys merged between two looks at the cancel flag: some milliseconds. */
constexpr size_t STRIDE = 256 * 1024;

/* What a thread has left of a piece. */
template <typename Key>
struct Cursor
{
	const Key  *key;
	const Key  *end;
	const uint32_t *row;
};

/* The first of [begin, end) that is above key, by position. */
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
 * Finds which of the keys that are not taken yet come first, rank of them:
 * from piece i those before position end[i].  scratch is as long as end.
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
	 * The key at rank is in [low, high].  begin[i] counts piece i's keys
	 * below low, end[i] those up to high; scratch[npieces + i] a middle.
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

	/* of the keys equal to the one at rank, the earlier pieces' go first */
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

/* The cursors' keys, in a tournament. */
template <typename Key>
struct Heads
{
	typedef Tournament<Key, Heads> Tree;

	static constexpr bool TIES = false;

	Cursor<Key> *cursors;

	typename Contest<Key>::Entry
	head(size_t piece) const
	{
		const Cursor<Key> &cursor = cursors[piece];

		return cursor.key < cursor.end ? Tree::entry(*cursor.key, piece) : Tree::EXHAUSTED;
	}
};

/* Takes the next count keys, which there are. */
template <typename Key, bool ROWS>
void
take(Tournament<Key, Heads<Key>> *tournament, const Heads<Key> &heads, size_t count,
	 Key *keys_out, uint32_t *rows_out)
{
	Tournament<Key, Heads<Key>> tree = *tournament;

	for (size_t i = 0; i < count; i++)
	{
		Cursor<Key> *cursor = &heads.cursors[tree.winner()];

		if (ROWS)
			rows_out[i] = *cursor->row++;
		else
			keys_out[i] = tree.key();
		cursor->key++;
		tree.replace(heads);
	}
	*tournament = tree;
}

/* Merges what lies between the positions begin and end of each piece. */
template <typename Key, bool ROWS>
void
merge_stretch(const GpusortSortedPiece *pieces, size_t npieces, const size_t *begin,
			  const size_t *end, void *out, size_t position, Crew *crew, int thread)
{
	typedef typename Contest<Key>::Entry Entry;
	size_t		count = 0;
	Key		   *keys_out = static_cast<Key *>(out) + position;
	uint32_t   *rows_out = static_cast<uint32_t *>(out) + position;

	Cursor<Key> *cursors = allocate<Cursor<Key>>(npieces);
	Entry	   *nodes = allocate<Entry>(tournament_nodes(npieces));

	if (cursors == NULL || nodes == NULL)
		crew->no_memory = true;
	else
	{
		for (size_t i = 0; i < npieces; i++)
		{
			const Key  *keys = static_cast<const Key *>(pieces[i].keys);

			cursors[i] = {keys + begin[i], keys + end[i], ROWS ? pieces[i].rows + begin[i] : NULL};
			count += end[i] - begin[i];
		}

		Heads<Key>	heads = {cursors};
		Tournament<Key, Heads<Key>> tournament(heads, npieces, nodes);

		while (count > 0 && !crew->stopped(thread))
		{
			size_t		now = count < STRIDE ? count : STRIDE;

			take<Key, ROWS>(&tournament, heads, now, keys_out, rows_out);
			keys_out += now;
			rows_out += now;
			count -= now;
		}
	}
	release(cursors, npieces);
	release(nodes, tournament_nodes(npieces));
}

template <typename Key>
GpusortCpuStatus
merge(GpusortSortedPiece *pieces, size_t npieces, size_t count, void *out,
	  const GpusortCpuOptions *options)
{
	Crew		crew(options);
	int			threads = crew.threads;

	/* bounds[t] and bounds[t + 1] enclose thread t's stretch; then scratch */
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
			merge_stretch<Key, true>(pieces, npieces, begin, begin + npieces, out, position, &crew, thread);
		else
			merge_stretch<Key, false>(pieces, npieces, begin, begin + npieces, out, position, &crew, thread);
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
