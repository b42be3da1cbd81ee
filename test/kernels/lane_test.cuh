/*
 * lane_test.cuh
 *		kernel_test --lane: the C interface, used as the GPU service uses it.
 *
 * Several lanes at once, with interleaved uploads in parts; sorts by each algorithm; downloads in parts,
 * polled; the memory limit reached while uploading and while sorting; an allocation that CUDA itself
 * refuses; registered memory; lanes with no key and with one key. The reference is std::stable_sort on
 * the host.
 */
#ifndef GPUSORT_LANE_TEST_CUH
#define GPUSORT_LANE_TEST_CUH

#include "harness.cuh"

/* ---- the C interface ---- */

/* Reserves room for keys, and uploads them from host memory in parts of part_bytes. */
static GpusortCudaStatus upload_parts(GpusortCudaLane *lane, const void *host, size_t bytes, size_t part_bytes)
{
	GpusortCudaStatus reserved = gpusort_cuda_reserve(lane, GPUSORT_CUDA_KEYS, bytes, &error);
	if (reserved != GPUSORT_CUDA_OK) return reserved;
	for (size_t at = 0; at < bytes; at += part_bytes) {
		GpusortCudaStatus status = gpusort_cuda_upload(lane, GPUSORT_CUDA_KEYS, at, (const char *)host + at,
													   std::min(part_bytes, bytes - at), &error);
		if (status != GPUSORT_CUDA_OK) return status;
	}
	return GPUSORT_CUDA_OK;
}

template <typename K> struct LaneCase {
	GpusortCudaLane *lane;
	std::vector<K> keys, out;
	std::vector<uint32_t> rows;

	void fill(uint64_t n, uint64_t seed)
	{
		keys.resize(n);
		out.assign(n, 0);
		rows.assign(n, 0);
		for (uint64_t i = 0; i < n; i++)
			keys[i] = (K)(hash(seed + i) % (n / 2 + 1));
	}

	/* Checks rows, or else out. */
	void check(bool with_rows, const char *what)
	{
		std::vector<uint32_t> good(keys.size());
		for (size_t i = 0; i < good.size(); i++)
			good[i] = (uint32_t)i;
		std::stable_sort(good.begin(), good.end(), [&](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });
		bool same = !with_rows || good == rows;
		for (size_t i = 0; i < good.size() && same && !with_rows; i++)
			same = out[i] == keys[good[i]];
		expect(same, what);
	}
};

/* Lanes of one width at once: uploads parts to all of them in turn, then sorts each, then downloads all. */
template <typename K> static void run_lanes(GpusortCudaDevice *dev, bool with_rows)
{
	const size_t width = with_rows ? sizeof(uint32_t) : sizeof(K);
	const int LANES = 6;
	const size_t PART_BYTES = 100000;
	LaneCase<K> lanes[LANES];
	GpusortCudaReport report;
	size_t most = 0;

	for (int l = 0; l < LANES; l++) {
		lanes[l].fill(50000 + 250000 * l, l);
		most = std::max(most, lanes[l].keys.size() * sizeof(K));
		/* Registered, so that uploads are still in flight when the first lane sorts. */
		MUST_PASS(gpusort_cuda_register(lanes[l].keys.data(), lanes[l].keys.size() * sizeof(K), &error));
		MUST_PASS(gpusort_cuda_lane_open(dev, &lanes[l].lane, &error));
		MUST_PASS(gpusort_cuda_reserve(lanes[l].lane, GPUSORT_CUDA_KEYS, lanes[l].keys.size() * sizeof(K), &error));
	}
	for (size_t at = 0; at < most; at += PART_BYTES) {
		for (LaneCase<K> &one : lanes) {
			size_t bytes = one.keys.size() * sizeof(K);
			if (at < bytes)
				MUST_PASS(gpusort_cuda_upload(one.lane, GPUSORT_CUDA_KEYS, at, (char *)one.keys.data() + at,
											  std::min(PART_BYTES, bytes - at), &error));
		}
	}
	for (int l = 0; l < LANES; l++) {
		GpusortCudaSort sort = {lanes[l].keys.size(), (int)sizeof(K), with_rows, (GpusortAlgorithm)l};
		MUST_PASS(gpusort_cuda_sort(lanes[l].lane, &sort, &report, &error));
		const GpusortAlgorithm ran = l == 0 ? GPUSORT_ALGORITHM_MPPSORT : (GpusortAlgorithm)l;
		expect(report.algorithm == ran && report.kernels_ms > 0 &&
				   (report.bins > 0) == (ran == GPUSORT_ALGORITHM_MPPSORT),
			   "report of a lane's sort");
	}
	for (LaneCase<K> &one : lanes) {
		uint64_t n = one.keys.size(), cut = n / 3;
		char *to = with_rows ? (char *)one.rows.data() : (char *)one.out.data();
		MUST_PASS(gpusort_cuda_download(one.lane, GPUSORT_CUDA_RESULT, 0, to, cut * width, &error));
		MUST_PASS(gpusort_cuda_download(one.lane, GPUSORT_CUDA_RESULT, cut * width, to + cut * width, (n - cut) * width,
										&error));
	}
	for (LaneCase<K> &one : lanes) {
		uint64_t finished = 0;
		while (finished < 2)
			MUST_PASS(gpusort_cuda_downloaded(one.lane, &finished, &error));
		expect(gpusort_cuda_uploaded(one.lane, &error) == GPUSORT_CUDA_OK, "uploads are done after a sort");
		gpusort_cuda_lane_report(one.lane, &report);
		expect(report.upload_ms > 0 && report.download_ms > 0, "copies are timed");
		one.check(with_rows, "sorted through a lane");
		gpusort_cuda_lane_close(one.lane);
		MUST_PASS(gpusort_cuda_unregister(one.keys.data(), &error));
	}
	expect(gpusort_cuda_memory_used(dev) == 0, "closed lanes hold no memory");
}

