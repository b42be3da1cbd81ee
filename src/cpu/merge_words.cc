/*-------------------------------------------------------------------------
 *
 * merge_words.cc
 *		The CPU engine: merges sorted pieces of keys of several words.
 *
 * The merge is by merge keys (merge_key.h), in a tree of losers
 * (tournament.h).  Where two are the same and do not tell all, the words
 * decide, which are where they were before they were sorted: anywhere in
 * memory.  If that happens often, each piece's next keys are asked for some rows
 * ahead, which costs as much as the merge for each row; if not, it is waited
 * for.
 *
 * As for keys of one word, threads share out the output, and a selection among
 * all pieces finds where a thread's stretch begins in each of them.  Here a row
 * is drawn at random from all that are left, and the pieces are divided by it,
 * as in Hoare's FIND (Comm. ACM 4, 1961): some 2 ln n rows are drawn, whatever
 * the keys are like.  Rows are compared by key, then piece, then place, so that
 * no two are equal.
 *
 *-------------------------------------------------------------------------
 */
#include "cpu/merge.h"

#include "cpu/input.h"
#include "cpu/tournament.h"

namespace
{

/* Rows merged between two looks at the cancel flag: milliseconds, dozens of them with long ties. */
constexpr size_t MERGE_STRIDE = 64 * 1024;

/* The first rows, by which to tell whether words are looked at often. */
constexpr size_t FIRST_STRIDE = MERGE_STRIDE / 16;

/* Keys of a piece that are on their way to the cache; a power of two. */
constexpr size_t AHEAD = 16;

/* Words are asked for ahead if they are looked at for one row in so many. */
constexpr size_t OFTEN = 16;

/* What is merged. */
struct Merged
{
	const GpusortSortedPiece *pieces;
	size_t		npieces;
	const GpusortMergeKey *settled;
	Rows<uint64_t, 0> input;

	const uint64_t *
	keys(size_t piece) const
	{
		return static_cast<const uint64_t *>(pieces[piece].keys);
	}

	/* Below zero, zero or above: how the words compare. */
	int
	compare_words(const uint64_t *a, const uint64_t *b) const
	{
		for (size_t i = 0; i < input.words(); i++)
			if (a[i] != b[i])
				return a[i] < b[i] ? -1 : 1;
		return 0;
	}
};

/* ----------------------------------------------------------------
 *		Where a stretch begins
 * ----------------------------------------------------------------
 */

/* The first place of [begin, end) in piece whose row does not go before the one drawn from another. */
size_t
divide(const Merged &merged, size_t piece, size_t begin, size_t end, size_t from, size_t drawn)
{
	const uint64_t *keys = merged.keys(piece);
	uint64_t	key = merged.keys(from)[drawn];
	const uint64_t *words = NULL;

	if (!gpusort_merge_key_exact(merged.settled, key))
		words = merged.input.row(merged.pieces[from].rows[drawn]);
	while (begin < end)
	{
		size_t		middle = begin + (end - begin) / 2;
		int			order = keys[middle] < key ? -1 : keys[middle] > key;

		if (order == 0 && words != NULL)
			order = merged.compare_words(merged.input.row(merged.pieces[piece].rows[middle]), words);
		/* of equal keys, those of earlier pieces go first */
		if (order < 0 || (order == 0 && piece < from))
			begin = middle + 1;
		else
			end = middle;
	}
	return begin;
}

/*
 * Finds which of the rows that are not taken yet come first, rank of them:
 * from piece i those before position end[i].  begin and middle are scratch, as
 * long as end.
 */
void
select_first(const Merged &merged, size_t rank, size_t *end, size_t *begin, size_t *middle,
			 Crew *crew, int thread)
{
	size_t		npieces = merged.npieces;
	size_t		left = 0;		/* rows of which it is not known yet */
	uint64_t	random = 88172645463325252u;

	/* those before begin[i] come first, those from end[i] on do not */
	for (size_t i = 0; i < npieces; i++)
	{
		begin[i] = merged.pieces[i].taken;
		end[i] = merged.pieces[i].count;
		left += end[i] - begin[i];
	}
	while (left > 0 && !crew->stopped(thread))
	{
		size_t		drawn;
		size_t		from = 0;
		size_t		before = 0;

		/* xorshift64 (Marsaglia, J. Statistical Software 8, 2003) */
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		drawn = random % left;
		while (drawn >= end[from] - begin[from])
			drawn -= end[from] - begin[from], from++;
		drawn += begin[from];

		for (size_t i = 0; i < npieces; i++)
		{
			middle[i] = i == from ? drawn : divide(merged, i, begin[i], end[i], from, drawn);
			before += middle[i] - begin[i];
		}
		left = 0;
		for (size_t i = 0; i < npieces; i++)
		{
			if (before < rank)
				begin[i] = middle[i] + (i == from);
			else
				end[i] = middle[i];
			left += end[i] - begin[i];
		}
		if (before < rank)
			rank -= before + 1;
	}
}

/* ----------------------------------------------------------------
 *		A stretch
 * ----------------------------------------------------------------
 */

/* What a thread has left of a piece. */
struct Cursor
{
	const uint64_t *key;
	const uint32_t *row;
	const uint32_t *end;		/* of the rows */
	const uint64_t *words[AHEAD];	/* of the next rows, if asked for, each in
									 * the place of its row's address */
};

/* The cursors' merge keys, in a tournament. */
struct Heads
{
	typedef Tournament<uint64_t, Heads> Tree;

