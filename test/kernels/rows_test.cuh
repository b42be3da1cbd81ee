/*
 * rows_test.cuh
 *		Tests what follows a sort with rows: ties, and rows in sorted order, window by window.
 *
 * Rows lie in blocks, some with a fixed stride and some with a directory. The expected bytes are put together on
 * the host, in the order that the sort has returned. (Other tests check that order.) Damaged blocks and directories
 * must be refused; compute-sanitizer sees that nothing outside of them is read.
 */
#ifndef GPUSORT_ROWS_TEST_CUH
#define GPUSORT_ROWS_TEST_CUH

#include "harness.cuh"

/* A block to be made. */
struct BlockShape {
	uint32_t rows;
	uint32_t stride;	/* 0: a directory */
	uint32_t longest;	/* words of the longest row, if there is a directory */
	uint32_t exception; /* words of the block's middle row instead; 0: none */
};

/* The words of keys are below 1000, so that many keys are equal. */
struct RowsCase {
	uint64_t n = 0;
	std::vector<GpusortCudaRowBlock> blocks;
	std::vector<uint64_t> data;			/* what is uploaded: blocks and directories */
	std::vector<uint64_t> begin, words; /* of each row, in words of data */
	std::vector<char> keys;
	std::vector<uint32_t> order;
	GpusortCudaSort sort;
	GpusortCudaLane *lane;
	uint64_t downloads;

	/* Appends a block, after a gap of some words. */
	void add(const BlockShape &shape, uint64_t seed, uint64_t gap)
	{
		GpusortCudaRowBlock block = {};
		data.resize(data.size() + gap);
		const uint64_t start = data.size();
		block.offset = 8 * start;
		block.first = (uint32_t)n;
		block.stride = shape.stride;
		for (uint32_t r = 0; r < shape.rows; r++) {
			uint64_t length = shape.stride > 0 ? shape.stride / 8 : 1 + hash(seed + r) % shape.longest;
			if (shape.exception > 0 && r == shape.rows / 2) length = shape.exception;
			begin.push_back(data.size());
			words.push_back(length);
			for (uint64_t w = 0; w < length; w++)
				data.push_back(hash(hash(seed + r) + w));
		}
		block.bytes = 8 * (data.size() - start);
		if (shape.stride == 0) {
			data.resize(data.size() + (shape.rows + 1) / 2);
			block.directory = 8 * data.size();
			for (uint32_t r = 0; r < shape.rows; r++)
				*entry(block, r) = (uint32_t)(begin[n + r] - start);
		}
		n += shape.rows;
		blocks.push_back(block);
	}

	uint32_t *entry(const GpusortCudaRowBlock &block, uint32_t row)
	{
		return (uint32_t *)((char *)data.data() + block.directory) - 1 - row;
	}

	/* Opens a lane and sorts. Half of the rows are uploaded after the sort. */
	void run_sort(GpusortCudaDevice *dev, int key_bytes, int key_words, GpusortAlgorithm algorithm, uint64_t seed)
	{
		const uint64_t bytes = 8 * data.size(), half = bytes / 2;
		const uint64_t values = key_words > 1 ? 10 : 1000;
		GpusortCudaReport report;
		sort = {n, key_bytes, true, algorithm, key_words};
		keys.assign(n * gpusort_cuda_width(&sort), 0);
		for (uint64_t i = 0; i < keys.size() / key_bytes; i++) {
			const uint64_t key = hash(seed + i) % values * (key_bytes == 8 ? (UINT64_C(1) << 50) + 1 : 1);
			memcpy(&keys[i * key_bytes], &key, key_bytes);
		}
		order.assign(n, 0);
		downloads = 0;
		MUST_PASS(gpusort_cuda_lane_open(dev, &lane, &error));
		MUST_PASS(gpusort_cuda_reserve(lane, GPUSORT_CUDA_ROWS, bytes, &error));
		MUST_PASS(gpusort_cuda_reserve(lane, GPUSORT_CUDA_KEYS, keys.size(), &error));
		MUST_PASS(gpusort_cuda_upload(lane, GPUSORT_CUDA_ROWS, half, (char *)data.data() + half, bytes - half, &error));
		MUST_PASS(gpusort_cuda_upload(lane, GPUSORT_CUDA_KEYS, 0, keys.data(), keys.size(), &error));
		MUST_PASS(gpusort_cuda_sort(lane, &sort, &report, &error));
		MUST_PASS(gpusort_cuda_upload(lane, GPUSORT_CUDA_ROWS, 0, data.data(), half, &error));
	}