/* Keys of three words, uploaded in whole keys, as from chunks. */
static void run_words_lane(GpusortCudaDevice *dev)
{
	const uint64_t n = 300000;
	const int words = 3;
	const size_t width = words * sizeof(uint64_t);
	std::vector<uint64_t> keys(n * words);
	std::vector<uint32_t> rows(n), good(n);
	GpusortCudaSort sort = {n, 8, true, GPUSORT_ALGORITHM_AUTO, words};
	GpusortCudaLane *lane;
	GpusortCudaReport report;
	uint64_t finished = 0;

	for (uint64_t i = 0; i < keys.size(); i++)
		keys[i] = i % words == 0 ? hash(i) % 100 : hash(i);
	for (uint64_t i = 0; i < n; i++)
		good[i] = (uint32_t)i;
	std::stable_sort(good.begin(), good.end(), [&](uint32_t a, uint32_t b) {
		const uint64_t *one = &keys[(size_t)a * words], *two = &keys[(size_t)b * words];
		return std::lexicographical_compare(one, one + words, two, two + words);
	});
	MUST_PASS(gpusort_cuda_lane_open(dev, &lane, &error));
	MUST_PASS(upload_parts(lane, keys.data(), n * width, 70000 * width));
	sort.rows = n + 1;
	expect(gpusort_cuda_sort(lane, &sort, &report, &error) == GPUSORT_CUDA_FAULT,
		   "more keys of words than were uploaded");
	gpusort_cuda_lane_close(lane);

	sort.rows = n;
	MUST_PASS(gpusort_cuda_lane_open(dev, &lane, &error));
	MUST_PASS(upload_parts(lane, keys.data(), n * width, 70000 * width));
	MUST_PASS(gpusort_cuda_sort(lane, &sort, &report, &error));
	expect(gpusort_cuda_download(lane, GPUSORT_CUDA_RESULT, 0, keys.data(), n * sizeof(uint32_t) + 1, &error) ==
			   GPUSORT_CUDA_FAULT,
		   "keys of several words do not come back");
	MUST_PASS(gpusort_cuda_download(lane, GPUSORT_CUDA_RESULT, 0, rows.data(), n * sizeof(uint32_t), &error));
	while (finished < 1)
		MUST_PASS(gpusort_cuda_downloaded(lane, &finished, &error));
	expect(rows == good, "keys of several words, through a lane");
	gpusort_cuda_lane_close(lane);

	expect(gpusort_cuda_memory_used(dev) == 0, "a lane of several words holds no memory once closed");
}