	static constexpr bool TIES = true;

	const Merged &merged;
	Cursor	   *cursors;
	bool		ahead;			/* words are asked for */
	mutable size_t looks;		/* comparisons of words by now */

	Tree::Entry
	head(size_t piece) const
	{
		const Cursor &cursor = cursors[piece];

		return cursor.row < cursor.end ? Tree::entry(*cursor.key, piece) : Tree::EXHAUSTED;
	}

	/* Of heads with the same merge key, does that of piece a go before b's? */
	bool
	goes_before(size_t a, size_t b) const
	{
		int			order = 0;

		if (!gpusort_merge_key_exact(merged.settled, *cursors[a].key))
		{
			looks++;
			order = merged.compare_words(words_of(cursors[a]), words_of(cursors[b]));
		}
		return order < 0 || (order == 0 && a < b);
	}

	void
	ask_for(Cursor *cursor, const uint32_t *row) const
	{
		const uint64_t *words = merged.input.row(*row);

		cursor->words[place_of(row)] = words;
		__builtin_prefetch(words);
		__builtin_prefetch(words + merged.input.words() - 1);
	}

  private:
	static size_t
	place_of(const uint32_t *row)
	{
		return uintptr_t(row) / sizeof(*row) % AHEAD;
	}

	const uint64_t *
	words_of(const Cursor &cursor) const
	{
		return ahead ? cursor.words[place_of(cursor.row)] : merged.input.row(*cursor.row);
	}
};

inline size_t
rows_left(const Cursor &cursor)
{
	return size_t(cursor.end - cursor.row);
}

/* Takes the next count rows, which there are. */
template <bool ASK>
void
take(Heads::Tree *tournament, const Heads &heads, size_t count, uint32_t *out)
{
	Heads::Tree tree = *tournament;

	for (size_t i = 0; i < count; i++)
	{
		Cursor	   *cursor = &heads.cursors[tree.winner()];

		out[i] = *cursor->row;
		if (ASK && rows_left(*cursor) > AHEAD)
			heads.ask_for(cursor, cursor->row + AHEAD);
		cursor->row++;
		cursor->key++;
		tree.replace(heads);
	}
	*tournament = tree;
}

/* From now on, words are asked for ahead, or not. */
void
look_ahead(Heads *heads, bool ahead)
{
	for (size_t i = 0; ahead && !heads->ahead && i < heads->merged.npieces; i++)
	{
		Cursor	   *cursor = &heads->cursors[i];

		for (size_t next = 0; next < AHEAD && next < rows_left(*cursor); next++)
			heads->ask_for(cursor, cursor->row + next);
	}
	heads->ahead = ahead;
}

/* Merges what lies between the positions begin and end of each piece. */
void
merge_stretch(const Merged &merged, const size_t *begin, const size_t *end, uint32_t *out,
			  Crew *crew, int thread)
{
	size_t		npieces = merged.npieces;
	Cursor	   *cursors = allocate<Cursor>(npieces);
	Heads::Tree::Entry *nodes = allocate<Heads::Tree::Entry>(tournament_nodes(npieces));
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
		Heads::Tree tournament(heads, npieces, nodes);

		for (size_t stride = FIRST_STRIDE; count > 0 && !crew->stopped(thread); stride = MERGE_STRIDE)
		{
			size_t		now = count < stride ? count : stride;

			heads.looks = 0;
			if (heads.ahead)
				take<true>(&tournament, heads, now, out);
			else
				take<false>(&tournament, heads, now, out);
			look_ahead(&heads, heads.looks >= now / OFTEN);
			out += now;
			count -= now;
		}
	}
	release(cursors, npieces);
	release(nodes, tournament_nodes(npieces));
}

}								/* namespace */

GpusortCpuStatus
gpusort_cpu_merge_words(GpusortSortedPiece *pieces, size_t npieces, const GpusortCpuInput *input,
						const GpusortMergeKey *settled, size_t count, uint32_t *out,
						const GpusortCpuOptions *options)
{
	Merged		merged = {pieces, npieces, settled, Rows<uint64_t, 0>(*input)};
	Crew		crew(options);
	int			threads = crew.threads;

	/* bounds[t] and bounds[t + 1] enclose thread t's stretch; then its scratch */
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

			merge_stretch(merged, begin, begin + npieces, out + count * thread / threads, &crew, thread);
		});
	for (size_t i = 0; i < npieces && crew.status() == GPUSORT_CPU_OK; i++)
		pieces[i].taken = bounds[threads * npieces + i];
	release(bounds, nbounds);
	return crew.status();
}
