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
 * Then rows have keys of several parts, most of which they share with their neighbours, and
 * entries have offset-value codes.  No part of a row may be compared twice.
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
	return has_row(input) ? gpusort_losertree_entry(0, in.keys[input][in.next[input]], input) :
		gpusort_losertree_ended();
}

static bool
before(void *arg, GpusortLoser *left, GpusortLoser *right)
{
	Inputs	   *inputs = arg;
	uint32_t	a = gpusort_losertree_input(*left);
	uint32_t	b = gpusort_losertree_input(*right);

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
		uint32_t	input = gpusort_losertree_input(tree.winner);
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

#define PARTS		6

/* Rows of several parts; each input's are sorted. */
typedef struct Parts
{
	unsigned	keys[MAX_INPUTS][MAX_ROWS][PARTS];
	unsigned	rows[MAX_INPUTS];
	unsigned	next[MAX_INPUTS];
	unsigned	compared;		/* parts */
} Parts;

static Parts with;

static int
compare_keys(const void *a, const void *b)
{
	const unsigned *x = a;
	const unsigned *y = b;

	for (int i = 0; i < PARTS; i++)
	{
		if (x[i] != y[i])
			return x[i] < y[i] ? -1 : 1;
	}
	return 0;
}

/* Returns how many parts two rows share, of which the first ones are known. */
static unsigned
shared_parts(const unsigned *a, const unsigned *b, unsigned known)
{
	for (; known < PARTS; known++)
	{
		with.compared++;
		if (a[known] != b[known])
			break;
	}
	return known;
}

static const unsigned *
row_of(uint32_t input)
{
	return with.keys[input][with.next[input]];
}

static GpusortLoser
code(uint32_t input, unsigned shared)
{
	return gpusort_losertree_entry(shared, shared < PARTS ? row_of(input)[shared] : 0, input);
}

static bool
part_before(void *arg, GpusortLoser *a, GpusortLoser *b)
{
	uint32_t	x = gpusort_losertree_input(*a);
	uint32_t	y = gpusort_losertree_input(*b);
	unsigned	known = gpusort_losertree_shared(*a);
	unsigned	shared = shared_parts(row_of(x), row_of(y), known < PARTS ? known + 1 : PARTS);
	bool		before = shared < PARTS ? row_of(x)[shared] < row_of(y)[shared] : x < y;

	(void) arg;
	CHECK(memcmp(row_of(x), row_of(y), (known < PARTS ? known + 1 : PARTS) * sizeof(unsigned)) == 0,
		  "the entries say that rows share %u parts, and they do not", known + 1);
	if (before)
		*b = code(y, shared);
	else
		*a = code(x, shared);
	return before;
}

static void
merge_parts(unsigned inputs, unsigned values)
{
	GpusortLoserTree tree;
	GpusortLoser nodes[2 * 128];
	unsigned	total = 0;
	unsigned	wrong = 0;
	unsigned	last[PARTS] = {0};
	uint32_t	last_input = 0;

	with.compared = 0;
	gpusort_losertree_init(&tree, inputs, nodes);
	for (unsigned i = 0; i < inputs; i++)
	{
		with.rows[i] = random_bits() % MAX_ROWS;
		with.next[i] = 0;
		total += with.rows[i];
		for (unsigned r = 0; r < with.rows[i]; r++)
		{
			for (int part = 0; part < PARTS; part++)
				with.keys[i][r][part] = random_bits() % values;
		}
		qsort(with.keys[i], with.rows[i], sizeof(with.keys[i][0]), compare_keys);
		if (with.rows[i] > 0)
			gpusort_losertree_set(&tree, i, code(i, 0));
	}
	gpusort_losertree_build(&tree, part_before, NULL);
	for (unsigned n = 0; n < total; n++)
	{
		uint32_t	input = gpusort_losertree_input(tree.winner);
		int			order;

		if (tree.winner == gpusort_losertree_ended())
		{
			wrong++;
			break;
		}
		order = n > 0 ? compare_keys(last, row_of(input)) : -1;
		wrong += order > 0 || (order == 0 && last_input > input);
		memcpy(last, row_of(input), sizeof(last));
		last_input = input;
		with.next[input]++;
		gpusort_losertree_replace(&tree, with.next[input] < with.rows[input] ? code(input, shared_parts(last, row_of(input), 0)) :
								  gpusort_losertree_ended(), part_before, NULL);
	}
	CHECK(wrong == 0, "%u inputs of parts below %u: %u rows are out of order", inputs, values, wrong);
	CHECK(tree.winner == gpusort_losertree_ended(), "%u inputs of parts below %u: a row came after the last one", inputs, values);
	/* one part more than its number shows in which part a new row, or a loser, differs */
	CHECK(with.compared <= total * (PARTS + 1), "%u inputs of parts below %u: %u parts of %u rows were compared", inputs, values,
		  with.compared, total);
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
			merge_parts(inputs, values < 1000 ? 2 + values / 10 : UINT32_MAX);
		}
	}
	CHECK(in.calls > 0, "there were no ties");
	return check_summary();
}
