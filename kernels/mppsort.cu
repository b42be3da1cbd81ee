/*
 * mppsort.cu - mppSort: histogram, scan, partition, and a sort of each bin.
 *
 * The pipeline and the kernels' names are mppSort's: blockAndGlobalHisto
 * counts each block's keys by bin in shared memory and all keys (Hg);
 * globalHistoScan makes each bin's first position of Hg (SHg) and joins bins
 * to targets; verticalScan finds each tile's place within each target (PSv);
 * PartitionKernel moves every key to SHg + PSv + its rank, from counters in
 * shared memory; sortBins sorts each bin in shared memory.
 *
 * Bins are of equal width over the range of the keys there are (a sample tells
 * it, and what lies outside is counted at its ends), finer than the targets that they are joined to: as many
 * targets as make them fit a block, or on two levels, when the first makes
 * about as many as the second.  Equal widths fail on skew: one outlier, and
 * every other key is in one bin.  Hence:
 *
 *	a target too large to sort at once becomes a segment, and all segments of
 *		a level go through the same kernels again, each over its own range,
 *		taken anew where one bin got more than its share;
 *	a segment with no more values than bins is not moved: its counts say what
 *		to write, so few-valued keys are done after two reads;
 *	keys that the first pass finds in order, or in reverse, are done at once;
 *	keys that are spread unevenly on every scale would take many levels: CUB
 *		sorts them, once the first level's counts have shown it, if they are
 *		many; and what is left after MAX_LEVELS.
 *
 * The device does not wait for the host: how much there is for the next level
 * is known once bins are dealt, and the host learns it while they are moved.
 */
#include "mppsort_kernels.cuh"
#include "mppsort_scan.cuh"
#include "sort_bins.cuh"

