/*-------------------------------------------------------------------------
 *
 * spill_rows.c
 *		Merges spilled runs of rows, one batch of rows after the other.
 *
 * A loser tree finds the next row.  Its body is copied from its run's buffer to the batch, where it is
 * aligned: a buffer is then free for the next part as soon as its last row has been copied, and a row
 * that continues in the next part needs no memory of its own.
 *
 * If codes do not decide, the words of a row's key are made from the row.  It must be aligned for that, so it is first copied
 * to memory of its input.
 *
 * Single words need no tree: some of each run are read ahead, and a vector sort puts them in order, which is faster.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "cpu/cpu.h"
#include "store/spill_state.h"

/*
 * Reads the numbers of the input's next row, which is its current one then, or finds the end of the run.  words: it is a run of
 * single words.
 */
static pg_attribute_always_inline bool
read_head(GpusortSpill *spill, GpusortSpillInput *input, bool words)
{
	bool		few = unlikely(input->end - input->next < GPUSORT_SPILL_HEAD_BYTES);
	uint64		body = 0;
	uint64		difference;

	if (few && !gpusort_spill_fill_buffer(spill, input, GPUSORT_SPILL_HEAD_BYTES))
		return false;
	if (few && input->next == input->end)
	{
		input->ended = true;
		return true;
	}
	if (!words)
		body = gpusort_spill_get_number(&input->next);
	difference = gpusort_spill_get_number(&input->next);
	input->code += difference;
	if (unlikely(input->code < difference) || (few && input->next > input->end))
	{
		input->next = Min(input->next, input->end);
		return gpusort_spill_fail(spill, input, "A row in it is out of order or cut off.");
	}
	if (words)
		return true;
	input->body_bytes = body >> 1;
	input->above = spill->unwritten + (!spill->key.bare && (body & 1) ? GPUSORT_SPILL_HEADER_BYTES : 0);
	/* its turn comes after rows of many other runs */
	__builtin_prefetch(input->next + input->body_bytes);
	if (likely(input->body_bytes <= input->end - input->next))
		return true;
	return (input->body_bytes <= input->unread + (input->end - input->next) &&
			input->body_bytes <= MaxAllocSize - input->above) ||
		gpusort_spill_fail(spill, input, "A row in it has " UINT64_FORMAT " bytes.", input->body_bytes);
}

/* Completes a row, of which the bytes that come in the run have been copied: its length, and its header. */
static pg_attribute_always_inline bool
complete_row(GpusortSpill *spill, GpusortSpillInput *input, char *row)
{
	Size		bytes = input->above + input->body_bytes;

	if (unlikely(bytes < (spill->key.bare ? 1 : MINIMAL_TUPLE_DATA_OFFSET + GPUSORT_SPILL_HEADER_BYTES)))
		return gpusort_spill_fail(spill, input, "A row in it has %zu bytes.", bytes);
	if (!spill->key.bare)
	{
		MinimalTuple tuple = (MinimalTuple) row;
		char	   *header = row + MINIMAL_TUPLE_DATA_OFFSET;

		if (likely(input->above != spill->unwritten))
		{
			/* the padding was read to the place of the header */
			if (spill->key.padded)
				memcpy(tuple->mt_padding, header, MINIMAL_TUPLE_PADDING);
			memcpy(header, input->header, GPUSORT_SPILL_HEADER_BYTES);
		}
		else
			memcpy(input->header, header, GPUSORT_SPILL_HEADER_BYTES);
		tuple->t_len = bytes;
	}
	else if (unlikely(gpusort_row_bytes(row, true) != bytes))
		return gpusort_spill_fail(spill, input, "A value in it has %zu bytes instead of %zu.", bytes, gpusort_row_bytes(row, true));
	return true;
}

/* Copies the input's current row, which is not encoded. */
static pg_attribute_always_inline bool
copy_row(GpusortSpill *spill, GpusortSpillInput *input, char *row)
{
	if (likely(input->body_bytes <= input->end - input->next))
	{
		gpusort_row_copy(row + input->above, input->next, input->body_bytes);
		input->next += input->body_bytes;
	}
	else if (!gpusort_spill_get_bytes(spill, input, row + input->above, input->body_bytes))
		return false;
	return complete_row(spill, input, row);
}

/* Makes the entry of the input's current row, if it is not made, and returns it. */
static inline uint64 *
row_entry(GpusortSpill *spill, GpusortSpillInput *input)
{
	if (!input->encoded)
	{
		Size		bytes = Max(input->above + input->body_bytes, sizeof(uint32));

		if (input->row_room < bytes)
		{
			if (input->row != NULL)
				pfree(input->row);
			input->row = NULL;
			input->row = MemoryContextAlloc(spill->cxt, bytes);
			input->row_room = bytes;
		}
		if (!copy_row(spill, input, input->row))
			gpusort_spill_raise(spill);
		spill->key.encode(spill->key.arg, input->row, input->entry);
		input->encoded = true;
	}
	return input->entry;
}

