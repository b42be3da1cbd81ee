/*-------------------------------------------------------------------------
 *
 * share.c
 *		Shares: the processes below a Gather sort together, and each returns a part of the rows.
 *
 * What stands above a sort, such as a window function, can run in every process if the rows of each of its groups come to one
 * process.  So each process gathers the rows that it reads and publishes them (part.c).  One of them adopts all, and sorts.  It
 * cuts the order where the first columns change, and publishes that.  Then each process takes the next share, and the next,
 * until none is left: a slow one, or one that comes late, takes fewer.  It takes them in ascending order, so that its rows are sorted.
 *
 * The phases are those of a Parallel Hash's barrier: no process waits for another one once it has returned a row, so that none
 * waits for the leader, which may wait for a row of it.  A process that comes later joins the phase that it finds.  One that
 * never comes is not waited for.
 *
 * If a process had to spill rows, the one that sorts merges the runs, and returns all rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/barrier.h"
#include "storage/spin.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "sort/sort_steps.h"

/* Shares of a process, on average, and of all, at most */
#define PROCESS_SHARES		4
#define MOST_SHARES			256

typedef enum Phase
{
	PHASE_GATHERING,
	PHASE_SORTING,
	PHASE_RETURNING
} Phase;

struct GpusortShares
{
	Barrier		barrier;		/* of a Phase */
	int			columns;		/* the rows of a group are equal in that many */

	/* of the process that has sorted; valid from PHASE_RETURNING on */
	bool		returns_all;	/* it returns all rows */
	GpusortPlace order;			/* row numbers, in the arena of GPUSORT_PARTS_ORDER */
	Size		row_bytes;		/* GpusortSorted.row_bytes */
	int			n;				/* shares */
	uint64		ends[MOST_SHARES];	/* the number behind each one's last row */
	pg_atomic_uint32 next;		/* the share that is taken next */
	GpusortStreamFigures figures;	/* without texts */
	char		engine[32];
	char		algorithm[64];
	char		reason[256];

	/* gpusort.verify */
	slock_t		mutex;			/* protects what changes: */
	GpusortChecksum all;		/* the rows of the result; constant */
	GpusortChecksum out;		/* those of the shares that have been returned */
	int			returned;
};

static GpusortParts *
parts_of(GpusortShares *shares)
{
	return (GpusortParts *) ((char *) shares + MAXALIGN(sizeof(GpusortShares)));
}

/* ---- the leader ---- */

Size
gpusort_shares_bytes(int workers)
{
	return MAXALIGN(sizeof(GpusortShares)) + gpusort_parts_bytes(workers + 2);
}

void
gpusort_shares_init(GpusortShares *shares, int workers, dsm_segment *segment)
{
	memset(shares, 0, sizeof(GpusortShares));
	SpinLockInit(&shares->mutex);
	gpusort_parts_init(parts_of(shares), workers + 2, segment);
}

void
gpusort_shares_begin(GpusortShares *shares, const GpusortStreamInput *input, int columns, MemoryContext cxt)
{
	BarrierInit(&shares->barrier, 0);
	pg_atomic_init_u32(&shares->next, 0);
	shares->columns = columns;
	shares->returned = 0;
	shares->out = (GpusortChecksum) {0};
	shares->figures = (GpusortStreamFigures) {0};
	gpusort_parts_open(parts_of(shares), input, cxt);
}

bool
gpusort_shares_figures(const GpusortShares *shares, GpusortStreamFigures *figures)
{
	*figures = shares->figures;
	if (figures->sorts == 0)
		return false;
	figures->report.engine = pstrdup(shares->engine);
	figures->report.algorithm = shares->algorithm[0] != '\0' ? pstrdup(shares->algorithm) : NULL;
	figures->report.reason = shares->reason[0] != '\0' ? pstrdup(shares->reason) : NULL;
	return true;
}

void
gpusort_shares_participants(GpusortShares *shares, GpusortParticipant *workers, GpusortParticipant *leader)
{
	const GpusortParts *parts = parts_of(shares);

	for (int i = 0; i <= GPUSORT_PARTS_LEADER(parts); i++)
		gpusort_parts_count(parts, i, i < GPUSORT_PARTS_LEADER(parts) ? &workers[i] : leader);
}

/* ---- the process that sorts ---- */

/* Returns the row at a position of the order in a slot. */
static TupleTableSlot *
row_at(GpusortStream *stream, uint64 position, TupleTableSlot *slot)
{
	gpusort_rowstore_put(&stream->rows.store, ((const uint32 *) stream->sorted.block)[position], slot);
	return slot;
}

