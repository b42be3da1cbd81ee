/*
 * bench_gpu.cu
 *		Measures the sorts of kernels/, with CUB and thrust for comparison.
 *
 *	bench_gpu [--sizes LIST] [--types LIST] [--distributions LIST] [--algorithms LIST]
 *			  [--repeat N] [--quick] [--published] [--csv FILE]
 *
 *	--sizes			numbers of keys; 64M is 64 * 2^20, 1G is 2^30
 *	--types			int4, float4, int8, float8: keys alone; int4+row, int8+row:
 *					stable sorts of positions
 *	--distributions	names from distributions.cuh, or "all"
 *	--algorithms	names as in the output (see contenders.cuh)
 *	--repeat		number of timed sorts of each contender in each case; default 7
 *	--quick			three sizes of int4 and int8, uniform, three repetitions
 *	--published		1M to 8M uniform int4, mppSort and thrust, in the form in which
 *					results of other mppSort implementations are published; of the
 *					other options, only --repeat and --csv have an effect then
 *	--csv			output file; default bench/gpu.csv, none with --published
 *
 * LISTs are separated by commas. Without options: all sizes of every type with uniform keys, and 64M keys
 * of the other common distributions, which takes a few minutes on an H200. Sizes that do not fit the
 * device are skipped.
 *
 * Gkeys/s are computed from the medians of times measured by CUDA events; measure.cuh has the rules. A
 * cell of the table is that median and, after "~", the difference between the slowest and the fastest
 * repetition in percent of the median.
 *
 * The exit status is 0 if every result was right or if there is no device, which the program reports; 1
 * if a result was wrong; 2 if an option was wrong or memory ran out.
 */
#include "measure.cuh"

static const KeyType TYPES[] = {
	{"int4", 4, false, false},	{"float4", 4, true, false},	  {"int8", 8, false, false},
	{"float8", 8, true, false}, {"int4+row", 4, false, true}, {"int8+row", 8, false, true},
};

static const uint64_t M = (uint64_t)1 << 20;
static const uint64_t SIZES[] = {100000, M, 2 * M, 4 * M, 8 * M, 16 * M, 64 * M, 256 * M, 1024 * M};
static const uint64_t ONE_SIZE = 64 * M; /* for all distributions except uniform */
static const Distribution COMMON[] = {UNIFORM, GAUSSIAN, ZERO,	   BUCKET,	 STAGGERED, SORTED,
									  REVERSE, FEW,		 AND_OF_3, AND_OF_8, ZIPF,		OUTLIER};

struct Options {
	std::vector<uint64_t> sizes; /* empty: SIZES for uniform, ONE_SIZE for the others */
	std::vector<KeyType> types;
	std::vector<Distribution> distributions;
	std::vector<std::string> algorithms; /* empty: all */
	int repeat = 7;
	bool published = false;
	const char *csv_name = nullptr; /* NULL: no file */
};

/* ---- options ---- */

[[noreturn]] static void refuse(const char *what, const std::string &value)
{
	printf("bench_gpu: %s: %s (bench/bench_gpu.cu lists the options)\n", what, value.c_str());
	exit(2);
}

static std::vector<std::string> split(const std::string &list)
{
	std::vector<std::string> items;
	for (size_t at = 0; at <= list.size();) {
		size_t comma = std::min(list.find(',', at), list.size());
		items.push_back(list.substr(at, comma - at));
		at = comma + 1;
	}
	return items;
}

/* Row numbers have 32 bits, and the rivals use counts of 32 bits. */
static uint64_t parse_size(const std::string &item)
{
	char *end;
	uint64_t n = strtoull(item.c_str(), &end, 10);
	uint64_t unit = *end == 'M' ? M : *end == 'G' ? 1024 * M : 1;
	if (unit > 1) end++;
	if (item.empty() || item[0] == '-' || *end != '\0' || n < 1 || n > UINT32_MAX / unit)
		refuse("not a size from 1 to 4294967295", item);
	return n * unit;
}

