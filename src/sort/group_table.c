/*-------------------------------------------------------------------------
 *
 * group_table.c
 *		A hash table of groups: finds their first rows without a sort.
 *
 * A trim (trim.c) needs the first N rows of each group, in any order.  A hash table has them so far, and takes each
 * row once, in the order of arrival, which costs less than a sort and a look at neighbours.  It needs words that
 * decide everything.  Equal rows are taken as they come, as a stable sort takes them.
 *
 * The table stays until the next trim.  A row that has N rows of its group before it, or equal to it, is removed as soon
 * as its key is made.  If rows arrive in the reverse of the sort's order, as those of a log of which the latest are wanted,
 * every row enters its group, and the table removes none.  So once a table has removed few rows, no other one stays.
 *
 * Whether a trim pays is told by a smaller table, of a sample of the groups.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"

#include "base/memory.h"
#include "sort/sort_steps.h"

/* With more rows of each group, a sort takes less time. */
#define MOST_LISTED		16

/* Entries of a table at first, rows that are looked up at a time, and bytes that a sort takes for a row */
#define FIRST_ENTRIES	256
#define BATCH_ROWS		16
#define SORT_BYTES		((Size) 24)

/* Tables stay if they remove one row of REMOVED_PART that they are asked about, and take 1 / MEMORY_PART of the limit at most. */
#define REMOVED_PART	8
#define MEMORY_PART		4

/* About so many rows are in the groups of a sample. */
#define SAMPLE_ROWS		4096

/* The words of a key, and how many are in an entry of the table */
typedef struct Layout
{
	int			group_words;	/* of the columns that a group's rows have in common */
	int			row_words;		/* of a row: the other words of its key, and its number */
	uint32		most;			/* rows of a group */
} Layout;

/*
 * An entry is the number of its rows (0: it is free), the words that the group's rows
 * have in common, and the rows, the first one in the order first.
 */
typedef struct GpusortGroupTable
{
	uint64	   *entries;
	uint32		mask;			/* entries - 1, whose number is a power of 2 */
	uint32		groups;
	uint64		asked;			/* rows that were looked up since the trim */
	uint64		removed;		/* those of them that were removed */
} Table;

static inline int
entry_words(Layout layout)
{
	return 1 + layout.group_words + layout.row_words * layout.most;
}

static inline uint64 *
entry_at(const Table *table, Layout layout, uint32 i)
{
	return table->entries + (Size) (i & table->mask) * entry_words(layout);
}

static inline uint32
hash_of(const uint64 *key, Layout layout)
{
	uint64		hash = 0;

	for (int i = 0; i < layout.group_words; i++)
		hash = (hash ^ hash >> 32 ^ key[i]) * UINT64CONST(0x9E3779B97F4A7C15);
	return hash >> 32;
}

/* Finds the entry of the key's group, which may be free. */
static inline uint64 *
find_entry(const Table *table, Layout layout, const uint64 *key, uint32 hash)
{
	for (;; hash++)
	{
		uint64	   *entry = entry_at(table, layout, hash);

		if (entry[0] == 0 || memcmp(entry + 1, key, layout.group_words * sizeof(uint64)) == 0)
			return entry;
	}
}

static Size
table_bytes(const Table *table, Layout layout)
{
	return (table->mask + (Size) 1) * entry_words(layout) * sizeof(uint64);
}

/* Makes a table of free entries. */
static Table
make_table(Layout layout, uint32 mask, MemoryContext cxt)
{
	Table		table = {.mask = mask};

	table.entries = gpusort_memory_alloc_pages(cxt, table_bytes(&table, layout));
	memset(table.entries, 0, table_bytes(&table, layout));
	return table;
}

/* Doubles the table. */
static void
grow(Table *table, Layout layout, MemoryContext cxt)
{
	Table		old = *table;

	*table = make_table(layout, 2 * old.mask + 1, cxt);
	table->groups = old.groups;
	for (uint32 i = 0; i <= old.mask; i++)
	{
		const uint64 *entry = entry_at(&old, layout, i);

		if (entry[0] != 0)
			memcpy(find_entry(table, layout, entry + 1, hash_of(entry + 1, layout)), entry, entry_words(layout) * sizeof(uint64));
	}
	gpusort_memory_free(old.entries, table_bytes(&old, layout));
}

/* Does a row, by these words, come before another one of its group?  An equal one does not. */
static inline bool
is_before(const uint64 *words, const uint64 *other, Layout layout)
{
	for (int i = 0; i < layout.row_words - 1; i++)
	{
		if (words[i] != other[i])
			return words[i] < other[i];
	}
	return false;
}