namespace gpusort
{

/* ---- kernels ---- */

/* Turns the segments that are left after the last level into ranges for CUB. */
__global__ void segmentsToRanges(const Segment *segments, uint64_t count, Range *ranges, uint64_t in_spare)
{
	uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
	if (i < count) ranges[i] = {segments[i].start, segments[i].size, in_spare};
}

/* For keys that one block sorts: a list of one bin, whose range nobody has taken. */
__global__ void addOnlyBin(Lists lists, uint32_t count)
{
	*lists.tally = {};
	lists.tally->bins = 1;
	lists.bins[0] = {0, ~UINT64_C(0), 0, count, 0};
}

/* ---- launchers ---- */

/* Keys to a bin, if there are enough of them: a first level's histogram is part of what few keys take. */
static const uint32_t FIRST_COUNTED = 512;
static const uint32_t LATER_COUNTED = 512;

static const uint64_t MOST_TILES = 4;

/* How a run is cut up. */
struct Plan {
	Segment everything;
	Sizes sizes;
	uint32_t chunk_keys;   /* keys that a block moves */
	uint32_t count_chunks; /* so many times more that it counts in the first level */
	uint32_t tile_bytes;   /* keys that it moves at a time */
	int bin_threads;	   /* LARGE_THREADS or SMALL_THREADS */
	uint64_t one_block;	   /* so many keys need no partition */
};

/* Of PartitionKernel: for keys that are moved, or for values that are written. */
static size_t partition_shared(const Plan &plan)
{
	const size_t moved = (sizeof(uint64_t) + sizeof(unsigned)) * (plan.sizes.uneven_targets + 1) +
						 sizeof(Lookup) * (MAX_BINS / WARP) + plan.tile_bytes;
	const size_t written = sizeof(uint64_t) * plan.sizes.most_bins;
	return moved > written ? moved : written;
}

/*
 * Keys that a bin should get, if a block of so many threads is to sort it:
 * six standard deviations less than fit, where keys are spread evenly.
 */
static uint32_t mean_of(int threads)
{
	const uint32_t largest = threads * BIN_ITEMS;
	return largest - 6 * (uint32_t)sqrt((double)largest);
}

/* Few keys are cut into more bins than that, for every multiprocessor to have some. */
template <typename K> static Plan make_plan(const Context &context, uint64_t count)
{
	Plan plan = {};
	Sizes &sizes = plan.sizes;
	const uint64_t blocks = 2 * (uint64_t)context.sm_count;
	uint64_t chunk = (count + blocks - 1) / blocks;

	plan.tile_bytes = PARTITION_BYTES * PARTITION_THREADS;
	/* Smaller blocks are faster, but make more bins; the few of one level had better be few. */
	const bool few_bins = count / blocks <= mean_of(SMALL_THREADS);
	const bool many_bins = count / MAX_TARGETS > mean_of(LARGE_THREADS);
	const bool scarce = bin_shared<K>(LARGE_THREADS) + STATIC_SHARED > (size_t)context.shared_optin;
	plan.bin_threads = few_bins || many_bins || scarce ? SMALL_THREADS : LARGE_THREADS;
	plan.one_block = (scarce ? SMALL_THREADS : LARGE_THREADS) * BIN_ITEMS;
	sizes.largest = plan.bin_threads * BIN_ITEMS;
	sizes.mean = mean_of(plan.bin_threads);
	if (count / blocks < sizes.mean) sizes.mean = (uint32_t)(count / blocks < 512 ? 512 : count / blocks);
	sizes.most_targets = context.bins ? context.bins : MAX_TARGETS;
	sizes.uneven_targets = MAX_UNEVEN_TARGETS;
	if (context.bins && context.bins < MAX_UNEVEN_TARGETS / 2 - 2) sizes.uneven_targets = 2 * context.bins + 4;
	if (scarce && sizes.uneven_targets > MAX_UNEVEN_TARGETS / 2) sizes.uneven_targets = MAX_UNEVEN_TARGETS / 2;
	sizes.counted = FIRST_COUNTED;
	sizes.most_bins = MAX_BINS;
	if (scan_shared(MAX_BINS) + STATIC_SHARED > (size_t)context.shared_optin) sizes.most_bins = MAX_BINS / 2;
	if (partition_shared(plan) + STATIC_SHARED > (size_t)context.shared_optin) plan.tile_bytes /= 2;
	const uint32_t tile = plan.tile_bytes / sizeof(K);

	plan.everything.size = count;
	plan.everything.ranged = 1;
	set_targets(plan.everything, sizes);
	sizes.counted = LATER_COUNTED;

	if (chunk > MOST_TILES * tile) chunk = MOST_TILES * tile;
	plan.chunk_keys = (uint32_t)((chunk + PARTITION_THREADS - 1) / PARTITION_THREADS * PARTITION_THREADS);
	if (plan.chunk_keys > tile) plan.chunk_keys = (uint32_t)((plan.chunk_keys + tile - 1) / tile * tile);
	plan.count_chunks = (uint32_t)(count / plan.chunk_keys / (2 * context.sm_count));
	if (plan.count_chunks < 1) plan.count_chunks = 1;
	return plan;
}

/*
 * The memory of a context, in one piece: what must be zero at first, two sets of
 * segments and chunks, for a level and its next, and room for bins.  A segment
 * of a later level has more than the largest bin's keys.
 *
 * Evenly cut, a segment deals bins of about the mean.  Otherwise, a bin with a
 * quarter of the largest one's keys or more takes these away for good; one
 * with fewer has a target of its own size or larger beside it, or is its
 * segment's last, of which each level has no more than segments.
 */
struct Workspace {
	Memory memory, hg[2], targets[2];
	Tally *tally;
	KeySummary *summary;
	unsigned long long *first_hg;
	void *first_targets;
	Segment *segments[2];
	uint32_t *chunks[2];
	Bin *bins;
	uint32_t *stubborn;
	uint64_t segment_room, chunk_room, bin_room;
};

/* Cursors, lookup tables and splits of a level. */
static size_t targets_bytes(uint64_t bins, uint64_t segments)
{
	return bins * sizeof(uint64_t) + (bins / WARP + 1) * sizeof(Lookup) + segments * sizeof(Split);
}

static void set_targets_memory(Level &level, void *memory, uint64_t bins, uint64_t segments)
{
	level.cursors = (unsigned long long *)memory;
	level.lookup = (Lookup *)(level.cursors + bins);
	level.splits = (Split *)(level.lookup + bins / WARP + 1);
}

static GpusortCudaStatus make_workspace(Context &context, uint64_t count, const Plan &plan, Workspace &work)
{
	work.segment_room = count / plan.sizes.largest + 1;
	work.chunk_room = count / plan.chunk_keys + work.segment_room + 1;
	work.bin_room = (8 + 2 * MAX_LEVELS) * work.segment_room + count / plan.sizes.mean + plan.everything.targets;

	size_t at = 0;
	auto carve = [&at](size_t bytes) {
		size_t start = at;
		at += (bytes + 255) / 256 * 256;
		return start;
	};
	const size_t tally = carve(sizeof(Tally));
	const size_t summary = carve(sizeof(KeySummary));
	const size_t hg = carve(plan.everything.bins * sizeof(uint64_t));
	const size_t zeros = at;
	const size_t targets = carve(targets_bytes(plan.everything.bins, 1));
	const size_t segments[2] = {carve(work.segment_room * sizeof(Segment)), carve(work.segment_room * sizeof(Segment))};
	const size_t chunks[2] = {carve(work.chunk_room * sizeof(uint32_t)), carve(work.chunk_room * sizeof(uint32_t))};
	const size_t bins = carve(work.bin_room * sizeof(Bin));
	const size_t stubborn = carve(work.bin_room * sizeof(uint32_t));

	GPUSORT_PASS(work.memory.allocate(context, at));
	char *base = work.memory.as<char>();
	work.tally = (Tally *)(base + tally);
	work.summary = (KeySummary *)(base + summary);
	work.first_hg = (unsigned long long *)(base + hg);
	work.first_targets = base + targets;
	for (int i = 0; i < 2; i++) {
		work.segments[i] = (Segment *)(base + segments[i]);
		work.chunks[i] = (uint32_t *)(base + chunks[i]);
	}
	work.bins = (Bin *)(base + bins);
	work.stubborn = (uint32_t *)(base + stubborn);
	GPUSORT_TRY(cudaMemsetAsync(base, 0, zeros, context.stream), context.err);
	return GPUSORT_CUDA_OK;
}

template <typename K, int ITEMS, bool FIRST>
static GpusortCudaStatus launch_partition_of(Context &context, const Plan &plan, unsigned blocks, K *source, K *target,
											 K *keys, const Level &level)
{
	return launch_after<PartitionKernel<K, ITEMS, FIRST>>(context, "PartitionKernel", blocks, PARTITION_THREADS,
														  partition_shared(plan), source, target, keys, level);
}

template <typename K>
static GpusortCudaStatus launch_partition(Context &context, const Plan &plan, bool first, unsigned blocks, K *source,
										  K *target, K *keys, const Level &level)
{
	const int items = PARTITION_BYTES / sizeof(K);
	if (plan.tile_bytes == PARTITION_BYTES * PARTITION_THREADS)
		return first ? launch_partition_of<K, items, true>(context, plan, blocks, source, target, keys, level)
					 : launch_partition_of<K, items, false>(context, plan, blocks, source, target, keys, level);
	return first ? launch_partition_of<K, items / 2, true>(context, plan, blocks, source, target, keys, level)
				 : launch_partition_of<K, items / 2, false>(context, plan, blocks, source, target, keys, level);
}

template <typename K> static GpusortCudaStatus allow_partition(Context &context, const Plan &plan)
{
	const int items = PARTITION_BYTES / sizeof(K);
	if (plan.tile_bytes == PARTITION_BYTES * PARTITION_THREADS) {
		GPUSORT_PASS(allow_shared(context, PartitionKernel<K, items, true>, partition_shared(plan)));
		return allow_shared(context, PartitionKernel<K, items, false>, partition_shared(plan));
	}
	GPUSORT_PASS(allow_shared(context, PartitionKernel<K, items / 2, true>, partition_shared(plan)));
	return allow_shared(context, PartitionKernel<K, items / 2, false>, partition_shared(plan));
}

/* A later level's histograms, whose sizes the level before has told, and what takes its segments' ranges. */
template <typename K>
static GpusortCudaStatus prepare_level(Context &context, Workspace &work, const Lists &lists, const Tally &now,
									   int number, const K *source, Level &level)
{
	Memory &hg = work.hg[number % 2];
	Memory &targets = work.targets[number % 2];
	level.segments = work.segments[number % 2];
	level.count_chunks = 1;
	level.chunks = work.chunks[number % 2];
	GPUSORT_PASS(hg.allocate(context, now.hg * sizeof(uint64_t)));
	GPUSORT_PASS(targets.allocate(context, targets_bytes(now.hg, now.segments)));
	level.hg = hg.as<unsigned long long>();
	set_targets_memory(level, targets.as<void>(), now.hg, now.segments);
	GPUSORT_TRY(cudaMemsetAsync(level.hg, 0, now.hg * sizeof(uint64_t), context.stream), context.err);
	GPUSORT_TRY(cudaMemsetAsync(lists.tally, 0, offsetof(Tally, bins), context.stream), context.err);
	if (now.unranged > 0) {
		takeRange<K><<<(unsigned)now.chunks, RANGE_THREADS, 0, context.stream>>>(source, level);
		GPUSORT_LAUNCHED("takeRange", context.err);
	}
	return GPUSORT_CUDA_OK;
}

/* The first level's histogram, of keys of which there is no summary yet: a block a multiprocessor. */
template <typename K> static GpusortCudaStatus summarize_and_count(Context &context, const Level &level, const K *keys)
{
	const uint64_t most = (level.first.size * sizeof(K) + HISTO_THREADS * 16 - 1) / (HISTO_THREADS * 16);
	const unsigned blocks = most < (uint64_t)context.sm_count ? (unsigned)most : (unsigned)context.sm_count;
	if (context.summary == nullptr)
		summarizeAndHisto<K, HASH_NOTHING><<<blocks, HISTO_THREADS, 0, context.stream>>>(keys, level, level.summary);
	else
		summarizeAndHisto<K, HASH_KEYS><<<blocks, HISTO_THREADS, 0, context.stream>>>(keys, level, level.summary);
	GPUSORT_LAUNCHED("summarizeAndHisto", context.err);
	return GPUSORT_CUDA_OK;
}

/*
 * One level of the pipeline over all its segments, queued.  context.mailbox_ready comes
 * when the tally of the next is in the mailbox, long before the keys have moved.
 */
template <typename K>
static GpusortCudaStatus queue_level(Context &context, const Plan &plan, const Lists &lists, const Tally &now,
									 int number, const Level &level, K *keys, K *spare)
{
	K *source = number % 2 ? spare : keys;
	K *target = number % 2 ? keys : spare;
	const unsigned blocks = (unsigned)now.chunks;

	const unsigned count_blocks = (blocks + level.count_chunks - 1) / level.count_chunks;
	const uint32_t in_spare = number % 2 ? 0 : 1;
	if (number == 0 && !level.sampled)
		GPUSORT_PASS((launch_after<blockAndGlobalHisto<K, true>>(context, "blockAndGlobalHisto", count_blocks,
																 HISTO_THREADS, 0, source, level)));
	if (number > 0)
		GPUSORT_PASS((launch_after<blockAndGlobalHisto<K, false>>(context, "blockAndGlobalHisto", count_blocks,
																  HISTO_THREADS, 0, source, level)));
	if (number == 0 && now.most_bins > LATER_SCAN_THREADS * 4)
		GPUSORT_PASS((launch_after<globalHistoScan<K, FIRST_SCAN_THREADS>>(
			context, "globalHistoScan", 1, FIRST_SCAN_THREADS, scan_shared(now.most_bins), level, lists, in_spare)));
	else
		GPUSORT_PASS((launch_after<globalHistoScan<K, LATER_SCAN_THREADS>>(
			context, "globalHistoScan", (unsigned)now.segments, LATER_SCAN_THREADS, scan_shared(now.most_bins), level,
			lists, in_spare)));
	GPUSORT_TRY(cudaEventRecord(context.mailbox_ready, context.stream), context.err);
	GPUSORT_PASS(launch_partition(context, plan, number == 0, blocks, source, target, keys, level));
	note_launch(context, blocks, PARTITION_THREADS);
	return GPUSORT_CUDA_OK;
}

/* The first level's bins are sorted without waiting for their number: at most these. */
static uint64_t most_first_bins(const Plan &plan)
{
	const uint64_t uneven = 4 * (plan.everything.size / plan.sizes.largest + 1);
	const uint64_t most = plan.sizes.uneven_targets;
	return uneven < most ? (uneven > plan.everything.targets ? uneven : plan.everything.targets) : most;
}

/* All levels, and what they leave to others. */
template <typename K, int THREADS>
static GpusortCudaStatus run_levels(Context &context, const Plan &plan, uint64_t count, K *keys, K *spare, K **sorted)
{
	Workspace work;
	Lists lists = {};
	Level level = {};
	Tally now = {};
	const bool one_level = count / plan.sizes.mean < plan.sizes.most_targets;

	GPUSORT_PASS(make_workspace(context, count, plan, work));

	lists.segment_room = work.segment_room;
	lists.chunk_room = work.chunk_room;
	lists.bin_room = work.bin_room;
	lists.bins = work.bins;
	lists.stubborn = work.stubborn;
	lists.tally = work.tally;
	lists.mailbox = (Tally *)context.mailbox;
	lists.chunk_keys = plan.chunk_keys;
	lists.sizes = plan.sizes;

	level.first = plan.everything;
	level.summary = context.summary;
	level.tally = work.tally;
	level.decline_crowds = context.decline_crowds;
	level.chunk_keys = plan.chunk_keys;
	level.count_chunks = plan.count_chunks;
	level.hg = work.first_hg;
	set_targets_memory(level, work.first_targets, plan.everything.bins, 1);
	now.segments = 1;
	now.chunks = (count + plan.chunk_keys - 1) / plan.chunk_keys;
	now.hg = plan.everything.bins;
	now.most_bins = plan.everything.bins;

	level.sampled = !context.summarized;
	if (level.summary == nullptr) level.summary = work.summary;
	if (level.sampled) GPUSORT_PASS(summarize_and_count(context, level, keys));

	/* Asked for while the device has begun to look. */
	GPUSORT_PASS(allow_partition<K>(context, plan));
	const size_t scan_bytes = scan_shared(plan.sizes.most_bins);
	GPUSORT_PASS(allow_shared(context, globalHistoScan<K, FIRST_SCAN_THREADS>, scan_bytes));
	GPUSORT_PASS(allow_shared(context, globalHistoScan<K, LATER_SCAN_THREADS>, scan_bytes));
	GPUSORT_PASS((prepare_bins<K, THREADS>(context)));

	int number;
	for (number = 0; number < MAX_LEVELS && now.segments > 0; number++) {
		lists.segments = work.segments[(number + 1) % 2];
		lists.chunks = work.chunks[(number + 1) % 2];
		if (number > 0)
			GPUSORT_PASS(prepare_level(context, work, lists, now, number, number % 2 ? spare : keys, level));
		GPUSORT_PASS(queue_level(context, plan, lists, now, number, level, keys, spare));
		if (number == 0 && one_level)
			GPUSORT_PASS((sort_bins<K, THREADS>(context, lists, 0, most_first_bins(plan), keys, spare)));
		GPUSORT_TRY(cudaEventSynchronize(context.mailbox_ready), context.err);
		const uint64_t before = now.bins;
		now = *lists.mailbox;
		if (now.hopeless && context.may_decline) context.declined = true;
		if (now.hopeless && context.may_decline) return GPUSORT_CUDA_OK;
		if (now.hopeless) {
			context.report->algorithm = GPUSORT_ALGORITHM_CUB;
			context.report->bins = 0;
			return cub_sort(context, keys, spare, count, sorted);
		}
		if (now.lost > 0)
			return fail(GPUSORT_CUDA_UNSORTED, "globalHistoScan", "a work list of mppSort is full", context.err);
		if (!(number == 0 && one_level) && now.bins > before)
			GPUSORT_PASS((sort_bins<K, THREADS>(context, lists, before, now.bins - before, keys, spare)));
	}
	GPUSORT_PASS((sort_stubborn_bins<K, THREADS>(context, lists, 4 * context.sm_count, keys, spare)));
	if (now.segments == 0) return GPUSORT_CUDA_OK;

	Memory ranges;
	GPUSORT_PASS(ranges.allocate(context, now.segments * sizeof(Range)));
	segmentsToRanges<<<(unsigned)((now.segments + 255) / 256), 256, 0, context.stream>>>(
		lists.segments, now.segments, ranges.as<Range>(), number % 2);
	GPUSORT_LAUNCHED("segmentsToRanges", context.err);
	return cub_finish(context, ranges.as<Range>(), now.segments, keys, spare, count, sorted);
}

/* So few keys that one block sorts them. */
template <typename K> static GpusortCudaStatus sort_few(Context &context, K *keys, K *spare, uint64_t count)
{
	Memory memory;
	Lists lists = {};
	GPUSORT_PASS(memory.allocate(context, sizeof(Tally) + sizeof(Bin) + sizeof(uint32_t)));
	lists.tally = memory.as<Tally>();
	lists.bins = (Bin *)(lists.tally + 1);
	lists.stubborn = (uint32_t *)(lists.bins + 1);
	addOnlyBin<<<1, 1, 0, context.stream>>>(lists, (uint32_t)count);
	GPUSORT_LAUNCHED("addOnlyBin", context.err);
	if (count <= SMALL_THREADS * BIN_ITEMS) {
		GPUSORT_PASS((prepare_bins<K, SMALL_THREADS>(context)));
		GPUSORT_PASS((sort_bins<K, SMALL_THREADS>(context, lists, 0, 1, keys, spare)));
		return sort_stubborn_bins<K, SMALL_THREADS>(context, lists, 1, keys, spare);
	}
	GPUSORT_PASS((prepare_bins<K, LARGE_THREADS>(context)));
	GPUSORT_PASS((sort_bins<K, LARGE_THREADS>(context, lists, 0, 1, keys, spare)));
	return sort_stubborn_bins<K, LARGE_THREADS>(context, lists, 1, keys, spare);
}

template <typename K> GpusortCudaStatus mppsort(Context &context, K *keys, K *spare, uint64_t count, K **sorted)
{
	*sorted = keys;
	if (count < 2) return GPUSORT_CUDA_OK;
	const Plan plan = make_plan<K>(context, count);
	context.report->bins = (int)plan.everything.targets;
	if (count <= plan.one_block) {
		GPUSORT_PASS(ensure_summary(context, keys, count));
		return sort_few(context, keys, spare, count);
	}
	if (plan.bin_threads == SMALL_THREADS)
		return run_levels<K, SMALL_THREADS>(context, plan, count, keys, spare, sorted);
	return run_levels<K, LARGE_THREADS>(context, plan, count, keys, spare, sorted);
}

template GpusortCudaStatus mppsort(Context &, uint32_t *, uint32_t *, uint64_t, uint32_t **);
template GpusortCudaStatus mppsort(Context &, uint64_t *, uint64_t *, uint64_t, uint64_t **);

} // namespace gpusort
