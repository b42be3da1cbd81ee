/*-------------------------------------------------------------------------
 *
 * spill_rows.c
 *		Reads spilled runs, and merges their rows.
 *
 * A loser tree finds the next row.  Its body is copied from its run's buffer to where it is
 * aligned: a buffer is then free for the next part as soon as its last row has been copied, and a row
 * that continues in the next part is no special case.
 *
 * If codes do not decide, the words of a row's key are made from the row.  It must be aligned for that, so it is first copied
 * to memory of its input.
 *
 * Single words need no tree: some of each run are read ahead, and a vector sort puts them in order, which is faster.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "cpu/cpu.h"
#include "store/spill_state.h"

/* ---- bytes of a run ---- */

/*
 * Raises the error that the input's run has lost bytes, or has bytes that were not written.  The arguments make a sentence
 * about it.
 */
GPUSORT_NORETURN static pg_noinline void damaged(const GpusortSpillInput *input, const char *format,...) pg_attribute_printf(2, 3);

static void
damaged(const GpusortSpillInput *input, const char *format,...)
{
	char		detail[96];
	va_list		args;

	va_start(args, format);
	vsnprintf(detail, sizeof(detail), format, args);
	va_end(args);
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("a sorted run in a temporary file is damaged"),
			 errdetail("%s " UINT64_FORMAT " bytes of it were not read.", detail, input->unread + (input->end - input->next))));
}

/* Reads the input's next part into its buffer, behind its few unread bytes, which move in front of it. */
static void
read_part(GpusortSpill *spill, GpusortSpillInput *input)
{
	GpusortSpillFile *file = input->file;
	GpusortSpillPart part = input->part;
	Size		link = input->unread > part.bytes - sizeof(part) ? sizeof(part) : 0;
	Size		kept = input->end - input->next;
	Size		got;

	if (input->unread == 0)
		damaged(input, "It ends within a row.");
	if (link == 0)
		part.bytes = input->unread;
	CHECK_FOR_INTERRUPTS();
	memmove(input->buffer - kept, input->next, kept);
	got = gpusort_spillfile_read(file, part, input->buffer);
	if (got < part.bytes)
		damaged(input, "An extent of it has %zu bytes.", got);
	if (spill->reclaim && file == spill->files)
		gpusort_spillfile_give(file, part);
	input->next = input->buffer - kept;
	input->end = input->buffer + part.bytes - link;
	input->unread -= part.bytes - link;
	if (link == 0)
		return;
	memcpy(&part, input->end, link);
	if (part.begin >= file->bytes || part.bytes <= sizeof(part) ||
		part.begin % file->extent_bytes + part.bytes > file->extent_bytes)
		damaged(input, "It continues beyond the end of the file.");
	input->part = part;
	/* the system sees reads of many runs by turns, and does not read ahead by itself */
	gpusort_spillfile_prefetch(file, part);
}

/* Copies the input's next size bytes to data, from as many parts as needed. */
static void
get_bytes(GpusortSpill *spill, GpusortSpillInput *input, void *data, Size size)
{
	while (size > 0)
	{
		Size		part = Min(size, input->end - input->next);

		if (part == 0)
		{
			read_part(spill, input);
			continue;
		}
		memcpy(data, input->next, part);
		input->next += part;
		data = (char *) data + part;
		size -= part;
	}
}

/* ---- rows ---- */

/* The parts of a row's key in the loser tree: its code, and if that does not decide, the words of its entry. */
static inline int
key_parts(const GpusortSpill *spill)
{
	return spill->code.exact && !spill->lossy ? 1 : 1 + spill->key.words + spill->key.more_words;
}

/* Reads the numbers of the input's next row, which is its current one then, or finds the end of the run. */
static pg_attribute_always_inline void
read_head(GpusortSpill *spill, GpusortSpillInput *input)
{
	bool		few = unlikely(input->end - input->next < GPUSORT_SPILL_HEAD_BYTES);
	uint64		body;
	uint64		difference;

	while (few && input->end - input->next < GPUSORT_SPILL_HEAD_BYTES && input->unread > 0)
		read_part(spill, input);
	if (few && input->next == input->end)
	{
		input->ended = true;
		return;
	}
	body = gpusort_spill_get_number(&input->next);
	difference = gpusort_spill_get_number(&input->next);
	input->code += difference;
	if (unlikely(input->code < difference) || (few && input->next > input->end))
	{
		input->next = Min(input->next, input->end);
		damaged(input, "A row in it is out of order or cut off.");
	}
	input->body_bytes = body >> 1;
	input->above = spill->unwritten + (!spill->key.bare && (body & 1) ? GPUSORT_SPILL_HEADER_BYTES : 0);
	/* its turn comes after rows of many other runs */
	__builtin_prefetch(input->next + input->body_bytes);
	if (unlikely(input->body_bytes > input->end - input->next) &&
		(input->body_bytes > input->unread + (input->end - input->next) || input->body_bytes > MaxAllocSize - input->above))
		damaged(input, "A row in it has " UINT64_FORMAT " bytes.", (uint64) input->body_bytes);
}

