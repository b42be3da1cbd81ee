/*
 * quicksort.cu - GPU quicksort: many blocks a list, one block a list, bitonic.
 *
 * After Cederman and Tsigas, "GPU-Quicksort: A Practical Quicksort Algorithm
 * for Graphics Processors" (2009), in three phases:
 *
 *	long lists					partitionLists: a list's chunks go to as many
 *								blocks, which reserve room at its two ends by
 *								one atomic addition a tile and end.
 *	shorter lists				sortLists: one block takes a list and keeps
 *								partitioning, through the same two buffers and
 *								a stack in shared memory (quicksort_leaf.cuh).
 *	up to a bitonic network's	the same block sorts them in shared memory.
 *
 * Keys below the pivot go to the list's left end, keys above to its right
 * end, in the other buffer; keys equal to the pivot are not moved at all but
 * counted by what is left between, and written to their final place.  So a
 * list of one value ends at once, and each step takes at least the pivot out.
 *
 * In the paper the host waits after each level to learn of the next one's
 * lists.  Here they never leave the device: the block that finishes a list's
 * last chunk deals its two parts out to the next level, pivots and chunks
 * included, and a level's blocks, as many as the device runs at a time, take
 * chunks while there are any.  The host queues as many levels as there should
 * be, with some to spare, and sortLists; only then it waits, and looks
 * whether lists remain, for which it queues some more.  A level with nothing
 * to do costs a launch, which is far less than a wait.
 *
 * The pivot is a median of 96 keys from places that a hash of the list's
 * position picks, which patterns made to fool a fixed choice do not know.
 * Should depth run out all the same, CUB's radix sort finishes those lists.
 *
 * It exists as a comparison-shaped second engine and for what it teaches; it
 * makes log2(n / 4096) passes and more where mppsort.cu makes two or three.
 */
#include "quicksort_leaf.cuh"

namespace gpusort
{

/* Longer lists are partitioned by many blocks: fewer keys where that makes lists enough for all multiprocessors. */
static const uint64_t LISTS_PER_SM = 64;

/* Keys of a chunk, in tiles, at most; and chunks that a multiprocessor should get. */
static const uint32_t CHUNK_TILES = 8;
static const uint64_t CHUNKS_PER_SM = 16;

/* Levels that are queued for lists which the first ones left. */
static const uint32_t MORE_LEVELS = 4;

/* ---- kernels ---- */

/* Blocks that partitionLists should have on a multiprocessor at a time; Turing takes no more than 1024 threads. */
constexpr int partition_blocks(size_t key_bytes)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
	return 1024 / THREADS;
#else
	return key_bytes == 4 ? 6 : 5;
#endif
}

/*
 * Makes [start, start + size) of keys an entry of the next level.  If equal,
 * all of these keys are pivot; else a pivot is chosen.  A warp calls.
 */
template <typename K>
__device__ void add_long_list(const Work &work, const K *keys, uint64_t start, uint64_t size, bool equal, K pivot)
{
	const unsigned lane = threadIdx.x % WARP;
	const uint32_t chunks = (uint32_t)((size + (1u << work.chunk_bits) - 1) >> work.chunk_bits);
	unsigned long long added = 0;

	/* The pivot is looked for while the addition is on its way. */
	if (lane == 0) added = atomicAdd(&work.next.counters->lists_and_chunks, (1ull << 32) + chunks);
	if (!equal) pivot = sample_pivot(keys, start, size);
	added = __shfl_sync(ALL_LANES, added, 0);
	const uint32_t at = (uint32_t)(added >> 32);
	const uint32_t first = (uint32_t)added;
	if (at >= work.list_room || (uint64_t)first + chunks > work.chunk_room) {
		if (lane == 0) atomicAdd(&work.next.counters->lost, 1u);
		if (lane == 0) atomicAdd(&work.totals->lost, 1ull);
		return;
	}
	if (lane == 0) work.next.lists[at] = {start, size, (uint64_t)pivot, 0, 0, first, chunks, 0, equal};
	for (uint32_t i = lane; i < chunks; i += WARP)
		work.next.chunks[first + i] = at;
}

