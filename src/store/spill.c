/*-------------------------------------------------------------------------
 *
 * spill.c
 *		Writes spilled runs.
 *
 * The caller sorts as many rows as fit in memory and writes them as a spilled run, and so on
 * (Knuth, The Art of Computer Programming, vol. 3, section 5.4).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "key/keybits.h"
#include "store/spill_state.h"

/*
 * The size of an extent, a power of two: a 256th of the memory, since a merge has
 * up to GPUSORT_SPILL_MAX_INPUTS buffers.  Buffers of larger ones do not fit in the CPU
 * caches, and smaller ones cost too many system calls.
 */
#define MIN_EXTENT_BYTES	((Size) 8 * 1024)
#define MAX_EXTENT_BYTES	((Size) 256 * 1024)

/* The memory of a spill is at least this. */
#define MIN_MEMORY			((Size) 64 * 1024)

/*
 * Codes: GAP_BITS is the number of bits that gpusort_spill_adapt() gives to the
 * differences between the codes of neighbours in the first run: a quarter lies closer.
 * Numbers of 14 to 21 bits take 3 bytes.  Then 1 % of neighbours share a code when a
 * thousand such runs have been merged.  All but a tenth of the differences take at most
 * MAX_GAP_BITS, which is 4 bytes.
 */
#define GAP_BITS			17
#define MAX_GAP_BITS		28

Size
gpusort_spill_extent(Size memory)
{
	Size		bytes = MIN_EXTENT_BYTES;

	while (bytes * 2 <= Min(memory / GPUSORT_SPILL_MAX_INPUTS, MAX_EXTENT_BYTES))
		bytes *= 2;
	return bytes;
}

GpusortSpill *
gpusort_spill_begin(const GpusortSpillKey *key, int word_bytes, Size memory, GpusortSpillShared *shared)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "GpuSort spill",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	GpusortSpill *spill = palloc0(sizeof(GpusortSpill));
	Size		extent_bytes;

	spill->cxt = cxt;
	spill->memory = Max(memory, MIN_MEMORY);
	extent_bytes = shared != NULL ? shared->extent_bytes : gpusort_spill_extent(spill->memory);
	if (key != NULL)
	{
		Assert(key->words >= 1 && key->words <= GPUSORT_MAX_WORDS);
		spill->unwritten = key->bare ? 0 : key->padded ? offsetof(MinimalTupleData, mt_padding) : MINIMAL_TUPLE_DATA_OFFSET;
		spill->key = *key;
	}
	else
		spill->word_bytes = word_bytes;
	/* until gpusort_spill_adapt() is called, the code is the first word */
	spill->code.nfields = 1;
	spill->code.fields[0].bits = 64;
	spill->code.exact = key == NULL || key->words == 1;

	spill->files = palloc(sizeof(GpusortSpillFile));
	spill->nfiles = 1;
	spill->shared = shared;
	gpusort_spillfile_begin(&spill->files[0], extent_bytes, NULL, -1, true);
	spill->maxruns = 64;
	spill->runs = palloc(spill->maxruns * sizeof(GpusortSpillRun));
	spill->out_buffer = palloc(extent_bytes);
	MemoryContextSwitchTo(old);
	return spill;
}

/* The code of these words, before the shift */
static inline uint64
wide_code(const GpusortSpillCode *code, const uint64 *words)
{
	uint64		bits = 0;
	int			left = 64;

	for (int i = 0; i < code->nfields && left > 0; i++)
	{
		int			width = code->fields[i].bits;
		uint64		above = words[i] - code->fields[i].base;
		int			taken = Min(width, left);

		if (unlikely(words[i] < code->fields[i].base))
			break;
		left -= taken;
		if (unlikely(width < 64 && above >> width != 0))
			return bits | PG_UINT64_MAX >> (64 - taken - left);
		bits |= above >> (width - taken) << left;
	}
	return bits;
}

static int
compare_numbers(const void *a, const void *b)
{
	uint64		x = *(const uint64 *) a;
	uint64		y = *(const uint64 *) b;

	return x < y ? -1 : x > y;
}

/* The position of the highest bit that is set, from 1, or 0. */
static int
bit_length(uint64 bits)
{
	return bits != 0 ? pg_leftmost_one_pos64(bits) + 1 : 0;
}