/* Returns how many parts of their keys two rows share, of which the first ones, the code included, are known. */
static inline int
shared_parts(const GpusortSpill *spill, const uint64 *a, const uint64 *b, int known)
{
	int			parts = gpusort_spill_parts(spill);

	while (known < parts && a[known - 1] == b[known - 1])
		known++;
	return known;
}

/* Returns the loser tree's entry of an input's current row, which shares these parts of its key, the code included. */
static inline GpusortLoser
loser(const GpusortSpill *spill, const GpusortSpillInput *input, int shared)
{
	return gpusort_losertree_entry(shared, shared < gpusort_spill_parts(spill) ? input->entry[shared - 1] : 0,
								   input - spill->inputs);
}

/*
 * Compares the rows of two inputs whose entries in the loser tree have the same key.  They share the parts that the entries
 * say, and the next one, which is in the entries; or all parts.  Equal rows keep the order of their runs.
 */
static bool
row_before(void *arg, GpusortLoser *a, GpusortLoser *b)
{
	GpusortSpill *spill = arg;
	GpusortSpillInput *x = &spill->inputs[gpusort_losertree_input(*a)];
	GpusortSpillInput *y = &spill->inputs[gpusort_losertree_input(*b)];
	const uint64 *left = row_entry(spill, x);
	const uint64 *right = row_entry(spill, y);
	int			parts = gpusort_spill_parts(spill);
	int			shared = shared_parts(spill, left, right, Min(gpusort_losertree_shared(*a) + 1, parts));
	int			order = 0;
	bool		before;

	if (shared < parts)
		before = left[shared - 1] < right[shared - 1];
	else
	{
		if (spill->lossy)
			order = spill->key.compare(spill->key.arg, left, right);
		before = order < 0 || (order == 0 && x < y);
	}
	if (before)
		*b = loser(spill, y, shared);
	else
		*a = loser(spill, x, shared);
	return before;
}

/*
 * Copies the input's current row, and makes the next one of its run the current one: *entry is that one's for the loser
 * tree.  by_entries: the code is not the only part of a key.
 */
static pg_attribute_always_inline bool
take_row(GpusortSpill *spill, GpusortSpillInput *input, char *row, bool by_entries, GpusortLoser *entry)
{
	uint64		code = input->code;

	if (by_entries && input->encoded)
		memcpy(row, input->row, input->above + input->body_bytes);
	else if (unlikely(!copy_row(spill, input, row)))
		return false;
	if (unlikely(!read_head(spill, input, false)))
		return false;
	if (unlikely(input->ended))
		*entry = gpusort_losertree_ended();
	else if (by_entries && input->code == code)
	{
		uint64	   *before = input->entry;

		/* the row may have moved, but its words are the same */
		if (!input->encoded)
			spill->key.encode(spill->key.arg, row, before);
		input->entry = input->before;
		input->before = before;
		input->encoded = false;
		*entry = loser(spill, input, shared_parts(spill, before, row_entry(spill, input), 1));
	}
	else
	{
		input->encoded = false;
		*entry = gpusort_losertree_entry(0, input->code, input - spill->inputs);
	}
	return true;
}

/* Is the tree's winner equal to the winner before it, as far as entries say that?  The first one shares nothing. */
static inline bool
repeats(const GpusortSpill *spill)
{
	return spill->key.distinct && !spill->lossy &&
		gpusort_losertree_shared(spill->tree.winner) == gpusort_spill_parts(spill);
}

/* Gives a batch room for this many bytes.  Returns false if there is no memory. */
static bool
size_batch(GpusortSpill *spill, GpusortSpillBatch *batch, Size bytes)
{
	free(batch->data);
	batch->data = malloc(bytes);
	batch->bytes = batch->data != NULL ? bytes : 0;
	spill->failure.no_memory = batch->data == NULL;
	return batch->data != NULL || gpusort_spill_fail(spill, NULL, "A batch of rows needs %zu bytes.", bytes);
}

/* Fills a batch with rows. */
static pg_attribute_always_inline GpusortSpillStop
fill(GpusortSpill *spill, GpusortSpillBatch *batch, bool by_entries)
{
	GpusortSpillStop stop = GPUSORT_SPILL_ENDED;
	char	   *to = batch->data;

	while (spill->tree.winner != gpusort_losertree_ended())
	{
		GpusortSpillInput *input = &spill->inputs[gpusort_losertree_input(spill->tree.winner)];
		Size		bytes = sizeof(uint64) + MAXALIGN(input->above + input->body_bytes);
		bool		wanted = !by_entries || !repeats(spill);
		GpusortLoser next;

		if (unlikely(bytes > batch->bytes - (to - batch->data)))
		{
			if (to > batch->data)
			{
				stop = GPUSORT_SPILL_FULL;
				break;
			}
			/* a row that is longer than a batch has one of its own */
			if (!size_batch(spill, batch, bytes))
				return GPUSORT_SPILL_FAILED;
			to = batch->data;
		}
		*(uint64 *) to = input->code;
		if (unlikely(!take_row(spill, input, to + sizeof(uint64), by_entries, &next)))
		{
			stop = GPUSORT_SPILL_FAILED;
			break;
		}
		gpusort_losertree_replace(&spill->tree, next, by_entries ? row_before : NULL, spill);
		if (wanted)
			to += bytes;
		else
			spill->repeated++;
	}
	batch->end = to;
	return stop;
}

