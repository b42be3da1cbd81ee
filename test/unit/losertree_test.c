/*-------------------------------------------------------------------------
 *
 * losertree_test.c
 *		Tests src/base/losertree.h: merges of every small number of inputs.
 *
 * The inputs are arrays of ascending keys, and some are empty.  There are few distinct
 * keys, so that most matches are ties, and UINT64_MAX is one of them, whose entry is the
 * largest but that of an input that has ended.  Each row must come once, keys must ascend,
 * and equal keys must come in the order of their inputs and positions, or in the reverse
 * order of their inputs if the callback says so.
 *
 *-------------------------------------------------------------------------
 */
#include "check.h"
#include "base/losertree.h"

#define MAX_INPUTS	70
#define MAX_ROWS	50

typedef struct Inputs
{
	uint64_t	keys[MAX_INPUTS][MAX_ROWS];
	unsigned	rows[MAX_INPUTS];
	unsigned	next[MAX_INPUTS];
	unsigned	calls;
	bool		reversed;		/* equal keys are in the reverse order of their inputs */
} Inputs;

static Inputs in;

static bool
has_row(uint32_t input)
{
	return in.next[input] < in.rows[input];
}

static GpusortLoser
entry_of(uint32_t input)
{
	return has_row(input) ? gpusort_losertree_entry(in.keys[input][in.next[input]], input) :
		gpusort_losertree_ended();
}

static bool
before(void *arg, uint32_t a, uint32_t b)
{
	Inputs	   *inputs = arg;

	inputs->calls++;
	CHECK(a != b && has_row(a) && has_row(b) &&
		  in.keys[a][in.next[a]] == in.keys[b][in.next[b]], "the tie-break was called for inputs %u and %u, which do not tie", a, b);
	return inputs->reversed ? a > b : a < b;
}

static void
merge(unsigned inputs, unsigned values, GpusortLoserBefore callback)
{
	GpusortLoserTree tree;
	GpusortLoser nodes[2 * 128];
	unsigned	total = 0;
	unsigned	wrong = 0;
	uint64_t	last_key = 0;
	uint32_t	last_input = 0;

	for (unsigned i = 0; i < inputs; i++)
	{
		uint64_t	key = 0;

		in.rows[i] = random_bits() % 4 == 0 ? 0 : random_bits() % MAX_ROWS;
		in.next[i] = 0;
		total += in.rows[i];
		for (unsigned r = 0; r < in.rows[i]; r++)
		{
			key += random_bits() % values;
			in.keys[i][r] = r + 2 > in.rows[i] && random_bits() % 2 ? UINT64_MAX : key;
		}
	}

	CHECK(gpusort_losertree_nodes(inputs) <= sizeof(nodes) / sizeof(nodes[0]), "%u inputs: too many nodes", inputs);
	gpusort_losertree_init(&tree, inputs, nodes);
	for (unsigned i = 0; i < inputs; i++)
		gpusort_losertree_set(&tree, i, entry_of(i));
	gpusort_losertree_build(&tree, callback, &in);
	for (unsigned n = 0; n < total; n++)
	{
		uint32_t	input = gpusort_losertree_input(&tree);
		uint64_t	key = (uint64_t) (tree.winner >> 32);

		if (tree.winner == gpusort_losertree_ended() || tree.winner != entry_of(input) || key < last_key ||
			(n > 0 && key == last_key && input != last_input && in.reversed != (input < last_input)))
		{
			wrong++;
			break;
		}
		last_key = key;
		last_input = input;
		in.next[input]++;
		gpusort_losertree_replace(&tree, entry_of(input), callback, &in);
	}
	CHECK(wrong == 0, "%u inputs, steps below %u: a row is out of order", inputs, values);
	CHECK(tree.winner == gpusort_losertree_ended(),
		  "%u inputs, steps below %u: a row came after the last one", inputs, values);
}

int
main(void)
{
	for (unsigned inputs = 1; inputs <= MAX_INPUTS; inputs++)
	{
		for (unsigned values = 1; values <= 1000; values *= 10)
		{
			in.reversed = false;
			merge(inputs, values, NULL);
			merge(inputs, values, before);
			in.reversed = true;
			merge(inputs, values, before);
		}
	}
	CHECK(in.calls > 0, "there were no ties");
	return check_summary();
}
