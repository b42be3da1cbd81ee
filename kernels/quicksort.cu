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
__device__ void deal_long(const Work &work, const K *keys, uint64_t start, uint64_t size, bool equal, K pivot)
{
	const unsigned lane = threadIdx.x % WARP;
	const uint32_t chunks = (uint32_t)((size + (1u << work.chunk_bits) - 1) >> work.chunk_bits);
	unsigned long long dealt = 0;

	/* The pivot is looked for while the addition is on its way. */
	if (lane == 0) dealt = atomicAdd(&work.next.dealt->lists_and_chunks, (1ull << 32) + chunks);
	if (!equal) pivot = sample_pivot(keys, start, size);
	dealt = __shfl_sync(ALL_LANES, dealt, 0);
	const uint32_t at = (uint32_t)(dealt >> 32);
	const uint32_t first = (uint32_t)dealt;
	if (at >= work.list_room || (uint64_t)first + chunks > work.chunk_room) {
		if (lane == 0) atomicAdd(&work.next.dealt->lost, 1u);
		if (lane == 0) atomicAdd(&work.totals->lost, 1ull);
		return;
	}
	if (lane == 0) work.next.lists[at] = {start, size, (uint64_t)pivot, 0, 0, first, chunks, 0, equal};
	for (uint32_t i = lane; i < chunks; i += WARP)
		work.next.chunks[first + i] = at;
}

/* Deals out [start, start + size) of keys, which is the spare buffer if in_spare. A warp calls. */
template <typename K>
__device__ void deal(const Work &work, const K *keys, uint64_t start, uint64_t size, uint64_t in_spare)
{
	const bool one_lane = threadIdx.x % WARP == 0;
	if (size > work.long_list && !work.last_level) {
		deal_long(work, keys, start, size, false, K(0));
	} else if (size > work.long_list) {
		if (one_lane) give_up(work, start, size, in_spare);
	} else if (size > 0) {
		if (one_lane)
			append_range(work.shorter, work.shorter_room, &work.totals->shorter, work.totals, {start, size, in_spare});
	}
}

/* The first list is everything: a long one for the first level, or a shorter one at once. One warp. */
template <typename K> __global__ void dealFirst(const K *keys, uint64_t count, Work work)
{
	deal(work, keys, 0, count, 0);
}

/*
 * A list has been partitioned: each part is a warp's to deal out, and the
 * pivots between them are written, or, if they are many, become an entry of
 * the next level too.  All threads of a block call.
 */
template <typename K>
__device__ void close_list(const Work &work, const List &list, const K *target, K *home, uint64_t target_in_spare)
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
		deal_long(work, target, start + below, equal, true, pivot);
	}
	if (warp == 0) deal(work, target, start, below, target_in_spare);
	if (warp == 1) deal(work, target, start + list.size - above, above, target_in_spare);
}

/* One level: partitions its lists from source to target, and deals out the next. */
template <typename K>
__global__ void __launch_bounds__(THREADS, partition_blocks(sizeof(K)))
	partitionLists(const K *source, K *target, K *home, Work work, uint64_t target_in_spare)
{
	__shared__ Partition<K> partition;
	__shared__ uint32_t next;
	__shared__ bool last;
	const uint32_t chunks = work.now.dealt->lost > 0 ? 0 : (uint32_t)work.now.dealt->lists_and_chunks;

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
				partition.run(from + at, min((uint32_t)TILE, length - at));
		}

		/* Whoever comes last has seen what the others wrote. */
		__syncthreads();
		if (threadIdx.x == 0) {
			__threadfence();
			last = atomicAdd(&list->done, 1u) == list->chunks - 1 && !list->equal;
			__threadfence();
		}
		if (threadIdx.x == WARP) next = gridDim.x + atomicAdd(&work.now.dealt->chunks_taken, 1u);
		__syncthreads();
		if (last) close_list(work, *list, target, home, target_in_spare);
		chunk = next;
	}
}

