/*
 * mppsort.cu
 *		mppSort: histogram, scan, partition, and a sort of each bin.
 *
 * The pipeline and the names of the kernels are mppSort's:
 *
 *	blockAndGlobalHisto		counts each block's keys by bin in shared memory, and
 *							adds up the counts of all keys (Hg)
 *	globalHistoScan			scans Hg into the first position of each bin (SHg),
 *							and joins bins to targets
 *	verticalScan			finds each tile's place within each target (PSv)
 *	PartitionKernel			moves every key to SHg + PSv + its rank, which comes
 *							from counters in shared memory
 *	sortBins				sorts each bin in shared memory
 *
 * The counted bins divide the range of the keys into equal widths. (A sample finds the range; keys
 * outside of it are counted in the first or last bin.) They are finer than the targets, which are
 * neighbouring bins joined together. There are as many targets as are needed for each to fit one block;
 * if these are too many, keys are partitioned on two levels, with about as many targets on the first as
 * on the second. Equal widths fail on skewed keys: with one outlier, all other keys are in one bin.
 * Therefore:
 *
 *	a target that is too large for one block becomes a segment. The same
 *		kernels process all segments of a level together, each over its own
 *		range, which is found anew if one bin got more than its share;
 *	a segment with no more values than bins is not moved. Its counts determine
 *		the sorted keys, so keys of few values are done after two reads;
 *	keys that the first pass finds in order, or in reverse order, are done at
 *		once;
 *	many keys that are spread unevenly on every scale would need many levels.
 *		The first level's counts show that, and CUB sorts them. CUB also sorts
 *		the segments that are left after MAX_LEVELS.
 *
 * The device does not wait for the host: the size of the next level is known once the bins are scanned,
 * and the host reads it while the keys are being moved.
 */
#include "mppsort_kernels.cuh"
#include "mppsort_scan.cuh"
#include "sort_bins.cuh"