/* Deals out [start, start + size) of keys, which is the spare buffer if in_spare. A warp calls. */
template <typename K>
__device__ void add_list(const Work &work, const K *keys, uint64_t start, uint64_t size, uint64_t in_spare)
{
	const bool one_lane = threadIdx.x % WARP == 0;
	if (size > work.long_list && !work.last_level) {
		add_long_list(work, keys, start, size, false, K(0));
	} else if (size > work.long_list) {
		if (one_lane) give_up(work, start, size, in_spare);
	} else if (size > 0) {
		if (one_lane)
			append_range(work.short_lists, work.short_list_room, &work.totals->short_lists, work.totals,
						 {start, size, in_spare});
	}
}

/* The first list is everything: a long one for the first level, or a shorter one at once. One warp. */
template <typename K> __global__ void addFirstList(const K *keys, uint64_t count, Work work)
{
	add_list(work, keys, 0, count, 0);
}

/*
 * A list has been partitioned: each part is a warp's to deal out, and the
 * pivots between them are written, or, if they are many, become an entry of
 * the next level too.  All threads of a block call.
 */
template <typename K>
__device__ void finish_list(const Work &work, const List &list, const K *target, K *home, uint64_t target_in_spare)
{
	const int warp = threadIdx.x / WARP;
	/* Other blocks have counted: not from a cache of this multiprocessor. */
	const uint64_t below = __ldcg(&list.below);
	const uint64_t above = __ldcg(&list.above);
	const uint64_t start = list.start;
	const uint64_t equal = list.size - below - above;
	const K pivot = (K)list.pivot;

	static_assert(THREADS >= 3 * WARP, "each part needs a warp");
	if (equal <= work.long_list) {
		for (uint32_t i = threadIdx.x; i < (uint32_t)equal; i += THREADS)
			home[start + below + i] = pivot;
	} else if (warp == 2) {
		add_long_list(work, target, start + below, equal, true, pivot);
	}
	if (warp == 0) add_list(work, target, start, below, target_in_spare);
	if (warp == 1) add_list(work, target, start + list.size - above, above, target_in_spare);
}

/* One level: partitions its lists from source to target, and deals out the next. */
template <typename K>
__global__ void __launch_bounds__(THREADS, partition_blocks(sizeof(K)))
	partitionLists(const K *source, K *target, K *home, Work work, uint64_t target_in_spare)
{
	__shared__ Partition<K> partition;
	__shared__ uint32_t next;
	__shared__ bool last;
	const uint32_t chunks = work.now.counters->lost > 0 ? 0 : (uint32_t)work.now.counters->lists_and_chunks;

	uint32_t chunk = blockIdx.x;
	while (chunk < chunks) {
		List *list = &work.now.lists[work.now.chunks[chunk]];
		const uint64_t begin = (uint64_t)(chunk - list->first_chunk) << work.chunk_bits;
		const uint32_t length = (uint32_t)min((uint64_t)1 << work.chunk_bits, list->size - begin);
		if (list->equal) {
			const K pivot = (K)list->pivot;
			K *to = home + list->start + begin;
			for (uint32_t i = threadIdx.x; i < length; i += THREADS)
				to[i] = pivot;
		} else {
			if (threadIdx.x == 0)
				partition.begin(target + list->start, list->size, (K)list->pivot, &list->below, &list->above);
			__syncthreads();
			const K *from = source + list->start + begin;
			for (uint32_t at = 0; at < length; at += TILE)
				partition.partition_tile(from + at, min((uint32_t)TILE, length - at));
		}

		/* Whoever comes last has seen what the others wrote. */
		__syncthreads();
		if (threadIdx.x == 0) {
			__threadfence();
			last = atomicAdd(&list->done, 1u) == list->chunks - 1 && !list->equal;
			__threadfence();
		}
		if (threadIdx.x == WARP) next = gridDim.x + atomicAdd(&work.now.counters->chunks_taken, 1u);
		__syncthreads();
		if (last) finish_list(work, *list, target, home, target_in_spare);
		chunk = next;
	}
}

