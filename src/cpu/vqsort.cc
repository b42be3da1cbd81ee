/*-------------------------------------------------------------------------
 *
 * vqsort.cc
 *		VQSort, the sort of unsigned integers by vector instructions.
 *
 * VQSort: Wassenberg, Blacher, Giesen, Sanders, "Vectorized and
 * performance-portable Quicksort", arXiv 2205.05982, in libhwy.  Only its
 * templates for unsigned integers are used: in 1.0.3 the one for floats loses NaN
 * and infinities and the one for 64-bit pairs corrupts payloads.
 *
 * The templates are compiled here, from libhwy's headers, and the library itself is
 * not linked: its constructors take 4 ms in every session.  And it would sort 32-bit words by
 * AVX-512 on AMD's processors, whose vpcompressd to memory is slow; AVX2 is six times faster.
 *
 * Makefile compiles this file with -fmerge-all-constants.  Without it, gcc copies VQSort's
 * tables to the stack at each use.  With it, the address sanitizer takes them to be on the
 * stack all the same, and must not check their scope.
 *
 * foreach_target.h includes this file once for each set of instructions, and each
 * time HWY_NAMESPACE has another name.
 *
 *-------------------------------------------------------------------------
 */
/* these sets gain nothing here, or only processors from before 2008 need them */
#define HWY_DISABLED_TARGETS	(HWY_AVX3_DL | HWY_SSSE3)
/* libhwy 1.1 and later: needs no function of the library */
#define VQSORT_ONLY_STATIC		1

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE		"cpu/vqsort.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/contrib/sort/traits-inl.h>
#include <hwy/contrib/sort/vqsort-inl.h>

HWY_BEFORE_NAMESPACE();
namespace gpusort
{
namespace HWY_NAMESPACE
{

template <typename Word>
void
sort_words(Word *words, size_t n)
{
#if HWY_MAJOR > 1 || HWY_MINOR > 0
	hwy::HWY_NAMESPACE::VQSortStatic(words, n, hwy::SortAscending());
#else
	namespace hn = hwy::HWY_NAMESPACE;

	/* of vectors of fixed size, Sort() takes its buffer from the stack */
	hn::Sort(hn::SortTag<Word>(),
			 hn::detail::SharedTraits<hn::detail::TraitsLane<hn::detail::OrderAscending<Word>>>(),
			 words, n, static_cast<Word *>(nullptr));
#endif
}

void
sort32(uint32_t *words, size_t n)
{
	sort_words(words, n);
}

void
sort64(uint64_t *words, size_t n)
{
	sort_words(words, n);
}

}								/* namespace HWY_NAMESPACE */
}								/* namespace gpusort */
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>

#include "cpu/cpu.h"
#include "cpu/vectors.h"

#if HWY_MAJOR == 1 && HWY_MINOR == 0
/*
 * The random numbers by which VQSort takes its samples begin with these bytes.
 * libhwy has this function in the library.
 */
void
hwy::Sorter::Fill24Bytes(const void *seed_heap, size_t seed_num, void *bytes)
{
	uint64_t	seeds[3] = {reinterpret_cast<uintptr_t>(seed_heap), seed_num,
	reinterpret_cast<uintptr_t>(&seeds)};

	memcpy(bytes, seeds, sizeof(seeds));
}
#endif

namespace
{

/* The sorts by the best instructions */
struct Target
{
	const char *name;
	void		(*sort32) (uint32_t *words, size_t n);
	void		(*sort64) (uint64_t *words, size_t n);
};

Target
choose_target()
{
#if HWY_ARCH_X86
	__builtin_cpu_init();
#define HAS(feature)	__builtin_cpu_supports(feature)
#define HAS_SSE4		(HAS("ssse3") && HAS("sse4.1") && HAS("sse4.2") && HAS("pclmul") && HAS("aes"))
#define HAS_AVX2		(HAS_SSE4 && HAS("avx2") && HAS("bmi") && HAS("bmi2") && HAS("fma"))
#define HAS_AVX512		(HAS_AVX2 && HAS("avx512f") && HAS("avx512cd") && HAS("avx512bw") && \
						 HAS("avx512dq") && HAS("avx512vl"))
#if (HWY_TARGETS & HWY_AVX3) && (HWY_TARGETS & HWY_AVX2)
	if (HAS_AVX512 && __builtin_cpu_is("amd"))
		return {"AVX-512 and AVX2", gpusort::N_AVX2::sort32, gpusort::N_AVX3::sort64};
	if (HAS_AVX512)
		return {"AVX-512", gpusort::N_AVX3::sort32, gpusort::N_AVX3::sort64};
#endif
#if HWY_TARGETS & HWY_AVX2
	if (HAS_AVX2)
		return {"AVX2", gpusort::N_AVX2::sort32, gpusort::N_AVX2::sort64};
#endif
#if HWY_TARGETS & HWY_SSE4
	if (HAS_SSE4)
		return {"SSE4", gpusort::N_SSE4::sort32, gpusort::N_SSE4::sort64};
#endif
	/* without vectors VQSort is a heap sort */
	return {"scalar", [](uint32_t *words, size_t n) {std::sort(words, words + n);},
	[](uint64_t *words, size_t n) {std::sort(words, words + n);}};
#else
	return {hwy::TargetName(HWY_STATIC_TARGET), gpusort::HWY_STATIC_DISPATCH(sort32), gpusort::HWY_STATIC_DISPATCH(sort64)};
#endif
}

const Target &
target()
{
	static const Target chosen = choose_target();

	return chosen;
}

}								/* namespace */

void
gpusort_vqsort(uint32_t *words, size_t n)
{
	target().sort32(words, n);
}

void
gpusort_vqsort(uint64_t *words, size_t n)
{
	target().sort64(words, n);
}

const char *
gpusort_cpu_target(void)
{
	return target().name;
}

#endif							/* HWY_ONCE */
