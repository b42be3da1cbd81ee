/*-------------------------------------------------------------------------
 *
 * stream.c
 *		The sorted stream: one sort after the other, from its begin to its end.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "base/fault.h"
#include "base/pages.h"
#include "compat.h"
#include "sort/sort_steps.h"

/* The most rows that core's heap keeps faster than words of strings under libc are made */
#define HEAP_ROWS			128
#define HEAP_CITEXT_ROWS	64

/* ---- the order ---- */

/*
 * If a row is a single pass-by-value column whose keys can be decoded, returns
 * its type and sets descending.  NULL in all other cases.
 */
static const GpusortType *
find_value_type(GpusortSortSpec *spec)
{
	Oid			opfamily;
	Oid			opcintype;
	GPUSORT_ORDERING ordering;

	if (spec->desc->natts != 1 || !TupleDescAttr(spec->desc, 0)->attbyval ||
		!get_ordering_op_properties(spec->operators[0], &opfamily, &opcintype, &ordering))
		return NULL;
	spec->descending = (ordering == GPUSORT_ORDERING_DESC);
	return gpusort_type_find(TupleDescAttr(spec->desc, 0)->atttypid);
}

void
gpusort_spec_set(GpusortSortSpec *spec, TupleDesc desc, GpusortSortColumn *columns, int n)
{
	spec->desc = desc;
	spec->ncolumns = n;
	spec->columns = columns;
	spec->attnos = palloc(n * sizeof(AttrNumber));
	spec->operators = palloc(n * sizeof(Oid));
	spec->collations = palloc(n * sizeof(Oid));
	spec->nulls_first = palloc(n * sizeof(bool));
	for (int i = 0; i < n; i++)
	{
		spec->attnos[i] = columns[i].attno;
		spec->operators[i] = columns[i].sort_operator;
		spec->collations[i] = columns[i].collation;
		spec->nulls_first[i] = columns[i].nulls_first;
	}
	spec->value_type = find_value_type(spec);
	spec->bare = desc->natts == 1 && GPUSORT_ATTRIBUTE(desc, 0)->attlen == -1;
}

/* ---- the begin ---- */

GpusortStream *
gpusort_stream_init(const GpusortSortSpec *spec, EState *estate, TupleTableSlot *slot)
{
	GpusortStream *stream = palloc0(sizeof(GpusortStream));
	const TupleTableSlotOps *slots = gpusort_spec_slots(spec);
	List	  **table = &estate->es_tupleTable;

	stream->spec = *spec;
	stream->form = spec->value_type != NULL ? &gpusort_values : &gpusort_rows;
	stream->slot = slot != NULL ? slot : gpusort_alloc_slot(table, spec->desc, slots);
	stream->core_slot = spec->bare ? gpusort_alloc_slot(table, spec->desc, &TTSOpsMinimalTuple) : stream->slot;
	stream->keys = ExecStoreAllNullTuple(gpusort_alloc_slot(table, spec->desc, &TTSOpsVirtual));
	stream->left = gpusort_alloc_slot(table, spec->desc, slots);
	stream->right = gpusort_alloc_slot(table, spec->desc, slots);
	stream->limit.slot = gpusort_alloc_slot(table, spec->desc, slots);
	stream->limit.rows = -1;
	stream->check.table = table;
	stream->number = -1;
	stream->cxt = AllocSetContextCreate(estate->es_query_cxt, "GpuSort", ALLOCSET_DEFAULT_SIZES);
	return stream;
}

const char *
gpusort_stream_refusal(GpusortStream *stream)
{
	MemoryContext old;

	if (stream->spec.value_type != NULL)
		return NULL;
	old = MemoryContextSwitchTo(stream->cxt);
	stream->rows.plan = gpusort_rowkey_plan(stream->spec.columns, stream->spec.ncolumns);
	MemoryContextSwitchTo(old);
	return stream->rows.plan.refusal;
}