/* Writes to the host's memory. One thread. */
__global__ void reportToHost(Work work, volatile HostReport *host_report)
{
	host_report->lists = work.now.counters->lists_and_chunks >> 32;
	host_report->totals.short_lists = work.totals->short_lists;
	host_report->totals.given_up = work.totals->given_up;
	host_report->totals.lost = work.totals->lost;
}

/* ---- launchers ---- */

static_assert(sizeof(HostReport) <= MAILBOX_BYTES, "a host_report must fit the mailbox");

/* How a run is cut up, and its memory, in one piece: what must be zero at first, then the work lists. */
struct Schedule {
	Memory memory;
	Work work;				 /* but for now, next and last_level */
	WorkList lists[2];		 /* of even levels, of odd ones; but for added */
	LevelCounters *counters; /* of each level, of which there are two more than depth */
	uint32_t depth;			 /* levels that partition; one more may have equal keys left to write */
	uint32_t expected;		 /* levels that should do */
	unsigned partition_blocks, sort_blocks;
};

/* Sizes, and work lists that have room for any input (quicksort_partition.cuh). */
template <typename K> static GpusortCudaStatus make_schedule(Context &context, uint64_t count, Schedule &schedule)
{
	Work &work = schedule.work;
	uint32_t halvings = 0;

	work.long_list = BITONIC<K>;
	while (work.long_list < LONGEST_SHORT_LIST && work.long_list * LISTS_PER_SM * context.sm_count < count)
		work.long_list *= 2;
	while (work.long_list << halvings < count)
		halvings++;
	schedule.depth = 8 + 2 * halvings;
	/* Uneven halves make a few more than halvings. */
	schedule.expected = halvings == 0 ? 0 : halvings + halvings / 4 + 1;

	work.chunk_bits = 0;
	while (1 << work.chunk_bits < TILE)
		work.chunk_bits++;
	for (uint32_t tiles = 1; tiles < CHUNK_TILES && (CHUNKS_PER_SM * context.sm_count << work.chunk_bits) < count;
		 tiles *= 2)
		work.chunk_bits++;

	work.list_room = count / work.long_list;
	work.chunk_room = (count >> work.chunk_bits) + work.list_room;
	work.short_list_room = schedule.depth * work.list_room + 1;
	work.given_up_room = count / BITONIC<K>;

	size_t at = 0;
	auto carve = [&at](size_t bytes) {
		size_t start = at;
		at += (bytes + 255) / 256 * 256;
		return start;
	};
	const size_t totals = carve(sizeof(Totals));
	const size_t counters = carve((schedule.depth + 2) * sizeof(LevelCounters));
	const size_t zeros = at;
	const size_t lists[2] = {carve(work.list_room * sizeof(List)), carve(work.list_room * sizeof(List))};
	const size_t chunks[2] = {carve(work.chunk_room * sizeof(uint32_t)), carve(work.chunk_room * sizeof(uint32_t))};
	const size_t short_lists = carve(work.short_list_room * sizeof(Range));
	const size_t given_up = carve(work.given_up_room * sizeof(Range));

	GPUSORT_PASS(schedule.memory.allocate(context, at));
	char *base = schedule.memory.as<char>();
	work.totals = (Totals *)(base + totals);
	schedule.counters = (LevelCounters *)(base + counters);
	for (int i = 0; i < 2; i++)
		schedule.lists[i] = {(List *)(base + lists[i]), (uint32_t *)(base + chunks[i]), nullptr};
	work.short_lists = (Range *)(base + short_lists);
	work.given_up = (Range *)(base + given_up);
	GPUSORT_TRY(cudaMemsetAsync(base, 0, zeros, context.stream), context.err);
	return GPUSORT_CUDA_OK;
}

/* The lists of a level up to depth + 1, which is always empty. */
static WorkList lists_of(const Schedule &schedule, uint32_t level)
{
	WorkList lists = schedule.lists[level % 2];
	lists.counters = schedule.counters + level;
	return lists;
}

