/*
 * rows.cu
 *		What follows a sort with rows: ties, and the rows themselves in sorted order.
 *
 * The rows were uploaded as the host wrote them, in blocks. A row's number gives its block, by binary search over
 * the blocks' first rows, and the block says where the row is. Each thread block keeps an index of the blocks in
 * shared memory, because every row is searched for.
 *
 * The rows in sorted order are divided into windows of a size that the host can download at once. If all rows have
 * the same length, a window is a range of places. Otherwise one kernel measures the rows in sorted order, a prefix
 * sum turns their lengths into offsets, and windows begin at the first row at or after each multiple of a step,
 * which is a window less the longest row: so a window never overflows.
 *
 * gather_rows() copies the rows of one window side by side, so that its download is one copy. Threads of a warp write
 * consecutive words.
 *
 * Blocks and directories come from other processes and are not trusted: the host checks the blocks, and the kernel that
 * measures checks the directories, before any row is read.
 */
#include "grid.cuh"

#include <cub/device/device_scan.cuh>

#include <new>

namespace gpusort
{

static const size_t WORD = 8; /* bytes; rows consist of words */

/* The most entries of an index of blocks: 16 kB of shared memory, with which all threads still fit an SM. */
static const uint32_t INDEX_ENTRIES = 4096;

/* The most bytes of a window: its number of words, and its longest row in slices, must fit a launch. */
static const uint64_t MOST_WINDOW_BYTES = (uint64_t)8 << 30;
/* Other windows would waste much of their room for the longest row. */
static const uint64_t ROWS_PER_WINDOW = 4;

/* The words of a row that one group of threads copies. Several groups share a longer row. */
static const uint64_t SLICE_WORDS = (64 << 10) / WORD;

/* The findings of measureRows(). All zeros before. */
struct Measured {
	unsigned long long total, longest; /* words */
	unsigned damaged;				   /* not 0: an entry of a directory is wrong */
};

/* ---- where rows are ---- */

/* The rows, in device memory. */
struct Rows {
	const char *data;
	const GpusortCudaRowBlock *blocks;
	uint32_t nblocks, count;
};

/* One row. words is 0 if its directory is damaged. */
struct Row {
	const char *begin;
	uint64_t words;
};

/* The number of blocks for each entry of the index. */
__host__ __device__ static inline uint32_t blocks_per_entry(uint32_t nblocks)
{
	return (nblocks + INDEX_ENTRIES - 1) / INDEX_ENTRIES;
}

__host__ __device__ static inline uint32_t index_entries(uint32_t nblocks)
{
	return (nblocks + blocks_per_entry(nblocks) - 1) / blocks_per_entry(nblocks);
}

/* Finds rows by their numbers. */
class Finder
{
  public:
	/* All threads of the block call this; index is shared memory for the entries. */
	__device__ Finder(const Rows &of_rows, uint32_t *to_index) : rows(of_rows), index(to_index)
	{
		each = blocks_per_entry(rows.nblocks);
		entries = index_entries(rows.nblocks);
		for (uint32_t e = threadIdx.x; e < entries; e += blockDim.x)
			index[e] = rows.blocks[e * each].first;
		__syncthreads();
	}

	/* The block of a row: the last one that begins at or before it. */
	__device__ uint32_t block_of(uint32_t row) const
	{
		uint32_t low = 0, high = entries;
		while (high - low > 1) {
			const uint32_t middle = (low + high) / 2;
			(index[middle] <= row ? low : high) = middle;
		}
		if (each == 1) return low;
		low *= each;
		high = min(low + each, rows.nblocks);
		while (high - low > 1) {
			const uint32_t middle = low + (high - low) / 2;
			(rows.blocks[middle].first <= row ? low : high) = middle;
		}
		return low;
	}

