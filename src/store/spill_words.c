/*-------------------------------------------------------------------------
 *
 * spill_words.c
 *		Writes and reads spilled runs of single words.
 *
 * A run of words is a sequence of blocks.  A block has its first word, and the differences of all its words from that one, of
 * as many bytes each as the last one needs: no word has to wait until the one before it is written or read.  For 5 million
 * random integers in 5 runs, it takes 3 bytes a word.
 *
 * Words need no loser tree.  A block of each run is read ahead.  Those words that no unread word can precede are a batch, and a
 * vector sort puts it in order.  Of 5 runs, that takes two thirds of the tree's time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "cpu/cpu.h"
#include "store/spill_state.h"

/* Comes before the differences of a block's words. */
typedef struct BlockHead
{
	uint64		first;			/* the first word */
	uint32		words;			/* their number, at least 1 */
	uint32		bytes;			/* of a difference, 1 to 8 */
} BlockHead;

/* A difference is read and written by 8 bytes, of which the last ones may be behind the block. */
typedef struct Differences
{
	char		bytes[GPUSORT_SPILL_BLOCK_WORDS * sizeof(uint64)];
	char		behind[sizeof(uint64)];
} Differences;

void
gpusort_spill_put_block(GpusortSpill *spill)
{
	const uint64 *words = spill->out_words;
	BlockHead	head = {.first = words[0], .words = spill->out_nwords};
	Differences differences;
	char	   *out = differences.bytes;
	int			shift;

	if (spill->out_nwords == 0)
		return;
	head.bytes = pg_leftmost_one_pos64((words[head.words - 1] - head.first) | 1) / 8 + 1;
	shift = 64 - 8 * head.bytes;
	for (int i = 0; i < head.words; i++)
	{
		uint64		bits = pg_hton64((words[i] - head.first) << shift);

		memcpy(out, &bits, sizeof(bits));
		out += head.bytes;
	}
	gpusort_spill_put_bytes(spill, &head, sizeof(head));
	gpusort_spill_put_bytes(spill, differences.bytes, out - differences.bytes);
	spill->out_nwords = 0;
}

void
gpusort_spill_put_word(GpusortSpill *spill, uint64 word)
{
	spill->out_words[spill->out_nwords++] = word;
	if (unlikely(spill->out_nwords == spill->block_words))
		gpusort_spill_put_block(spill);
}

/* Are there words of the run behind those that have been read? */
static inline bool
has_more(const GpusortSpillInput *input)
{
	return input->next < input->end || input->unread > 0;
}

/* Reads the input's next block. */
static void
read_block(GpusortSpill *spill, GpusortSpillInput *input)
{
	BlockHead	head;
	Differences differences;
	const char *from = differences.bytes;
	int			shift;

	gpusort_spill_get_or_raise(spill, input, &head, sizeof(head));
	if (head.words < 1 || head.words > spill->block_words || head.bytes < 1 || head.bytes > sizeof(uint64))
	{
		gpusort_spill_fail(spill, input, "A block in it has %u words of %u bytes.", head.words, head.bytes);
		gpusort_spill_raise(spill);
	}
	gpusort_spill_get_or_raise(spill, input, differences.bytes, head.words * head.bytes);
	shift = 64 - 8 * head.bytes;
	for (int i = 0; i < head.words; i++)
	{
		uint64		bits;

		memcpy(&bits, from, sizeof(bits));
		input->entry[i] = head.first + (pg_ntoh64(bits) >> shift);
		from += head.bytes;
	}
	input->words = input->entry;
	input->nwords = head.words;
}

/* Returns how many words, of n in order, are not greater than last. */
static inline int
count_words(const uint64 *words, int n, uint64 last)
{
	int			begin = 0;

	if (words[n - 1] <= last)
		return n;
	while (begin < n)
	{
		int			middle = (begin + n) / 2;

		if (words[middle] <= last)
			begin = middle + 1;
		else
			n = middle;
	}
	return begin;
}

bool
gpusort_spill_next_batch(GpusortSpill *spill)
{
	int			sources = 0;	/* runs that give words */
	uint64		last = PG_UINT64_MAX;	/* an unread word may be less than the words behind this one */

	spill->batch_next = spill->batch_words = 0;
	for (int i = 0; i < spill->ninputs; i++)
	{
		GpusortSpillInput *input = &spill->inputs[i];

		if (input->nwords == 0 && has_more(input))
			read_block(spill, input);
		if (has_more(input))
			last = Min(last, input->words[input->nwords - 1]);
	}
	for (int i = 0; i < spill->ninputs; i++)
	{
		GpusortSpillInput *input = &spill->inputs[i];
		int			count;

		if (input->nwords == 0)
			continue;
		count = count_words(input->words, input->nwords, last);
		memcpy(spill->next_words + spill->batch_words, input->words, count * sizeof(uint64));
		spill->batch_words += count;
		input->words += count;
		input->nwords -= count;
		sources += count > 0;
	}
	if (sources > 1)
		gpusort_cpu_sort_few(spill->next_words, spill->batch_words, sizeof(uint64));
	return spill->batch_words > 0;
}

const uint64 *
gpusort_spill_next_words(GpusortSpill *spill, uint64 *n)
{
	Assert(!spill->has_rows && spill->batch_next == spill->batch_words);
	if (!gpusort_spill_next_batch(spill))
		return NULL;
	*n = spill->batch_next = spill->batch_words;
	return spill->next_words;
}
