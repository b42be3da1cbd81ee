/*-------------------------------------------------------------------------
 *
 * merge_words.cc
 *		The CPU engine: merges sorted pieces of keys of several words.
 *
 * A loser tree (base/losertree.h) merges the pieces by their merge keys
 * (kernels/merge_key.h).  If two merge keys are equal but not exact, the words
 * of the two rows decide.  The words are in the unsorted input, so reading them
 * is a cache miss.  If words are compared often, the words of each piece's next
 * rows are prefetched, which costs as much for each row as the merge itself;
 * otherwise the merge waits for them.
 *
 * As for keys of one word, each thread produces one slice of the output, and a
 * selection among all pieces finds where in each piece a slice begins.  This
 * selection draws a row at random from the undecided ones and divides every
 * piece by it, as in Hoare's FIND (Comm. ACM 4, 1961).  It draws about 2 ln n
 * rows, whatever the distribution of the keys.  Rows are compared by merge key,
 * words, piece and position, so no two rows are equal.
 *
 *-------------------------------------------------------------------------
 */
#include "cpu/merge.h"

#include "base/losertree.h"
#include "cpu/input.h"

namespace
{

/* Rows merged between two checks of the cancel flag: a few ms, or tens of ms with many ties. */
constexpr size_t MERGE_STRIDE = 64 * 1024;

/* Rows merged before the first decision whether to prefetch words. */
constexpr size_t FIRST_STRIDE = MERGE_STRIDE / 16;

/* Rows of a piece whose words are prefetched ahead of their use; a power of two. */
constexpr size_t AHEAD = 16;

/* Words are prefetched if they are compared at least once every OFTEN rows. */
constexpr size_t OFTEN = 16;

/* The input of a merge, shared by all threads. */
struct Merged
{
	const GpusortSortedPiece *pieces;
	size_t		npieces;
	const GpusortMergeKey *merge_key;
	Rows<uint64_t, 0> input;

	const uint64_t *
	keys(size_t piece) const
	{
		return static_cast<const uint64_t *>(pieces[piece].keys);
	}
};

/* ----------------------------------------------------------------
 *		Selection: where a slice begins
 * ----------------------------------------------------------------
 */

/*
 * Returns the first position of piece in [begin, end) whose row does not order
 * before the drawn row, or end if there is none.  The drawn row is the one at
 * position drawn of piece from.
 */
size_t
divide(const Merged &merged, size_t piece, size_t begin, size_t end, size_t from, size_t drawn)
{
	const uint64_t *keys = merged.keys(piece);
	uint64_t	key = merged.keys(from)[drawn];
	const uint64_t *words = NULL;

	if (!gpusort_merge_key_exact(merged.merge_key, key))
		words = merged.input.row(merged.pieces[from].rows[drawn]);
	while (begin < end)
	{
		size_t		middle = begin + (end - begin) / 2;
		int			order = keys[middle] < key ? -1 : keys[middle] > key;

		if (order == 0 && words != NULL)
			order = merged.input.compare(merged.input.row(merged.pieces[piece].rows[middle]), words);
		/* of equal keys, those of earlier pieces come first */
		if (order < 0 || (order == 0 && piece < from))
			begin = middle + 1;
		else
			end = middle;
	}
	return begin;
}

/*
 * Selects the first rank rows, in output order, of all that have not been
 * taken.  They are piece i's rows before position end[i].  end has npieces
 * elements, and so have begin and middle, which are scratch memory.
 */
void
select_first(const Merged &merged, size_t rank, size_t *end, size_t *begin, size_t *middle,
			 Crew *crew, int thread)
{
	size_t		npieces = merged.npieces;
	size_t		undecided = 0;	/* rows in [begin[i], end[i]) of all pieces */
	uint64_t	random = 88172645463325252u;

	/* invariant: piece i's rows before begin[i] are selected, those from end[i] on are not */
	for (size_t i = 0; i < npieces; i++)
	{
		begin[i] = merged.pieces[i].taken;
		end[i] = merged.pieces[i].count;
		undecided += end[i] - begin[i];
	}
	while (undecided > 0 && !crew->stopped(thread))
	{
		size_t		drawn;
		size_t		from = 0;
		size_t		before = 0;

		/* xorshift64 (Marsaglia, J. Statistical Software 8, 2003) */
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		drawn = random % undecided;
		while (drawn >= end[from] - begin[from])
			drawn -= end[from] - begin[from], from++;
		drawn += begin[from];

		for (size_t i = 0; i < npieces; i++)
		{
			middle[i] = i == from ? drawn : divide(merged, i, begin[i], end[i], from, drawn);
			before += middle[i] - begin[i];
		}
		undecided = 0;
		for (size_t i = 0; i < npieces; i++)
		{
			if (before < rank)
				begin[i] = middle[i] + (i == from);
			else
				end[i] = middle[i];
			undecided += end[i] - begin[i];
		}
		if (before < rank)
			rank -= before + 1;
	}
}

/* ----------------------------------------------------------------
 *		Merge of a slice
 * ----------------------------------------------------------------
 */

/* The rows of a piece that a thread has not merged yet. */
struct Cursor
{
	const uint64_t *key;		/* the next row's merge key */
	const uint32_t *row;		/* the next row */
	const uint32_t *end;		/* the end of the rows */
	const uint64_t *words[AHEAD];	/* where the next rows' words are, if prefetched; a ring, see slot_of */
};

typedef unsigned __int128 Entry;
typedef GpusortLoserTree<Entry> Tree;

/* The next rows of all pieces, between which the loser tree decides. */
struct Heads
{
	const Merged &merged;
	Cursor	   *cursors;
	bool		prefetching;	/* the cursors' words[] are in use */
	size_t		comparisons;	/* comparisons of words since the caller's last reset */

