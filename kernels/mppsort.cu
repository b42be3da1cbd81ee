/*
 * mppsort.cu - mppSort: histogram, scan, partition, and a sort of each bin.
 *
 * The pipeline and the kernels' names are mppSort's: blockAndGlobalHisto
 * counts each block's keys by bin in shared memory (a row of the matrix HH)
 * and all keys (Hg); globalHistoScan makes each bin's first position of Hg
 * (SHg); verticalScanHH makes each block's place within each bin of the
 * columns of HH (PSv); PartitionKernel moves every key to SHg + PSv + its
 * rank, from counters in shared memory alone, so that no two blocks contend;
 * sortBins sorts each bin in shared memory.
 *
 * Bins are of equal width over the range of the keys there are (min and max
 * are taken first), so key to bin is a subtraction and a shift.  That fails
 * on skew: one outlier, and every other key is in one bin.  Hence:
 *
 *	a bin too large to sort at once becomes a segment, and all segments of a
 *		level go through the same five kernels again, each over its own range,
 *		taken anew where a bin got more than its share;
 *	a segment with no more values than bins is not moved: its counts say what
 *		to write, so constant or few-valued keys are done after one read;
 *	small neighbouring bins are sorted together, so that thousands of tiny
 *		ones do not cost a block each;
 *	after MAX_LEVELS, which only few bins and heavy skew reach, CUB finishes.
 *
 * Within a bin only the bits below its width are sorted, by 8-bit digits and
 * CUB's block-wide ranking.  The sort of bins is the same for all levels and
 * runs once, at the end.  The host waits once a level, for the work list's
 * length.
 */
#include "mppsort_kernels.cuh"
#include "sort_bins.cuh"