/* Are two rows of one group?  The first of them is in stream->left. */
static bool
same_group(GpusortStream *stream, int columns, uint64 position)
{
	return gpusort_rowkey_compare_part(stream->rows.key, stream->left, row_at(stream, position, stream->right), 0, columns) == 0;
}

/* Returns the position behind the last row of the group of the row at this position. */
static uint64
group_end(GpusortStream *stream, int columns, uint64 position)
{
	uint64		count = stream->sorted.count;
	uint64		step = 1;
	uint64		behind;

	(void) row_at(stream, position, stream->left);
	while (position + step < count && same_group(stream, columns, position + step))
	{
		position += step;
		step *= 2;
	}
	behind = Min(position + step, count);
	while (position + 1 < behind)
	{
		uint64		middle = position + (behind - position) / 2;

		if (same_group(stream, columns, middle))
			position = middle;
		else
			behind = middle;
	}
	return behind;
}

static void
cut(GpusortShares *shares, GpusortStream *stream)
{
	uint64		count = stream->sorted.count;
	int			wanted = Min(PROCESS_SHARES * BarrierParticipants(&shares->barrier), MOST_SHARES);
	uint64		end = 0;

	shares->n = 0;
	for (int i = 1; i < wanted && end < count; i++)
	{
		uint64		target = count / wanted * i;

		CHECK_FOR_INTERRUPTS();
		if (target <= end)
			continue;
		end = group_end(stream, shares->columns, target - 1);
		if (end == count)
			break;
		if (stream->check.on)
			gpusort_check_cut(stream, row_at(stream, end - 1, stream->left), row_at(stream, end, stream->right));
		shares->ends[shares->n++] = end;
	}
	if (count > 0)
		shares->ends[shares->n++] = count;
	ExecClearTuple(stream->left);
	ExecClearTuple(stream->right);
}

/* Writes the order where other processes find it.  Returns false if there is no memory. */
static bool
publish_order(GpusortShares *shares, GpusortStream *stream)
{
	GpusortParts *parts = parts_of(shares);
	Size		bytes = stream->sorted.count * sizeof(uint32);
	MemoryContext old = MemoryContextSwitchTo(stream->set_cxt);
	GpusortArena *arena;
	void	   *order;

	arena = gpusort_arena_begin(&parts->parts[GPUSORT_PARTS_ORDER(parts)].file);
	MemoryContextSwitchTo(old);
	if ((order = gpusort_arena_alloc(arena, Max(bytes, 1))) == NULL)
		return false;
	memcpy(order, stream->sorted.block, bytes);
	shares->order = gpusort_arena_place(arena, order);
	shares->row_bytes = stream->sorted.row_bytes;
	return true;
}

static void
publish_figures(GpusortShares *shares, const GpusortStream *stream)
{
	GpusortStreamFigures *figures = &shares->figures;
	const GpusortReport *report = &figures->report;

	gpusort_stream_figures(stream, figures);
	strlcpy(shares->engine, report->engine != NULL ? report->engine : "none", sizeof(shares->engine));
	strlcpy(shares->algorithm, report->algorithm != NULL ? report->algorithm : "", sizeof(shares->algorithm));
	strlcpy(shares->reason, report->reason != NULL ? report->reason : "", sizeof(shares->reason));
	figures->sorts = 1;
	figures->core_reason = figures->distrust_reason = NULL;
}

/* Begins a sort of the rows that all processes have published. */
static void
begin_all(GpusortShares *shares, GpusortStream *stream, GpusortStreamInput *input)
{
	GpusortParts *parts = parts_of(shares);

	gpusort_parts_input(parts, input);
	if (!gpusort_stream_begin(stream, input))
		elog(ERROR, "gpusort cannot sort rows that processes have gathered: %s", stream->core_reason);
	stream->activity.sort = parts->sort;
	stream->travels = false;
	stream->check.shared = true;
	stream->shared = &parts->all;
}

static void
sort_all(GpusortShares *shares, GpusortStream *stream, GpusortStreamInput *input)
{
	GpusortParts *parts = parts_of(shares);

	begin_all(shares, stream, input);
	gpusort_cpu_sort_alone(true);
	for (int i = 0; i < parts->n; i++)
		(void) gpusort_parts_adopt(parts, stream, i, NULL);
	gpusort_parts_end(stream);
	gpusort_stream_finish(stream);
	shares->returns_all = stream->state != GPUSORT_STREAM_SORTED || !publish_order(shares, stream);
	if (!shares->returns_all)
		cut(shares, stream);
	gpusort_cpu_sort_alone(false);
	stream->check.shared = !shares->returns_all;
	shares->all = gpusort_check_expected(&stream->check);
	publish_figures(shares, stream);
}