static KeyType parse_type(const std::string &item)
{
	for (const KeyType &type : TYPES) {
		if (item == type.name) return type;
	}
	refuse("unknown type", item);
}

static Distribution parse_distribution(const std::string &item)
{
	for (int d = 0; d < DISTRIBUTIONS; d++) {
		if (item == DISTRIBUTION_NAMES[d]) return (Distribution)d;
	}
	refuse("unknown distribution", item);
}

static void parse_algorithms(const std::string &list, Options *options)
{
	options->algorithms = split(list);
	for (const std::string &item : options->algorithms) {
		if (entries<uint32_t>(false, {item}).empty() && entries<uint32_t>(true, {item}).empty())
			refuse("unknown algorithm", item);
	}
}

static Options parse(int argc, char **argv)
{
	Options options;
	options.types.assign(std::begin(TYPES), std::end(TYPES));
	options.distributions.assign(std::begin(COMMON), std::end(COMMON));
	for (int i = 1; i < argc; i++) {
		const std::string name = argv[i];
		if (name == "--quick") {
			options.sizes = {100000, M, 8 * M};
			options.types = {parse_type("int4"), parse_type("int8")};
			options.distributions = {UNIFORM};
			options.repeat = 3;
			continue;
		}
		if (name == "--published") {
			options.published = true;
			continue;
		}
		if (i + 1 == argc) refuse("unknown option, or one without its value", name);
		const std::string value = argv[++i];
		if (name == "--sizes") {
			options.sizes.clear();
			for (const std::string &item : split(value))
				options.sizes.push_back(parse_size(item));
		} else if (name == "--types") {
			options.types.clear();
			for (const std::string &item : split(value))
				options.types.push_back(parse_type(item));
		} else if (name == "--distributions") {
			options.distributions.clear();
			for (int d = 0; value == "all" && d < DISTRIBUTIONS; d++)
				options.distributions.push_back((Distribution)d);
			for (const std::string &item : value == "all" ? std::vector<std::string>() : split(value))
				options.distributions.push_back(parse_distribution(item));
		} else if (name == "--algorithms") {
			parse_algorithms(value, &options);
		} else if (name == "--repeat") {
			options.repeat = atoi(value.c_str());
			if (options.repeat < 1 || options.repeat > 1000) refuse("not a number from 1 to 1000", value);
		} else if (name == "--csv") {
			options.csv_name = argv[i];
		} else {
			refuse("unknown option", name);
		}
	}
	if (options.published) {
		options.sizes = {M, 2 * M, 4 * M, 8 * M};
		options.types = {parse_type("int4")};
		options.distributions = {UNIFORM};
		options.algorithms = {"mppsort", "thrust"};
	}
	if (!options.csv_name && !options.published) options.csv_name = "bench/gpu.csv";
	return options;
}

/* ---- output ---- */

static double gkeys(uint64_t n, double ms)
{
	return (double)n / ms / 1e6;
}

static std::string size_name(uint64_t n)
{
	if (n % (1024 * M) == 0) return std::to_string(n / (1024 * M)) + "G";
	if (n % M == 0) return std::to_string(n / M) + "M";
	return std::to_string(n);
}

static void print_cells(const std::vector<Timing> &timings, uint64_t n)
{
	for (const Timing &t : timings) {
		char cell[40] = "-";
		if (!t.ms.empty()) {
			double spread = (t.ms.back() - t.ms.front()) / median(t.ms);
			snprintf(cell, sizeof(cell), "%.2f~%.0f", gkeys(n, median(t.ms)), 100 * spread);
		}
		printf(" %17s", cell);
	}
	printf("\n");
}

/* One line of the published form, for mppSort and thrust. */
static void print_published(const std::vector<Timing> &timings, uint64_t n)
{
	if (timings.size() != 2 || timings[0].ms.empty() || timings[1].ms.empty()) return;
	double mean = 0;
	for (double ms : timings[0].ms)
		mean += ms / timings[0].ms.size();
	double own = gkeys(n, median(timings[0].ms)), thrust = gkeys(n, median(timings[1].ms));
	printf("%llu | %.3f | %.3f | %.2f | %.3f\n", (unsigned long long)n, own, thrust, own / thrust, mean);
}