	Entry
	head(uint32_t piece) const
	{
		const Cursor &cursor = cursors[piece];

		return cursor.row < cursor.end ? gpusort_losertree_entry<Entry>(*cursor.key, piece) :
			gpusort_losertree_ended<Entry>();
	}

	/* Returns whether piece a's next row orders before piece b's, whose merge key is equal. */
	bool
	goes_before(size_t a, size_t b)
	{
		int			order = 0;

		if (!gpusort_merge_key_exact(merged.merge_key, *cursors[a].key))
		{
			comparisons++;
			order = merged.input.compare(words_of(cursors[a]), words_of(cursors[b]));
		}
		return order < 0 || (order == 0 && a < b);
	}

	/* Prefetches the words of one of the cursor's next AHEAD + 1 rows. */
	void
	prefetch(Cursor *cursor, const uint32_t *row) const
	{
		const uint64_t *words = merged.input.row(*row);

		cursor->words[slot_of(row)] = words;
		__builtin_prefetch(words);
		__builtin_prefetch(words + merged.input.words() - 1);
	}

  private:
	/* The element of a cursor's words[] for the row at this address. */
	static size_t
	slot_of(const uint32_t *row)
	{
		return uintptr_t(row) / sizeof(*row) % AHEAD;
	}

	const uint64_t *
	words_of(const Cursor &cursor) const
	{
		return prefetching ? cursor.words[slot_of(cursor.row)] : merged.input.row(*cursor.row);
	}
};

/* Heads::goes_before() as the loser tree's callback. */
inline bool
goes_before(void *heads, uint32_t a, uint32_t b)
{
	return static_cast<Heads *>(heads)->goes_before(a, b);
}

inline size_t
rows_left(const Cursor &cursor)
{
	return size_t(cursor.end - cursor.row);
}

/* Writes the next count rows and advances the cursors, which have at least that many rows left. */
template <bool PREFETCH>
void
take(Tree *saved, Heads *heads, size_t count, uint32_t *out)
{
	Tree		tree = *saved;	/* a local copy stays in registers */

	for (size_t i = 0; i < count; i++)
	{
		uint32_t	piece = gpusort_losertree_input(&tree);
		Cursor	   *cursor = &heads->cursors[piece];

		out[i] = *cursor->row;
		if (PREFETCH && rows_left(*cursor) > AHEAD)
			heads->prefetch(cursor, cursor->row + AHEAD);
		cursor->row++;
		cursor->key++;
		gpusort_losertree_replace(&tree, heads->head(piece), goes_before, heads);
	}
	*saved = tree;
}

/* Switches prefetching on or off; switching it on prefetches each piece's next AHEAD rows. */
void
set_prefetching(Heads *heads, bool prefetching)
{
	for (size_t i = 0; prefetching && !heads->prefetching && i < heads->merged.npieces; i++)
	{
		Cursor	   *cursor = &heads->cursors[i];

		for (size_t next = 0; next < AHEAD && next < rows_left(*cursor); next++)
			heads->prefetch(cursor, cursor->row + next);
	}
	heads->prefetching = prefetching;
}

/* Merges each piece's rows from position begin[i] to end[i] into out. */
void
merge_slice(const Merged &merged, const size_t *begin, const size_t *end, uint32_t *out,
			Crew *crew, int thread)
{
	size_t		npieces = merged.npieces;
	Cursor	   *cursors = allocate<Cursor>(npieces);
	Entry	   *nodes = allocate<Entry>(gpusort_losertree_nodes(npieces));
	size_t		count = 0;

	if (cursors == NULL || nodes == NULL)
		crew->no_memory = true;
	else
	{
		for (size_t i = 0; i < npieces; i++)
		{
			const uint32_t *rows = merged.pieces[i].rows;

			cursors[i].key = merged.keys(i) + begin[i];
			cursors[i].row = rows + begin[i];
			cursors[i].end = rows + end[i];
			count += end[i] - begin[i];
		}

		Heads		heads = {merged, cursors, false, 0};
		Tree		tree;

		gpusort_losertree_init(&tree, npieces, nodes);
		for (size_t i = 0; i < npieces; i++)
			gpusort_losertree_set(&tree, i, heads.head(i));
		gpusort_losertree_build(&tree, goes_before, &heads);

		for (size_t stride = FIRST_STRIDE; count > 0 && !crew->stopped(thread); stride = MERGE_STRIDE)
		{
			size_t		now = count < stride ? count : stride;

			heads.comparisons = 0;
			if (heads.prefetching)
				take<true>(&tree, &heads, now, out);
			else
				take<false>(&tree, &heads, now, out);
			set_prefetching(&heads, heads.comparisons >= now / OFTEN);
			out += now;
			count -= now;
		}
	}
	release(cursors, npieces);
	release(nodes, gpusort_losertree_nodes(npieces));
}

}								/* namespace */