/* Adds a row to its group's entry, if it is among the first ones. */
static inline void
add_row(Table *table, Layout layout, uint64 *entry, const uint64 *key, uint32 row)
{
	int			n = layout.row_words;
	uint64	   *to = entry + 1 + layout.group_words + entry[0] * n;
	const uint64 *words = key + layout.group_words;
	uint64		before = entry[0];

	if (before == 0)
	{
		memcpy(entry + 1, key, layout.group_words * sizeof(uint64));
		table->groups++;
	}
	if (before < layout.most)
		entry[0]++;
	else if (!is_before(words, to - n, layout))
		return;
	else
	{
		to -= n;
		before--;
	}
	for (; before > 0 && is_before(words, to - n, layout); before--, to -= n)
		memcpy(to, to - n, n * sizeof(uint64));
	memcpy(to, words, (n - 1) * sizeof(uint64));
	to[n - 1] = row;
}

/* Adds n rows whose keys lie side by side. */
static pg_attribute_always_inline void
add_rows(Table *table, Layout layout, const uint64 *keys, uint32 n, uint32 first)
{
	int			words = layout.group_words + layout.row_words - 1;
	uint32		hashes[BATCH_ROWS];

	for (uint32 i = 0; i < n; i++)
	{
		hashes[i] = hash_of(keys + i * words, layout);
		__builtin_prefetch(entry_at(table, layout, hashes[i]), 1);
	}
	for (uint32 i = 0; i < n; i++)
		add_row(table, layout, find_entry(table, layout, keys + i * words, hashes[i]), keys + i * words, first + i);
}

/* Lists the rows of all groups. */
static uint64
list_rows(const Table *table, Layout layout, uint32 *numbers)
{
	uint64		n = 0;

	for (uint32 i = 0; i <= table->mask; i++)
	{
		const uint64 *entry = entry_at(table, layout, i);
		const uint64 *number = entry + layout.group_words + layout.row_words;

		for (uint64 k = 0; k < entry[0]; k++)
			numbers[n++] = (uint32) number[k * layout.row_words];
	}
	return n;
}

/* A bsearch() comparator: of a row's number in an entry, and of an array of numbers */
static int
compare_numbers(const void *a, const void *b)
{
	uint32		number = (uint32) *(const uint64 *) a;
	uint32		other = *(const uint32 *) b;

	return number < other ? -1 : number > other;
}

/* Does a hash table find the first rows of the key set's groups? */
static bool
is_listed(const GpusortStream *stream)
{
	GpusortDoubt doubt;

	if (stream->spec.groups.count != GPUSORT_GROUP_ROWS || stream->limit.rows > MOST_LISTED || stream->rows.key == NULL)
		return false;
	doubt = gpusort_rowkey_doubt(stream->rows.key);
	return doubt.undecided == 0 && doubt.crowded == 0 && doubt.proposed < 0;
}

static Layout
layout_of(const GpusortStream *stream)
{
	Layout		layout = {.most = (uint32) stream->limit.rows};

	layout.group_words = gpusort_rowkey_first_words(stream->rows.key, stream->spec.groups.columns);
	layout.row_words = stream->set_spec.words - layout.group_words + 1;
	return layout;
}

/* Is this the usual layout, for which the compiler makes code of its own?  Without it, DISTINCT ON takes 1.3 times as long. */
static inline bool
is_usual(Layout layout)
{
	return layout.group_words == 1 && layout.row_words == 2;
}

/* Makes room for some more groups.  Returns false if that takes more memory than a sort of the rows would. */
static bool
make_room(Table *table, Layout layout, uint32 rows, MemoryContext cxt)
{
	CHECK_FOR_INTERRUPTS();
	if (table->groups + BATCH_ROWS <= table->mask / 4 * 3)
		return true;
	if (table_bytes(table, layout) > (Size) rows * SORT_BYTES / 2)
		return false;
	grow(table, layout, cxt);
	return true;
}

bool
gpusort_groups_drop_table(GpusortStream *stream)
{
	GpusortLimit *limit = &stream->limit;
	Table	   *table = limit->table;

	if (table == NULL)
		return false;
	limit->asks = table->removed >= table->asked / REMOVED_PART;
	gpusort_memory_free(table->entries, limit->table_bytes);
	pfree(table);
	limit->table = NULL;
	limit->table_bytes = 0;
	return true;
}