/* Completes a row, of which the bytes that come in the run have been copied: its length, and its header. */
static pg_attribute_always_inline void
complete_row(GpusortSpill *spill, GpusortSpillInput *input, char *row)
{
	Size		bytes = input->above + input->body_bytes;

	if (unlikely(bytes < (spill->key.bare ? 1 : MINIMAL_TUPLE_DATA_OFFSET + GPUSORT_SPILL_HEADER_BYTES)))
		damaged(input, "A row in it has %zu bytes.", bytes);
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
		damaged(input, "A value in it has %zu bytes instead of %zu.", bytes, gpusort_row_bytes(row, true));
}

/* Copies the input's current row, which is not encoded, to *row, which has *room bytes and is replaced if these are too few. */
static pg_attribute_always_inline void
copy_row(GpusortSpill *spill, GpusortSpillInput *input, char **row, Size *room)
{
	Size		bytes = Max(input->above + input->body_bytes, sizeof(uint32));

	if (unlikely(*room < bytes))
	{
		if (*row != NULL)
			pfree(*row);
		*row = NULL;
		*row = MemoryContextAlloc(spill->cxt, bytes);
		*room = bytes;
	}
	if (likely(input->body_bytes <= input->end - input->next))
	{
		gpusort_row_copy(*row + input->above, input->next, input->body_bytes);
		input->next += input->body_bytes;
	}
	else
		get_bytes(spill, input, *row + input->above, input->body_bytes);
	complete_row(spill, input, *row);
}

/* Makes the entry of the input's current row, if it is not made, and returns it. */
static inline uint64 *
row_entry(GpusortSpill *spill, GpusortSpillInput *input)
{
	if (!input->encoded)
	{
		copy_row(spill, input, &input->row, &input->row_room);
		spill->key.encode(spill->key.arg, input->row, input->entry);
		input->encoded = true;
	}
	return input->entry;
}

/* Returns how many parts of their keys two rows share, of which the first ones, the code included, are known. */
static inline int
shared_parts(const GpusortSpill *spill, const uint64 *a, const uint64 *b, int known)
{
	int			parts = key_parts(spill);

	while (known < parts && a[known - 1] == b[known - 1])
		known++;
	return known;
}