	void download(GpusortCudaPart part, void *to, size_t bytes)
	{
		MUST_PASS(gpusort_cuda_download(lane, part, 0, to, bytes, &error));
		downloads++;
	}

	void wait()
	{
		uint64_t finished = 0;
		while (finished < downloads)
			MUST_PASS(gpusort_cuda_downloaded(lane, &finished, &error));
	}

	/* Checks ties, which also fetches the order. */
	void check_ties(const char *what)
	{
		const size_t width = gpusort_cuda_width(&sort);
		std::vector<uint8_t> ties(n);
		bool same = true;
		MUST_PASS(gpusort_cuda_mark_ties(lane, &error));
		download(GPUSORT_CUDA_TIES, ties.data(), n);
		download(GPUSORT_CUDA_RESULT, order.data(), n * sizeof(uint32_t));
		wait();
		for (uint64_t i = 0; i < n; i++) {
			const bool tie = i > 0 && memcmp(&keys[order[i - 1] * width], &keys[order[i] * width], width) == 0;
			same = same && ties[i] == tie;
		}
		expect(same, what);
	}

	/* Gathers all windows and checks their bytes. */
	void check_windows(uint64_t windows, uint64_t window_bytes, const char *what)
	{
		std::vector<uint64_t> expected, out(data.size());
		uint64_t place = 0, got = 0;
		bool good = true;
		for (uint64_t i = 0; i < n; i++)
			expected.insert(expected.end(), data.begin() + begin[order[i]],
							data.begin() + begin[order[i]] + words[order[i]]);
		for (uint64_t w = 0; w < windows && good; w++) {
			GpusortCudaWindow window;
			MUST_PASS(gpusort_cuda_gather(lane, w, &window, &error));
			good = window.first == place && window.count > 0 && window.bytes <= window_bytes &&
				   got + window.bytes / 8 <= expected.size();
			if (!good) break;
			download(GPUSORT_CUDA_WINDOW, &out[got], window.bytes);
			place += window.count;
			got += window.bytes / 8;
		}
		wait();
		out.resize(got);
		expect(good && place == n && out == expected, what);
	}

	void run(GpusortCudaDevice *dev, int key_bytes, int key_words, GpusortAlgorithm algorithm, uint64_t window_bytes)
	{
		uint64_t windows = 0;
		GpusortCudaWindow window;
		GpusortCudaReport report;
		char what[100];
		snprintf(what, sizeof(what), "%llu rows, %d blocks, %d key words of %d bytes, %s, windows of %llu bytes",
				 (unsigned long long)n, (int)blocks.size(), key_words, key_bytes, gpusort_algorithm_name(algorithm),
				 (unsigned long long)window_bytes);
		run_sort(dev, key_bytes, key_words, algorithm, n);
		check_ties(what);
		MUST_PASS(gpusort_cuda_arrange(lane, blocks.data(), blocks.size(), window_bytes, &windows, &error));
		gpusort_cuda_lane_report(lane, &report);
		expect(report.arrange_ms > 0, "arranging is timed");
		check_windows(windows, window_bytes, what);
		expect(gpusort_cuda_gather(lane, windows, &window, &error) == GPUSORT_CUDA_FAULT, "no window after the last");
		gpusort_cuda_lane_close(lane);
	}
};

static RowsCase make_blocks(const std::vector<BlockShape> &shapes, uint64_t seed)
{
	RowsCase made;
	for (size_t b = 0; b < shapes.size(); b++)
		made.add(shapes[b], hash(seed + b), b % 4 == 3 ? 1 : 0);
	return made;
}