/*
 * Does the parent fetch few rows, by strings that only strcoll() compares?  Then core, which
 * compares each row with those that it keeps, compares less than it takes to make words.
 */
static bool
fetches_few_strings(const GpusortStream *stream)
{
	const GpusortRowKey *key = stream->rows.key;
	GpusortDoubt doubt;

	if (stream->limit.rows < 0 || !stream->spec.limit_of_core || stream->spec.limit_ties || key == NULL)
		return false;
	doubt = gpusort_rowkey_doubt(key);
	return doubt.deciding == 0 && doubt.proposed >= 0 &&
		stream->limit.rows <= (gpusort_rowkey_order(key, doubt.proposed).lowered ? HEAP_CITEXT_ROWS : HEAP_ROWS);
}

/* Begins the sort, which is planned: key, store and an empty key set, in the arena if there is one. */
static void
begin_rows(GpusortStream *stream, const GpusortStreamInput *input)
{
	stream->memory_limit = input->memory;
	stream->set_cxt = AllocSetContextCreate(stream->cxt, "GpuSort key set", ALLOCSET_DEFAULT_SIZES);
	stream->store_cxt = AllocSetContextCreate(stream->cxt, "GpuSort rows", ALLOCSET_DEFAULT_SIZES);
	/* of nodes, EXPLAIN shows the engine and the reason */
	stream->set_spec = (GpusortKeySetSpec) {.words = 1, .quiet = input->kind != GPUSORT_STAT_FUNCTION};
	stream->state = GPUSORT_STREAM_SAMPLING;
	stream->form->begin(stream);
}

bool
gpusort_stream_begin(GpusortStream *stream, const GpusortStreamInput *input)
{
	GpusortStreamInput in = *input;
	const char *reason = in.core_reason;

	gpusort_stream_end(stream);
	if (in.parts != NULL)
		gpusort_parts_input(in.parts, &in);
	stream->expected = in.expected;
	stream->fed = in.fed;
	gpusort_limit_begin(stream, in.limit);
	stream->travels = in.parts == NULL && !stream->spec.tagged && !stream->spec.random_access &&
		(in.limit < 0 || gpusort_groups_bounded(stream));
	gpusort_check_begin(stream, &in);
	INSTR_TIME_SET_CURRENT(stream->begun);
	gpusort_activity_begin(&stream->activity, stream->cxt, in.parts != NULL ? 0 : in.expected);
	stream->sorts++;
	stream->read_ms = 0;
	stream->core_reason = stream->distrust_reason = NULL;
	stream->engine_reason[0] = '\0';
	if (in.parts != NULL)
		gpusort_parts_join(in.parts, stream);
	/* a collation may be distrusted since the plan was made */
	if (reason == NULL)
		reason = gpusort_stream_refusal(stream);
	if (reason == NULL || in.parts != NULL)
	{
		begin_rows(stream, &in);
		reason = fetches_few_strings(stream) && in.parts == NULL ? "few rows are fetched, by strings that libc compares" : NULL;
	}
	if (reason == NULL)
		return true;
	strlcpy(stream->refusal, reason, sizeof(stream->refusal));
	gpusort_core_begin(stream, stream->refusal);
	stream->state = GPUSORT_STREAM_LEFT;
	return false;
}

void
gpusort_stream_put(GpusortStream *stream, TupleTableSlot *slot)
{
	GpusortPage *page = &stream->page;

	if (unlikely(stream->check.on))
		gpusort_check_row(stream, slot);
	page->slot = slot;
	page->count = 1;
	page->next = 0;
	gpusort_gather_take(stream);
}

void
gpusort_stream_read(GpusortStream *stream, PlanState *child)
{
	instr_time	begun;
	instr_time	now;

	INSTR_TIME_SET_CURRENT(begun);
	while (gpusort_page_next(&stream->page, child))
	{
		if (unlikely(stream->check.on))
			gpusort_check_page(stream);
		gpusort_gather_take(stream);
	}
	gpusort_gather_flush(stream, false);
	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, begun);
	stream->read_ms += INSTR_TIME_GET_MILLISEC(now);
}

