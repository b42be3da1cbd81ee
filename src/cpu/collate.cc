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
#include "cpu/collate.h"

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

/* Compares as varstr_cmp() does. */
inline int
compare(const Copy &a, const Copy &b, locale_t locale)
{
	int			order;

	if (a.length == b.length && memcmp(a.bytes, b.bytes, a.length) == 0)
		return 0;
	order = strcoll_l(a.bytes, b.bytes, locale);
	return order != 0 ? order : strcmp(a.bytes, b.bytes);
}

struct Verifier
{
	const GpusortCollateInput &input;
	uint8_t    *verdicts;
	Crew	   &crew;
	int			thread;
	unsigned	pairs = 0;
	Copy		copies[2];

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

		for (size_t i = begin; i < end; i++)
		{
			GpusortCollateTask task = input.task(input.arg, i);
			int			order;

			if (task != GPUSORT_COLLATE_COMPARE)
			{
				verdicts[i] = task == GPUSORT_COLLATE_SKIP ? GPUSORT_COLLATE_IN_ORDER : GPUSORT_COLLATE_LEFT;
				taken = false;
				continue;
			}
			if (pairs++ % CHECK_PAIRS == 0 && crew.stopped(thread))
				return false;
			if (!taken)
				before->take(input, input.with_first ? 0 : i - 1);
			taken = true;
			current->take(input, i);
			if (!before->readable || !current->readable)
				verdicts[i] = GPUSORT_COLLATE_LEFT;
			else
			{
				order = compare(*before, *current, input.locale);
				/* equal strings with unequal keys, of which libc's must be wrong */
				if (order == 0)
					verdicts[i] = GPUSORT_COLLATE_LEFT;
				else
					verdicts[i] = (order < 0) == input.descending ?
						GPUSORT_COLLATE_OUT_OF_ORDER : GPUSORT_COLLATE_IN_ORDER;
			}
			if (!input.with_first)
				std::swap(before, current);
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
	for_parts(crew.threads, input->n, PART, [&](size_t begin, size_t end, int thread) {
		Verifier	verifier(*input, verdicts, crew, thread);

		return verifier.verify(begin > 0 ? begin : 1, end);
	});
	return crew.status();
}
