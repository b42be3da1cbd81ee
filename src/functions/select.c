/*-------------------------------------------------------------------------
 *
 * select.c
 *		Selects keys by their places in the sorted order, mostly without a sort.
 *
 * A percentile needs two neighbouring keys of the sorted group, and no sort.  The
 * algorithm is SELECT of Floyd and Rivest (1975): a small sample is sorted, and two
 * of its keys enclose the keys that are wanted, with near certainty.  One pass over
 * all keys counts those below the two bounds, and those equal to them, and copies
 * those in between, some 3 %, which are then sorted.  If the keys turn out to lie
 * elsewhere, or if many pairs are wanted or there are few keys, the group is sorted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/memory.h"
#include "functions/select.h"

/* Keys of the sample, and how far beside the expected place in it the bounds are. */
#define SAMPLE_ROWS		16384
#define SAMPLE_MARGIN	256

/* Groups of fewer keys are sorted, and groups of which more pairs of keys are wanted. */
#define MIN_SELECT_ROWS	(8 * SAMPLE_ROWS)
#define MAX_PAIRS		8

/* Keys that a pass reads between two checks: for interrupts, and for room. */
#define PASS_ROWS		4096

/* Key i of an array of keys. */
static inline uint64
key_at(const GpusortType *type, const void *keys, uint64 i)
{
	return type->key_bytes == 4 ? ((const uint32 *) keys)[i] : ((const uint64 *) keys)[i];
}

/* Sorts keys in order into memory of the current context, which it returns. */
static void *
sort_keys(const GpusortType *type, const void *keys, size_t count)
{
	GpusortRunSpec spec = {
		.key_type = type->name,
		.key_bytes = type->key_bytes,
		.resumable = true,
	};
	GpusortEncoding encoding = {GPUSORT_ENCODING_WORD, 0};
	GpusortRun *run = gpusort_run_begin(&spec);
	void	   *sorted = MemoryContextAllocHuge(CurrentMemoryContext, Max(count, 1) * type->key_bytes);

	gpusort_run_lend(run, keys, count, &encoding);
	gpusort_run_sort(run, sorted, NULL);
	gpusort_run_end(run);
	return sorted;
}

/* Takes the sample: keys at equal distances. */
static void
take_sample(GpusortSelection *selection)
{
	const GpusortType *type = selection->type;
	char	   *keys = palloc(SAMPLE_ROWS * type->key_bytes);

	for (int i = 0; i < SAMPLE_ROWS; i++)
		memcpy(keys + i * type->key_bytes,
			   gpusort_run_key(selection->run, selection->rows / SAMPLE_ROWS * i),
			   type->key_bytes);
	selection->sample = sort_keys(type, keys, SAMPLE_ROWS);
	pfree(keys);
	/* twice the keys that are expected between two bounds */
	selection->room_rows = selection->rows / SAMPLE_ROWS * (4 * SAMPLE_MARGIN + 4) + PASS_ROWS;
	selection->room = gpusort_memory_alloc(CurrentMemoryContext, selection->room_rows * type->key_bytes);
}

/* Keys on either side of two bounds */
typedef struct Counts
{
	uint64		below;			/* less than low */
	uint64		low;			/* equal to low */
	uint64		inside;			/* between low and high; copied */
	uint64		high;			/* equal to high, but not to low */
} Counts;

/* Counts keys of one width, without branches, and copies those between the bounds. */
#define COUNT_LOOP(word_t) \
	do { \
		const word_t *in = (const word_t *) keys; \
		word_t	   *out = (word_t *) room + counts->inside; \
		word_t		lo = (word_t) low; \
		word_t		hi = (word_t) high; \
		size_t		below = 0, equal = 0, inside = 0, top = 0; \
		for (size_t i = 0; i < n; i++) \
		{ \
			word_t		key = in[i]; \
			below += key < lo; \
			equal += key == lo; \
			top += key == hi; \
			out[inside] = key; \
			inside += (key > lo) & (key < hi); \
		} \
		counts->below += below; \
		counts->low += equal; \
		counts->inside += inside; \
		counts->high += lo == hi ? 0 : top; \
	} while (0)

