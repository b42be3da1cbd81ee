/*-------------------------------------------------------------------------
 *
 * losertree.h
 *		Which of k sorted inputs has the next row: a tree of losers.
 *
 * Knuth, The Art of Computer Programming, vol. 3, section 5.4.1.  A match is
 * played at each inner node between the rows that come up from its two
 * children; the loser stays there and the winner goes on.  When the overall
 * winner is replaced by the next row of its input, that row meets, on its way
 * to the root, exactly those it has to be compared with: one comparison a
 * level, where a heap needs two.
 *
 * A node keeps the first word of its loser's key, so that most matches touch
 * no row.  Rows of equal first words are left to a callback, and so are
 * inputs that have ended: their key is GPUSORT_LOSER_END, which a row may
 * have, too.
 *
 * Plain C: neither PostgreSQL's types nor its memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_LOSERTREE_H
#define GPUSORT_BASE_LOSERTREE_H

#include <stdbool.h>
#include <stdint.h>

/* The key of an input that has ended. */
#define GPUSORT_LOSER_END	UINT64_MAX

/* Nobody has come to a node yet. */
#define GPUSORT_LOSER_NONE	UINT32_MAX

/*
 * Whether the row of input a goes before that of input b, a <> b, whose keys
 * are equal.  An input that has ended goes before no row.
 */
typedef bool (*GpusortLoserBefore) (void *arg, uint32_t a, uint32_t b);

typedef struct GpusortLoser
{
	uint64_t	key;			/* first word of the input's row */
	uint32_t	input;
} GpusortLoser;

typedef struct GpusortLoserTree
{
	uint32_t	inputs;			/* at least 1 */
	GpusortLoser winner;		/* once every input has been entered */

	/*
	 * losers[n], 0 < n < inputs: who lost at inner node n.  The children of
	 * node n are 2n and 2n + 1; input i comes in as node inputs + i.
	 */
	GpusortLoser *losers;
	GpusortLoserBefore before;
	void	   *arg;			/* of before */
} GpusortLoserTree;

/*
 * Begins a tournament of so many inputs, each of which is to be entered once.
 * losers: room for as many nodes, which stays the caller's.
 */
static inline void
gpusort_losertree_init(GpusortLoserTree *tree, uint32_t inputs, GpusortLoser *losers,
					   GpusortLoserBefore before, void *arg)
{
	tree->inputs = inputs;
	tree->winner.key = GPUSORT_LOSER_END;
	tree->winner.input = GPUSORT_LOSER_NONE;
	tree->losers = losers;
	tree->before = before;
	tree->arg = arg;
	for (uint32_t n = 0; n < inputs; n++)
		losers[n].input = GPUSORT_LOSER_NONE;
}

/* Plays the match at a node; *up is who comes up, and then who goes on. */
static inline void
gpusort_losertree_play(const GpusortLoserTree *tree, GpusortLoser *node, GpusortLoser *up)
{
	GpusortLoser waiting = *node;

	if (waiting.key < up->key ||
		(waiting.key == up->key && tree->before(tree->arg, waiting.input, up->input)))
	{
		*node = *up;
		*up = waiting;
	}
}

/* Enters an input with the key of its first row, or GPUSORT_LOSER_END. */
static inline void
gpusort_losertree_enter(GpusortLoserTree *tree, uint32_t input, uint64_t key)
{
	GpusortLoser up = {key, input};

	for (uint32_t n = (tree->inputs + input) / 2; n > 0; n /= 2)
	{
		/* the first to come to a node waits there for the other */
		if (tree->losers[n].input == GPUSORT_LOSER_NONE)
		{
			tree->losers[n] = up;
			return;
		}
		gpusort_losertree_play(tree, &tree->losers[n], &up);
	}
	tree->winner = up;
}

/* The winner's input has gone on to a row of this key, or GPUSORT_LOSER_END. */
static inline void
gpusort_losertree_replace(GpusortLoserTree *tree, uint64_t key)
{
	GpusortLoser up = {key, tree->winner.input};

	for (uint32_t n = (tree->inputs + up.input) / 2; n > 0; n /= 2)
		gpusort_losertree_play(tree, &tree->losers[n], &up);
	tree->winner = up;
}

#endif							/* GPUSORT_BASE_LOSERTREE_H */