/* Rows that are too long, memory that is too short: the lane goes on. */
static void run_rows_limits(GpusortCudaDevice *dev)
{
	for (uint32_t stride : {0, 400}) {
		RowsCase one = make_blocks({{1000, stride, 50, 50}}, 3);
		uint64_t windows;
		one.run_sort(dev, 8, 1, GPUSORT_ALGORITHM_AUTO, 1);
		const uint64_t used = gpusort_cuda_memory_used(dev);
		gpusort_cuda_set_memory_limit(dev, used);
		expect(gpusort_cuda_mark_ties(one.lane, &error) == GPUSORT_CUDA_NO_MEMORY, "no memory for ties");
		gpusort_cuda_set_memory_limit(dev, 0);
		one.check_ties("ties after memory was short");
		expect(gpusort_cuda_arrange(one.lane, one.blocks.data(), 1, 4 * 400 - 8, &windows, &error) ==
				   GPUSORT_CUDA_NO_MEMORY,
			   "a row of more than a quarter of a window");
		gpusort_cuda_set_memory_limit(dev, gpusort_cuda_memory_used(dev) + 1000);
		expect(gpusort_cuda_arrange(one.lane, one.blocks.data(), 1, 4 * 400, &windows, &error) ==
				   GPUSORT_CUDA_NO_MEMORY,
			   "no memory for a window");
		gpusort_cuda_set_memory_limit(dev, 0);
		MUST_PASS(gpusort_cuda_arrange(one.lane, one.blocks.data(), 1, 4 * 400, &windows, &error));
		one.check_windows(windows, 4 * 400, "windows after memory was short");
		expect(gpusort_cuda_mark_ties(one.lane, &error) == GPUSORT_CUDA_FAULT, "no ties without keys");
		expect(gpusort_cuda_upload(one.lane, GPUSORT_CUDA_ROWS, 0, one.data.data(), 8, &error) == GPUSORT_CUDA_FAULT,
			   "arranged rows stay as they are");
		gpusort_cuda_lane_close(one.lane);
	}
}

/* Ways to damage three blocks of 300 rows each, of which the middle one has a fixed stride. */
static const int DAMAGES = 19;

static void damage(RowsCase &one, int way)
{
	GpusortCudaRowBlock *b = one.blocks.data();
	/* clang-format off */
	switch (way) {
	case 0: *one.entry(b[0], 0) = UINT32_MAX; break;
	case 1: *one.entry(b[2], 299) = UINT32_MAX; break;
	case 2: *one.entry(b[2], 299) = (uint32_t)(b[2].bytes / 8); break;
	case 3: *one.entry(b[0], 7) = *one.entry(b[0], 6); break;
	case 4: *one.entry(b[0], 150) = 0; break;
	case 5: b[0].bytes = 8; break;
	case 6: b[0].bytes = 8 * one.data.size() + 8; break;
	case 7: b[2].offset = 8 * one.data.size(); break;
	case 8: b[2].offset = UINT64_MAX - 7; break;
	case 9: b[0].offset += 4; break;
	case 10: b[0].directory = 8 * one.data.size() + 4; break;
	case 11: b[0].directory = 299 * sizeof(uint32_t); break;
	case 12: b[0].directory += 2; break;
	case 13: b[0].first = 1; break;
	case 14: b[1].first = 700; break;
	case 15: b[2].first = 901; break;
	case 16: b[1].stride += 8; break;
	case 17: b[1].stride -= 4; break;
	default: one.blocks.clear(); break;
	}
	/* clang-format on */
}

static void run_damaged(GpusortCudaDevice *dev)
{
	for (int way = 0; way < DAMAGES; way++) {
		RowsCase one = make_blocks({{300, 0, 20}, {300, 40}, {300, 0, 20}}, way);
		uint64_t windows;
		char what[40];
		damage(one, way);
		snprintf(what, sizeof(what), "damaged rows %d", way);
		one.run_sort(dev, 4, 1, GPUSORT_ALGORITHM_AUTO, 1);
		expect(gpusort_cuda_arrange(one.lane, one.blocks.data(), one.blocks.size(), 8192, &windows, &error) ==
				   GPUSORT_CUDA_UNSORTED,
			   what);
		one.download(GPUSORT_CUDA_RESULT, one.order.data(), one.n * sizeof(uint32_t));
		one.wait();
		gpusort_cuda_lane_close(one.lane);
	}
}

