/*-------------------------------------------------------------------------
 *
 * ties.c
 *		GpuSort breaks ties: it finds the rows whose keys have equal words.
 *
 * Threads find the groups.  They also sort them by the column that the words leave open, if its values order by
 * their bytes, or all have the same bytes (cpu/tied.cc).  The backend sorts the other groups, and those of equal values
 * that later columns decide (tie_group.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"

#include "base/memory.h"
#include "cpu/cpu.h"
#include "sort/sort_steps.h"

/*
 * Compressed or TOASTed values of a group are expanded all at once if that takes
 * at most the unused rest of the memory limit, or 1/REMOTE_PART of the limit if
 * that is more.  Otherwise they are expanded again for each comparison.
 */
#define REMOTE_PART		16

/* Look-ahead of prefetches, in rows */
#define AHEAD			32

/* ---- the strings of stored rows ---- */

/*
 * slot_getattr() deforms a tuple into a slot, which threads cannot share.  So they find a string in the tuple itself: they
 * walk over the attributes before the column, from the last one on whose offset is the same in all rows.
 */
void
gpusort_strings_begin(GpusortStrings *strings, GpusortStream *stream, int column)
{
	GpusortColumnOrder order = gpusort_rowkey_order(stream->rows.key, column);

	*strings = (GpusortStrings)
	{
		.store = &stream->rows.store,
			.desc = stream->left->tts_tupleDescriptor,
			.attribute = stream->spec.attnos[column] - 1,
			.is_name = order.is_name,
			.blank_padded = order.blank_padded,
	};
	while (strings->fixed < strings->attribute)
	{
		Form_pg_attribute att = TupleDescAttr(strings->desc, strings->fixed);

		if (att->attlen < 0)
			break;
		strings->offset = att_align_nominal(strings->offset, att->attalign) + att->attlen;
		strings->fixed++;
	}
}

/* Returns the address of the column's value in a tuple that has the column, or NULL if it is NULL. */
static const char *
find_value(const GpusortStrings *strings, MinimalTuple tuple)
{
	int			attribute = strings->attribute;
	const char *data = (const char *) tuple - MINIMAL_TUPLE_OFFSET + tuple->t_hoff;
	bool		nulls = (tuple->t_infomask & HEAP_HASNULL) != 0;
	int			i = nulls ? 0 : strings->fixed;
	uint32		offset = nulls ? 0 : strings->offset;

	if (nulls && att_isnull(attribute, tuple->t_bits))
		return NULL;
	for (;; i++)
	{
		Form_pg_attribute att = TupleDescAttr(strings->desc, i);

		if (nulls && att_isnull(i, tuple->t_bits))
			continue;
		offset = att_align_pointer(offset, att->attalign, att->attlen, data + offset);
		if (i == attribute)
			return data + offset;
		offset = att_addlength_pointer(offset, att->attlen, data + offset);
	}
}

bool
gpusort_strings_read(const GpusortStrings *strings, uint32 row, GpusortString *string)
{
	void	   *stored = gpusort_rowstore_row(strings->store, row);
	const char *value;

	if (strings->store->bare)
		value = gpusort_row_is_null(stored) ? NULL : stored;
	else if (HeapTupleHeaderGetNatts((MinimalTuple) stored) <= strings->attribute)
		return false;
	else
		value = find_value(strings, stored);
	string->bytes = value;
	string->length = 0;
	if (value == NULL)
		return true;
	if (strings->is_name)
		string->length = strnlen(value, NAMEDATALEN);
	else
	{
		if (VARATT_IS_COMPRESSED(value) || VARATT_IS_EXTERNAL(value))
			return false;
		string->bytes = VARDATA_ANY(value);
		string->length = VARSIZE_ANY_EXHDR(value);
		while (strings->blank_padded && string->length > 0 && string->bytes[string->length - 1] == ' ')
			string->length--;
	}
	return string->length <= GPUSORT_STRING_BYTES;
}

/* ---- tie groups ---- */

/* The data that threads read while they find and sort tie groups; they change only the order. */
typedef struct TieSearch
{
	const GpusortKeySet *set;
	const uint32 *order;
	uint64		rows;
	int			words;			/* words of a key that count */
	GpusortStrings strings;
} TieSearch;

static bool
tied_at(void *arg, size_t place)
{
	const TieSearch *search = arg;
	const uint64 *before = gpusort_keyset_key(search->set, search->order[place - 1]);
	const uint64 *key = gpusort_keyset_key(search->set, search->order[place]);

	if (place + AHEAD < search->rows)
		__builtin_prefetch(gpusort_keyset_key(search->set, search->order[place + AHEAD]));
	/* nearly always, the first word decides */
	for (int i = 0; i < search->words; i++)
	{
		if (before[i] != key[i])
			return false;
	}
	return true;
}

