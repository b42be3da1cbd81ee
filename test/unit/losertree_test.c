/*-------------------------------------------------------------------------
 *
 * losertree_test.c
 *		Tests src/base/losertree.h: merges of every small number of inputs.
 *
 * The inputs are arrays of ascending keys, and some are empty.  There are few distinct
 * keys, so that most matches are ties, and UINT64_MAX is one of them, which is also the
 * key of an input that has ended.  Each row must come once, keys must ascend, and equal
 * keys must come in the order of their inputs and positions.
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
} Inputs;

static Inputs in;

/* The current key of an input. */
static uint64_t
key_of(uint32_t input)
{
	return in.next[input] < in.rows[input] ? in.keys[input][in.next[input]] : GPUSORT_LOSER_END;
}

/* The tie-break: decides equal keys by their inputs, and puts inputs that have ended last. */
static bool
before(void *arg, uint32_t a, uint32_t b)
{
	Inputs	   *inputs = arg;

	inputs->calls++;
	CHECK(a != b && key_of(a) == key_of(b), "the tie-break was called for inputs %u and %u, which do not tie", a, b);
	if (inputs->next[a] == inputs->rows[a] || inputs->next[b] == inputs->rows[b])
		return inputs->next[a] < inputs->rows[a];
	return a < b;
}

/* Merges inputs with random numbers of rows, whose keys ascend by steps below values. */
static void
merge(unsigned inputs, unsigned values)
{
	GpusortLoserTree tree;
	GpusortLoser losers[MAX_INPUTS];
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

	gpusort_losertree_init(&tree, inputs, losers, before, &in);
	for (unsigned i = 0; i < inputs; i++)
		gpusort_losertree_enter(&tree, i, key_of(i));
	for (unsigned n = 0; n < total; n++)
	{
		uint32_t	input = tree.winner.input;

		if (in.next[input] == in.rows[input] || tree.winner.key != key_of(input) ||
			tree.winner.key < last_key || (tree.winner.key == last_key && input < last_input))
		{
			wrong++;
			break;
		}
		last_key = tree.winner.key;
		last_input = input;
		in.next[input]++;
		gpusort_losertree_replace(&tree, key_of(input));
	}
	CHECK(wrong == 0, "%u inputs, steps below %u: a row is out of order", inputs, values);
	CHECK(in.next[tree.winner.input] == in.rows[tree.winner.input],
		  "%u inputs, steps below %u: a row came after the last one", inputs, values);
}

int
main(void)
{
	for (unsigned inputs = 1; inputs <= MAX_INPUTS; inputs++)
	{
		for (unsigned values = 1; values <= 1000; values *= 10)
			merge(inputs, values);
	}
	CHECK(in.calls > 0, "there were no ties");
	return check_summary();
}
