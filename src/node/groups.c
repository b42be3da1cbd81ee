/*-------------------------------------------------------------------------
 *
 * groups.c
 *		The first rows of each group of a sorted key set.
 *
 * DISTINCT ON, and a condition such as row_number() <= 3, take the first rows of each group, in the
 * order of the sort.  The rows behind them are removed from what has been gathered, so that
 * memory holds the groups' first rows and a window of new ones.  Whatever comes later, a row that is
 * behind the first N of its group stays behind N of them.
 *
 * Rows of a group are found as neighbours in the sorted order, by the words of the columns that
 * they have in common, and where these may leave something undecided, by comparing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"

#include "base/memory.h"
#include "node/limit.h"

/* With more rows of each group, a sort takes less time than a hash table. */
#define MOST_LISTED		16

/* Entries of a hash table at first, rows that are added to it at a time, and bytes that a sort takes for a row */
#define FIRST_ENTRIES	1024
#define BATCH_ROWS		16
#define SORT_BYTES		((Size) 24)

/* About so many rows are in the groups of a sample. */
#define SAMPLE_ROWS		4096

/* Rows between two checks for interrupts */
#define INTERRUPT_ROWS	4096

/* What tells whether two rows are equal in the first columns of the sort */
typedef struct Equality
{
	int			columns;
	int			units;			/* of 4 bytes of their words */
	bool		undecided;		/* rows with equal words may differ */
} Equality;

static Equality
equality_of(const GpusortGather *gather, int columns)
{
	const GpusortDoubt *doubt = &gather->rows.doubt;
	uint32		first = columns < 32 ? ((uint32) 1 << columns) - 1 : PG_UINT32_MAX;
	Equality	equality = {.columns = columns};

	if (gather->rows.key == NULL)
		equality.units = columns > 0 ? gather->set_spec.key_bytes / sizeof(uint32) : 0;
	else
	{
		equality.units = gpusort_rowkey_first_words(gather->rows.key, columns) * 2;
		equality.undecided = (doubt->undecided & first) != 0 || gpusort_doubt_crowded(doubt, columns);
	}
	return equality;
}

/* Are elements i - 1 and i of the block, with these keys, equal? */
static inline bool
equals_last(GpusortGather *gather, const GpusortSorted *sorted, uint64 i, const uint32 *last, const uint32 *key,
			const Equality *equality)
{
	const uint32 *order = sorted->block;

	for (int unit = 0; unit < equality->units; unit++)
	{
		if (last[unit] != key[unit])
			return false;
	}
	if (likely(!equality->undecided))
		return true;
	gpusort_rowstore_put(&gather->rows.store, order[i - 1], gather->left);
	gpusort_rowstore_put(&gather->rows.store, order[i], gather->right);
	return gpusort_rowkey_compare_part(gather->rows.key, gather->left, gather->right, 0, equality->columns) == 0;
}