/* ---- all processes ---- */

/* The rows have been sorted by another process: finds them. */
static void
attach(GpusortShares *shares, GpusortStream *stream, GpusortStreamInput *input)
{
	GpusortParts *parts = parts_of(shares);
	MemoryContext old;

	begin_all(shares, stream, input);
	if (stream->set != NULL)
		gpusort_keyset_end(stream->set);
	stream->set = NULL;
	stream->shared = NULL;
	stream->state = GPUSORT_STREAM_SORTED;
	if (shares->returns_all)
		return;
	old = MemoryContextSwitchTo(stream->set_cxt);
	for (int i = 0; i < parts->n; i++)
	{
		GpusortPart *part = &parts->parts[i];

		if (part->done && part->published.rows > 0)
			gpusort_rowstore_adopt(&stream->rows.store, gpusort_arena_attach(&part->file), part->published.store);
	}
	stream->sorted.block = gpusort_arena_address(gpusort_arena_attach(&parts->parts[GPUSORT_PARTS_ORDER(parts)].file), shares->order);
	MemoryContextSwitchTo(old);
	stream->sorted.row_bytes = shares->row_bytes;
}

/* Returns no row until a share is taken. */
static void
begin_returning(GpusortStream *stream)
{
	stream->position = stream->sorted.count = stream->result_rows = 0;
	stream->at_end = true;
	/* the other processes use the processors that threads would copy rows with */
	stream->drain.window.begin = PG_UINT64_MAX;
	stream->drain.window.count = 0;
}

bool
gpusort_shares_sort(GpusortShares *shares, GpusortStream *stream, GpusortStreamInput *input, PlanState *child)
{
	static uint32 event = 0;
	GpusortParts *parts = parts_of(shares);
	Barrier    *barrier = &shares->barrier;
	bool		sorts = false;
	Phase		phase;

	gpusort_parts_enter(parts);
	phase = (Phase) BarrierAttach(barrier);
	if (phase == PHASE_GATHERING)
	{
		input->parts = parts;
		(void) gpusort_stream_begin(stream, input);
		gpusort_stream_read(stream, child);
		gpusort_parts_publish(parts, stream);
		input->parts = NULL;
		sorts = BarrierArriveAndWait(barrier, gpusort_wait_event(event, "GpusortShares"));
		if (sorts)
			sort_all(shares, stream, input);
	}
	if (phase != PHASE_RETURNING)
		(void) BarrierArriveAndWait(barrier, gpusort_wait_event(event, "GpusortShares"));
	BarrierDetach(barrier);
	if (!sorts)
		attach(shares, stream, input);
	if (!sorts || !shares->returns_all)
		begin_returning(stream);
	return sorts;
}

/* The last row of a share has been returned: checks that all shares have all rows, if it was the last one. */
static void
check_share(GpusortShares *shares, GpusortStream *stream)
{
	GpusortCheck *check = &stream->check;
	GpusortChecksum out;
	bool		last;

	SpinLockAcquire(&shares->mutex);
	gpusort_checksum_join(&shares->out, &check->place.out);
	out = shares->out;
	last = ++shares->returned == shares->n;
	SpinLockRelease(&shares->mutex);
	if (last && !gpusort_checksum_equal(&shares->all, &out))
		gpusort_check_fail_rows(&check->subject, &shares->all, &out);
	gpusort_check_rewind(check);
}

TupleTableSlot *
gpusort_shares_next(GpusortShares *shares, GpusortStream *stream)
{
	for (;;)
	{
		TupleTableSlot *slot = gpusort_stream_next(stream, true);
		uint32		next;

		if (!TupIsNull(slot) || shares->returns_all)
			return slot;
		if (stream->check.on && stream->result_rows > 0)
			check_share(shares, stream);
		stream->result_rows = 0;
		next = pg_atomic_fetch_add_u32(&shares->next, 1);
		if (next >= shares->n)
		{
			stream->position = stream->sorted.count = 0;
			return slot;
		}
		stream->position = next == 0 ? 0 : shares->ends[next - 1];
		stream->sorted.count = stream->result_rows = shares->ends[next];
		stream->at_end = false;
	}
}

void
gpusort_shares_leave(GpusortShares *shares)
{
	gpusort_parts_leave(parts_of(shares));
}
