/*
 * quicksort.cu
 *		GPU quicksort: several blocks per list, then one block per list, then a bitonic network.
 *
 * After Cederman and Tsigas, "GPU-Quicksort: A Practical Quicksort Algorithm for Graphics Processors"
 * (2009), in three phases:
 *
 *	long lists			partitionLists: several blocks partition the chunks of a
 *						list. For each tile they reserve places at both ends of
 *						the list by an atomic addition each.
 *	short lists			sortLists: one block takes a list and keeps partitioning it
 *						through the same two buffers, with a stack in shared
 *						memory (quicksort_leaf.cuh).
 *	lists that fit a	the same block sorts them in shared memory.
 *	bitonic network
 *
 * Keys below the pivot go to the left end of the list's positions in the other buffer, keys above it to
 * the right end. Keys equal to the pivot are not moved: their number follows from the room between the
 * two ends, and they are written to their final places. So a list of one value is done at once, and each
 * step removes at least the pivot.
 *
 * In the paper the host waits after each level to learn the lists of the next one. Here the lists stay on
 * the device. The block that finishes the last chunk of a list adds the list's two parts to the next
 * level, with their pivots and chunks. A level has as many blocks as the device can run at a time; each
 * takes chunks until none is left. The host queues the expected number of levels, plus a few, and
 * sortLists. Only then it waits, and queues more levels if lists remain. A level without work costs one
 * launch, which is far less than a wait.
 *
 * The pivot is a median of 96 keys. A hash of the list's position picks their places, so input patterns
 * that defeat a fixed choice do not work. If a list reaches the depth limit all the same, CUB's radix
 * sort finishes it.
 *
 * Quicksort is here as a second engine that only compares keys, and for teaching. It makes at least
 * log2(n / 4096) passes where mppsort.cu makes two or three.
 */
#include "quicksort_leaf.cuh"

namespace gpusort
{

/*
 * Lists longer than Work.long_list are partitioned by several blocks. That limit is lower than
 * LONGEST_SHORT_LIST if this makes LISTS_PER_SM lists per multiprocessor.
 */
static const uint64_t LISTS_PER_SM = 64;

/* The most tiles of a chunk, and the number of chunks that each multiprocessor should get. */
static const uint32_t CHUNK_TILES = 8;
static const uint64_t CHUNKS_PER_SM = 16;

/* The number of levels that are queued for the lists which the expected levels left. */
static const uint32_t MORE_LEVELS = 4;

/* ---- kernels ---- */

/*
 * The blocks of partitionLists that should be resident on a multiprocessor; Turing runs at most 1024
 * threads there.
 */
constexpr int partition_blocks(size_t key_bytes)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
	return 1024 / THREADS;
#else
	return key_bytes == 4 ? 6 : 5;
#endif
}

/*
 * Adds keys [start, start + size) to the next level's lists. equal: all of these keys are pivot;
 * otherwise a pivot is chosen here. All lanes of one warp call.
 */
template <typename K>
__device__ void add_long_list(const Work &work, const K *keys, uint64_t start, uint64_t size, bool equal, K pivot)
{
	const unsigned lane = threadIdx.x % WARP;
	const uint32_t chunks = (uint32_t)((size + (1u << work.chunk_bits) - 1) >> work.chunk_bits);
	unsigned long long added = 0;

	/* The pivot is chosen while the addition is in flight. */
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

/*
 * Adds keys [start, start + size) to the next level, to the short lists or to those given up. keys is the
 * spare buffer if in_spare is not 0. All lanes of one warp call.
 */
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

/* Adds all keys as the first list: a long one for the first level, or a short one. One warp. */
template <typename K> __global__ void addFirstList(const K *keys, uint64_t count, Work work)
{
	add_list(work, keys, 0, count, 0);
}

/*
 * Ends a partitioned list. One warp each adds the parts below and above the pivot. The pivots between
 * them are written, or, if they are many, become an entry of the next level. All threads of a block call.
 */
template <typename K>
__device__ void finish_list(const Work &work, const List &list, const K *target, K *home, uint64_t target_in_spare)
{
	const int warp = threadIdx.x / WARP;
	/* Other blocks have counted, so do not read this multiprocessor's cache. */
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

/* Partitions the lists of one level from source to target, and adds their parts to the next level. */
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

		/* The block that finishes a list's last chunk must see what the others have written. */
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

/* Writes the report in host memory. One thread. */
__global__ void reportToHost(Work work, volatile HostReport *host_report)
{
	host_report->lists = work.now.counters->lists_and_chunks >> 32;
	host_report->totals.short_lists = work.totals->short_lists;
	host_report->totals.given_up = work.totals->given_up;
	host_report->totals.lost = work.totals->lost;
}

/* ---- launchers ---- */

static_assert(sizeof(HostReport) <= MAILBOX_BYTES, "the report must fit the mailbox");

/*
 * How the keys of one sort are divided, and its device memory in one buffer: first the parts that must be
 * zero, then the work lists.
 */
struct Schedule {
	Memory memory;
	Work work;				 /* without now, next and last_level, which differ by level */
	WorkList lists[2];		 /* work lists of even and of odd levels, without counters */
	LevelCounters *counters; /* one per level; there are depth + 2 */
	uint32_t depth;			 /* levels that partition; one more level may write equal keys */
	uint32_t expected;		 /* levels that should be enough */
	unsigned partition_blocks, sort_blocks;
};

/* Chooses the sizes, and allocates work lists with room for any input (quicksort_partition.cuh). */
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
	/* Uneven halves need a few more levels than halvings. */
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

/* The work list of a level; level is at most depth + 1, which is always empty. */
static WorkList lists_of(const Schedule &schedule, uint32_t level)
{
	WorkList lists = schedule.lists[level % 2];
	lists.counters = schedule.counters + level;
	return lists;
}

/* Sets blocks to the number that the device can run at a time, but at most to most. */
template <typename Kernel>
static GpusortCudaStatus resident_blocks(Context &context, Kernel kernel, uint64_t most, unsigned &blocks)
{
	int per_sm = 0;
	GPUSORT_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, THREADS, 0), context.err);
	blocks = (unsigned)(per_sm > 0 ? per_sm : 1) * (unsigned)context.sm_count;
	if (most < blocks) blocks = (unsigned)most;
	return GPUSORT_CUDA_OK;
}

/*
 * Queues levels [level, end), then sortLists for the short lists from number first on, then the report to
 * the host.
 */
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

	/*
	 * All work is done when the next level has no lists, or after level depth, which has only equal keys
	 * to write.
	 */
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