	/* Reads no memory outside of the block's directory. */
	__device__ Row find(uint32_t row) const
	{
		const uint32_t b = block_of(row);
		const GpusortCudaRowBlock block = rows.blocks[b];
		const uint64_t number = row - block.first;
		const char *first = rows.data + block.offset;
		if (block.stride != 0) return {first + number * block.stride, block.stride / WORD};

		const uint32_t *entry = (const uint32_t *)(rows.data + block.directory) - 1 - number;
		const uint32_t next_block = b + 1 < rows.nblocks ? rows.blocks[b + 1].first : rows.count;
		const uint64_t words = block.bytes / WORD;
		const uint64_t begin = entry[0];
		const uint64_t end = row + 1 < next_block ? entry[-1] : words;
		return {first + begin * WORD, begin < end && end <= words ? end - begin : 0};
	}

  private:
	const Rows &rows;
	uint32_t *index;
	uint32_t each, entries;
};

/* ---- kernels ---- */

/* order is NULL if the keys are sorted themselves. */
template <typename K>
__global__ void markTies(const K *keys, const uint32_t *order, int words, uint64_t count, uint8_t *ties)
{
	for (uint64_t i = grid_first(); i < count; i += grid_step()) {
		bool same = i > 0;
		if (same) {
			const K *before = keys + (order ? order[i - 1] : i - 1) * words;
			const K *own = keys + (order ? order[i] : i) * words;
			for (int w = 0; w < words && same; w++)
				same = before[w] == own[w];
		}
		ties[i] = same;
	}
}

/* Writes the lengths in words of all rows in sorted order, and a 0 after them. */
__global__ void __launch_bounds__(THREADS)
	measureRows(Rows rows, const uint32_t *order, uint64_t *lengths, Measured *measured)
{
	extern __shared__ uint32_t index[];
	const Finder finder(rows, index);
	unsigned long long total = 0, longest = 0;
	bool damaged = false;
	for (uint64_t i = grid_first(); i < rows.count; i += grid_step()) {
		const unsigned long long words = finder.find(order[i]).words;
		lengths[i] = words;
		total += words;
		longest = max(longest, words);
		damaged |= words == 0;
	}
	if (grid_first() == 0) lengths[rows.count] = 0;
	total = warp_sum(total);
	for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
		longest = max(longest, __shfl_down_sync(ALL_LANES, longest, lanes));
	if (damaged) measured->damaged = 1;
	if (threadIdx.x % WARP != 0) return;
	atomicAdd(&measured->total, total);
	atomicMax(&measured->longest, longest);
}

/* Finds the first row of each window, and the end of the last one. */
__global__ void cutWindows(const uint64_t *offsets, uint64_t count, uint64_t step, WindowBegin *begins,
						   uint64_t windows)
{
	for (uint64_t w = grid_first(); w <= windows; w += grid_step()) {
		uint64_t low = 0, high = count;
		while (low < high) {
			const uint64_t middle = (low + high) / 2;
			if (offsets[middle] < w * step)
				low = middle + 1;
			else
				high = middle;
		}
		begins[w] = {low, offsets[low]};
	}
}

/* Copies rows of the same length: a thread for each Word. order begins with the first row; count is in Words. */
template <typename Word>
__global__ void __launch_bounds__(THREADS)
	gatherEqual(Rows rows, const uint32_t *order, uint32_t row_words, uint32_t count, Word *to)
{
	extern __shared__ uint32_t index[];
	const Finder finder(rows, index);
	for (uint64_t w = grid_first(); w < count; w += grid_step()) {
		const uint32_t place = (uint32_t)w / row_words;
		const Word *from = (const Word *)finder.find(order[place]).begin;
		to[w] = from[(uint32_t)w - place * row_words];
	}
}

/*
 * Copies rows of any length: GROUP threads for each row, or for each slice of it, by blockIdx.y. order and offsets
 * begin with the first row.
 */
template <int GROUP>
__global__ void __launch_bounds__(THREADS)
	gatherRows(Rows rows, const uint32_t *order, const uint64_t *offsets, uint64_t count, uint64_t *to)
{
	extern __shared__ uint32_t index[];
	const Finder finder(rows, index);
	const uint64_t begin = offsets[0];
	const uint64_t skipped = blockIdx.y * SLICE_WORDS;
	for (uint64_t i = grid_first() / GROUP; i < count; i += grid_step() / GROUP) {
		const uint64_t offset = offsets[i];
		const uint64_t words = offsets[i + 1] - offset;
		if (words <= skipped) continue;
		const uint32_t copied = (uint32_t)min(words - skipped, SLICE_WORDS);
		const uint64_t *__restrict__ source = (const uint64_t *)finder.find(order[i]).begin + skipped;
		uint64_t *__restrict__ target = to + (offset - begin) + skipped;
#pragma unroll 4
		for (uint32_t w = threadIdx.x % GROUP; w < copied; w += GROUP)
			target[w] = source[w];
	}
}

/* ---- ties ---- */

GpusortCudaStatus mark_ties(Context &context, const GpusortCudaSort &sort, const Memory &keys, const uint32_t *order,
							Memory &ties)
{
	const int words = sort.words > 1 ? sort.words : 1;
	GPUSORT_PASS(ties.allocate(context, sort.rows));
	if (sort.rows == 0) return GPUSORT_CUDA_OK;
	const unsigned blocks = blocks_for(context, sort.rows);
	if (sort.key_bytes == 4)
		markTies<<<blocks, THREADS, 0, context.stream>>>(keys.as<uint32_t>(), order, words, sort.rows,
														 ties.as<uint8_t>());
	else
		markTies<<<blocks, THREADS, 0, context.stream>>>(keys.as<uint64_t>(), order, words, sort.rows,
														 ties.as<uint8_t>());
	GPUSORT_LAUNCHED("markTies", context.err);
	return GPUSORT_CUDA_OK;
}

/* ---- arranging ---- */

static Rows rows_of(const Arrangement &made)
{
	return {made.data, made.blocks.as<GpusortCudaRowBlock>(), made.nblocks, made.rows};
}

static size_t index_bytes(const Arrangement &made)
{
	return index_entries(made.nblocks) * sizeof(uint32_t);
}

/*
 * Checks that the blocks lie in room bytes and have all rows, and finds out whether all rows have the same length.
 * Blocks without rows are allowed.
 */
static bool check_blocks(const GpusortCudaRowBlock *blocks, size_t nblocks, uint64_t room, Arrangement &made)
{
	bool any = false;
	if (nblocks == 0 || nblocks > INT32_MAX || blocks[0].first != 0) return false;
	made.aligned = true;
	for (size_t b = 0; b < nblocks; b++) {
		const GpusortCudaRowBlock &block = blocks[b];
		const uint32_t end = b + 1 < nblocks ? blocks[b + 1].first : made.rows;
		if (end < block.first) return false;
		const uint64_t count = end - block.first;
		if (block.offset % WORD != 0 || block.bytes % WORD != 0 || block.bytes > room ||
			block.offset > room - block.bytes)
			return false;
		if (block.stride != 0) {
			if (block.stride % WORD != 0 || count * block.stride > block.bytes) return false;
		} else if (block.directory % sizeof(uint32_t) != 0 || block.directory > room ||
				   count > block.directory / sizeof(uint32_t))
			return false;
		if (count == 0) continue;
		made.stride = !any || made.stride == block.stride ? block.stride : 0;
		made.aligned = made.aligned && block.offset % sizeof(ulonglong2) == 0;
		any = true;
	}
	made.aligned = made.aligned && made.stride % sizeof(ulonglong2) == 0;
	return true;
}

/* Fails if a row is too long for windows of window_bytes. */
static GpusortCudaStatus check_longest(Context &context, uint64_t longest, uint64_t window_bytes)
{
	if (longest <= window_bytes / ROWS_PER_WINDOW) return GPUSORT_CUDA_OK;
	return fail(GPUSORT_CUDA_NO_MEMORY, "gpusort_cuda_arrange", "a row is too long", context.err);
}

/* Writes the rows' lengths to made.offsets. Waits for the device. */
static GpusortCudaStatus measure_rows(Context &context, Arrangement &made, Measured &measured)
{
	Memory device;
	GPUSORT_PASS(made.offsets.allocate(context, (made.rows + (size_t)1) * sizeof(uint64_t)));
	GPUSORT_PASS(device.allocate(context, sizeof(measured)));
	GPUSORT_TRY(cudaMemsetAsync(device.as<Measured>(), 0, sizeof(measured), context.stream), context.err);
	measureRows<<<blocks_for(context, made.rows), THREADS, index_bytes(made), context.stream>>>(
		rows_of(made), made.order, made.offsets.as<uint64_t>(), device.as<Measured>());
	GPUSORT_LAUNCHED("measureRows", context.err);
	GPUSORT_TRY(
		cudaMemcpyAsync(&measured, device.as<Measured>(), sizeof(measured), cudaMemcpyDeviceToHost, context.stream),
		context.err);
	GPUSORT_TRY(cudaStreamSynchronize(context.stream), context.err);
	if (measured.damaged)
		return fail(GPUSORT_CUDA_UNSORTED, "gpusort_cuda_arrange", "a directory of rows is damaged", context.err);
	return GPUSORT_CUDA_OK;
}

/* Turns the lengths in made.offsets into offsets. */
static GpusortCudaStatus add_lengths(Context &context, const Arrangement &made)
{
	const uint64_t count = made.rows + (uint64_t)1;
	uint64_t *offsets = made.offsets.as<uint64_t>();
	Memory scratch;
	size_t bytes = 0;
	/* Before version 2.7, CUB counts in int. */
	if (CUB_VERSION < 200700 && count > INT32_MAX)
		return fail(GPUSORT_CUDA_NO_MEMORY, "cub::DeviceScan", "too many rows", context.err);
	GPUSORT_TRY(cub::DeviceScan::ExclusiveSum(nullptr, bytes, offsets, offsets, count, context.stream), context.err);
	GPUSORT_PASS(scratch.allocate(context, bytes));
	GPUSORT_TRY(cub::DeviceScan::ExclusiveSum(scratch.as<void>(), bytes, offsets, offsets, count, context.stream),
				context.err);
	return GPUSORT_CUDA_OK;
}

/* Fills in made.begins for windows that begin step words apart, at least. Waits for the device. */
static GpusortCudaStatus cut_windows(Context &context, uint64_t total, uint64_t step, Arrangement &made)
{
	const uint64_t windows = (total + step - 1) / step;
	const size_t bytes = (windows + 1) * sizeof(WindowBegin);
	Memory device;
	made.begins.reset(new (std::nothrow) WindowBegin[windows + 1]);
	if (!made.begins) return fail(GPUSORT_CUDA_NO_MEMORY, "gpusort_cuda_arrange", "out of host memory", context.err);
	GPUSORT_PASS(device.allocate(context, bytes));
	cutWindows<<<blocks_for(context, windows + 1), THREADS, 0, context.stream>>>(
		made.offsets.as<uint64_t>(), made.rows, step, device.as<WindowBegin>(), windows);
	GPUSORT_LAUNCHED("cutWindows", context.err);
	GPUSORT_TRY(
		cudaMemcpyAsync(made.begins.get(), device.as<WindowBegin>(), bytes, cudaMemcpyDeviceToHost, context.stream),
		context.err);
	GPUSORT_TRY(cudaStreamSynchronize(context.stream), context.err);
	made.windows = windows;
	/* The last row may begin before the last step. */
	if (made.begins[windows - 1].place == made.rows) made.windows--;
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus arrange_rows(Context &context, const Memory &data, const GpusortCudaRowBlock *blocks, size_t nblocks,
							   uint64_t window_bytes, Arrangement &made)
{
	uint64_t total;

	if (made.rows == 0) return GPUSORT_CUDA_OK;
	made.data = data.as<char>();
	made.nblocks = (uint32_t)nblocks;
	if (!check_blocks(blocks, nblocks, made.data == nullptr ? 0 : data.bytes(), made))
		return fail(GPUSORT_CUDA_UNSORTED, "gpusort_cuda_arrange", "the blocks do not describe the rows", context.err);
	window_bytes = window_bytes < MOST_WINDOW_BYTES ? window_bytes / WORD * WORD : MOST_WINDOW_BYTES;

	GPUSORT_PASS(made.blocks.allocate(context, nblocks * sizeof(*blocks)));
	GPUSORT_TRY(cudaMemcpyAsync(made.blocks.as<void>(), blocks, nblocks * sizeof(*blocks), cudaMemcpyHostToDevice,
								context.stream),
				context.err);
	if (made.stride != 0) {
		GPUSORT_PASS(check_longest(context, made.stride, window_bytes));
		total = made.rows * (uint64_t)made.stride;
		made.per_window = window_bytes / made.stride;
		made.windows = (made.rows + made.per_window - 1) / made.per_window;
	} else {
		Measured measured;
		GPUSORT_PASS(measure_rows(context, made, measured));
		GPUSORT_PASS(check_longest(context, measured.longest * WORD, window_bytes));
		GPUSORT_PASS(add_lengths(context, made));
		GPUSORT_PASS(cut_windows(context, measured.total, window_bytes / WORD - measured.longest, made));
		total = measured.total * WORD;
		made.longest = measured.longest;
		made.group = 4;
		while (made.group < WARP && made.group * (uint64_t)made.rows < measured.total)
			made.group *= 2;
	}
	return made.staging.allocate(context, total < window_bytes ? total : window_bytes);
}

/* ---- gathering ---- */

template <typename Word>
static void launch_equal(Context &context, const Arrangement &made, const GpusortCudaWindow &window)
{
	const uint32_t words = (uint32_t)(window.bytes / sizeof(Word));
	gatherEqual<<<blocks_for(context, words), THREADS, index_bytes(made), context.stream>>>(
		rows_of(made), made.order + window.first, (uint32_t)(made.stride / sizeof(Word)), words,
		made.staging.as<Word>());
}

template <int GROUP> static void launch_rows(Context &context, const Arrangement &made, const GpusortCudaWindow &window)
{
	const dim3 blocks(blocks_for(context, window.count * GROUP),
					  (unsigned)((made.longest + SLICE_WORDS - 1) / SLICE_WORDS));
	gatherRows<GROUP><<<blocks, THREADS, index_bytes(made), context.stream>>>(
		rows_of(made), made.order + window.first, made.offsets.as<uint64_t>() + window.first, window.count,
		made.staging.as<uint64_t>());
}

GpusortCudaStatus gather_rows(Context &context, const Arrangement &made, uint64_t number, GpusortCudaWindow *window)
{
	if (number >= made.windows)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_gather", "there is no such window", context.err);
	if (made.stride != 0) {
		window->first = number * made.per_window;
		window->count = made.per_window < made.rows - window->first ? made.per_window : made.rows - window->first;
		window->bytes = window->count * made.stride;
		made.aligned ? launch_equal<ulonglong2>(context, made, *window)
					 : launch_equal<uint64_t>(context, made, *window);
	} else {
		const WindowBegin *begin = &made.begins[number];
		window->first = begin[0].place;
		window->count = begin[1].place - begin[0].place;
		window->bytes = (begin[1].offset - begin[0].offset) * WORD;
		switch (made.group) {
		case 4:
			launch_rows<4>(context, made, *window);
			break;
		case 8:
			launch_rows<8>(context, made, *window);
			break;
		case 16:
			launch_rows<16>(context, made, *window);
			break;
		default:
			launch_rows<32>(context, made, *window);
			break;
		}
	}
	GPUSORT_LAUNCHED("gatherRows", context.err);
	return GPUSORT_CUDA_OK;
}

} // namespace gpusort
