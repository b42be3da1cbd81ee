/*-------------------------------------------------------------------------
 *
 * words.cc
 *		The CPU engine: sorts positions by keys of several words.
 *
 * A pass over all rows finds the smallest and the largest value of each word.  A word's
 * distance from its smallest value needs a certain number of bits, or none if the word is the
 * same in all rows.  The distances, packed one after another, form a number whose order is
 * the keys' order.  Typical keys need few bits: a thousand groups and an integer need 42.
 *
 * A single value far from the others, such as NULL or infinity, would make the distances
 * needlessly long.  So the smallest and the largest value of a sample are moved next to the
 * others, which does not change the order.
 *
 * The packed number is not stored.  Any 64 bits of it are computed from a row's words, and
 * sorted like keys of one word (cpu/rows.h).  kernels/word_plan.h packs words for the device
 * in another way: the two have only the sum of the bit counts in common.
 *
 *-------------------------------------------------------------------------
 */
#include "cpu/rows.h"

namespace
{

/* Rows whose ranges scan_side_by_side() finds at the same time, for vectors of 8 words. */
constexpr size_t SIDE_BY_SIDE = 8;

/* The sample has at least this many rows, or all rows of a smaller input. */
constexpr size_t SAMPLE_ROWS = 1000;

/* A word that is not the same in all rows, and the bits of the packed number that hold its distance. */
struct PackedWord
{
	int			word;			/* index of the word in the key */
	uint64_t	floor;			/* smaller values count as floor; at most one value is smaller */
	uint64_t	ceiling;		/* larger values count as ceiling; at most one value is larger */
	int			begin;			/* first bit of the packed number, counted from the most significant */
	int			end;			/* the bit after the last */
};

/*
 * A window of up to 64 bits of the packed number.  FIELDS is the number of
 * words that have bits in the window, or 0 if only nfields has that number.
 */
template <int FIELDS>
struct PackedBits
{
	/* A word's bits in the window: its distance shifted left or right; at least one shift is 0. */
	struct Field
	{
		int			word;
		int			left;
		int			right;
		uint64_t	floor;
		uint64_t	ceiling;
	};

	Field		fields[FIELDS > 0 ? FIELDS : GPUSORT_MAX_WORDS];
	int			nfields;
	int			end;			/* the bit of the packed number after the window */
	uint64_t	range;			/* the largest number in the window, if it begins at bit 0 */

	/*
	 * The number in the window.  Bits of the first word before the window are
	 * shifted out if the window has 64 bits; the caller must ignore the others.
	 */
	uint64_t
	operator()(const uint64_t *row) const
	{
		uint64_t	number = 0;

		for (int i = 0; i < (FIELDS > 0 ? FIELDS : nfields); i++)
		{
			const Field &field = fields[i];
			uint64_t	value = row[field.word];

			value = value < field.floor ? field.floor : value;
			value = value > field.ceiling ? field.ceiling : value;
			number |= (value - field.floor) << field.left >> field.right;
		}
		return number;
	}
};

/* The range of each word's values. */
struct WordRanges
{
	uint64_t	extremes[2][GPUSORT_MAX_WORDS]; /* smallest and largest value in the sample */
	uint64_t	min[GPUSORT_MAX_WORDS]; /* smallest value of all rows, without the extremes */
	uint64_t	max[GPUSORT_MAX_WORDS]; /* largest value without the extremes; below min if there is no other */
};

static_assert(sizeof(WordRanges) * MAX_THREADS <= 128 * 1024, "find_range() has one for each thread on the stack");

/* Widens min and max of the ranges to include n rows, in vectors of SIDE_BY_SIDE rows. */
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

/* An input whose keys have several words. */
struct WordsInput : Rows<uint64_t, 0>
{
	PackedWord	packed[GPUSORT_MAX_WORDS];
	int			npacked;
	int			bits;			/* bits of the packed number */

	explicit WordsInput(const GpusortCpuInput &input):
		Rows<uint64_t, 0>(input), npacked(0), bits(0)
	{
	}