/*
 * Checks that the table has N rows of the group of this row, before it or equal to it.  slot: it has the row, or is NULL, and the
 * row has this number in the key set.
 */
static TupleTableSlot *
check_behind(GpusortStream *stream, const Table *table, Layout layout, const uint64 *key, TupleTableSlot *slot, uint32 row)
{
	GpusortCheck *check = &stream->check;
	const uint64 *entry = find_entry(table, layout, key, hash_of(key, layout));
	int			column = 0;

	if (entry[0] != layout.most)
		gpusort_check_sort_failed(stream,
								  psprintf("A row was removed whose group has " UINT64_FORMAT " rows, of which the first %u are wanted.",
										   entry[0], layout.most));
	ExecCopySlot(check->group_row,
				 stream->form->row(stream, (uint32) entry[layout.group_words + layout.row_words * layout.most]));
	if (slot == NULL)
		slot = stream->form->row(stream, row);
	if (gpusort_check_compare(&check->order, check->group_row, slot, &column) > 0 ||
		column < stream->spec.groups.columns)
		gpusort_check_sort_failed(stream,
								  psprintf("A row was removed that is not behind row %u of its group: they differ by column %d of the order.",
										   layout.most, column + 1));
	return slot;
}

void
gpusort_groups_check_behind(GpusortStream *stream, const uint64 *key, TupleTableSlot *slot)
{
	(void) check_behind(stream, stream->limit.table, layout_of(stream), key, slot, 0);
}

/* Checks the rows that the table does not list, which will be removed: all but n of these numbers. */
static void
check_unlisted(GpusortStream *stream, const Table *table, Layout layout, const uint32 *numbers, uint64 n)
{
	uint32		rows = (uint32) gpusort_keyset_rows(stream->set);
	bool	   *listed = MemoryContextAllocExtended(stream->set_cxt, rows, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	for (uint64 i = 0; i < n; i++)
		listed[numbers[i]] = true;
	for (uint32 row = 0; row < rows; row++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!listed[row])
			gpusort_check_drop(stream, check_behind(stream, table, layout, gpusort_keyset_key(stream->set, row), NULL, row));
	}
	pfree(listed);
}

void
gpusort_groups_renumber(GpusortStream *stream, const uint32 *kept, uint32 n)
{
	const Table *table = stream->limit.table;
	Layout		layout;

	if (table == NULL)
		return;
	layout = layout_of(stream);
	for (uint32 i = 0; i <= table->mask; i++)
	{
		uint64	   *entry = entry_at(table, layout, i);

		for (uint64 k = 1; k <= entry[0]; k++)
		{
			uint64	   *number = entry + layout.group_words + layout.row_words * k;
			const uint32 *place = bsearch(number, kept, n, sizeof(uint32), compare_numbers);

			*number = place != NULL ? place - kept : 0;
		}
	}
}

uint32 *
gpusort_groups_find(GpusortStream *stream, uint64 *kept)
{
	uint32		rows = (uint32) gpusort_keyset_rows(stream->set);
	Layout		layout;
	Table		table;
	uint32	   *numbers = NULL;
	const uint64 *keys = NULL;
	uint64		count = 0;		/* of keys that lie side by side */
	uint32		row = 0;
	uint32		entries;

	gpusort_groups_drop_table(stream);
	if (!is_listed(stream))
		return NULL;
	layout = layout_of(stream);
	entries = pg_nextpower2_32(Max(stream->limit.kept / layout.most * 4 / 3, FIRST_ENTRIES));
	while (entries > FIRST_ENTRIES && (Size) entries * entry_words(layout) * sizeof(uint64) > rows * SORT_BYTES)
		entries /= 2;
	table = make_table(layout, entries - 1, stream->set_cxt);
	while (row < rows && make_room(&table, layout, rows, stream->set_cxt))
	{
		uint32		n = Min(count, BATCH_ROWS);

		if (n == 0)
		{
			keys = gpusort_keyset_keys(stream->set, row, &count);
			continue;
		}
		if (is_usual(layout))
			add_rows(&table, (Layout) {1, 2, layout.most}, keys, n, row);
		else
			add_rows(&table, layout, keys, n, row);
		keys += n * stream->set_spec.words;
		count -= n;
		row += n;
	}
	if (row == rows)
	{
		numbers = gpusort_memory_alloc(stream->set_cxt, rows * sizeof(uint32));
		*kept = list_rows(&table, layout, numbers);
		if (stream->check.on)
			check_unlisted(stream, &table, layout, numbers, *kept);
	}
	if (row == rows && stream->limit.asks && table_bytes(&table, layout) <= stream->memory_limit / MEMORY_PART)
	{
		stream->limit.table = MemoryContextAlloc(stream->set_cxt, sizeof(Table));
		*stream->limit.table = table;
		stream->limit.table_bytes = table_bytes(&table, layout);
	}
	else
		gpusort_memory_free(table.entries, table_bytes(&table, layout));
	return numbers;
}