static void
count_keys(const GpusortType *type, const void *keys, size_t n, uint64 low, uint64 high,
		   void *room, Counts *counts)
{
	if (type->key_bytes == 4)
		COUNT_LOOP(uint32);
	else
		COUNT_LOOP(uint64);
}

/*
 * Selects the keys at two neighbouring positions of the sorted group, or at one.
 * False if they are not where the sample says.
 */
static bool
select_pair(GpusortSelection *selection, uint64 first, uint64 second, uint64 pair[2])
{
	const GpusortType *type = selection->type;
	int64		place = (int64) ((double) first / selection->rows * SAMPLE_ROWS);
	uint64		low = place < SAMPLE_MARGIN ? 0 : key_at(type, selection->sample, place - SAMPLE_MARGIN);
	uint64		high = place >= SAMPLE_ROWS - SAMPLE_MARGIN ?
		(type->key_bytes == 4 ? PG_UINT32_MAX : PG_UINT64_MAX) :
		key_at(type, selection->sample, place + SAMPLE_MARGIN);
	Counts		counts = {0};
	uint64		positions[2] = {first, second};
	void	   *inside;

	for (uint64 row = 0; row < selection->rows;)
	{
		const void *keys;
		size_t		n = gpusort_run_keys(selection->run, row, &keys);

		n = Min(n, PASS_ROWS);
		if (counts.inside + n > selection->room_rows)
			return false;
		count_keys(type, keys, n, low, high, selection->room, &counts);
		row += n;
		CHECK_FOR_INTERRUPTS();
	}
	if (first < counts.below || second >= counts.below + counts.low + counts.inside + counts.high)
		return false;

	inside = sort_keys(type, selection->room, counts.inside);
	for (int i = 0; i < 2; i++)
	{
		uint64		position = positions[i] - counts.below;

		if (position < counts.low)
			pair[i] = low;
		else if (position < counts.low + counts.inside)
			pair[i] = key_at(type, inside, position - counts.low);
		else
			pair[i] = high;
	}
	pfree(inside);
	return true;
}

/* Sorts the whole group. */
static void
sort_all(GpusortSelection *selection)
{
	GpusortRun *run = selection->run;
	void	   *sorted = gpusort_memory_alloc(CurrentMemoryContext,
											  Max(selection->rows, 1) * selection->type->key_bytes);
	GpusortReport report;

	gpusort_run_sort(run, sorted, NULL);
	gpusort_run_finish(run, &report);
	gpusort_report_keep(&report);
	selection->sorted = sorted;
}

void
gpusort_select_begin(GpusortSelection *selection, const GpusortType *type, GpusortRun *run, int pairs)
{
	memset(selection, 0, sizeof(GpusortSelection));
	selection->type = type;
	selection->run = run;
	selection->rows = gpusort_run_rows(run);
	if (selection->rows < MIN_SELECT_ROWS || pairs > MAX_PAIRS)
		sort_all(selection);
	else
		take_sample(selection);
}

void
gpusort_select_begin_sorted(GpusortSelection *selection, const GpusortType *type, const void *sorted,
							uint64 rows)
{
	memset(selection, 0, sizeof(GpusortSelection));
	selection->type = type;
	selection->rows = rows;
	selection->sorted = sorted;
}

void
gpusort_select_pair(GpusortSelection *selection, uint64 first, uint64 second, uint64 pair[2])
{
	if (selection->sorted == NULL && !select_pair(selection, first, second, pair))
		sort_all(selection);
	if (selection->sorted != NULL)
	{
		pair[0] = key_at(selection->type, selection->sorted, first);
		pair[1] = key_at(selection->type, selection->sorted, second);
	}
}

void
gpusort_select_end(GpusortSelection *selection)
{
	if (selection->run != NULL && selection->sorted != NULL)
		pfree((void *) selection->sorted);
	if (selection->sample != NULL)
	{
		pfree(selection->sample);
		pfree(selection->room);
	}
}
