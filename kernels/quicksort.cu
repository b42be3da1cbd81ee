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
 *								a stack in shared memory.
 *	up to a bitonic network's	the same block sorts them in shared memory.
 *
 * Keys below the pivot go to the list's left end, keys above to its right
 * end, in the other buffer; keys equal to the pivot are not moved at all but
 * counted by what is left between, and written to their final place.  So a
 * list of one value ends at once, and each step takes at least the pivot out.
 *
 * The pivot is the median of 32 keys from places that a hash of the list's
 * position picks, which patterns made to fool a fixed choice do not know.
 * Should depth run out all the same, CUB's radix sort finishes those lists.
 *
 * It exists as a comparison-shaped second engine and for what it teaches; it
 * makes log2(n / 65536) passes and more where mppsort.cu makes two or three.
 */
#include "bitonic.cuh"

#include <cub/block/block_scan.cuh>

namespace gpusort
{

static const int WARP = 32;
static const unsigned ALL_LANES = 0xffffffff;
static const int THREADS = BITONIC_THREADS;
static const int ITEMS = 8;
static const int TILE = THREADS * ITEMS;
/* Longer lists are partitioned by many blocks: fewer keys where that keeps all multiprocessors busy. */
static const uint64_t LONG_LIST = 65536;
static const uint64_t LEAST_LONG_LIST = 8192;
static const uint64_t LISTS_PER_SM = 16;

static const uint32_t CHUNK_TILES = 8;

/* Partitions of one block's lists before it gives up; 16 halvings get from LONG_LIST to a single key. */
static const int BLOCK_DEPTH = 48;

/* The smaller half is sorted first, so the stack holds at most log2(LONG_LIST) lists and one. */
static const int STACK = 20;

/*
 * Keys to be partitioned, [start, start + size) of a source buffer.  below
 * and above count the keys already placed at its left and right end.
 */
struct List {
	uint64_t start, size;
	unsigned long long below, above;
	uint64_t pivot;
	uint64_t first_chunk; /* of the level's chunks, those from here on are this list's */
};

/* What a level deals out; given_up and lists to sort gather over all levels. */
struct Counts {
	unsigned long long lists, chunks; /* of the next level */
	unsigned long long shorter, given_up;
	unsigned long long lost; /* entries that had no room; never, by the sizes below */
};

struct Work {
	List *lists;	  /* of the next level */
	uint32_t *chunks; /* chunk's list */
	Range *shorter;	  /* for sortLists */
	Range *given_up;
	uint64_t list_room, chunk_room, shorter_room, given_up_room;
	uint64_t long_list; /* LEAST_LONG_LIST to LONG_LIST */
	Counts *counts;
	uint32_t chunk_keys;
};

/* ---- kernels ---- */

__device__ inline uint64_t scatter(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* The upper median of a key of each lane; all lanes of the warp call and get it. */
template <typename K> __device__ K warp_median(K key)
{
	const int lane = threadIdx.x % WARP;
	for (int size = 2; size <= WARP; size *= 2) {
		for (int step = size / 2; step > 0; step /= 2) {
			K other = __shfl_xor_sync(ALL_LANES, key, step);
			bool want_smaller = ((lane & size) == 0) == ((lane & step) == 0);
			key = want_smaller ? min(key, other) : max(key, other);
		}
	}
	return __shfl_sync(ALL_LANES, key, WARP / 2);
}

/* All lanes of a warp call and get a pivot, which is one of the keys. */
template <typename K> __device__ K sample_pivot(const K *keys, uint64_t start, uint64_t size)
{
	uint64_t at = scatter(start * WARP + size + (threadIdx.x % WARP) * UINT64_C(0x9e3779b97f4a7c15)) % size;
	return warp_median(keys[start + at]);
}

/* One warp a list. */
template <typename K> __global__ void choosePivots(const K *source, List *lists)
{
	List *list = &lists[blockIdx.x];
	K pivot = sample_pivot(source, list->start, list->size);
	if (threadIdx.x == 0) list->pivot = pivot;
}

/*
 * A tile of at most TILE keys: those below the pivot to to[below ..), those
 * above to to[.. size - above), where below and above are reserved from the
 * two counters, in shared or global memory.  All threads of the block call.
 */
template <typename K> struct Partition {
	typedef cub::BlockScan<unsigned, THREADS> Scan;
	typename Scan::TempStorage scan;
	unsigned long long below, above;
	K tile[TILE];

	__device__ void run(const K *from, unsigned filled, K *to, uint64_t size, K pivot, unsigned long long *list_below,
						unsigned long long *list_above)
	{
		K keys[ITEMS];
		unsigned mine = 0; /* keys below the pivot, and above in the upper half */
#pragma unroll
		for (int i = 0; i < ITEMS; i++) {
			unsigned at = i * THREADS + threadIdx.x;
			keys[i] = at < filled ? from[at] : pivot;
			mine += (keys[i] < pivot) + ((unsigned)(keys[i] > pivot) << 16);
		}
		unsigned before, total;
		Scan(scan).ExclusiveSum(mine, before, total);
		const unsigned total_below = total & 0xffff;
		const unsigned total_above = total >> 16;
		if (threadIdx.x == 0) {
			below = atomicAdd(list_below, (unsigned long long)total_below);
			above = atomicAdd(list_above, (unsigned long long)total_above);
		}
		unsigned left = before & 0xffff;
		unsigned right = before >> 16;
#pragma unroll
		for (int i = 0; i < ITEMS; i++) {
			if (keys[i] < pivot)
				tile[left++] = keys[i];
			else if (keys[i] > pivot)
				tile[TILE - 1 - right++] = keys[i];
		}
		__syncthreads();
		for (unsigned i = threadIdx.x; i < total_below; i += THREADS)
			to[below + i] = tile[i];
		for (unsigned i = threadIdx.x; i < total_above; i += THREADS)
			to[size - 1 - (above + i)] = tile[TILE - 1 - i];
		__syncthreads();
	}
};

template <typename K>
__global__ void __launch_bounds__(THREADS)
	partitionLists(const K *source, K *target, List *lists, const uint32_t *chunks, uint32_t chunk_keys)
{
	__shared__ Partition<K> partition;
	List *list = &lists[chunks[blockIdx.x]];
	const uint64_t start = list->start;
	const uint64_t size = list->size;
	const K pivot = (K)list->pivot;
	const uint64_t begin = (blockIdx.x - list->first_chunk) * chunk_keys;
	const uint64_t end = min(begin + chunk_keys, size);
	for (uint64_t at = begin; at < end; at += TILE)
		partition.run(source + start + at, (unsigned)min((uint64_t)TILE, end - at), target + start, size, pivot,
					  &list->below, &list->above);
}

/* What is left between the two ends equals the pivot: each block writes its chunk's part of that. */
template <typename K>
__global__ void __launch_bounds__(THREADS)
	fillPivots(K *home, const List *lists, const uint32_t *chunks, uint32_t chunk_keys)
{
	const List list = lists[chunks[blockIdx.x]];
	const uint64_t begin = (blockIdx.x - list.first_chunk) * chunk_keys;
	const uint64_t end = min(begin + chunk_keys, (uint64_t)(list.size - list.above));
	for (uint64_t i = max(begin, (uint64_t)list.below) + threadIdx.x; i < end; i += THREADS)
		home[list.start + i] = (K)list.pivot;
}

__device__ void give_up(const Work &work, uint64_t start, uint64_t size, uint64_t in_spare)
{
	unsigned long long at = atomicAdd(&work.counts->given_up, 1ull);
	if (at < work.given_up_room)
		work.given_up[at] = {start, size, in_spare};
	else
		atomicAdd(&work.counts->lost, 1ull);
}

__device__ void deal_list(const Work &work, uint64_t start, uint64_t size, uint64_t in_spare, bool last_level)
{
	if (size == 0) return;
	if (size <= work.long_list) {
		unsigned long long at = atomicAdd(&work.counts->shorter, 1ull);
		if (at < work.shorter_room)
			work.shorter[at] = {start, size, in_spare};
		else
			atomicAdd(&work.counts->lost, 1ull);
		return;
	}
	if (last_level) {
		give_up(work, start, size, in_spare);
		return;
	}
	unsigned long long chunks = (size + work.chunk_keys - 1) / work.chunk_keys;
	unsigned long long first = atomicAdd(&work.counts->chunks, chunks);
	unsigned long long at = atomicAdd(&work.counts->lists, 1ull);
	if (at >= work.list_room || first + chunks > work.chunk_room) {
		atomicAdd(&work.counts->lost, 1ull);
		return;
	}
	work.lists[at] = {start, size, 0, 0, 0, first};
	for (unsigned long long i = 0; i < chunks; i++)
		work.chunks[first + i] = (uint32_t)at;
}

/* Two children of each list. */
__global__ void dealLists(const List *lists, uint64_t count, Work work, uint64_t target_in_spare, bool last_level)
{
	uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
	if (i >= count) return;
	const List list = lists[i];
	deal_list(work, list.start, list.below, target_in_spare, last_level);
	deal_list(work, list.start + list.size - list.above, list.above, target_in_spare, last_level);
}

/* A list on a block's stack. */
struct Pending {
	uint64_t start;
	uint32_t size;
	uint16_t in_spare;
	uint16_t depth;
};

/* One block a list. home is keys. */
template <typename K>
__global__ void __launch_bounds__(THREADS) sortLists(const Range *ranges, K *keys, K *spare, Work work)
{
	__shared__ union {
		Partition<K> partition;
		K keys[network_place(BITONIC<K>)];
	} shared;
	__shared__ Pending stack[STACK];
	__shared__ unsigned long long below, above;
	__shared__ K shared_pivot;
	int depth = 1; /* of the stack; every thread counts alike */

	if (threadIdx.x == 0) {
		const Range range = ranges[blockIdx.x];
		stack[0] = {range.start, (uint32_t)range.size, (uint16_t)range.in_spare, 0};
	}
	__syncthreads();

	while (depth > 0) {
		const Pending list = stack[--depth];
		K *source = (list.in_spare ? spare : keys) + list.start;
		K *target = (list.in_spare ? keys : spare) + list.start;
		K *home = keys + list.start;

		if (list.size <= BITONIC<K>) {
			for (unsigned i = threadIdx.x; i < list.size; i += THREADS)
				shared.keys[network_place(i)] = source[i];
			bitonic_sort(shared.keys, list.size);
			for (unsigned i = threadIdx.x; i < list.size; i += THREADS)
				home[i] = shared.keys[network_place(i)];
			__syncthreads();
			continue;
		}
		if (list.depth >= BLOCK_DEPTH) {
			if (threadIdx.x == 0) give_up(work, list.start, list.size, list.in_spare);
			__syncthreads();
			continue;
		}

		if (threadIdx.x < WARP) {
			K pivot = sample_pivot((const K *)source, 0, list.size);
			if (threadIdx.x == 0) {
				shared_pivot = pivot;
				below = 0;
				above = 0;
			}
		}
		__syncthreads();
		const K pivot = shared_pivot;
		for (unsigned at = 0; at < list.size; at += TILE)
			shared.partition.run(source + at, min((unsigned)TILE, list.size - at), target, list.size, pivot, &below,
								 &above);
		const uint32_t left = (uint32_t)below;
		const uint32_t right = (uint32_t)above;
		/* The source is not read again: home may be it. */
		for (uint32_t i = left + threadIdx.x; i < list.size - right; i += THREADS)
			home[i] = pivot;

		const uint16_t other = (uint16_t)(1 - list.in_spare);
		const uint16_t deeper = (uint16_t)(list.depth + 1);
		const Pending lower = {list.start, left, other, deeper};
		const Pending upper = {list.start + list.size - right, right, other, deeper};
		const Pending larger = left > right ? lower : upper;
		const Pending smaller = left > right ? upper : lower;
		if (threadIdx.x == 0) {
			stack[depth] = larger;
			stack[depth + 1] = smaller;
		}
		depth += larger.size > 0;
		depth += smaller.size > 0;
		__syncthreads();
	}
}

/* ---- launchers ---- */

template <typename K>
static GpusortCudaStatus partition_level(Run &run, const Work &work, List *lists, const uint32_t *chunks,
										 const Counts &now, int level, bool last_level, K *keys, K *spare)
{
	K *source = level % 2 ? spare : keys;
	K *target = level % 2 ? keys : spare;
	const unsigned blocks = (unsigned)now.chunks;

	choosePivots<<<(unsigned)now.lists, WARP, 0, run.stream>>>(source, lists);
	GPUSORT_LAUNCHED("choosePivots", run.err);
	partitionLists<<<blocks, THREADS, 0, run.stream>>>(source, target, lists, chunks, work.chunk_keys);
	GPUSORT_LAUNCHED("partitionLists", run.err);
	fillPivots<<<blocks, THREADS, 0, run.stream>>>(keys, lists, chunks, work.chunk_keys);
	GPUSORT_LAUNCHED("fillPivots", run.err);
	dealLists<<<(unsigned)((now.lists + THREADS - 1) / THREADS), THREADS, 0, run.stream>>>(
		lists, now.lists, work, level % 2 ? 0 : 1, last_level);
	GPUSORT_LAUNCHED("dealLists", run.err);
	note_launch(run, blocks, THREADS);
	return GPUSORT_CUDA_OK;
}

/* The first list is everything: a long one for the levels, or a shorter one at once. */
static GpusortCudaStatus begin_lists(Run &run, const Work &work, List *lists, uint32_t *chunks, uint64_t count,
									 Counts &now)
{
	if (count > work.long_list) {
		List all = {};
		all.size = count;
		now.lists = 1;
		now.chunks = (count + work.chunk_keys - 1) / work.chunk_keys;
		GPUSORT_TRY(cudaMemcpyAsync(lists, &all, sizeof(all), cudaMemcpyHostToDevice, run.stream), run.err);
		GPUSORT_TRY(cudaMemsetAsync(chunks, 0, now.chunks * sizeof(uint32_t), run.stream), run.err);
	} else {
		Range all = {0, count, 0};
		now.shorter = 1;
		GPUSORT_TRY(cudaMemcpyAsync(work.shorter, &all, sizeof(all), cudaMemcpyHostToDevice, run.stream), run.err);
	}
	GPUSORT_TRY(cudaMemcpyAsync(work.counts, &now, sizeof(now), cudaMemcpyHostToDevice, run.stream), run.err);
	return GPUSORT_CUDA_OK;
}

template <typename K> GpusortCudaStatus quicksort(Run &run, K *keys, K *spare, uint64_t count, K **sorted)
{
	Memory lists[2], chunks[2], shorter, given_up, counts;
	Work work = {};
	Counts now = {};
	int levels = 8;

	*sorted = keys;
	if (count < 2) return GPUSORT_CUDA_OK;
	work.long_list = LEAST_LONG_LIST;
	while (work.long_list < LONG_LIST && work.long_list * LISTS_PER_SM * run.sm_count < count)
		work.long_list *= 2;
	for (uint64_t size = count; size > work.long_list; size /= 2)
		levels += 2;

	work.chunk_keys = TILE;
	while (work.chunk_keys < CHUNK_TILES * TILE && work.chunk_keys * 16ull * run.sm_count < count)
		work.chunk_keys *= 2;
	/* Long lists are disjoint; a shorter one is the child of a long one, at most two of each in each level;
	 * a block gives up lists that are disjoint and longer than the network takes. */
	work.list_room = count / work.long_list + 1;
	work.chunk_room = count / work.chunk_keys + work.list_room + 1;
	work.shorter_room = 2 * levels * work.list_room + 1;
	work.given_up_room = work.list_room + count / BITONIC<K> + 1;
	for (int i = 0; i < 2; i++) {
		GPUSORT_PASS(lists[i].allocate(run, work.list_room * sizeof(List)));
		GPUSORT_PASS(chunks[i].allocate(run, work.chunk_room * sizeof(uint32_t)));
	}
	GPUSORT_PASS(shorter.allocate(run, work.shorter_room * sizeof(Range)));
	GPUSORT_PASS(given_up.allocate(run, work.given_up_room * sizeof(Range)));
	GPUSORT_PASS(counts.allocate(run, sizeof(Counts)));
	work.shorter = shorter.as<Range>();
	work.given_up = given_up.as<Range>();
	work.counts = counts.as<Counts>();
	GPUSORT_PASS(begin_lists(run, work, lists[0].as<List>(), chunks[0].as<uint32_t>(), count, now));

	for (int level = 0; level < levels && now.lists > 0; level++) {
		work.lists = lists[(level + 1) % 2].as<List>();
		work.chunks = chunks[(level + 1) % 2].as<uint32_t>();
		GPUSORT_TRY(cudaMemsetAsync(work.counts, 0, offsetof(Counts, shorter), run.stream), run.err);
		GPUSORT_PASS(partition_level(run, work, lists[level % 2].as<List>(), chunks[level % 2].as<uint32_t>(), now,
									 level, level == levels - 1, keys, spare));
		GPUSORT_TRY(cudaMemcpyAsync(&now, work.counts, sizeof(now), cudaMemcpyDeviceToHost, run.stream), run.err);
		GPUSORT_TRY(cudaStreamSynchronize(run.stream), run.err);
		if (now.lost > 0) return fail(GPUSORT_CUDA_UNSORTED, "dealLists", "a work list of quicksort is full", run.err);
	}

	if (now.shorter > 0) {
		sortLists<<<(unsigned)now.shorter, THREADS, 0, run.stream>>>(work.shorter, keys, spare, work);
		GPUSORT_LAUNCHED("sortLists", run.err);
		note_launch(run, now.shorter, THREADS);
	}
	GPUSORT_TRY(cudaMemcpyAsync(&now, work.counts, sizeof(now), cudaMemcpyDeviceToHost, run.stream), run.err);
	GPUSORT_TRY(cudaStreamSynchronize(run.stream), run.err);
	if (now.lost > 0) return fail(GPUSORT_CUDA_UNSORTED, "sortLists", "a work list of quicksort is full", run.err);
	return cub_finish(run, work.given_up, now.given_up, keys, spare, count, sorted);
}

template GpusortCudaStatus quicksort(Run &, uint32_t *, uint32_t *, uint64_t, uint32_t **);
template GpusortCudaStatus quicksort(Run &, uint64_t *, uint64_t *, uint64_t, uint64_t **);

} // namespace gpusort