namespace gpusort
{

/* ---- kernels ---- */

/* Converts the segments that are left after the last level to ranges for CUB. */
__global__ void segmentsToRanges(const Segment *segments, uint64_t count, Range *ranges, uint64_t in_spare)
{
	uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
	if (i < count) ranges[i] = {segments[i].start, segments[i].size, in_spare};
}

/* For keys that one block sorts: makes a list of one bin, whose range is unknown. */
__global__ void addOnlyBin(Lists lists, uint32_t count)
{
	*lists.tally = {};
	lists.tally->bins = 1;
	lists.bins[0] = {0, ~UINT64_C(0), 0, count, 0};
}

/* ---- launchers ---- */

/* Keys per counted bin, if there are enough keys for the most bins. */
static const uint32_t COUNTED_KEYS = 512;

/* The most tiles of a chunk. */
static const uint64_t MOST_TILES = 4;

/* How the keys of one sort are divided among blocks. */
struct Plan {
	Segment everything;
	Sizes sizes;
	uint32_t chunk_keys;   /* keys that one block moves */
	uint32_t count_chunks; /* chunks that one block counts in the first level */
	uint32_t tile_bytes;   /* bytes of keys that one block moves at a time */
	int bin_threads;	   /* threads that sort one bin: LARGE_THREADS or SMALL_THREADS */
	uint64_t one_block;	   /* up to this many keys, one block sorts everything */
};

/*
 * Bytes of dynamic shared memory of PartitionKernel: the larger of its needs for moving keys and for
 * writing values.
 */
static size_t partition_shared(const Plan &plan)
{
	const size_t moved = (sizeof(uint64_t) + sizeof(unsigned)) * (plan.sizes.uneven_targets + 1) +
						 sizeof(Lookup) * (MAX_BINS / WARP) + plan.tile_bytes;
	const size_t written = sizeof(uint64_t) * plan.sizes.most_bins;
	return moved > written ? moved : written;
}

/*
 * The mean number of keys that a bin should get if a block of this many threads sorts it: six standard
 * deviations below what fits, for evenly spread keys.
 */
static uint32_t mean_of(int threads)
{
	const uint32_t largest = threads * BIN_ITEMS;
	return largest - 6 * (uint32_t)sqrt((double)largest);
}

/*
 * Makes the plan for count keys. Few keys are divided into more bins than fit would require, so that
 * every multiprocessor gets some.
 */
template <typename K> static Plan make_plan(const Context &context, uint64_t count)
{
	Plan plan = {};
	Sizes &sizes = plan.sizes;
	const uint64_t blocks = 2 * (uint64_t)context.sm_count;
	uint64_t chunk = (count + blocks - 1) / blocks;

	plan.tile_bytes = PARTITION_BYTES * PARTITION_THREADS;
	/* Smaller blocks are faster but need more bins; if many keys are to be done on one level, fewer bins are better. */
	const bool few_bins = count / blocks <= mean_of(SMALL_THREADS);
	const bool many_bins = count / MAX_TARGETS > mean_of(LARGE_THREADS);
	const bool scarce = bin_shared<K>(LARGE_THREADS) + STATIC_SHARED > (size_t)context.shared_optin;
	plan.bin_threads = few_bins || many_bins || scarce ? SMALL_THREADS : LARGE_THREADS;
	plan.one_block = (scarce ? SMALL_THREADS : LARGE_THREADS) * BIN_ITEMS;
	sizes.largest = plan.bin_threads * BIN_ITEMS;
	sizes.mean = mean_of(plan.bin_threads);
	if (count / blocks < sizes.mean) sizes.mean = (uint32_t)(count / blocks < 512 ? 512 : count / blocks);
	sizes.most_targets = context.few_targets ? context.few_targets : MAX_TARGETS;
	sizes.uneven_targets = MAX_UNEVEN_TARGETS;
	if (context.few_targets) sizes.uneven_targets = 2 * context.few_targets + 4;
	if (scarce && sizes.uneven_targets > MAX_UNEVEN_TARGETS / 2) sizes.uneven_targets = MAX_UNEVEN_TARGETS / 2;
	sizes.counted = COUNTED_KEYS;
	sizes.most_bins = MAX_BINS;
	if (scan_shared(MAX_BINS) + STATIC_SHARED > (size_t)context.shared_optin) sizes.most_bins = MAX_BINS / 2;
	if (partition_shared(plan) + STATIC_SHARED > (size_t)context.shared_optin) plan.tile_bytes /= 2;
	const uint32_t tile = plan.tile_bytes / sizeof(K);

	plan.everything.size = count;
	plan.everything.ranged = 1;
	set_targets(plan.everything, sizes);

	if (chunk > MOST_TILES * tile) chunk = MOST_TILES * tile;
	plan.chunk_keys = (uint32_t)((chunk + PARTITION_THREADS - 1) / PARTITION_THREADS * PARTITION_THREADS);
	if (plan.chunk_keys > tile) plan.chunk_keys = (uint32_t)((plan.chunk_keys + tile - 1) / tile * tile);
	plan.count_chunks = (uint32_t)(count / plan.chunk_keys / (2 * context.sm_count));
	if (plan.count_chunks < 1) plan.count_chunks = 1;
	return plan;
}

/*
 * The device memory of one sort, in one buffer: first the parts that must be zero, then two sets of
 * segments and chunks, for a level and for the next one, and room for bins.
 *
 * The room is enough for any input. A segment of a later level has more keys than the largest bin, so
 * there are at most count / largest of them. A segment that is split evenly gives bins of about
 * sizes.mean keys. A segment that is split unevenly gives smaller ones, too. A bin with at least a
 * quarter of sizes.largest keys removes these keys from all later levels. A bin with fewer keys lies
 * beside a target of its own size or larger, or is the last one of its segment, and each level has at
 * most segment_room segments.
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

/* Bytes of a level's cursors, lookup tables and splits. */
static size_t targets_bytes(uint64_t bins, uint64_t segments)
{
	return bins * sizeof(uint64_t) + (bins / WARP + 1) * sizeof(Lookup) + segments * sizeof(Split);
}

/* Divides memory, of targets_bytes() bytes, among a level's arrays. */
static void set_targets_memory(Level &level, void *memory, uint64_t bins, uint64_t segments)
{
	level.cursors = (unsigned long long *)memory;
	level.lookup = (Lookup *)(level.cursors + bins);
	level.splits = (Split *)(level.lookup + bins / WARP + 1);
}

/* Allocates the workspace, and queues setting its first part to zero. */
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

/* Queues PartitionKernel with the tile size of the plan. */
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

/*
 * Allocates a later level's histograms, whose sizes the previous level has reported, and finds the ranges
 * of its segments.
 */
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

/* Queues the first level's histogram of keys of which there is no summary yet: one block per multiprocessor. */
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
 * Queues one level of the pipeline, over all its segments. number is the level's number, from 0: even
 * levels move keys from keys to spare, odd levels move them back. context.mailbox_ready is recorded when the
 * mailbox has the tally for the next level, long before the keys have moved.
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

/*
 * The most bins that the first level can have: with one level only, they are sorted without waiting for
 * their number.
 */
static uint64_t most_first_bins(const Plan &plan)
{
	const uint64_t uneven = 4 * (plan.everything.size / plan.sizes.largest + 1);
	const uint64_t most = plan.sizes.uneven_targets;
	return uneven < most ? (uneven > plan.everything.targets ? uneven : plan.everything.targets) : most;
}

/* The lists that every level adds to. The lists of segments and chunks alternate between two buffers. */
static Lists make_lists(const Context &context, const Plan &plan, const Workspace &work)
{
	Lists lists = {};
	lists.segment_room = work.segment_room;
	lists.chunk_room = work.chunk_room;
	lists.bin_room = work.bin_room;
	lists.bins = work.bins;
	lists.stubborn = work.stubborn;
	lists.tally = work.tally;
	lists.mailbox = (Tally *)context.mailbox;
	lists.chunk_keys = plan.chunk_keys;
	lists.sizes = plan.sizes;
	return lists;
}

/* The first level: one segment, which holds all keys. */
static Level make_first_level(const Context &context, const Plan &plan, const Workspace &work)
{
	Level level = {};
	level.first = plan.everything;
	level.summary = context.summary ? context.summary : work.summary;
	level.sampled = !context.summarized;
	level.tally = work.tally;
	level.decline_crowds = context.decline_crowds;
	level.chunk_keys = plan.chunk_keys;
	level.count_chunks = plan.count_chunks;
	level.hg = work.first_hg;
	set_targets_memory(level, work.first_targets, plan.everything.bins, 1);
	return level;
}

/* The tally that describes the first level. */
static Tally make_first_tally(const Plan &plan)
{
	Tally tally = {};
	tally.segments = 1;
	tally.chunks = (plan.everything.size + plan.chunk_keys - 1) / plan.chunk_keys;
	tally.hg = plan.everything.bins;
	tally.most_bins = plan.everything.bins;
	return tally;
}

/* Lets all kernels request the shared memory that they need at their launch. */
template <typename K, int THREADS> static GpusortCudaStatus allow_all_shared(Context &context, const Plan &plan)
{
	const size_t scan_bytes = scan_shared(plan.sizes.most_bins);
	GPUSORT_PASS(allow_partition<K>(context, plan));
	GPUSORT_PASS(allow_shared(context, globalHistoScan<K, FIRST_SCAN_THREADS>, scan_bytes));
	GPUSORT_PASS(allow_shared(context, globalHistoScan<K, LATER_SCAN_THREADS>, scan_bytes));
	return prepare_bins<K, THREADS>(context);
}

/*
 * Ends the sort after the first level's counts have shown that the keys are hopeless: declines them, or
 * lets CUB sort. No key has been moved.
 */
template <typename K> static GpusortCudaStatus give_up(Context &context, K *keys, K *spare, uint64_t count, K **sorted)
{
	if (context.may_decline) {
		context.declined = true;
		return GPUSORT_CUDA_OK;
	}
	context.report->algorithm = GPUSORT_ALGORITHM_CUB;
	context.report->bins = 0;
	return cub_sort(context, keys, spare, count, sorted);
}

/* Lets CUB sort the segments that are left after the last level. */
template <typename K>
static GpusortCudaStatus finish_segments(Context &context, const Segment *segments, uint64_t segment_count,
										 uint64_t in_spare, K *keys, K *spare, uint64_t count, K **sorted)
{
	Memory ranges;
	GPUSORT_PASS(ranges.allocate(context, segment_count * sizeof(Range)));
	segmentsToRanges<<<(unsigned)((segment_count + 255) / 256), 256, 0, context.stream>>>(segments, segment_count,
																						  ranges.as<Range>(), in_spare);
	GPUSORT_LAUNCHED("segmentsToRanges", context.err);
	return cub_finish(context, ranges.as<Range>(), segment_count, keys, spare, count, sorted);
}

/* Partitions the keys level by level and sorts the bins, each by a block of THREADS. CUB sorts the rest. */
template <typename K, int THREADS>
static GpusortCudaStatus partition_and_sort(Context &context, const Plan &plan, uint64_t count, K *keys, K *spare,
											K **sorted)
{
	Workspace work;
	const bool one_level = count / plan.sizes.mean < plan.sizes.most_targets;

	GPUSORT_PASS(make_workspace(context, count, plan, work));
	Lists lists = make_lists(context, plan, work);
	Level level = make_first_level(context, plan, work);
	Tally now = make_first_tally(plan);
	if (level.sampled) GPUSORT_PASS(summarize_and_count(context, level, keys));
	/* These calls take some time on the host; meanwhile the device already reads the keys. */
	GPUSORT_PASS((allow_all_shared<K, THREADS>(context, plan)));

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
		if (now.hopeless) return give_up(context, keys, spare, count, sorted);
		if (now.lost > 0)
			return fail(GPUSORT_CUDA_UNSORTED, "globalHistoScan", "a work list of mppSort is full", context.err);
		if (!(number == 0 && one_level) && now.bins > before)
			GPUSORT_PASS((sort_bins<K, THREADS>(context, lists, before, now.bins - before, keys, spare)));
	}
	GPUSORT_PASS((sort_stubborn_bins<K, THREADS>(context, lists, 4 * context.sm_count, keys, spare)));
	if (now.segments == 0) return GPUSORT_CUDA_OK;
	return finish_segments(context, lists.segments, now.segments, number % 2, keys, spare, count, sorted);
}

/* Sorts keys that are few enough for one block. */
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
		return partition_and_sort<K, SMALL_THREADS>(context, plan, count, keys, spare, sorted);
	return partition_and_sort<K, LARGE_THREADS>(context, plan, count, keys, spare, sorted);
}

template GpusortCudaStatus mppsort(Context &, uint32_t *, uint32_t *, uint64_t, uint32_t **);
template GpusortCudaStatus mppsort(Context &, uint64_t *, uint64_t *, uint64_t, uint64_t **);

} // namespace gpusort