static bool
string_of(void *arg, uint32 row, GpusortString *string)
{
	return gpusort_strings_read(&((const TieSearch *) arg)->strings, row, string);
}

static void
prefetch(const GpusortRowStore *store, uint32 row)
{
	const char *stored = gpusort_rowstore_row(store, row);

	__builtin_prefetch(stored);
	__builtin_prefetch(stored + 64);
}

static void
prefetch_row(void *arg, uint32 row)
{
	prefetch(((const TieSearch *) arg)->strings.store, row);
}

/*
 * Finds the tie groups in threads, which sort those that they can.  Sets ties: see cpu/cpu.h.
 * marked: ties says which rows have equal words.  column: the first one that words leave open.
 */
static void
search_ties(GpusortStream *stream, uint32 *order, uint64 rows, uint8 *ties, bool marked, int column)
{
	GpusortColumnOrder by = gpusort_rowkey_order(stream->rows.key, column);
	Form_pg_attribute attribute = TupleDescAttr(stream->left->tts_tupleDescriptor, stream->spec.attnos[column] - 1);
	TieSearch	search = {
		.set = stream->set,
		.order = order,
		.rows = rows,
		.words = stream->rows.doubt.words,
	};
	GpusortTieInput input = {
		.n = rows,
		.marked = marked,
		.tied = tied_at,
		.prefetch = prefetch_row,
		.arg = &search,
	};
	GpusortCpuOptions options;

	/* values with the same bytes are equal */
	if (by.is_name || attribute->attlen == -1)
	{
		gpusort_strings_begin(&search.strings, stream, column);
		input.string = string_of;
		input.by_bytes = by.by_bytes && !by.lowered;
		input.descending = by.descending;
		input.decides = column + 1 == stream->spec.ncolumns;
	}
	options = gpusort_cpu_options_take(rows);
	(void) gpusort_tied_sort(&input, order, ties, &options);
	gpusort_cpu_options_give();
}

/* Sorts the groups with this mark, of rows that are equal in so many columns. */
static void
sort_groups(GpusortTiedGroup *group, uint32 *order, uint64 rows, uint8 *ties, GpusortTie mark, int column)
{
	uint8	   *tie;
	uint64		ahead = 0;

	for (uint8 *end = ties; (tie = memchr(end, mark, ties + rows - end)) != NULL;)
	{
		for (end = tie; end < ties + rows && *end == mark; end++)
			CHECK_FOR_INTERRUPTS();
		/* the rows of a large group are prefetched as it is sorted */
		ahead = Max(ahead, end - tie > AHEAD ? end - ties : tie - ties - 1);
		for (; ahead < Min(rows, end - ties + AHEAD); ahead++)
		{
			if (ties[ahead] == mark || (ahead + 1 < rows && ties[ahead + 1] == mark))
				prefetch(&group->stream->rows.store, order[ahead]);
		}
		gpusort_ties_sort_group(group, order + (tie - ties) - 1, end - tie + 1, column);
	}
}

void
gpusort_ties_break(GpusortStream *stream, uint32 *order, uint64 rows, uint8 *known)
{
	const GpusortDoubt *doubt = &stream->rows.doubt;
	int			column = pg_rightmost_one_pos32(doubt->undecided | doubt->crowded);
	Size		memory = gpusort_gather_memory(stream, 0);
	GpusortTiedGroup	group = {.stream = stream};
	uint8	   *ties = known;

	if (rows < 2)
		return;
	if (ties == NULL)
		ties = gpusort_memory_alloc(stream->set_cxt, rows);
	search_ties(stream, order, rows, ties, known != NULL, column);

	group.values = AllocSetContextCreate(stream->set_cxt, "GpuSort ties", ALLOCSET_DEFAULT_SIZES);
	group.room = Max(stream->memory_limit / REMOTE_PART, stream->memory_limit - Min(memory, stream->memory_limit));
	sort_groups(&group, order, rows, ties, GPUSORT_TIE_LEFT, 0);
	sort_groups(&group, order, rows, ties, GPUSORT_TIE_EQUAL, column + 1);
	MemoryContextDelete(group.values);
	if (ties != known)
		pfree(ties);
	ExecClearTuple(stream->left);
	ExecClearTuple(stream->right);
}
