/*-------------------------------------------------------------------------
 *
 * group_lists.c
 *		The keys of many groups.
 *
 * A list for each group would take memory for a million groups, and a cache miss for each key.  So keys are kept in the
 * order in which they come, with the numbers of their groups, and are put in the order of these numbers at the end, by
 * a counting sort, after which each group's keys are side by side.
 *
 * Keys that do not fit in memory are written in that order, behind the numbers of keys of all groups.  To read them by
 * groups, as many groups as fit are collected from all runs.  So nothing is merged, and each run is read in sequence.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/buffile.h"

#include "aggregate/aggregate_state.h"
#include "base/memory.h"

/* Keys that there is room for at first, and keys that are read at once from a group that does not fit */
#define FIRST_ROOM	4096
#define PIECE_KEYS	8192

/* Groups that are read, and keys that are moved, between two checks for interrupts */
#define INTERRUPT_GROUPS	1024
#define INTERRUPT_KEYS		((uint64) 1024 * 1024)
#define INTERRUPT_BYTES		((Size) 8 * 1024 * 1024)

/* Keys in the file: the number of keys of each group, uint32, then the keys in the order of the groups */
typedef struct Run
{
	uint32		ngroups;
	int			counts_file;	/* where the numbers begin */
	off_t		counts_offset;
	int			keys_file;		/* where the next key begins that has not been read */
	off_t		keys_offset;
} Run;

void
gpusort_lists_begin(GpusortLists *lists, const GpusortType *type, MemoryContext cxt, Size limit)
{
	*lists = (GpusortLists) {.type = type, .cxt = cxt, .limit = limit};
}

/* Allocates room for keys.  Those that are there are copied. */
static void
set_room(GpusortLists *lists, uint64 room)
{
	uint32	   *groups = gpusort_memory_alloc_pages(lists->cxt, room * sizeof(uint32));
	char	   *keys = gpusort_memory_alloc_pages(lists->cxt, room * lists->type->key_bytes);

	if (lists->room > 0)
	{
		gpusort_memory_copy(groups, lists->groups, lists->count * sizeof(uint32));
		gpusort_memory_copy(keys, lists->keys, lists->count * lists->type->key_bytes);
		gpusort_memory_free(lists->groups, lists->room * sizeof(uint32));
		gpusort_memory_free(lists->keys, lists->room * lists->type->key_bytes);
	}
	lists->groups = groups;
	lists->keys = keys;
	lists->room = room;
}

static void
free_room(GpusortLists *lists)
{
	if (lists->room == 0)
		return;
	gpusort_memory_free(lists->groups, lists->room * sizeof(uint32));
	gpusort_memory_free(lists->keys, lists->room * lists->type->key_bytes);
	lists->count = lists->room = 0;
}

static void
free_sorted(GpusortLists *lists)
{
	if (lists->sorted != NULL)
		gpusort_memory_free(lists->sorted, lists->sorted_bytes);
	lists->sorted = NULL;
}

/* Makes room for this many keys in the order of their groups. */
static void
make_sorted(GpusortLists *lists, uint64 keys)
{
	free_sorted(lists);
	lists->sorted_bytes = Max(keys, 1) * lists->type->key_bytes;
	lists->sorted = gpusort_memory_alloc_pages(lists->cxt, lists->sorted_bytes);
}

/* Copies the keys in memory to lists->sorted, in the order of their groups.  counts: of the keys of each group */
static void
sort_by_groups(GpusortLists *lists, const uint64 *counts, uint32 ngroups)
{
	uint64	   *places = MemoryContextAllocHuge(lists->cxt, Max(ngroups, 1) * sizeof(uint64));
	uint64		place = 0;

	make_sorted(lists, lists->count);
	for (uint32 g = 0; g < ngroups; g++)
	{
		places[g] = place;
		place += counts[g];
	}
	for (uint64 first = 0; first < lists->count; first += INTERRUPT_KEYS)
	{
		uint64		end = Min(first + INTERRUPT_KEYS, lists->count);

		CHECK_FOR_INTERRUPTS();
		if (lists->type->key_bytes == sizeof(uint32))
		{
			for (uint64 i = first; i < end; i++)
				((uint32 *) lists->sorted)[places[lists->groups[i]]++] = ((const uint32 *) lists->keys)[i];
		}
		else
		{
			for (uint64 i = first; i < end; i++)
				((uint64 *) lists->sorted)[places[lists->groups[i]]++] = ((const uint64 *) lists->keys)[i];
		}
	}
	pfree(places);
}