/* As many as run at a time, or fewer if there is never so much to do. */
template <typename Kernel>
static GpusortCudaStatus resident_blocks(Context &context, Kernel kernel, uint64_t most, unsigned &blocks)
{
	int per_sm = 0;
	GPUSORT_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, THREADS, 0), context.err);
	blocks = (unsigned)(per_sm > 0 ? per_sm : 1) * (unsigned)context.sm_count;
	if (most < blocks) blocks = (unsigned)most;
	return GPUSORT_CUDA_OK;
}

/* Queues levels [level, end), sortLists for what they leave from first on, and the host_report. */
template <typename K>
static GpusortCudaStatus queue_levels(Context &context, const Schedule &schedule, uint32_t level, uint32_t end,
									  uint64_t first, K *keys, K *spare)
{
	Work work = schedule.work;
	for (; level < end; level++) {
		work.now = lists_of(schedule, level);
		work.next = lists_of(schedule, level + 1);
		work.last_level = level + 1 >= schedule.depth;
		partitionLists<K><<<schedule.partition_blocks, THREADS, 0, context.stream>>>(
			level % 2 ? spare : keys, level % 2 ? keys : spare, keys, work, level % 2 ? 0 : 1);
		GPUSORT_LAUNCHED("partitionLists", context.err);
		note_launch(context, schedule.partition_blocks, THREADS);
	}
	work.now = lists_of(schedule, end);
	sortLists<K><<<schedule.sort_blocks, THREADS, 0, context.stream>>>(keys, spare, work, first);
	GPUSORT_LAUNCHED("sortLists", context.err);
	note_launch(context, schedule.sort_blocks, THREADS);
	reportToHost<<<1, 1, 0, context.stream>>>(work, (HostReport *)context.mailbox);
	GPUSORT_LAUNCHED("reportToHost", context.err);
	GPUSORT_TRY(cudaEventRecord(context.mailbox_ready, context.stream), context.err);
	return GPUSORT_CUDA_OK;
}

template <typename K> GpusortCudaStatus quicksort(Context &context, K *keys, K *spare, uint64_t count, K **sorted)
{
	Schedule schedule = {};
	HostReport host_report = {};

	*sorted = keys;
	if (count < 2) return GPUSORT_CUDA_OK;
	GPUSORT_PASS(make_schedule<K>(context, count, schedule));
	schedule.work.next = lists_of(schedule, 0);
	addFirstList<<<1, WARP, 0, context.stream>>>(keys, count, schedule.work);
	GPUSORT_LAUNCHED("addFirstList", context.err);
	GPUSORT_PASS(resident_blocks(context, partitionLists<K>, schedule.work.chunk_room, schedule.partition_blocks));
	GPUSORT_PASS(resident_blocks(context, sortLists<K>, schedule.work.short_list_room, schedule.sort_blocks));

	/* Once there are none left, or after the last level, which has equal keys alone, all is added out. */
	uint32_t level = 0;
	uint32_t batch = schedule.expected;
	do {
		const uint32_t left = schedule.depth + 1 - level;
		const uint32_t end = level + (batch < left ? batch : left);
		GPUSORT_PASS(queue_levels(context, schedule, level, end, host_report.totals.short_lists, keys, spare));
		GPUSORT_TRY(cudaEventSynchronize(context.mailbox_ready), context.err);
		host_report = *(const HostReport *)context.mailbox;
		if (host_report.totals.lost > 0)
			return fail(GPUSORT_CUDA_UNSORTED, "partitionLists", "a work list of quicksort is full", context.err);
		level = end;
		batch = MORE_LEVELS;
	} while (host_report.lists > 0 && level <= schedule.depth);
	return cub_finish(context, schedule.work.given_up, host_report.totals.given_up, keys, spare, count, sorted);
}

template GpusortCudaStatus quicksort(Context &, uint32_t *, uint32_t *, uint64_t, uint32_t **);
template GpusortCudaStatus quicksort(Context &, uint64_t *, uint64_t *, uint64_t, uint64_t **);

} // namespace gpusort