/*
 * Chooses the field of a word by its values in n keys.  The middle three quarters of these lie in the middle half of the field.
 * NULLs at an end may be far from the values.
 */
static void
choose_field(GpusortSpillCode *code, int word, const uint64 *const *keys, int n, uint64 *values)
{
	uint64		first;
	uint64		last;
	uint64		below;
	int			bits;

	for (int i = 0; i < n; i++)
		values[i] = keys[i][word];
	qsort(values, n, sizeof(uint64), compare_numbers);
	first = values[n / 8];
	last = values[n - 1 - n / 8];
	bits = Min(bit_length(last - first) + 1, 64);
	below = (bits < 64 ? UINT64CONST(1) << (bits - 1) : PG_UINT64_MAX / 2) - (last - first) / 2;
	code->fields[word].bits = bits;
	code->fields[word].base = bits < 64 && first > below ? Min(first - below, PG_UINT64_MAX - ((UINT64CONST(1) << bits) - 1)) : 0;
}

/* Chooses the code by pairs of keys, of which there is one at least. */
static void
choose_code(GpusortSpill *spill, const uint64 *const *keys, int pairs)
{
	GpusortSpillCode *code = &spill->code;
	uint64	   *numbers = palloc(2 * pairs * sizeof(uint64));
	int			ngaps = 0;

	/* with one word, the code may be exact */
	code->nfields = Min(spill->key.words, GPUSORT_SPILL_FIELDS);
	for (int word = 0; word < code->nfields && spill->key.words > 1; word++)
		choose_field(code, word, keys, 2 * pairs, numbers);
	for (int i = 0; i < pairs; i++)
	{
		uint64		gap = wide_code(code, keys[2 * i + 1]) - wide_code(code, keys[2 * i]);

		if (gap != 0)
			numbers[ngaps++] = gap;
	}
	if (ngaps > 0)
	{
		qsort(numbers, ngaps, sizeof(uint64), compare_numbers);
		code->shift = Max(0, Max(bit_length(numbers[ngaps / 4]) - GAP_BITS,
								 bit_length(numbers[ngaps - 1 - ngaps / 10]) - MAX_GAP_BITS));
	}
	pfree(numbers);
	/* then no words are compared, and the bytes that a longer code takes are those of the header */
	if (spill->key.words == 1 && !spill->key.bare && !spill->key.padded && !spill->lossy)
		code->shift = 0;
	code->exact = spill->key.words == 1 && code->shift == 0;
}

void
gpusort_spill_adapt(GpusortSpill *spill, const uint64 *const *keys, int pairs)
{
	GpusortSpillShared *shared = spill->shared;

	Assert(spill->word_bytes == 0 && spill->rows == 0);
	if (pairs > 0)
		choose_code(spill, keys, pairs);
	if (shared == NULL)
		return;
	SpinLockAcquire(&shared->mutex);
	if (!shared->adapted)
		shared->code = spill->code;
	shared->adapted = true;
	spill->code = shared->code;
	SpinLockRelease(&shared->mutex);
}

/* Takes the open run's next part, for the buffer, which is empty then. */
static void
take_part(GpusortSpill *spill)
{
	spill->out_part = gpusort_spillfile_take(&spill->files[0]);
	spill->out_next = spill->out_buffer;
	spill->out_end = spill->out_buffer + spill->out_part.bytes - sizeof(GpusortSpillPart);
}

/* Writes the buffer as a part of the open run.  more: another part of this run follows. */
static pg_noinline void
write_part(GpusortSpill *spill, bool more)
{
	GpusortSpillPart part = spill->out_part;
	Size		bytes = spill->out_next - spill->out_buffer;

	CHECK_FOR_INTERRUPTS();
	spill->out_run.bytes += bytes;
	if (more)
	{
		take_part(spill);
		memcpy(spill->out_buffer + bytes, &spill->out_part, sizeof(GpusortSpillPart));
		bytes += sizeof(GpusortSpillPart);
	}
	gpusort_spillfile_write(&spill->files[0], part, spill->out_buffer, bytes);
}

void
gpusort_spill_begin_run(GpusortSpill *spill)
{
	spill->out_code = 0;
	memset(spill->out_header, 0, sizeof(spill->out_header));
	take_part(spill);
	spill->out_run = (GpusortSpillRun) {.first = spill->out_part};
}