GpusortCpuStatus
gpusort_cpu_merge_words(GpusortSortedPiece *pieces, size_t npieces, const GpusortCpuInput *input,
						const GpusortMergeKey *merge_key, size_t count, uint32_t *out,
						const GpusortCpuOptions *options)
{
	Merged		merged = {pieces, npieces, merge_key, Rows<uint64_t, 0>(*input)};
	Crew		crew(options);
	int			threads = crew.threads;

	/*
	 * The npieces positions from bounds + t * npieces on are where thread t's
	 * slice begins; the next npieces are where it ends.  After the end of the
	 * last slice, each thread has 2 * npieces for select_first's scratch.
	 */
	size_t		nbounds = (3 * threads + 1) * npieces;
	size_t	   *bounds = allocate<size_t>(nbounds);
	size_t	   *scratch = bounds + (threads + 1) * npieces;

	if (bounds == NULL || !merged.input.index())
	{
		release(bounds, nbounds);
		return GPUSORT_CPU_NO_MEMORY;
	}
	for (size_t i = 0; i < npieces; i++)
		bounds[i] = pieces[i].taken;
	in_parallel(threads, [&](int thread) {
		size_t	   *begin = scratch + 2 * thread * npieces;

		select_first(merged, count * (thread + 1) / threads, bounds + (thread + 1) * npieces,
					 begin, begin + npieces, &crew, thread);
	});
	if (count > 0 && crew.status() == GPUSORT_CPU_OK)
		in_parallel(threads, [&](int thread) {
			const size_t *begin = bounds + thread * npieces;

			merge_slice(merged, begin, begin + npieces, out + count * thread / threads, &crew, thread);
		});
	for (size_t i = 0; i < npieces && crew.status() == GPUSORT_CPU_OK; i++)
		pieces[i].taken = bounds[threads * npieces + i];
	release(bounds, nbounds);
	return crew.status();
}