void *
gpusort_stream_reserve(GpusortStream *stream, int *room)
{
	if (stream->room.next == stream->room.end)
		(void) gpusort_gather_room(stream);
	*room = (stream->room.end - stream->room.next) / stream->room.width;
	return stream->room.next;
}

void
gpusort_stream_commit(GpusortStream *stream, int n)
{
	if (unlikely(stream->check.on))
		gpusort_check_words_in(stream, stream->room.next, n);
	stream->room.next += n * stream->room.width;
}

/* ---- the end of gathering ---- */

/* Sorts the rows in memory. */
static void
sort_rows(GpusortStream *stream)
{
	GpusortSorted *sorted = &stream->sorted;

	stream->state = GPUSORT_STREAM_SORTED;
	stream->form->sort(stream, stream->travels, false, sorted);
	gpusort_groups_trim_result(stream, sorted);
	GPUSORT_FAULT_BREAK(RESULT, unconstify(void *, sorted->block),
						stream->set_spec.rows ? sizeof(uint32) : stream->set_spec.key_bytes, &sorted->count);
	if (stream->check.on)
		gpusort_check_sorted(stream, sorted);
	gpusort_activity_report(&stream->activity, GPUSORT_PHASE_RETURNING, gpusort_gather_rows(stream), stream->sort.memory,
							stream->unreported ? gpusort_keyset_engine(stream->set) : stream->sort.engine);
}

/* Spills the rows in memory, and begins the merge of all runs. */
static void
merge_runs(GpusortStream *stream)
{
	if (gpusort_keyset_rows(stream->set) > 0)
		gpusort_set_spill(stream);
	else
		gpusort_set_end(stream);
	gpusort_set_end_runs(stream);
	stream->sort.runs = gpusort_spill_runs(stream->spill);
	gpusort_activity_report(&stream->activity, GPUSORT_PHASE_MERGING, gpusort_spill_rows(stream->spill),
							gpusort_spill_bytes(stream->spill), stream->sort.engine);
	gpusort_spill_merge(stream->spill);
	/* with the runs that this has made of others */
	stream->sort.disk = gpusort_spill_bytes(stream->spill);
	stream->state = GPUSORT_STREAM_MERGING;
}

/* All rows are in core's tuplesort: sorts them. */
static void
sort_by_core(GpusortStream *stream)
{
	tuplesort_performsort(stream->core);
	stream->state = GPUSORT_STREAM_CORE;
	gpusort_activity_report(&stream->activity, GPUSORT_PHASE_RETURNING, 0, 0, "core");
}

/*
 * Puts the rows of the merge of spilled runs into core's tuplesort, since the parent
 * may read them repeatedly.
 */
static void
move_to_core(GpusortStream *stream)
{
	GpusortChecksum moved = {0};

	gpusort_core_begin(stream, "the result is read backward or repeatedly and exceeds gpusort.memory_limit");
	for (;;)
	{
		TupleTableSlot *slot = gpusort_result_step(stream, true);

		if (TupIsNull(slot))
			break;
		if (stream->check.on)
			gpusort_checksum_add(&moved, gpusort_check_hash_slot(slot));
		gpusort_core_put(stream, slot);
	}
	if (stream->check.on)
		gpusort_check_moved(stream, &moved);
	gpusort_spill_end(stream->spill);
	stream->spill = NULL;
	sort_by_core(stream);
}