uint64
gpusort_groups_select(GpusortGather *gather, const GpusortSorted *sorted)
{
	const GpusortGroups *groups = &gather->spec->groups;
	Equality	same_group = equality_of(gather, groups->columns);
	Equality	peers = equality_of(gather, groups->peer_columns);
	size_t		width = gather->set_spec.rows ? sizeof(uint32) : gather->set_spec.key_bytes;
	char	   *block = (char *) sorted->block;
	const uint32 *last = NULL;
	uint64		kept = 0;
	uint64		rows = 0;		/* of the group, up to this row */
	uint64		count = 0;		/* by groups->count */

	for (uint64 i = 0; i < sorted->count; i++)
	{
		const uint32 *key = gather->form->key_at(gather, sorted, i);
		bool		peer = false;

		if (i % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		if (i == 0 || !equals_last(gather, sorted, i, last, key, &same_group))
			rows = count = 0;
		else if (groups->count != GPUSORT_GROUP_ROWS)
			peer = equals_last(gather, sorted, i, last, key, &peers);
		last = key;
		rows++;
		if (groups->count == GPUSORT_GROUP_DENSE_RANK)
			count += !peer;
		else if (!peer)
			count = rows;
		if (count > (uint64) gather->limit.rows)
			continue;
		/* the next row is compared with element i, in front of which this one is */
		if (kept < i)
			memcpy(block + kept * width, block + i * width, width);
		kept++;
	}
	ExecClearTuple(gather->left);
	ExecClearTuple(gather->right);
	return kept;
}

/* The words of a key, and how many are in an entry of the hash table of groups */
typedef struct Layout
{
	int			group_words;	/* of the columns that a group's rows have in common */
	int			row_words;		/* of a row: the other words of its key, and its number */
	uint32		most;			/* rows of a group */
} Layout;

/*
 * A hash table of groups.  An entry is the number of its rows (0: it is free), the words that the group's rows
 * have in common, and the rows, the first one in the order first.
 */
typedef struct Table
{
	uint64	   *entries;
	uint32		mask;			/* entries - 1, whose number is a power of 2 */
	uint32		groups;
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

/* Are the first rows of the key set's groups found by a hash table? */
static bool
is_listed(const GpusortGather *gather)
{
	GpusortDoubt doubt;

	if (gather->spec->groups.count != GPUSORT_GROUP_ROWS || gather->limit.rows > MOST_LISTED || gather->rows.key == NULL)
		return false;
	doubt = gpusort_rowkey_doubt(gather->rows.key);
	return doubt.undecided == 0 && doubt.crowded == 0 && doubt.proposed < 0;
}

/* Makes room for some more groups.  Returns false if that takes more memory than a sort of the rows would. */
static bool
make_room(Table *table, Layout layout, uint32 rows, MemoryContext cxt)
{
	if (table->groups + BATCH_ROWS <= table->mask / 4 * 3)
		return true;
	CHECK_FOR_INTERRUPTS();
	if (table_bytes(table, layout) > rows * SORT_BYTES / 2)
		return false;
	grow(table, layout, cxt);
	return true;
}

/*
 * A hash table takes less time than a sort, which a trim does not need.  It needs words that decide everything.
 */
uint32 *
gpusort_groups_find(GpusortGather *gather, uint64 *kept)
{
	uint32		rows = (uint32) gpusort_keyset_rows(gather->set);
	Layout		layout = {.most = (uint32) gather->limit.rows};
	Table		table;
	uint32	   *numbers = NULL;
	uint32		row = 0;

	if (!is_listed(gather))
		return NULL;
	layout.group_words = gpusort_rowkey_first_words(gather->rows.key, gather->spec->groups.columns);
	layout.row_words = gather->set_spec.words - layout.group_words + 1;
	table = make_table(layout, pg_nextpower2_32(Max(gather->limit.kept / layout.most * 4 / 3, FIRST_ENTRIES)) - 1,
					   gather->set_cxt);
	while (row < rows && make_room(&table, layout, rows, gather->set_cxt))
	{
		uint64		count;
		const uint64 *keys = gpusort_keyset_keys(gather->set, row, &count);

		count = Min(count, BATCH_ROWS);
		if (layout.group_words == 1 && layout.row_words == 2)
			add_rows(&table, (Layout) {1, 2, layout.most}, keys, count, row);
		else
			add_rows(&table, layout, keys, count, row);
		row += count;
	}
	if (row == rows)
	{
		numbers = gpusort_memory_alloc(gather->set_cxt, rows * sizeof(uint32));
		*kept = list_rows(&table, layout, numbers);
	}
	gpusort_memory_free(table.entries, table_bytes(&table, layout));
	return numbers;
}

/*
 * Of a sample of the groups, all rows are counted.  Those groups are taken whose hash values have some bits of 0, so
 * many that about SAMPLE_ROWS rows are in them.
 */
double
gpusort_groups_expect(GpusortGather *gather)
{
	uint32		rows = (uint32) gpusort_keyset_rows(gather->set);
	size_t		width = gpusort_spec_width(&gather->set_spec);
	bool		by_rows = gather->rows.key != NULL;
	int			columns = gather->spec->groups.columns;
	Layout		layout = {.group_words = by_rows ? gpusort_rowkey_first_words(gather->rows.key, columns) : columns > 0};
	uint32		not_sampled = ~(PG_UINT32_MAX >> pg_ceil_log2_32(Max(rows / SAMPLE_ROWS, 1)));
	Table		table = make_table(layout, FIRST_ENTRIES - 1, gather->set_cxt);
	uint64		sampled = 0;
	uint64		kept = 0;
	uint64		count;

	for (uint32 row = 0; row < rows; row += count)
	{
		const char *keys = gpusort_keyset_keys(gather->set, row, &count);

		count = Min(count, INTERRUPT_ROWS);
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
			if (!make_room(&table, layout, rows, gather->set_cxt))
				break;
			entry = find_entry(&table, layout, key, hash);
			if (entry[0]++ == 0)
			{
				memcpy(entry + 1, key, layout.group_words * sizeof(uint64));
				table.groups++;
			}
			kept += entry[0] <= (uint64) gather->limit.rows;
			sampled++;
		}
	}
	gpusort_memory_free(table.entries, table_bytes(&table, layout));
	return sampled > 0 ? (double) kept / sampled : 0;
}