/* Reaches the limit while uploading and while sorting; the lane continues, or is closed. */
static void run_limits(GpusortCudaDevice *dev)
{
	LaneCase<uint64_t> one;
	GpusortCudaReport report;
	uint64_t finished = 0;
	one.fill(500000, 9);
	const size_t bytes = one.keys.size() * sizeof(uint64_t);
	GpusortCudaSort sort = {one.keys.size(), 8, true, GPUSORT_ALGORITHM_MPPSORT};

	MUST_PASS(gpusort_cuda_lane_open(dev, &one.lane, &error));
	gpusort_cuda_set_memory_limit(dev, bytes / 2);
	expect(upload_parts(one.lane, one.keys.data(), bytes, bytes) == GPUSORT_CUDA_NO_MEMORY, "keys over the limit");
	gpusort_cuda_set_memory_limit(dev, 3 * bytes / 2 + 8000);
	MUST_PASS(upload_parts(one.lane, one.keys.data(), bytes, bytes - 8000));
	expect(gpusort_cuda_reserve(one.lane, GPUSORT_CUDA_ROWS, bytes, &error) == GPUSORT_CUDA_NO_MEMORY,
		   "rows over the limit");
	expect(gpusort_cuda_reserve(one.lane, GPUSORT_CUDA_KEYS, bytes, &error) == GPUSORT_CUDA_FAULT,
		   "room for keys is made once");
	expect(gpusort_cuda_upload(one.lane, GPUSORT_CUDA_KEYS, 8, one.keys.data(), bytes, &error) == GPUSORT_CUDA_FAULT,
		   "no upload past the end");
	expect(gpusort_cuda_sort(one.lane, &sort, &report, &error) == GPUSORT_CUDA_NO_MEMORY, "sort over the limit");
	gpusort_cuda_lane_close(one.lane);
	expect(gpusort_cuda_memory_used(dev) == 0, "a lane that failed holds no memory once closed");

	gpusort_cuda_set_memory_limit(dev, 0);
	gpusort_cuda_trim(dev);
	MUST_PASS(gpusort_cuda_lane_open(dev, &one.lane, &error));
	MUST_PASS(upload_parts(one.lane, one.keys.data(), bytes, 12345 * 8));
	MUST_PASS(gpusort_cuda_sort(one.lane, &sort, &report, &error));
	expect(gpusort_cuda_download(one.lane, GPUSORT_CUDA_RESULT, bytes / 2, one.rows.data(), 8, &error) ==
			   GPUSORT_CUDA_FAULT,
		   "download past the end is refused");
	MUST_PASS(gpusort_cuda_download(one.lane, GPUSORT_CUDA_RESULT, 0, one.rows.data(), bytes / 2, &error));
	while (finished < 1)
		MUST_PASS(gpusort_cuda_downloaded(one.lane, &finished, &error));
	one.check(true, "sorted after memory was short");
	gpusort_cuda_lane_close(one.lane);

	/* More than the device has: CUDA itself refuses, and the device still works. */
	gpusort_cuda_set_memory_limit(dev, UINT64_MAX);
	MUST_PASS(gpusort_cuda_lane_open(dev, &one.lane, &error));
	Memory huge;
	gpusort::Budget *shared_budget = &budget;
	expect(huge.allocate(shared_budget, stream, (size_t)1 << 44, &error) == GPUSORT_CUDA_NO_MEMORY,
		   "CUDA's own refusal is not a fault");
	MUST_PASS(upload_parts(one.lane, one.keys.data(), bytes, bytes));
	GpusortCudaSort plain = {one.keys.size(), 8, false, GPUSORT_ALGORITHM_AUTO};
	expect(gpusort_cuda_sort(one.lane, &plain, &report, &error) == GPUSORT_CUDA_OK, "a sort after CUDA's refusal");
	gpusort_cuda_lane_close(one.lane);
	gpusort_cuda_lane_close(nullptr);
}

static void mode_lane()
{
	GpusortCudaDevice *dev;
	GpusortCudaInfo info;
	void *pinned = nullptr;

	MUST_PASS(gpusort_cuda_open(&dev, &info, &error));
	printf("%s, %d.%d, %d SM, driver %d, runtime %d, sorts may take %llu of %llu MB\n", info.name, info.cc_major,
		   info.cc_minor, info.sm_count, info.driver_version, info.runtime_version,
		   (unsigned long long)gpusort_cuda_set_memory_limit(dev, 0) >> 20,
		   (unsigned long long)info.total_memory >> 20);
	for (bool with_rows : {false, true}) {
		run_lanes<uint32_t>(dev, with_rows);
		run_lanes<uint64_t>(dev, with_rows);
	}
	run_words_lane(dev);
	run_limits(dev);

	/* Registered memory; a lane without keys and a lane with one key. */
	if (posix_memalign(&pinned, 4096, 1 << 20) != 0) exit(2);
	memset(pinned, 1, 1 << 20);
	expect(gpusort_cuda_register(pinned, 1 << 20, &error) == GPUSORT_CUDA_OK, "register");
	for (uint64_t n = 0; n < 2; n++) {
		GpusortCudaLane *lane;
		GpusortCudaReport report;
		GpusortCudaSort sort = {n, 4, true, GPUSORT_ALGORITHM_MPPSORT};
		uint32_t out = 7;
		uint64_t finished = 0;
		MUST_PASS(gpusort_cuda_lane_open(dev, &lane, &error));
		MUST_PASS(gpusort_cuda_reserve(lane, GPUSORT_CUDA_KEYS, 4 * n, &error));
		MUST_PASS(gpusort_cuda_upload(lane, GPUSORT_CUDA_KEYS, 0, pinned, 4 * n, &error));
		expect(gpusort_cuda_sort(lane, &sort, &report, &error) == GPUSORT_CUDA_OK, "sort of no key or one key");
		MUST_PASS(gpusort_cuda_download(lane, GPUSORT_CUDA_RESULT, 0, &out, 4 * n, &error));
		while (finished < 1)
			MUST_PASS(gpusort_cuda_downloaded(lane, &finished, &error));
		expect(out == (n == 0 ? 7u : 0u), "the row of the only key");
		gpusort_cuda_lane_close(lane);
	}
	expect(gpusort_cuda_unregister(pinned, &error) == GPUSORT_CUDA_OK, "unregister");
	free(pinned);
	gpusort_cuda_close(dev);
}

#endif /* GPUSORT_LANE_TEST_CUH */