/* Writes to the host's memory. One thread. */
__global__ void tellHost(Work work, volatile Letter *letter)
{
	letter->lists = work.now.dealt->lists_and_chunks >> 32;
	letter->totals.shorter = work.totals->shorter;
	letter->totals.given_up = work.totals->given_up;
	letter->totals.lost = work.totals->lost;
}

/* ---- launchers ---- */

static_assert(sizeof(Letter) <= MAILBOX_BYTES, "a letter must fit the mailbox");

/* How a run is cut up, and its memory, in one piece: what must be zero at first, then the work lists. */
struct Course {
	Memory memory;
	Work work;		   /* but for now, next and last_level */
	WorkList lists[2]; /* of even levels, of odd ones; but for dealt */
	Dealt *dealt;	   /* of each level, of which there are two more than depth */
	uint32_t depth;	   /* levels that partition; one more may have equal keys left to write */
	uint32_t expected; /* levels that should do */
	unsigned partition_blocks, sort_blocks;
};

/* Sizes, and work lists that have room for any input (quicksort_partition.cuh). */
template <typename K> static GpusortCudaStatus set_course(Run &run, uint64_t count, Course &course)
{
	Work &work = course.work;
	uint32_t halvings = 0;

	work.long_list = BITONIC<K>;
	while (work.long_list < LONGEST_SHORTER && work.long_list * LISTS_PER_SM * run.sm_count < count)
		work.long_list *= 2;
	while (work.long_list << halvings < count)
		halvings++;
	course.depth = 8 + 2 * halvings;
	/* Uneven halves make a few more than halvings. */
	course.expected = halvings == 0 ? 0 : halvings + halvings / 4 + 1;

	work.chunk_bits = 0;
	while (1 << work.chunk_bits < TILE)
		work.chunk_bits++;
	for (uint32_t tiles = 1; tiles < CHUNK_TILES && (CHUNKS_PER_SM * run.sm_count << work.chunk_bits) < count;
		 tiles *= 2)
		work.chunk_bits++;

	work.list_room = count / work.long_list;
	work.chunk_room = (count >> work.chunk_bits) + work.list_room;
	work.shorter_room = course.depth * work.list_room + 1;
	work.given_up_room = count / BITONIC<K>;

	size_t at = 0;
	auto carve = [&at](size_t bytes) {
		size_t start = at;
		at += (bytes + 255) / 256 * 256;
		return start;
	};
	const size_t totals = carve(sizeof(Totals));
	const size_t dealt = carve((course.depth + 2) * sizeof(Dealt));
	const size_t zeros = at;
	const size_t lists[2] = {carve(work.list_room * sizeof(List)), carve(work.list_room * sizeof(List))};
	const size_t chunks[2] = {carve(work.chunk_room * sizeof(uint32_t)), carve(work.chunk_room * sizeof(uint32_t))};
	const size_t shorter = carve(work.shorter_room * sizeof(Range));
	const size_t given_up = carve(work.given_up_room * sizeof(Range));

	GPUSORT_PASS(course.memory.allocate(run, at));
	char *base = course.memory.as<char>();
	work.totals = (Totals *)(base + totals);
	course.dealt = (Dealt *)(base + dealt);
	for (int i = 0; i < 2; i++)
		course.lists[i] = {(List *)(base + lists[i]), (uint32_t *)(base + chunks[i]), nullptr};
	work.shorter = (Range *)(base + shorter);
	work.given_up = (Range *)(base + given_up);
	GPUSORT_TRY(cudaMemsetAsync(base, 0, zeros, run.stream), run.err);
	return GPUSORT_CUDA_OK;
}

/* The lists of a level up to depth + 1, which is always empty. */
static WorkList lists_of(const Course &course, uint32_t level)
{
	WorkList lists = course.lists[level % 2];
	lists.dealt = course.dealt + level;
	return lists;
}