/* Blocks, keys and windows of random shapes. */
static void run_random_rows(GpusortCudaDevice *dev, uint64_t seed)
{
	std::vector<BlockShape> shapes;
	const uint64_t count = 1 + hash(seed) % (seed % 8 == 0 ? 9000 : 20);
	const uint64_t kind = hash(seed + 1) % 3; /* 0: the same strides, 1: directories, 2: both */
	const uint32_t stride = (uint32_t)(8 + 8 * (hash(seed + 2) % 40));
	for (uint64_t b = 0; b < count; b++) {
		const uint64_t h = hash(hash(seed + 3) + b);
		BlockShape shape = {(uint32_t)(h % (count > 100 ? 6 : 3000)), stride, 0, 0};
		if (kind == 1 || (kind == 2 && h >> 63)) shape = {shape.rows, 0, (uint32_t)(1 + hash(h) % 60), 0};
		if (shape.stride == 0 && h % 10 == 0) shape.exception = 20000;
		shapes.push_back(shape);
	}
	RowsCase one = make_blocks(shapes, seed);
	const int words = (int)(1 + hash(seed + 4) % 4);
	const uint64_t window = hash(seed + 5) % 2 ? 1 << 20 : 4 * 160000 + hash(seed + 6) % 100000;
	one.run(dev, words == 1 && seed % 2 ? 4 : 8, words, (GpusortAlgorithm)(hash(seed + 7) % 6), window);
}

static void mode_rows(bool quick)
{
	GpusortCudaDevice *dev;
	GpusortCudaInfo info;
	const uint32_t n = quick ? 700 : 50000;
	MUST_PASS(gpusort_cuda_open(&dev, &info, &error));

	for (uint32_t stride : {8, 16, 24, 40, 400}) {
		make_blocks({{n, stride}, {1, stride}, {n / 3, stride}}, stride)
			.run(dev, 4, 1, GPUSORT_ALGORITHM_AUTO, quick ? 1600 : 65536);
	}
	/* Blocks that begin at odd words, blocks without rows, one window. */
	make_blocks({{n, 16}, {0, 0, 1}, {n, 16}, {n, 16}, {0, 24}}, 1).run(dev, 4, 1, GPUSORT_ALGORITHM_AUTO, 1 << 24);
	for (uint32_t longest : {1, 7, 15, 31, 200}) {
		make_blocks({{n, 0, longest}, {1, 0, longest}, {n / 3, 0, longest}}, longest)
			.run(dev, 8, 1, GPUSORT_ALGORITHM_AUTO, 4 * 8 * longest + 4);
	}
	/* Every algorithm, and every width of keys. */
	for (int algorithm = 0; algorithm < 6; algorithm++) {
		RowsCase mixed = make_blocks({{n, 40}, {n, 0, 9}, {1, 0, 3}, {n / 2, 24}, {n, 0, 30, 2000}}, algorithm);
		mixed.run(dev, 4, 1, (GpusortAlgorithm)algorithm, 65536);
		mixed.run(dev, 8, 1, (GpusortAlgorithm)algorithm, 100000);
		mixed.run(dev, 8, 3, (GpusortAlgorithm)algorithm, 1 << 20);
	}
	/* A row that several groups of threads copy, and one row alone. */
	make_blocks({{n, 0, 9}, {3, 0, 9, 20001}}, 2).run(dev, 8, 1, GPUSORT_ALGORITHM_CUB, 1 << 20);
	make_blocks({{1, 0, 9}}, 2).run(dev, 8, 1, GPUSORT_ALGORITHM_AUTO, 4096);
	make_blocks({{1, 40}}, 2).run(dev, 4, 1, GPUSORT_ALGORITHM_AUTO, 4096);
	/* No row at all. */
	RowsCase none;
	uint64_t windows = 1;
	none.run_sort(dev, 4, 1, GPUSORT_ALGORITHM_AUTO, 1);
	none.check_ties("ties of no row");
	MUST_PASS(gpusort_cuda_arrange(none.lane, nullptr, 0, 4096, &windows, &error));
	expect(windows == 0, "no row, no window");
	gpusort_cuda_lane_close(none.lane);
	run_rows_limits(dev);
	run_damaged(dev);
	for (uint64_t seed = 0; seed < (quick ? 2 : 60); seed++)
		run_random_rows(dev, seed);
	if (!quick) {
		/* Enough equal keys for a sample to choose CUB. */
		RowsCase many = make_blocks({{17000000, 8}}, 1);
		many.run(dev, 4, 1, GPUSORT_ALGORITHM_AUTO, 1 << 22);
	}
	expect(gpusort_cuda_memory_used(dev) == 0, "lanes with rows hold no memory once closed");
	gpusort_cuda_close(dev);
}

#endif /* GPUSORT_ROWS_TEST_CUH */
