/*-------------------------------------------------------------------------
 *
 * handover.c
 *		Hands a key set over to the device.
 *
 * The device sorts a key set that has as many keys as gpusort.min_rows asks for, if the settings
 * allow it; with -1, only while it would be faster than the CPU engine.  Whatever goes wrong there
 * leaves the keys as they are, and the CPU engine sorts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"

#include "base/arena.h"
#include "base/stat.h"
#include "guc.h"
#include "run/state.h"

/*
 * gpusort.min_rows = -1 means at least this many rows and bytes of keys: twice the size at
 * which an H200 was as fast as one thread of the CPU engine (docs/performance.md).
 */
#define LEAST_ROWS		32768
#define LEAST_BYTES		(256 * 1024)

/* And the device must begin before the CPU engine, which sorts about this many rows in 1 us, would have ended. */
#define ROWS_PER_US		100

/*
 * To make a session's first files, and to have them registered, takes the processors as long as the device
 * saves them in a sort or two.  So while they are busy, the CPU engine does this many sorts before.
 */
#define SORTS_BEFORE_FILES	3

static int	sorts_before_files = 0;

/* Is the device to sort a key set of this many rows, by gpusort.min_rows? */
static bool
pays(const GpusortKeySetSpec *spec, uint64 rows)
{
	if (gpusort_min_rows >= 0)
		return rows >= (uint64) gpusort_min_rows;
	return rows >= LEAST_ROWS && rows * gpusort_spec_width(spec) >= LEAST_BYTES;
}

/* Is gpusort to decide whether a sort that is large enough uses the device? */
static bool
decides(void)
{
	return gpusort_min_rows < 0 && gpusort_engine_choice == GPUSORT_ENGINE_AUTO;
}

/* Has this process files, or is this the time to make some?  Parallel workers are new each time. */
static bool
files_pay(void)
{
	return !decides() || gpusort_arena_has_file() || sorts_before_files >= SORTS_BEFORE_FILES || gpusort_cpu_mostly_idle();
}

bool
gpusort_keyset_may_travel(const GpusortKeySetSpec *spec, uint64_t rows)
{
	return gpusort_engine_choice != GPUSORT_ENGINE_CPU && pays(spec, rows) &&
		gpusort_client_missing() == NULL && files_pay() && gpusort_client_prepare() == NULL;
}

/* Leaves the key set to the CPU engine, for this reason, which stays valid.  Returns NULL. */
static GpusortClient *
leave(GpusortKeySet *set, const char *reason)
{
	set->reason = reason;
	ereport(DEBUG1, (errmsg_internal("gpusort sorts on the CPU: %s", reason)));
	return NULL;
}

/*
 * Leaves the key set to the CPU engine, because the device gave this reason, which is copied,
 * not to sort it.  If gpusort.engine demands the device, raises the reason as an error.
 * Otherwise shows it as a warning, once for each reason since the server started; later, in a
 * parallel worker, or if the key set is quiet, as a debug message.
 */
static void
decline(GpusortKeySet *set, const char *reason)
{
	/* it is in memory of the client */
	set->reason = reason = MemoryContextStrdup(set->cxt, reason);
	if (gpusort_engine_choice == GPUSORT_ENGINE_CUDA)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("gpusort engine \"%s\" could not sort", GPUSORT_CLIENT_ENGINE),
				 errdetail("%s", reason),
				 errhint("Set gpusort.engine to \"auto\" to sort on the CPU instead; "
						 "gpusort_status() shows the state of every engine.")));

	/* parallel workers do not warn: every query has new ones, and each would warn again */
	if (!set->spec.quiet && !IsParallelWorker() && gpusort_stat_first_warning(reason))
		ereport(WARNING,
				(errmsg("gpusort sorts on the CPU because engine \"%s\" cannot be used", GPUSORT_CLIENT_ENGINE),
				 errdetail("%s", reason),
				 errhint("Set gpusort.engine to \"cpu\" to silence this warning.")));
	else
		(void) leave(set, reason);
}

/* Are the keys in order already?  The device would copy them to and fro. */
static bool
in_order(const GpusortCpuInput *input, uint64 rows)
{
	GpusortCpuOptions options = gpusort_cpu_options_take(rows);
	bool		ordered = gpusort_cpu_in_order(input, &options);

	gpusort_cpu_options_give();
	return ordered;
}

GpusortClient *
gpusort_handover_sort(GpusortKeySet *set, const GpusortCpuInput *input, bool ties,
					  const GpusortRowSpan *spans, int nspans)
{
	GpusortClientSpec spec = {
		.sort = {
			.rows = set->rows,
			.key_bytes = set->spec.key_bytes,
			.with_rows = set->spec.rows,
			.algorithm = (GpusortAlgorithm) gpusort_algorithm,
			.words = Max(set->spec.words, 1),
		},
		.ties = ties,
		.encoding = set->encoding,
		.keys = input->spans,
		.nkeys = (int) input->nspans,
		.row_spans = spans,
		.nrow_spans = nspans,
	};
	GpusortClient *client = NULL;
	const char *reason;

	if ((set->arena != NULL && !gpusort_arena_is_own(set->arena)) || set->rows == 0 || gpusort_engine_choice == GPUSORT_ENGINE_CPU ||
		!pays(&set->spec, set->rows))
		return NULL;
	reason = gpusort_client_missing();
	if (reason != NULL)
	{
		if (gpusort_engine_choice == GPUSORT_ENGINE_CUDA)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("gpusort engine \"%s\" is not available", GPUSORT_CLIENT_ENGINE),
					 errdetail("%s", reason),
					 errhint("Install the library, or set gpusort.engine to \"auto\" or \"cpu\".")));
		set->reason = reason;
		return NULL;
	}
	if (decides() && in_order(input, set->rows))
		return leave(set, "The keys are in order already.");
	if (!files_pay())
	{
		sorts_before_files++;
		return leave(set, "The processors are too busy to make memory for the device.");
	}
	if (decides() && gpusort_client_wait_us() > set->rows / ROWS_PER_US)
		return leave(set, "Other sorts keep the device busy.");
	sorts_before_files = 0;
	reason = gpusort_client_sort(set->cxt, &spec, &client);
	if (reason == NULL)
		return client;
	decline(set, reason);
	if (client != NULL)
		gpusort_client_end(client);
	return NULL;
}