/* Returns the loser tree's entry of an input's current row, which shares these parts of its key, the code included. */
static inline GpusortLoser
loser(const GpusortSpill *spill, const GpusortSpillInput *input, int shared)
{
	return gpusort_losertree_entry(shared, shared < key_parts(spill) ? input->entry[shared - 1] : 0,
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
	int			parts = key_parts(spill);
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
 * Makes the row behind the one that was returned last the current one of its input, and plays its match in the tree.
 * by_entries: the code is not the only part of a key.
 */
static pg_attribute_always_inline void
advance(GpusortSpill *spill, bool by_entries)
{
	GpusortSpillInput *input = spill->last;
	uint64		code = input->code;
	GpusortLoser next;

	read_head(spill, input);
	if (unlikely(input->ended))
		next = gpusort_losertree_ended();
	else if (by_entries && input->code == code)
	{
		uint64	   *before = input->entry;

		if (!input->encoded)
			spill->key.encode(spill->key.arg, spill->row, before);
		input->entry = input->before;
		input->before = before;
		input->encoded = false;
		next = loser(spill, input, shared_parts(spill, before, row_entry(spill, input), 1));
	}
	else
	{
		input->encoded = false;
		next = gpusort_losertree_entry(0, input->code, input - spill->inputs);
	}
	gpusort_losertree_replace(&spill->tree, next, by_entries ? row_before : NULL, spill);
}

/* Is the tree's winner equal to the winner before it, as far as entries say that?  The first one shares nothing. */
static inline bool
repeats(const GpusortSpill *spill)
{
	return spill->key.distinct && !spill->lossy &&
		gpusort_losertree_shared(spill->tree.winner) == key_parts(spill);
}

/* Returns the next row and its code, or NULL at the end. */
static pg_attribute_always_inline char *
next_row(GpusortSpill *spill, uint64 *code, bool by_entries)
{
	for (;;)
	{
		GpusortSpillInput *input;

		if (likely(spill->last != NULL))
			advance(spill, by_entries);
		if (spill->tree.winner == gpusort_losertree_ended())
		{
			spill->last = NULL;
			return NULL;
		}
		spill->last = input = &spill->inputs[gpusort_losertree_input(spill->tree.winner)];
		if (!by_entries || !input->encoded)
			copy_row(spill, input, &spill->row, &spill->row_room);
		if (!by_entries || !repeats(spill))
		{
			*code = input->code;
			return by_entries && input->encoded ? input->row : spill->row;
		}
		spill->repeated++;
	}
}

/* ---- single words ---- */

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

/* Reads the input's next words, if it has few. */
static void
read_words(GpusortSpill *spill, GpusortSpillInput *input)
{
	int			most = spill->words_ahead;
	uint64		left = (input->unread + (input->end - input->next)) / spill->word_bytes;
	uint64		before = input->code;
	bool		descends = false;
	uint64	   *words;
	int			n;

	if (input->ended || input->nwords > most / 2)
		return;
	memmove(input->entry, input->words, input->nwords * sizeof(uint64));
	input->words = input->entry;
	words = input->entry + input->nwords;
	n = Min(most - input->nwords, left);
	get_bytes(spill, input, words, n * spill->word_bytes);
	for (int i = n - 1; i >= 0 && spill->word_bytes == sizeof(uint32); i--)
		words[i] = ((uint32 *) words)[i];
	for (int i = 0; i < n; i++)
	{
		descends |= words[i] < before;
		before = words[i];
	}
	if (descends)
		damaged(input, "A word in it is out of order.");
	input->code = before;
	input->nwords += n;
	input->ended = left == n;
}

/* Fills the batch with words: those that have been read and that no other one can precede. */
static bool
fill_batch(GpusortSpill *spill)
{
	uint64		last = PG_UINT64_MAX;	/* an unread word may be less than the words behind this one */
	int			n = 0;
	int			sources = 0;	/* runs that give words */

	for (int i = 0; i < spill->ninputs; i++)
	{
		GpusortSpillInput *input = &spill->inputs[i];

		read_words(spill, input);
		if (!input->ended)
			last = Min(last, input->words[input->nwords - 1]);
	}
	for (int i = 0; i < spill->ninputs; i++)
	{
		GpusortSpillInput *input = &spill->inputs[i];
		int			count = count_words(input->words, input->nwords, last);

		memcpy(spill->batch + n, input->words, count * sizeof(uint64));
		n += count;
		input->words += count;
		input->nwords -= count;
		sources += count > 0;
	}
	if (sources > 1)
		gpusort_cpu_sort_few(spill->batch, n, sizeof(uint64));
	spill->next_word = spill->batch;
	spill->end_word = spill->batch + n;
	return n > 0;
}

/* ---- all ---- */

void
gpusort_spill_open(GpusortSpill *spill)
{
	bool		exact = key_parts(spill) == 1;

	spill->last = NULL;
	spill->next_word = spill->end_word = spill->batch;
	if (spill->word_bytes > 0)
		return;
	gpusort_losertree_init(&spill->tree, spill->ninputs, spill->nodes);
	for (int i = 0; i < spill->ninputs; i++)
	{
		GpusortSpillInput *input = &spill->inputs[i];

		read_head(spill, input);
		gpusort_losertree_set(&spill->tree, i, input->ended ? gpusort_losertree_ended() : gpusort_losertree_entry(0, input->code, i));
	}
	gpusort_losertree_build(&spill->tree, exact ? NULL : row_before, spill);
}

bool
gpusort_spill_next(GpusortSpill *spill, uint64 *word, void **row)
{
	*row = NULL;
	if (spill->word_bytes > 0)
	{
		if (spill->next_word == spill->end_word && !fill_batch(spill))
			return false;
		*word = *spill->next_word++;
		return true;
	}
	*row = key_parts(spill) == 1 ? next_row(spill, word, false) : next_row(spill, word, true);
	return *row != NULL;
}

uint64 *
gpusort_spill_next_words(GpusortSpill *spill, uint64 *n)
{
	uint64	   *words;

	Assert(spill->word_bytes > 0);
	if (spill->next_word == spill->end_word && !fill_batch(spill))
		return NULL;
	words = spill->next_word;
	*n = spill->end_word - words;
	spill->next_word = spill->end_word;
	return words;
}