static void write_csv(FILE *csv, const KeyType &type, Distribution d, uint64_t n, const std::vector<Timing> &timings)
{
	for (const Timing &t : timings) {
		if (t.ms.empty()) continue;
		fprintf(csv, "%s,%s,%llu,%s,%.4f,%.4f,%.4f,%.5f,%.5f\n", type.name, DISTRIBUTION_NAMES[d],
				(unsigned long long)n, t.name.c_str(), gkeys(n, median(t.ms)), gkeys(n, t.ms.back()),
				gkeys(n, t.ms.front()), median(t.ms), median(t.wall_ms));
	}
	fflush(csv);
}

/* ---- the measurement ---- */

template <typename K> static void run_type(const KeyType &type, const Options &options, FILE *csv, uint64_t *failures)
{
	const std::vector<Entry<K>> list = entries<K>(type.with_rows, options.algorithms);
	if (list.empty()) return;

	if (!options.published) {
		printf("\n%-8s %-13s %5s", type.name, "Gkeys/s", "n");
		for (const Entry<K> &entry : list)
			printf(" %17s", entry.name.c_str());
		printf("\n");
	}
	for (Distribution d : options.distributions) {
		std::vector<uint64_t> sizes = options.sizes;
		if (sizes.empty() && d == UNIFORM)
			sizes.assign(std::begin(SIZES), std::end(SIZES));
		else if (sizes.empty())
			sizes = {ONE_SIZE};
		for (uint64_t n : sizes) {
			if (memory_for(type, n) > free_memory()) {
				printf("%-8s %-13s %5s  skipped: may need %.1f GiB of device memory\n", type.name,
					   DISTRIBUTION_NAMES[d], size_name(n).c_str(), (double)memory_for(type, n) / (1 << 30));
				continue;
			}
			Bench<K> bench(type, d, n);
			std::vector<Timing> timings = bench.measure(list, options.repeat, failures);
			if (options.published) {
				print_published(timings, n);
			} else {
				printf("%-8s %-13s %5s", type.name, DISTRIBUTION_NAMES[d], size_name(n).c_str());
				print_cells(timings, n);
			}
			if (csv) write_csv(csv, type, d, n, timings);
		}
	}
}

int main(int argc, char **argv)
{
	const Options options = parse(argc, argv);
	GpusortCudaDevice *dev;
	GpusortCudaInfo info;
	FILE *csv = nullptr;
	uint64_t failures = 0;

	setvbuf(stdout, nullptr, _IOLBF, 0);
	if (gpusort_cuda_open(&dev, &info, &error) != GPUSORT_CUDA_OK) {
		printf("bench_gpu: nothing to measure, no usable CUDA device: %s\n", error.text);
		return 0;
	}
	if (options.csv_name) {
		csv = fopen(options.csv_name, "w");
		if (!csv) refuse("could not write", options.csv_name);
		fprintf(csv, "type,distribution,n,algorithm,gkeys_median,gkeys_min,gkeys_max,ms_median,wall_ms_median\n");
	}
	gpusort_cuda_close(dev);
	set_up(info.number);
	printf("%s, %d multiprocessors, CUDA %d.%d (driver %d.%d), medians of %d\n", info.name, sm_count,
		   info.runtime_version / 1000, info.runtime_version % 1000 / 10, info.driver_version / 1000,
		   info.driver_version % 1000 / 10, options.repeat);
	if (options.published) printf("elements | mppSort GElements/s | Thrust GElements/s | ratio | mean ms\n");
	for (const KeyType &type : options.types) {
		if (type.key_bytes == 4)
			run_type<uint32_t>(type, options, csv, &failures);
		else
			run_type<uint64_t>(type, options, csv, &failures);
	}
	if (csv) fclose(csv);
	if (failures) printf("%llu results were wrong\n", (unsigned long long)failures);
	return failures ? 1 : 0;
}