/* Returns how many words, of n in order, are not greater than last. */
static inline int
count_words(const uint64 *words, int n, uint64 last)
{
	int			begin = 0;

	if (n > 0 && words[n - 1] <= last)
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

/*
 * Reads words as long as the input's buffer has enough bytes, until there are so many of them.  A number is taken to have as many bytes as
 * the one before, which is mostly so: then the next one can be read before this one's length is known.
 */
static bool
read_buffered(GpusortSpill *spill, GpusortSpillInput *input, int most)
{
	char	   *next = input->next;
	uint64		code = input->code;
	int			n = input->nwords;
	int			bytes = 1;

	while (n < most && input->end - next >= GPUSORT_SPILL_HEAD_BYTES)
	{
		uint64		bits;
		uint64		difference;

		memcpy(&bits, next, sizeof(bits));
		bits = pg_ntoh64(bits);
		if (unlikely(bits >> (64 - bytes) != (UINT64CONST(1) << bytes) - 2))
		{
			if (bits >= UINT64CONST(0xff) << 56)
				break;
			bytes = 64 - pg_leftmost_one_pos64(~bits);
		}
		difference = (bits << bytes) >> (64 - 7 * bytes);
		code += difference;
		if (unlikely(code < difference))
			return gpusort_spill_fail(spill, input, "A row in it is out of order or cut off.");
		input->entry[n++] = code;
		next += bytes;
	}
	input->next = next;
	input->code = code;
	input->nwords = n;
	return true;
}

/* Reads the input's next words, if it has few.  Returns false if they cannot be read. */
static bool
read_words(GpusortSpill *spill, GpusortSpillInput *input)
{
	int			most = spill->batch_bytes / sizeof(uint64) / spill->nbuffers;

	if (input->ended || input->nwords > most / 2)
		return true;
	memmove(input->entry, input->words, input->nwords * sizeof(uint64));
	input->words = input->entry;
	for (;;)
	{
		if (!read_buffered(spill, input, most))
			return false;
		if (input->nwords == most)
			return true;
		if (!read_head(spill, input, true))
			return false;
		if (input->ended)
			return true;
		input->entry[input->nwords++] = input->code;
	}
}

/* Fills a batch with single words: those that have been read and that no other one can precede. */
static GpusortSpillStop
fill_words(GpusortSpill *spill, GpusortSpillBatch *batch)
{
	uint64	   *words = (uint64 *) batch->data;
	uint64		last = PG_UINT64_MAX;	/* an unread word may be less than the words behind this one */
	int			n = 0;
	int			sources = 0;	/* runs that give words */

	for (int i = 0; i < spill->ninputs; i++)
	{
		GpusortSpillInput *input = &spill->inputs[i];

		if (!read_words(spill, input))
			return GPUSORT_SPILL_FAILED;
		if (!input->ended)
			last = Min(last, input->words[input->nwords - 1]);
	}
	for (int i = 0; i < spill->ninputs; i++)
	{
		GpusortSpillInput *input = &spill->inputs[i];
		int			count = count_words(input->words, input->nwords, last);

		memcpy(words + n, input->words, count * sizeof(uint64));
		n += count;
		input->words += count;
		input->nwords -= count;
		sources += count > 0;
	}
	if (sources > 1)
		gpusort_cpu_sort_few(words, n, sizeof(uint64));
	batch->end = (char *) (words + n);
	return n > 0 ? GPUSORT_SPILL_FULL : GPUSORT_SPILL_ENDED;
}

void
gpusort_spill_fill(GpusortSpill *spill, GpusortSpillBatch *batch)
{
	batch->end = NULL;
	if (batch->bytes != spill->batch_bytes && !size_batch(spill, batch, spill->batch_bytes))
		batch->stop = GPUSORT_SPILL_FAILED;
	else if (!spill->has_rows)
		batch->stop = fill_words(spill, batch);
	else
		batch->stop = gpusort_spill_parts(spill) == 1 ? fill(spill, batch, false) : fill(spill, batch, true);
}

void
gpusort_spill_open_rows(GpusortSpill *spill)
{
	bool		exact = gpusort_spill_parts(spill) == 1;

	gpusort_losertree_init(&spill->tree, spill->ninputs, spill->nodes);
	for (int i = 0; i < spill->ninputs; i++)
	{
		GpusortSpillInput *input = &spill->inputs[i];

		if (spill->has_rows ? !read_head(spill, input, false) : !read_words(spill, input))
			gpusort_spill_raise(spill);
		gpusort_losertree_set(&spill->tree, i, input->ended ? gpusort_losertree_ended() : gpusort_losertree_entry(0, input->code, i));
	}
	gpusort_losertree_build(&spill->tree, exact ? NULL : row_before, spill);
}