void
gpusort_spill_put_bytes(GpusortSpill *spill, const void *data, Size size)
{
	while (size > 0)
	{
		Size		part = Min(size, spill->out_end - spill->out_next);

		memcpy(spill->out_next, data, part);
		spill->out_next += part;
		data = (const char *) data + part;
		size -= part;
		if (size > 0)
			write_part(spill, true);
	}
}

void
gpusort_spill_write_words(GpusortSpill *spill, const void *words, uint64 n)
{
	Assert(spill->word_bytes > 0);
	spill->rows += n;
	gpusort_spill_put_bytes(spill, words, n * spill->word_bytes);
}

void
gpusort_spill_put(GpusortSpill *spill, uint64 code, const void *row)
{
	char		head[GPUSORT_SPILL_HEAD_BYTES + MINIMAL_TUPLE_PADDING];
	const char *body = (const char *) row + spill->unwritten;
	Size		body_bytes = gpusort_row_bytes(row, spill->key.bare) - spill->unwritten;
	bool		fits = sizeof(head) + body_bytes <= spill->out_end - spill->out_next;
	char	   *begin = likely(fits) ? spill->out_next : head;
	char	   *out = begin;
	bool		same = false;

	if (!spill->key.bare)
	{
		const char *header = (const char *) row + MINIMAL_TUPLE_DATA_OFFSET;

		same = memcmp(spill->out_header, header, GPUSORT_SPILL_HEADER_BYTES) == 0;
		memcpy(spill->out_header, header, GPUSORT_SPILL_HEADER_BYTES);
	}
	if (likely(same))
		body_bytes -= GPUSORT_SPILL_HEADER_BYTES;
	out = gpusort_spill_put_number(out, body_bytes << 1 | same);
	out = gpusort_spill_put_number(out, code - spill->out_code);
	spill->out_code = code;
	if (likely(same))
	{
		Size		padding = MINIMAL_TUPLE_DATA_OFFSET - spill->unwritten;

		/* if there is none, the body is written over these bytes */
		memcpy(out, body, MINIMAL_TUPLE_PADDING);
		out += padding;
		body += padding + GPUSORT_SPILL_HEADER_BYTES;
		body_bytes -= padding;
	}
	if (unlikely(!fits))
	{
		gpusort_spill_put_bytes(spill, head, out - head);
		gpusort_spill_put_bytes(spill, body, body_bytes);
		return;
	}
	gpusort_row_copy(out, body, body_bytes);
	spill->out_next = out + body_bytes;
}

void
gpusort_spill_write(GpusortSpill *spill, const uint64 *words, const void *row)
{
	Assert(spill->word_bytes == 0);
	spill->rows++;
	gpusort_spill_put(spill, spill->code.exact ? words[0] : wide_code(&spill->code, words) >> spill->code.shift, row);
}

void
gpusort_spill_add_run(GpusortSpill *spill, GpusortSpillRun run)
{
	if (spill->nruns == spill->maxruns)
	{
		spill->maxruns *= 2;
		spill->runs = repalloc_huge(spill->runs, spill->maxruns * sizeof(GpusortSpillRun));
	}
	spill->runs[spill->nruns++] = run;
	spill->nwritten += spill->nbuffers == 0;
}

void
gpusort_spill_end_run(GpusortSpill *spill)
{
	write_part(spill, false);
	if (spill->out_run.bytes > 0)
		gpusort_spill_add_run(spill, spill->out_run);
}

void
gpusort_spill_set_lossy(GpusortSpill *spill)
{
	Assert(spill->key.compare != NULL);
	spill->lossy = true;
}

uint64
gpusort_spill_rows(const GpusortSpill *spill)
{
	return spill->rows;
}

int
gpusort_spill_runs(const GpusortSpill *spill)
{
	return spill->nwritten;
}

uint64
gpusort_spill_repeated(const GpusortSpill *spill)
{
	return spill->repeated;
}

uint64
gpusort_spill_bytes(const GpusortSpill *spill)
{
	uint64		bytes = 0;

	for (int i = 0; i < spill->nfiles; i++)
		bytes += spill->files[i].bytes;
	return bytes;
}

void
gpusort_spill_end(GpusortSpill *spill)
{
	for (int i = 0; i < spill->nfiles; i++)
		gpusort_spillfile_end(&spill->files[i]);
	MemoryContextDelete(spill->cxt);
}
