/*-------------------------------------------------------------------------
 *
 * words.cc
 *		The CPU engine: positions of keys of several words.
 *
 * A pass over all rows finds the smallest and the largest value of each word.
 * A word's distance from its smallest value takes some number of bits, none
 * where the word is the same everywhere; the distances, one after another
 * without a gap, are a number whose order is the keys' order.  What people
 * order by takes few bits that way: a thousand groups and an integer are 42.
 *
 * One value far off the others, such as NULL or infinity, would spoil that.
 * So the smallest and the largest value may be moved next to the rest, which
 * changes no order: the same pass leaves out of account what some rows, looked
 * at before, have for the smallest and the largest.
 *
 * The number is not stored: any 64 bits of it, from any bit on, are made of a
 * row's words by a subtraction and a shift for each word that has a part in
 * them.  The rest is as for keys of one word (rows.h).
 *
 *-------------------------------------------------------------------------
 */
#include "cpu/words.h"

#include "cpu/rows.h"

namespace
{

/* Rows that the range is found of side by side: vectors of 8 words. */
constexpr size_t SIDE_BY_SIDE = 8;

/* Rows that are looked at before all are. */
constexpr size_t SAMPLE_ROWS = 1000;

/* A word that is not the same everywhere, as a part of the packed number. */
struct Part
{
	int			word;
	uint64_t	floor;			/* smaller values, and larger ones than the */
	uint64_t	ceiling;		/* ceiling, are one at most, and count as these */
	int			begin;			/* its first bit and the one after its last, */
	int			end;			/* counted from the most significant */
};

/*
 * Up to 64 bits of the packed number.  PIECES is how many words have a part in
 * them, or 0 where only npieces tells.
 */
template <int PIECES>
struct PackedBits
{
	struct Piece
	{
		int			word;
		int			left;		/* shifts; one is 0 */
		int			right;
		uint64_t	floor;
		uint64_t	ceiling;
	};

	Piece		pieces[PIECES > 0 ? PIECES : GPUSORT_MAX_WORDS];
	int			npieces;
	int			end;			/* the bit after the last */
	uint64_t	range;			/* the largest number, if begun at bit 0 */

	/* Bits before the first one overflow, or are left for the caller to disregard. */
	uint64_t
	operator()(const uint64_t *row) const
	{
		uint64_t	number = 0;

		for (int i = 0; i < (PIECES > 0 ? PIECES : npieces); i++)
		{
			const Piece &piece = pieces[i];
			uint64_t	value = row[piece.word];

			value = value < piece.floor ? piece.floor : value;
			value = value > piece.ceiling ? piece.ceiling : value;
			number |= (value - piece.floor) << piece.left >> piece.right;
		}
		return number;
	}
};

/* What is known of each word's values. */
struct WordRanges
{
	uint64_t	extremes[2][GPUSORT_MAX_WORDS]; /* the smallest and the largest of a few rows */
	uint64_t	min[GPUSORT_MAX_WORDS]; /* of all rows' values but these two; */
	uint64_t	max[GPUSORT_MAX_WORDS]; /* below min where there are no others */
};

/* Widens the ranges, but for their extremes, to n rows. */
GPUSORT_CLONES void
scan_side_by_side(const uint64_t *row, size_t n, size_t words, WordRanges *ranges)
{
	uint64_t	low[GPUSORT_MAX_WORDS * SIDE_BY_SIDE];
	uint64_t	high[GPUSORT_MAX_WORDS * SIDE_BY_SIDE];
	uint64_t	skip[2][GPUSORT_MAX_WORDS * SIDE_BY_SIDE];
	size_t		width = words * SIDE_BY_SIDE;

	for (size_t i = 0; i < width; i++)
	{
		low[i] = ranges->min[i % words];
		high[i] = ranges->max[i % words];
		skip[0][i] = ranges->extremes[0][i % words];
		skip[1][i] = ranges->extremes[1][i % words];
	}
	for (size_t begin = 0; begin < n * words; begin += width)
	{
		size_t		end = n * words - begin < width ? n * words - begin : width;

		for (size_t i = 0; i < end; i++)
		{
			uint64_t	value = row[begin + i];
			uint64_t	skipped = -uint64_t((value == skip[0][i]) | (value == skip[1][i]));

			low[i] = (value | skipped) < low[i] ? (value | skipped) : low[i];
			high[i] = (value & ~skipped) > high[i] ? (value & ~skipped) : high[i];
		}
	}
	for (size_t i = 0; i < width; i++)
	{
		size_t		word = i % words;

		ranges->min[word] = low[i] < ranges->min[word] ? low[i] : ranges->min[word];
		ranges->max[word] = high[i] > ranges->max[word] ? high[i] : ranges->max[word];
	}
}

/* Keys of several words. */
struct WordsInput : Rows<uint64_t, 0>
{
	Part		parts[GPUSORT_MAX_WORDS];
	int			nparts;
	int			bits;			/* of the packed number */