	/* Appends a word to the packed number, unless it is the same in all rows. */
	void
	pack_word(int word, const WordRanges &ranges)
	{
		uint64_t	least = ranges.extremes[0][word];
		uint64_t	most = ranges.extremes[1][word];
		uint64_t	floor = ranges.min[word];
		uint64_t	ceiling = ranges.max[word];

		if (floor > ceiling)
		{
			/* the word has no values except the extremes */
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

			packed[npacked++] = {word, floor, ceiling, bits, end};
			bits = end;
		}
	}

	/* Finds the smallest and the largest value of each word in a sample of the rows. */
	void
	find_extremes(WordRanges *ranges) const
	{
		size_t		step = n / SAMPLE_ROWS + 1;

		memset(ranges->extremes[0], 0xFF, sizeof(ranges->extremes[0]));
		memset(ranges->extremes[1], 0, sizeof(ranges->extremes[1]));
		for (size_t position = 0; position < n; position += step)
			for (size_t i = 0; i < words(); i++)
			{
				uint64_t	value = row(position)[i];

				ranges->extremes[0][i] = value < ranges->extremes[0][i] ? value : ranges->extremes[0][i];
				ranges->extremes[1][i] = value > ranges->extremes[1][i] ? value : ranges->extremes[1][i];
			}
	}

	/* Finds each word's range and packs the words accordingly.  The input is indexed. */
	void
	find_range(Crew *crew)
	{
		WordRanges	all;
		WordRanges	found[MAX_THREADS];

		find_extremes(&all);
		memset(all.min, 0xFF, sizeof(all.min));
		memset(all.max, 0, sizeof(all.max));
		for (int thread = 0; thread < crew->threads; thread++)
			found[thread] = all;
		each_thread_span(crew, [&](int thread, const uint64_t *row, size_t count, size_t) {
			scan_side_by_side(row, count, words(), &found[thread]);
		});
		for (size_t i = 0; i < words(); i++)
		{
			for (int thread = 0; thread < crew->threads; thread++)
			{
				all.min[i] = found[thread].min[i] < all.min[i] ? found[thread].min[i] : all.min[i];
				all.max[i] = found[thread].max[i] > all.max[i] ? found[thread].max[i] : all.max[i];
			}
			pack_word(int(i), all);
		}
	}

	static bool
	overlaps(const PackedWord &word, int begin, int end)
	{
		return word.end > begin && word.begin < end;
	}

	/* The window from bit begin to bit end, in which FIELDS words have bits. */
	template <int FIELDS>
	PackedBits<FIELDS>
	window(int begin, int end) const
	{
		PackedBits<FIELDS> bits;
		uint64_t	largest[GPUSORT_MAX_WORDS];

		bits.nfields = 0;
		bits.end = end;
		for (int i = 0; i < npacked; i++)
		{
			const PackedWord &word = packed[i];

			if (overlaps(word, begin, end))
				bits.fields[bits.nfields++] = {
					word.word,
					word.end < end ? end - word.end : 0,
					word.end > end ? word.end - end : 0,
					word.floor,
					word.ceiling
				};
			largest[word.word] = word.ceiling;
		}
		bits.range = bits(largest);
		return bits;
	}

	/*
	 * Calls use(f), where f(row) is the number made of the 64 bits of the packed
	 * number from bit begin on, or of all that are left; the rows agree in the
	 * bits before.
	 */
	template <typename Use>
	void
	with_bits(int begin, Use use) const
	{
		int			end = begin + 64 < bits ? begin + 64 : bits;
		int			fields = 0;

		for (int i = 0; i < npacked; i++)
			fields += overlaps(packed[i], begin, end);
		if (fields == 1)
			use(window<1>(begin, end));
		else if (fields == 2)
			use(window<2>(begin, end));
		else
			use(window<0>(begin, end));
	}
};

}								/* namespace */

bool
gpusort_cpu_in_order_words(const GpusortCpuInput *input, const GpusortCpuOptions *options)
{
	return is_in_order(WordsInput(*input), options);
}

GpusortCpuStatus
gpusort_cpu_argsort_words(const GpusortCpuInput *described, uint32_t *rows, uint8_t *ties,
						  const GpusortCpuOptions *options, GpusortCpuReport *report)
{
	WordsInput	input(*described);

	return sort_rows(&input, rows, ties, options, report);
}