namespace gpusort
{

/* ---- kernels ---- */

/* Turns the segments that are left after the last level into ranges for CUB. */
__global__ void leaveSegments(const Segment *segments, uint64_t count, Range *ranges, uint64_t in_spare)
{
	uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
	if (i < count) ranges[i] = {segments[i].start, segments[i].size, in_spare};
}

/* ---- launchers ---- */

/* What PartitionKernel has besides, with room to spare. */
static const size_t STATIC_SHARED = 4096;

template <typename K> static size_t partition_shared(int bins)
{
	return (2 * sizeof(uint64_t) + sizeof(unsigned)) * (bins + 1) + sizeof(uint64_t) +
		   sizeof(K) * Tuning<K>::partition_items * PARTITION_THREADS;
}

/*
 * The memory of a run: two sets of segments and chunks, for a level and its
 * next, and room for bins.  A segment of a later level has more than the
 * largest bin's keys.  Groups begin in different stretches unless a larger
 * bin lies between, so there are at most a stretch's share of keys and two
 * for each larger bin or segment, of every level.
 */
struct Workspace {
	Memory segments[2], chunks[2], bins[CLASSES], tally, hg, hh;
	uint64_t segment_room, chunk_room, bin_room[CLASSES];
};

template <typename K>
static GpusortCudaStatus make_workspace(Run &run, uint64_t count, uint32_t chunk_keys, Workspace &work)
{
	const uint64_t largest = Tuning<K>::largest_bin;
	work.segment_room = count / largest + 1;
	work.chunk_room = count / chunk_keys + work.segment_room + 1;
	work.bin_room[0] = count / GROUP + 4 * MAX_LEVELS * work.segment_room;
	work.bin_room[1] = count / 1024 + 1;
	work.bin_room[2] = count / 2048 + 1;
	work.bin_room[3] = count / 4096 + 1;
	for (int i = 0; i < 2; i++) {
		GPUSORT_PASS(work.segments[i].allocate(run, work.segment_room * sizeof(Segment)));
		GPUSORT_PASS(work.chunks[i].allocate(run, work.chunk_room * sizeof(uint32_t)));
	}
	for (int c = 0; c < CLASSES; c++)
		GPUSORT_PASS(work.bins[c].allocate(run, work.bin_room[c] * sizeof(Bin)));
	GPUSORT_PASS(work.tally.allocate(run, sizeof(Tally)));
	return GPUSORT_CUDA_OK;
}

/* One level of the pipeline over all its segments: five launches and their histograms' memory. */
template <typename K>
static GpusortCudaStatus run_level(Run &run, Workspace &work, const Lists &lists, int level, const Tally &now, K *keys,
								   K *spare)
{
	Segment *segments = work.segments[level % 2].as<Segment>();
	const uint32_t *chunks = work.chunks[level % 2].as<uint32_t>();
	K *source = level % 2 ? spare : keys;
	K *target = level % 2 ? keys : spare;
	const unsigned blocks = (unsigned)now.chunks;
	const size_t shared = partition_shared<K>(lists.most_bins);

	if (work.hg.bytes() < now.hg * sizeof(uint64_t)) GPUSORT_PASS(work.hg.allocate(run, now.hg * sizeof(uint64_t)));
	if (work.hh.bytes() < now.hh * sizeof(uint64_t)) GPUSORT_PASS(work.hh.allocate(run, now.hh * sizeof(uint64_t)));
	unsigned long long *hg = work.hg.as<unsigned long long>();
	unsigned long long *hh = work.hh.as<unsigned long long>();
	GPUSORT_TRY(cudaMemsetAsync(hg, 0, now.hg * sizeof(uint64_t), run.stream), run.err);

	takeRange<<<blocks, RANGE_THREADS, 0, run.stream>>>(source, segments, chunks, lists.chunk_keys);
	GPUSORT_LAUNCHED("takeRange", run.err);
	blockAndGlobalHisto<<<blocks, HISTO_THREADS, 0, run.stream>>>(source, segments, chunks, lists.chunk_keys, hg, hh);
	GPUSORT_LAUNCHED("blockAndGlobalHisto", run.err);
	globalHistoScan<K><<<(unsigned)now.segments, SCAN_THREADS, 0, run.stream>>>(segments, hg, lists, level % 2 ? 0 : 1);
	GPUSORT_LAUNCHED("globalHistoScan", run.err);

	/* As many threads a column as an average segment has use for. */
	unsigned rows = 1;
	while (rows < 32 && rows * now.segments < now.chunks)
		rows *= 2;
	verticalScanHH<<<dim3((unsigned)now.segments, (lists.most_bins + WARP - 1) / WARP), dim3(WARP, rows), 0,
					 run.stream>>>(segments, hh, lists.chunk_keys);
	GPUSORT_LAUNCHED("verticalScanHH", run.err);
	PartitionKernel<K><<<blocks, PARTITION_THREADS, shared, run.stream>>>(source, target, keys, segments, chunks,
																		  lists.chunk_keys, hg, hh);
	GPUSORT_LAUNCHED("PartitionKernel", run.err);
	note_launch(run, blocks, PARTITION_THREADS);
	return GPUSORT_CUDA_OK;
}

/* The first level's only segment: everything. */
static GpusortCudaStatus begin_levels(Run &run, Workspace &work, int bins, uint64_t count, uint32_t chunk_keys,
									  Tally &now)
{
	Segment all = {};
	all.size = count;
	all.lo = ~0ull;
	all.bins = bins;
	now.segments = 1;
	now.chunks = (count + chunk_keys - 1) / chunk_keys;
	now.hg = all.bins;
	now.hh = all.bins * now.chunks;
	GPUSORT_TRY(cudaMemcpyAsync(work.segments[0].as<Segment>(), &all, sizeof(all), cudaMemcpyHostToDevice, run.stream),
				run.err);
	GPUSORT_TRY(cudaMemsetAsync(work.chunks[0].as<uint32_t>(), 0, now.chunks * sizeof(uint32_t), run.stream), run.err);
	GPUSORT_TRY(cudaMemsetAsync(work.tally.as<Tally>(), 0, sizeof(Tally), run.stream), run.err);
	return GPUSORT_CUDA_OK;
}

template <typename K> static GpusortCudaStatus sort_small(Run &run, K *keys, K *spare, uint64_t count)
{
	Memory list;
	Lists lists = {};
	Tally tally = {};
	Bin all = {};
	all.size = (uint32_t)count;
	all.bits = 8 * sizeof(K);
	int c = count <= 1024 ? 0 : count <= 2048 ? 1 : count <= 4096 ? 2 : 3;
	GPUSORT_PASS(list.allocate(run, sizeof(Bin)));
	GPUSORT_TRY(cudaMemcpyAsync(list.as<Bin>(), &all, sizeof(all), cudaMemcpyHostToDevice, run.stream), run.err);
	lists.bins[c] = list.as<Bin>();
	tally.bins[c] = 1;
	return sort_bins(run, lists, tally, keys, spare);
}

/* Unless told: 256 bins, or up to 1024 if one level of these leaves bins half as large as a block sorts. */
template <typename K> static int choose_bins(uint64_t count)
{
	for (int bins = DEFAULT_BINS; bins <= MAX_BINS; bins *= 2) {
		if (count / bins <= Tuning<K>::largest_bin / 2) return bins;
	}
	return DEFAULT_BINS;
}

template <typename K> GpusortCudaStatus mppsort(Run &run, K *keys, K *spare, uint64_t count, K **sorted)
{
	const uint32_t tile = Tuning<K>::partition_items * PARTITION_THREADS;
	uint32_t chunk_keys = tile;
	Workspace work;
	Lists lists = {};
	Tally now = {};

	*sorted = keys;
	if (count < 2) return GPUSORT_CUDA_OK;
	int bins = run.bins ? run.bins : choose_bins<K>(count);
	while (partition_shared<K>(bins) + STATIC_SHARED > (size_t)run.shared_optin && bins > 2)
		bins /= 2;
	run.report->bins = bins;
	if (count <= Tuning<K>::largest_bin) return sort_small(run, keys, spare, count);

	/* A block for each chunk: some for every multiprocessor, and few rows in HH. */
	while (chunk_keys < 8 * tile && chunk_keys * 16ull * run.sm_count < count)
		chunk_keys *= 2;
	GPUSORT_TRY(cudaFuncSetAttribute(PartitionKernel<K>, cudaFuncAttributeMaxDynamicSharedMemorySize,
									 (int)partition_shared<K>(bins)),
				run.err);
	GPUSORT_PASS(make_workspace<K>(run, count, chunk_keys, work));
	GPUSORT_PASS(begin_levels(run, work, bins, count, chunk_keys, now));

	lists.segment_room = work.segment_room;
	lists.chunk_room = work.chunk_room;
	for (int c = 0; c < CLASSES; c++) {
		lists.bins[c] = work.bins[c].as<Bin>();
		lists.bin_room[c] = work.bin_room[c];
	}
	lists.tally = work.tally.as<Tally>();
	lists.chunk_keys = chunk_keys;
	lists.most_bins = bins;

	int level;
	for (level = 0; level < MAX_LEVELS && now.segments > 0; level++) {
		lists.segments = work.segments[(level + 1) % 2].as<Segment>();
		lists.chunks = work.chunks[(level + 1) % 2].as<uint32_t>();
		/* The four counts of the next level are the first in the tally. */
		GPUSORT_TRY(cudaMemsetAsync(lists.tally, 0, offsetof(Tally, bins), run.stream), run.err);
		GPUSORT_PASS(run_level(run, work, lists, level, now, keys, spare));
		GPUSORT_TRY(cudaMemcpyAsync(&now, lists.tally, sizeof(now), cudaMemcpyDeviceToHost, run.stream), run.err);
		GPUSORT_TRY(cudaStreamSynchronize(run.stream), run.err);
		if (now.lost > 0)
			return fail(GPUSORT_CUDA_UNSORTED, "globalHistoScan", "a work list of mppSort is full", run.err);
	}

	GPUSORT_PASS(sort_bins(run, lists, now, keys, spare));
	if (now.segments == 0) return GPUSORT_CUDA_OK;

	Memory ranges;
	GPUSORT_PASS(ranges.allocate(run, now.segments * sizeof(Range)));
	leaveSegments<<<(unsigned)((now.segments + 255) / 256), 256, 0, run.stream>>>(lists.segments, now.segments,
																				  ranges.as<Range>(), level % 2);
	GPUSORT_LAUNCHED("leaveSegments", run.err);
	return cub_finish(run, ranges.as<Range>(), now.segments, keys, spare, count, sorted);
}

template GpusortCudaStatus mppsort(Run &, uint32_t *, uint32_t *, uint64_t, uint32_t **);
template GpusortCudaStatus mppsort(Run &, uint64_t *, uint64_t *, uint64_t, uint64_t **);

} // namespace gpusort