	explicit WordsInput(const GpusortCpuInput &input):
		Rows<uint64_t, 0>(input), nparts(0), bits(0)
	{
	}

	/* Adds a word's part, if it has any. */
	void
	add_part(int word, const WordRanges &ranges)
	{
		uint64_t	least = ranges.extremes[0][word];
		uint64_t	most = ranges.extremes[1][word];
		uint64_t	floor = ranges.min[word];
		uint64_t	ceiling = ranges.max[word];

		if (floor > ceiling)
		{
			/* nothing but those two */
			floor = least;
			ceiling = least + (least < most);
		}
		else
		{
			uint64_t	above_least = least < most && most < floor ? most : floor;
			uint64_t	below_most = least < most && least > ceiling ? least : ceiling;

			floor = least < floor ? above_least - 1 : floor;
			ceiling = most > ceiling ? below_most + 1 : ceiling;
		}
		if (floor < ceiling)
		{
			int			end = bits + bit_length(ceiling - floor);

			parts[nparts++] = {word, floor, ceiling, bits, end};
			bits = end;
		}
	}

	/* Finds each word's range, and so the parts. */
	void
	find_range(Crew *crew)
	{
		WordRanges	all;
		WordRanges	found[MAX_THREADS];
		size_t		step = n / SAMPLE_ROWS + 1;

		memset(all.extremes[0], 0xFF, sizeof(all.extremes[0]));
		memset(all.extremes[1], 0, sizeof(all.extremes[1]));
		memset(all.min, 0xFF, sizeof(all.min));
		memset(all.max, 0, sizeof(all.max));
		for (size_t position = 0; position < n; position += step)
			for (size_t i = 0; i < words(); i++)
			{
				uint64_t	value = row(position)[i];

				all.extremes[0][i] = value < all.extremes[0][i] ? value : all.extremes[0][i];
				all.extremes[1][i] = value > all.extremes[1][i] ? value : all.extremes[1][i];
			}

		in_parallel(crew->threads, [&](int thread) {
			found[thread] = all;
			each_piece(n * thread / crew->threads, n * (thread + 1) / crew->threads,
					   [&](const uint64_t *row, size_t count, size_t) {
						   scan_side_by_side(row, count, words(), &found[thread]);
						   return !crew->stopped(thread);
					   });
		});
		for (size_t i = 0; i < words(); i++)
		{
			for (int thread = 0; thread < crew->threads; thread++)
			{
				all.min[i] = found[thread].min[i] < all.min[i] ? found[thread].min[i] : all.min[i];
				all.max[i] = found[thread].max[i] > all.max[i] ? found[thread].max[i] : all.max[i];
			}
			add_part(int(i), all);
		}
	}

	/* The 64 bits from begin on, or those that there are, of pieces words. */
	template <int PIECES>
	PackedBits<PIECES>
	bits_from(int begin, int end) const
	{
		PackedBits<PIECES> packed;
		uint64_t	largest[GPUSORT_MAX_WORDS];

		packed.npieces = 0;
		packed.end = end;
		for (int i = 0; i < nparts; i++)
		{
			const Part &part = parts[i];

			if (part.end > begin && part.begin < end)
				packed.pieces[packed.npieces++] = {
					part.word,
					part.end < end ? end - part.end : 0,
					part.end > end ? part.end - end : 0,
					part.floor,
					part.ceiling
				};
			largest[part.word] = part.ceiling;
		}
		packed.range = packed(largest);
		return packed;
	}

	/*
	 * Calls use with what makes a number of the 64 bits from begin on, or of
	 * all that are left, for rows that agree in those before.
	 */
	template <typename Use>
	void
	with_bits(int begin, Use use) const
	{
		int			end = begin + 64 < bits ? begin + 64 : bits;
		int			pieces = 0;

		for (int i = 0; i < nparts; i++)
			pieces += parts[i].end > begin && parts[i].begin < end;
		if (pieces == 1)
			use(bits_from<1>(begin, end));
		else if (pieces == 2)
			use(bits_from<2>(begin, end));
		else
			use(bits_from<0>(begin, end));
	}
};

}								/* namespace */

GpusortCpuStatus
gpusort_cpu_argsort_words(const GpusortCpuInput *described, uint32_t *rows,
						  const GpusortCpuOptions *options, GpusortCpuReport *report)
{
	WordsInput	input(*described);

	return sort_rows(&input, rows, options, report);
}