/* As many as run at a time, or fewer if there is never so much to do. */
template <typename Kernel>
static GpusortCudaStatus resident_blocks(Run &run, Kernel kernel, uint64_t most, unsigned &blocks)
{
	int per_sm = 0;
	GPUSORT_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, THREADS, 0), run.err);
	blocks = (unsigned)(per_sm > 0 ? per_sm : 1) * (unsigned)run.sm_count;
	if (most < blocks) blocks = (unsigned)most;
	return GPUSORT_CUDA_OK;
}

/* Queues levels [level, end), sortLists for what they leave from first on, and the letter. */
template <typename K>
static GpusortCudaStatus queue_levels(Run &run, const Course &course, uint32_t level, uint32_t end, uint64_t first,
									  K *keys, K *spare)
{
	Work work = course.work;
	for (; level < end; level++) {
		work.now = lists_of(course, level);
		work.next = lists_of(course, level + 1);
		work.last_level = level + 1 >= course.depth;
		partitionLists<K><<<course.partition_blocks, THREADS, 0, run.stream>>>(
			level % 2 ? spare : keys, level % 2 ? keys : spare, keys, work, level % 2 ? 0 : 1);
		GPUSORT_LAUNCHED("partitionLists", run.err);
		note_launch(run, course.partition_blocks, THREADS);
	}
	work.now = lists_of(course, end);
	sortLists<K><<<course.sort_blocks, THREADS, 0, run.stream>>>(keys, spare, work, first);
	GPUSORT_LAUNCHED("sortLists", run.err);
	note_launch(run, course.sort_blocks, THREADS);
	tellHost<<<1, 1, 0, run.stream>>>(work, (Letter *)run.mailbox);
	GPUSORT_LAUNCHED("tellHost", run.err);
	GPUSORT_TRY(cudaEventRecord(run.posted, run.stream), run.err);
	return GPUSORT_CUDA_OK;
}

template <typename K> GpusortCudaStatus quicksort(Run &run, K *keys, K *spare, uint64_t count, K **sorted)
{
	Course course = {};
	Letter letter = {};

	*sorted = keys;
	if (count < 2) return GPUSORT_CUDA_OK;
	GPUSORT_PASS(set_course<K>(run, count, course));
	course.work.next = lists_of(course, 0);
	dealFirst<<<1, WARP, 0, run.stream>>>(keys, count, course.work);
	GPUSORT_LAUNCHED("dealFirst", run.err);
	GPUSORT_PASS(resident_blocks(run, partitionLists<K>, course.work.chunk_room, course.partition_blocks));
	GPUSORT_PASS(resident_blocks(run, sortLists<K>, course.work.shorter_room, course.sort_blocks));

	/* Once there are none left, or after the last level, which has equal keys alone, all is dealt out. */
	uint32_t level = 0;
	uint32_t batch = course.expected;
	do {
		const uint32_t left = course.depth + 1 - level;
		const uint32_t end = level + (batch < left ? batch : left);
		GPUSORT_PASS(queue_levels(run, course, level, end, letter.totals.shorter, keys, spare));
		GPUSORT_TRY(cudaEventSynchronize(run.posted), run.err);
		letter = *(const Letter *)run.mailbox;
		if (letter.totals.lost > 0)
			return fail(GPUSORT_CUDA_UNSORTED, "partitionLists", "a work list of quicksort is full", run.err);
		level = end;
		batch = MORE_LEVELS;
	} while (letter.lists > 0 && level <= course.depth);
	return cub_finish(run, course.work.given_up, letter.totals.given_up, keys, spare, count, sorted);
}

template GpusortCudaStatus quicksort(Run &, uint32_t *, uint32_t *, uint64_t, uint32_t **);
template GpusortCudaStatus quicksort(Run &, uint64_t *, uint64_t *, uint64_t, uint64_t **);

} // namespace gpusort
