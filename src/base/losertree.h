/*-------------------------------------------------------------------------
 *
 * losertree.h
 *		A loser tree: finds which of many sorted inputs has the next key.
 *
 * Knuth, The Art of Computer Programming, vol. 3, section 5.4.1.  Each inner node holds the
 * loser of the match between its two subtrees.  When the winner's input advances, its new key
 * meets on the way to the root exactly the entries it must be compared with.
 *
 * An entry is one integer: the key in the upper bits, 64 from bit 32 on, and the input's number in the lowest 32.
 * One comparison also decides between equal keys, for the earlier input.  If a key is only
 * the beginning of a longer one, the caller passes a callback that compares the rest.
 *
 * Such a caller may use offset-value codes, so that the parts which keys share are compared only
 * once (Conner, IBM Technical Disclosure Bulletin 20, 1977; Graefe and Do, EDBT 2023).  The key of
 * an entry then says in what it differs from the winner before it: from bit 96 on, how many of its
 * parts are the same, the more the lower, and below, the next part.  All entries that a new one meets were losers to
 * that winner.  If two of them differ, the loser differs from the new winner as it did from the
 * old one.  If they are equal, the callback finds the first part in which they differ, and
 * changes the loser's entry.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_LOSERTREE_H
#define GPUSORT_BASE_LOSERTREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An entry, aligned as PostgreSQL's memory contexts align. */
typedef unsigned __int128 GpusortLoser __attribute__((aligned(8)));

/* Always inline, so that a merge's inner loop has no call of its callback and no test for NULL. */
#define GPUSORT_LOSER_INLINE	static inline __attribute__((always_inline, unused))

/*
 * Returns whether the current key of a's input orders before that of b's.
 * Called for the entries of two different inputs that have equal keys and neither of
 * which has ended.  May change the key of the loser's entry.
 */
typedef bool (*GpusortLoserBefore) (void *arg, GpusortLoser *a, GpusortLoser *b);

typedef struct GpusortLoserTree
{
	GpusortLoser *nodes;		/* owned by the caller; nodes[1] to nodes[leaves - 1] hold losers */
	size_t		leaves;			/* the number of inputs, rounded up to a power of two */
	GpusortLoser winner;		/* the next entry, or gpusort_losertree_ended() if all inputs have ended */
} GpusortLoserTree;

/* The most parts of a key */
#define GPUSORT_LOSER_PARTS		255

/*
 * The entry of an input's current key.  shared: with offset-value codes, how many of the key's parts are those of the winner
 * before; else 0.
 */
GPUSORT_LOSER_INLINE GpusortLoser
gpusort_losertree_entry(unsigned shared, uint64_t key, uint32_t input)
{
	return (GpusortLoser) (GPUSORT_LOSER_PARTS - shared) << 96 | (GpusortLoser) key << 32 | input;
}

/* Returns the input of an entry.  Undefined for one that has ended. */
GPUSORT_LOSER_INLINE uint32_t
gpusort_losertree_input(GpusortLoser entry)
{
	return (uint32_t) entry;
}

/* Returns how many parts an entry shares. */
GPUSORT_LOSER_INLINE unsigned
gpusort_losertree_shared(GpusortLoser entry)
{
	return GPUSORT_LOSER_PARTS - (unsigned) (entry >> 96);
}

/* The entry of an input that has ended: above all others, as no input is number UINT32_MAX. */
GPUSORT_LOSER_INLINE GpusortLoser
gpusort_losertree_ended(void)
{
	return ~(GpusortLoser) 0;
}

/* Returns the number of leaves, a power of two, of a tree for this many inputs (0 or more). */
static inline uint32_t
gpusort_losertree_leaves(uint32_t inputs)
{
	uint32_t	leaves = 1;

	while (leaves < inputs)
		leaves *= 2;
	return leaves;
}

/* Entries that the caller must allocate for a tree of this many inputs. */
static inline size_t
gpusort_losertree_nodes(uint32_t inputs)
{
	return 2 * (size_t) gpusort_losertree_leaves(inputs);
}

/*
 * Initializes a tree of this many inputs, all of which have ended.  nodes has
 * room for gpusort_losertree_nodes(inputs) entries and stays the caller's.
 * The caller then sets each input's first entry and calls
 * gpusort_losertree_build().
 */
GPUSORT_LOSER_INLINE void
gpusort_losertree_init(GpusortLoserTree *tree, uint32_t inputs, GpusortLoser *nodes)
{
	tree->nodes = nodes;
	tree->leaves = gpusort_losertree_leaves(inputs);
	for (size_t i = 0; i < 2 * tree->leaves; i++)
		nodes[i] = ~(GpusortLoser) 0;
}

/* Sets an input's first entry, before gpusort_losertree_build(). */
GPUSORT_LOSER_INLINE void
gpusort_losertree_set(GpusortLoserTree *tree, uint32_t input, GpusortLoser entry)
{
	tree->nodes[tree->leaves + input] = entry;
}

/* Returns whether entry a wins against b.  before is NULL if keys are complete. */
GPUSORT_LOSER_INLINE bool
gpusort_losertree_wins(GpusortLoser *a, GpusortLoser *b, GpusortLoserBefore before, void *arg)
{
	if (before != NULL && __builtin_expect((*a ^ *b) >> 32 == 0, false) && *a != ~(GpusortLoser) 0)
		return before(arg, a, b);
	return *a < *b;
}

/* Plays all matches of the first entries, and so finds the first winner. */
GPUSORT_LOSER_INLINE void
gpusort_losertree_build(GpusortLoserTree *tree, GpusortLoserBefore before, void *arg)
{
	GpusortLoser *nodes = tree->nodes;

	/* bottom up, each node first gets its winner */
	for (size_t n = tree->leaves - 1; n > 0; n--)
		nodes[n] = gpusort_losertree_wins(&nodes[2 * n], &nodes[2 * n + 1], before, arg) ?
			nodes[2 * n] : nodes[2 * n + 1];
	tree->winner = nodes[1];
	/* top down, the loser replaces it: the child of another input, since the winner's key may have changed above */
	for (size_t n = 1; n < tree->leaves; n++)
		nodes[n] = gpusort_losertree_input(nodes[2 * n]) == gpusort_losertree_input(nodes[n]) ? nodes[2 * n + 1] : nodes[2 * n];
}

/*
 * Replaces the winner, which must not be gpusort_losertree_ended(), by the next
 * entry of its input or by gpusort_losertree_ended(), and finds the new winner.
 */
GPUSORT_LOSER_INLINE void
gpusort_losertree_replace(GpusortLoserTree *tree, GpusortLoser rising,
						  GpusortLoserBefore before, void *arg)
{
	for (size_t n = (tree->leaves + gpusort_losertree_input(tree->winner)) / 2; n > 0; n /= 2)
	{
		GpusortLoser other = tree->nodes[n];

		if (before != NULL)
		{
			bool		lost = gpusort_losertree_wins(&other, &rising, before, arg);

			/* exchange by a mask: compilers turn a condition here into a branch */
			GpusortLoser exchange = (other ^ rising) & -(GpusortLoser) lost;

			tree->nodes[n] = other ^ exchange;
			rising ^= exchange;
		}
		else
		{
			bool		lost = other < rising;

			tree->nodes[n] = lost ? rising : other;
			rising = lost ? other : rising;
		}
	}
	tree->winner = rising;
}

#endif							/* GPUSORT_BASE_LOSERTREE_H */