void
gpusort_stream_finish(GpusortStream *stream)
{
	instr_time	now;

	if (stream->state == GPUSORT_STREAM_LEFT)
	{
		sort_by_core(stream);
		return;
	}
	gpusort_gather_flush(stream, true);
	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, stream->begun);
	stream->sort.gather_ms += INSTR_TIME_GET_MILLISEC(now);
	gpusort_gather_note_memory(stream, gpusort_gather_memory(stream, 0));
	if (stream->spill == NULL)
		sort_rows(stream);
	else
		merge_runs(stream);
	stream->sort.rows = gpusort_gather_rows(stream);
	gpusort_result_begin(stream);
	if (stream->spec.random_access && stream->state == GPUSORT_STREAM_MERGING)
		move_to_core(stream);
}

/* ---- the end ---- */

/* Adds the report of another sort: the times, and the most memory, disk and runs. */
static void
add_report(GpusortReport *report, const GpusortReport *more)
{
	report->gather_ms += more->gather_ms;
	gpusort_report_add_set(report, more);
	report->memory = Max(report->memory, more->memory);
	report->disk = Max(report->disk, more->disk);
	report->runs = Max(report->runs, more->runs);
}

/* Adds to a report what the key set, whose result is being returned, has to report. */
static void
add_unreported(const GpusortStream *stream, GpusortReport *report)
{
	GpusortReport set;

	if (!stream->unreported)
		return;
	gpusort_keyset_report(stream->set, &set);
	gpusort_report_add_set(report, &set);
	report->reason = set.reason;
}

void
gpusort_stream_report(const GpusortStream *stream, GpusortReport *report)
{
	*report = stream->sort;
	if (stream->engine_reason[0] != '\0')
		report->reason = stream->engine_reason;
	add_unreported(stream, report);
	report->checked = stream->check.on;
	if (stream->distrust_reason != NULL)
		report->reason = stream->distrust_reason;
	if (stream->core_reason != NULL)
	{
		report->engine = "core";
		report->reason = stream->core_reason;
	}
}

void
gpusort_stream_figures(const GpusortStream *stream, GpusortStreamFigures *figures)
{
	bool		by_groups = gpusort_groups_bounded(stream);
	GpusortReport report = stream->earlier;

	add_report(&report, &stream->sort);
	if (stream->engine_reason[0] != '\0')
		report.reason = stream->engine_reason;
	add_unreported(stream, &report);
	*figures = (GpusortStreamFigures)
	{
		.sorts = stream->sorts,
			.report = report,
			.key_bits = stream->key_bits,
			.core_reason = stream->core_reason,
			.distrust_reason = stream->distrust_reason,
			.return_threads = stream->return_threads,
			.group_limit = by_groups ? stream->limit.rows : -1,
			.limit = by_groups ? -1 : stream->limit.rows,
			.removed = stream->limit.removed + stream->limit.dropped,
	};
}

void
gpusort_stream_end(GpusortStream *stream)
{
	ExecClearTuple(stream->slot);
	if (stream->state == GPUSORT_STREAM_IDLE)
		return;
	ExecClearTuple(stream->core_slot);
	ExecClearTuple(stream->left);
	ExecClearTuple(stream->right);
	ExecClearTuple(stream->limit.slot);
	if (stream->core != NULL)
		tuplesort_end(stream->core);
	if (stream->set != NULL)
		gpusort_set_end(stream);
	if (stream->spill != NULL)
		gpusort_spill_end(stream->spill);
	gpusort_activity_end(&stream->activity);
	add_report(&stream->earlier, &stream->sort);
	stream->sort = (GpusortReport) {0};
	stream->core = NULL;
	stream->spill = NULL;
	stream->words = NULL;
	stream->rows.key = NULL;
	stream->arena = NULL;
	stream->shared = NULL;
	stream->number = -1;
	stream->adopted_bytes = 0;
	stream->nulls = 0;
	stream->room = (GpusortRoom) {0};
	stream->sorted = (GpusortSorted) {0};
	memset(&stream->drain, 0, sizeof(stream->drain));
	stream->state = GPUSORT_STREAM_IDLE;
	MemoryContextReset(stream->cxt);
}