/* Says of n rows whether N rows of their group are before them, or equal to them.  Returns how many are behind so. */
static pg_attribute_always_inline int
ask(const Table *table, Layout layout, const uint64 *keys, int n, bool *behind)
{
	int			words = layout.group_words + layout.row_words - 1;
	uint32		hashes[BATCH_ROWS];
	int			found = 0;

	for (int i = 0; i < n; i++)
	{
		hashes[i] = hash_of(keys + i * words, layout);
		__builtin_prefetch(entry_at(table, layout, hashes[i]));
	}
	for (int i = 0; i < n; i++)
	{
		const uint64 *key = keys + i * words;
		const uint64 *entry = find_entry(table, layout, key, hashes[i]);

		behind[i] = entry[0] == layout.most &&
			!is_before(key + layout.group_words, entry + 1 + layout.group_words + (layout.most - 1) * layout.row_words, layout);
		found += behind[i];
	}
	return found;
}

bool
gpusort_groups_ask(GpusortStream *stream, const uint64 *keys, int n, bool *behind)
{
	Table	   *table = stream->limit.table;
	Layout		layout;

	/* words must still decide everything */
	if (!is_listed(stream))
	{
		gpusort_groups_drop_table(stream);
		return false;
	}
	layout = layout_of(stream);
	table->asked += n;
	for (int i = 0; i < n; i += BATCH_ROWS)
	{
		const uint64 *from = keys + i * (layout.group_words + layout.row_words - 1);
		int			count = Min(n - i, BATCH_ROWS);

		if (is_usual(layout))
			table->removed += ask(table, (Layout) {1, 2, layout.most}, from, count, behind + i);
		else
			table->removed += ask(table, layout, from, count, behind + i);
	}
	return true;
}

/*
 * Of a sample of the groups, all rows are counted.  Those groups are taken whose hash values have some bits of 0, so
 * many that about SAMPLE_ROWS rows are in them.
 */
double
gpusort_groups_expect(GpusortStream *stream)
{
	uint32		rows = (uint32) gpusort_keyset_rows(stream->set);
	size_t		width = gpusort_spec_width(&stream->set_spec);
	bool		by_rows = stream->rows.key != NULL;
	int			columns = stream->spec.groups.columns;
	Layout		layout = {.group_words = by_rows ? gpusort_rowkey_first_words(stream->rows.key, columns) : columns > 0};
	uint32		not_sampled = ~(PG_UINT32_MAX >> pg_ceil_log2_32(Max(rows / SAMPLE_ROWS, 1)));
	Table		table = make_table(layout, FIRST_ENTRIES - 1, stream->set_cxt);
	uint64		sampled = 0;
	uint64		kept = 0;
	uint64		count;

	for (uint32 row = 0; row < rows; row += count)
	{
		const char *keys = gpusort_keyset_keys(stream->set, row, &count);

		count = Min(count, GPUSORT_GROUPS_INTERRUPT_ROWS);
		CHECK_FOR_INTERRUPTS();
		for (uint64 i = 0; i < count; i++)
		{
			const void *stored = keys + i * width;
			uint64		word = by_rows ? 0 : width == sizeof(uint64) ? *(const uint64 *) stored : *(const uint32 *) stored;
			const uint64 *key = by_rows ? stored : &word;
			uint32		hash = hash_of(key, layout);
			uint64	   *entry;

			if ((hash & not_sampled) != 0)
				continue;
			if (!make_room(&table, layout, rows, stream->set_cxt))
				break;
			entry = find_entry(&table, layout, key, hash);
			if (entry[0]++ == 0)
			{
				memcpy(entry + 1, key, layout.group_words * sizeof(uint64));
				table.groups++;
			}
			kept += entry[0] <= (uint64) stream->limit.rows;
			sampled++;
		}
	}
	gpusort_memory_free(table.entries, table_bytes(&table, layout));
	return sampled > 0 ? (double) kept / sampled : 0;
}
