/*-------------------------------------------------------------------------
 *
 * collate.cc
 *		Verifies the order of strings by strcoll(), in several threads.
 *
 * Each thread takes a part of the places at a time.  It copies each string once,
 * to put a zero byte behind it: neighbouring pairs share a string.
 *
 *-------------------------------------------------------------------------
 */
#include "cpu/cpu.h"

#include <string.h>

#include <utility>

#include "cpu/crew.h"

namespace
{

/* Places that a thread takes at a time; pairs that it compares between two checks */
constexpr size_t PART = 4096;
constexpr unsigned CHECK_PAIRS = 64;

/* A thread's copy of a string */
struct Copy
{
	bool		readable;		/* there is a string, and it could be read */
	size_t		length;
	char		bytes[GPUSORT_STRING_BYTES + 1];

	void
	take(const GpusortCollateInput &input, size_t place)
	{
		GpusortString string;

		readable = input.string(input.arg, place, &string) && string.bytes != NULL;
		if (!readable)
			return;
		length = string.length;
		if (input.small == NULL)
			memcpy(bytes, string.bytes, length);
		else
		{
			for (size_t i = 0; i < length; i++)
			{
				bytes[i] = input.small[(unsigned char) string.bytes[i]];
				readable &= bytes[i] != 0;
			}
		}
		bytes[length] = '\0';
	}
};

inline bool
same(const Copy &a, const Copy &b)
{
	return a.length == b.length && memcmp(a.bytes, b.bytes, a.length) == 0;
}

/* Compares as varstr_cmp() does, and leaves equal strings to the caller. */
inline GpusortCollateVerdict
judge(const Copy &before, const Copy &current, const GpusortCollateInput &input)
{
	int			order;

	if (!before.readable || !current.readable || same(before, current))
		return GPUSORT_COLLATE_LEFT;
	order = strcoll_l(before.bytes, current.bytes, input.locale);
	if (order == 0)
		order = strcmp(before.bytes, current.bytes);
	if (order == 0)
		return GPUSORT_COLLATE_LEFT;
	return (order < 0) == input.descending ? GPUSORT_COLLATE_OUT_OF_ORDER : GPUSORT_COLLATE_IN_ORDER;
}

struct Verifier
{
	const GpusortCollateInput &input;
	uint8_t    *verdicts;
	Crew	   &crew;
	int			thread;
	unsigned	pairs = 0;
	Copy		copies[2];
	Copy		first;

	Verifier(const GpusortCollateInput &input, uint8_t *verdicts, Crew &crew, int thread):
		input(input), verdicts(verdicts), crew(crew), thread(thread)
	{
	}

	/* Verifies the places from begin to end - 1.  Returns false if it was stopped. */
	bool
	verify(size_t begin, size_t end)
	{
		Copy	   *before = &copies[0];
		Copy	   *current = &copies[1];
		bool		taken = false;	/* *before is the string of the place before */

		if (input.with_first)
			first.take(input, 0);
		for (size_t i = begin; i < end; i++)
		{
			GpusortCollateTask task = input.task(input.arg, i);

			if (task != GPUSORT_COLLATE_COMPARE)
			{
				verdicts[i] = task == GPUSORT_COLLATE_SKIP ? GPUSORT_COLLATE_IN_ORDER : GPUSORT_COLLATE_LEFT;
				taken = false;
				continue;
			}
			if (pairs++ % CHECK_PAIRS == 0 && crew.stopped(thread))
				return false;
			if (!taken)
				before->take(input, i - 1);
			current->take(input, i);
			/* in an order by words, equal strings mostly follow each other */
			if (input.with_first && taken && before->readable && current->readable && same(*before, *current))
				verdicts[i] = verdicts[i - 1];
			else
				verdicts[i] = judge(input.with_first ? first : *before, *current, input);
			std::swap(before, current);
			taken = true;
		}
		return !crew.stopped(thread);
	}
};

}								/* namespace */

GpusortCpuStatus
gpusort_collate_verify(const GpusortCollateInput *input, uint8_t *verdicts,
					   const GpusortCpuOptions *options)
{
	Crew		crew(options);

	if (input->n > 0)
		verdicts[0] = GPUSORT_COLLATE_IN_ORDER;
	for_parts(&crew, input->n, PART, [&](size_t begin, size_t end, int thread) {
		Verifier	verifier(*input, verdicts, crew, thread);

		return verifier.verify(begin > 0 ? begin : 1, end);
	});
	return crew.status();
}