/* Returns the number of keys in memory of each group. */
static uint64 *
count_keys(const GpusortLists *lists, uint32 ngroups)
{
	uint64	   *counts = MemoryContextAllocExtended(lists->cxt, Max(ngroups, 1) * sizeof(uint64),
													MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	for (uint64 i = 0; i < lists->count; i++)
	{
		if (i % INTERRUPT_KEYS == 0)
			CHECK_FOR_INTERRUPTS();
		counts[lists->groups[i]]++;
	}
	return counts;
}

static void
write_file(GpusortLists *lists, char *from, Size bytes)
{
	for (Size done = 0; done < bytes; done += INTERRUPT_BYTES)
	{
		CHECK_FOR_INTERRUPTS();
		BufFileWrite(lists->file, from + done, Min(INTERRUPT_BYTES, bytes - done));
	}
}

/* Writes the keys in memory as a run. */
static void
write_run(GpusortLists *lists)
{
	MemoryContext old = MemoryContextSwitchTo(lists->cxt);
	Run		   *run = palloc0(sizeof(Run));
	uint64	   *counts;

	for (uint64 i = 0; i < lists->count; i++)
	{
		if (i % INTERRUPT_KEYS == 0)
			CHECK_FOR_INTERRUPTS();
		run->ngroups = Max(run->ngroups, lists->groups[i] + 1);
	}
	counts = count_keys(lists, run->ngroups);
	sort_by_groups(lists, counts, run->ngroups);
	if (lists->file == NULL)
		lists->file = BufFileCreateTemp(false);
	BufFileTell(lists->file, &run->counts_file, &run->counts_offset);
	for (uint32 g = 0; g < run->ngroups; g++)
	{
		uint32		count = (uint32) counts[g];

		if (g % INTERRUPT_KEYS == 0)
			CHECK_FOR_INTERRUPTS();
		BufFileWrite(lists->file, &count, sizeof(count));
	}
	BufFileTell(lists->file, &run->keys_file, &run->keys_offset);
	write_file(lists, lists->sorted, lists->count * lists->type->key_bytes);
	lists->runs = lappend(lists->runs, run);
	lists->count = 0;
	pfree(counts);
	free_sorted(lists);
	MemoryContextSwitchTo(old);
}

void
gpusort_lists_make_room(GpusortLists *lists)
{
	/* a key, its group's number, and its copy in order */
	uint64		most = Max(lists->limit / (2 * lists->type->key_bytes + sizeof(uint32)), FIRST_ROOM);

	/* a run counts keys of a group in 32 bits */
	most = Min(most, UINT32_MAX);
	CHECK_FOR_INTERRUPTS();
	if (lists->room < most)
		set_room(lists, Min(Max(2 * lists->room, FIRST_ROOM), most));
	else
		write_run(lists);
}

void
gpusort_lists_add_keys(GpusortLists *lists, const uint32 *groups, const uint32 *of, const void *keys, uint64 n)
{
	int			key_bytes = lists->type->key_bytes;

	while (n > 0)
	{
		uint64		room;

		if (lists->count == lists->room)
			gpusort_lists_make_room(lists);
		room = Min(lists->room - lists->count, n);
		for (uint64 i = 0; i < room; i++)
			lists->groups[lists->count + i] = groups[of[i]];
		memcpy(lists->keys + lists->count * key_bytes, keys, room * key_bytes);
		lists->count += room;
		of += room;
		keys = (const char *) keys + room * key_bytes;
		n -= room;
	}
}

/* Reads from the file. */
static void
read_file(GpusortLists *lists, void *to, Size bytes)
{
	for (Size done = 0; done < bytes; done += INTERRUPT_BYTES)
	{
		Size		n = Min(INTERRUPT_BYTES, bytes - done);

		CHECK_FOR_INTERRUPTS();
		if (BufFileRead(lists->file, (char *) to + done, n) != n)
			elog(ERROR, "unexpected end of temporary file");
	}
}

static void
seek_file(GpusortLists *lists, int file, off_t offset)
{
	if (BufFileSeek(lists->file, file, offset, SEEK_SET) != 0)
		elog(ERROR, "could not seek in temporary file");
}

/* Reads how many keys of the groups from first on a run has.  Returns for how many groups. */
static uint32
read_counts(GpusortLists *lists, const Run *run, uint32 first, uint32 last, uint32 *counts)
{
	if (first >= run->ngroups)
		return 0;
	seek_file(lists, run->counts_file, run->counts_offset + (off_t) first * sizeof(uint32));
	last = Min(last, run->ngroups);
	read_file(lists, counts, (last - first) * sizeof(uint32));
	return last - first;
}

/* Adds the keys in the file to lists->counts. */
static void
count_runs(GpusortLists *lists)
{
	uint32	   *counts = MemoryContextAllocHuge(lists->cxt, Max(lists->ngroups, 1) * sizeof(uint32));
	ListCell   *lc;

	foreach(lc, lists->runs)
	{
		uint32		n = read_counts(lists, lfirst(lc), 0, lists->ngroups, counts);

		for (uint32 g = 0; g < n; g++)
			lists->counts[g] += counts[g];
	}
	pfree(counts);
}

void
gpusort_lists_begin_scan(GpusortLists *lists, uint32 ngroups)
{
	if (lists->file != NULL && lists->count > 0)
		write_run(lists);
	lists->ngroups = ngroups;
	lists->counts = count_keys(lists, ngroups);
	lists->first = lists->next = lists->last = 0;
	if (lists->file != NULL)
		count_runs(lists);
	else
	{
		sort_by_groups(lists, lists->counts, ngroups);
		lists->last = ngroups;
		lists->offset = 0;
	}
	free_room(lists);
}

/* Collects the keys of the next groups, as many as fit, from all runs. */
static void
collect_groups(GpusortLists *lists)
{
	uint64		most = Max(lists->limit / (2 * lists->type->key_bytes), FIRST_ROOM);
	uint64		keys = 0;
	uint64	   *places;
	uint32	   *counts;
	ListCell   *lc;

	lists->first = lists->last;
	while (lists->last < lists->ngroups && (lists->last == lists->first || keys + lists->counts[lists->last] <= most))
		keys += lists->counts[lists->last++];
	lists->offset = 0;
	/* a group that does not fit stays in the file */
	if (keys > most)
	{
		free_sorted(lists);
		return;
	}
	make_sorted(lists, keys);
	places = MemoryContextAllocHuge(lists->cxt, (lists->last - lists->first) * sizeof(uint64));
	counts = MemoryContextAllocHuge(lists->cxt, (lists->last - lists->first) * sizeof(uint32));
	keys = 0;
	for (uint32 g = lists->first; g < lists->last; g++)
	{
		places[g - lists->first] = keys;
		keys += lists->counts[g];
	}
	foreach(lc, lists->runs)
	{
		Run		   *run = lfirst(lc);
		uint32		n = read_counts(lists, run, lists->first, lists->last, counts);

		CHECK_FOR_INTERRUPTS();
		if (n == 0)
			continue;
		seek_file(lists, run->keys_file, run->keys_offset);
		for (uint32 g = 0; g < n; g++)
		{
			read_file(lists, lists->sorted + places[g] * lists->type->key_bytes,
					  (Size) counts[g] * lists->type->key_bytes);
			places[g] += counts[g];
		}
		BufFileTell(lists->file, &run->keys_file, &run->keys_offset);
	}
	pfree(places);
	pfree(counts);
}

bool
gpusort_lists_next(GpusortLists *lists, uint32 *group, void **keys, uint64 *count)
{
	for (;; lists->next++)
	{
		if (lists->next % INTERRUPT_GROUPS == 0)
			CHECK_FOR_INTERRUPTS();
		if (lists->next == lists->ngroups)
			return false;
		if (lists->next == lists->last)
			collect_groups(lists);
		*count = lists->counts[lists->next];
		if (*count > 0)
			break;
	}
	*group = lists->next++;
	*keys = NULL;
	if (lists->sorted == NULL)
		return true;
	if (*count <= GPUSORT_LISTS_LARGE)
		*keys = lists->sorted + lists->offset * lists->type->key_bytes;
	lists->offset += *count;
	return true;
}

void
gpusort_lists_copy(GpusortLists *lists, GpusortGroup *to, GpusortCheckKeys *check)
{
	uint64		count = lists->counts[lists->next - 1];
	int			key_bytes = lists->type->key_bytes;
	ListCell   *lc;
	char	   *piece;

	if (lists->sorted != NULL)
	{
		if (check != NULL)
			gpusort_check_keys_add(check, &check->wanted, lists->sorted + (lists->offset - count) * key_bytes, count);
		gpusort_group_add_keys(to, lists->sorted + (lists->offset - count) * key_bytes, count);
		return;
	}
	piece = palloc(PIECE_KEYS * key_bytes);
	foreach(lc, lists->runs)
	{
		Run		   *run = lfirst(lc);
		uint32		left = 0;

		(void) read_counts(lists, run, lists->next - 1, lists->next, &left);
		seek_file(lists, run->keys_file, run->keys_offset);
		while (left > 0)
		{
			uint32		n = Min(left, PIECE_KEYS);

			CHECK_FOR_INTERRUPTS();
			read_file(lists, piece, (Size) n * key_bytes);
			if (check != NULL)
				gpusort_check_keys_add(check, &check->wanted, piece, n);
			gpusort_group_add_keys(to, piece, n);
			left -= n;
		}
		BufFileTell(lists->file, &run->keys_file, &run->keys_offset);
	}
	pfree(piece);
}

void
gpusort_lists_end(GpusortLists *lists)
{
	free_room(lists);
	free_sorted(lists);
	if (lists->file != NULL)
		BufFileClose(lists->file);
	list_free_deep(lists->runs);
	if (lists->counts != NULL)
		pfree(lists->counts);
	*lists = (GpusortLists) {.type = NULL};
}
