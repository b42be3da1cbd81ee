/*-------------------------------------------------------------------------
 *
 * tournament.h
 *		The CPU engine: which of many sorted pieces has the next key.
 *
 * A tree of losers (Knuth, The Art of Computer Programming 3, 5.4.1): a node
 * remembers who lost there, so that the next key of the piece that won has to
 * be compared only with those on its own way up.  A contestant is a key with
 * its piece's number below it in one integer.  So one comparison also decides
 * between equal keys, for the earlier piece, which makes a merge stable; and no
 * branch depends on the keys.
 *
 * Measured, one thread, 20 million random keys of either width, merge included:
 * 4 ns a key for 2 pieces, 5 for 4, 6 for 8, 7 to 8 for 16.
 *
 * C++, for the engine_cpu*.cc files alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_CPU_TOURNAMENT_H
#define GPUSORT_CPU_TOURNAMENT_H

#include <stddef.h>
#include <stdint.h>

namespace
{

/* A contestant: the key in the upper bits, the piece's number below. */
template <typename Key> struct Contest;
template <> struct Contest<uint32_t> { typedef uint64_t Entry; };
template <> struct Contest<uint64_t> { typedef unsigned __int128 Entry; };

/* Nodes that a tournament of so many pieces needs. */
inline size_t
tournament_nodes(size_t npieces)
{
	size_t		leaves = 1;

	while (leaves < npieces)
		leaves *= 2;
	return 2 * leaves;
}

/*
 * Heads tells of the pieces: head(piece) is its next key as a contestant,
 * entry(key, piece), or EXHAUSTED; and if Heads::TIES, goes_before(a, b) decides
 * between two pieces, neither exhausted, whose keys are equal.
 */
template <typename Key, typename Heads>
class Tournament
{
  public:
	typedef typename Contest<Key>::Entry Entry;

	/* Above every contestant: no piece has that number. */
	static constexpr Entry EXHAUSTED = ~Entry(0);

	static Entry
	entry(Key key, size_t piece)
	{
		return Entry(key) << 32 | piece;
	}

	/* room: for tournament_nodes(npieces) entries. */
	Tournament(const Heads &heads, size_t npieces, Entry *room):
		nodes(room), leaves(tournament_nodes(npieces) / 2)
	{
		/* bottom up, a node first holds its winner */
		for (size_t i = 0; i < leaves; i++)
			nodes[leaves + i] = i < npieces ? heads.head(i) : EXHAUSTED;
		for (size_t node = leaves - 1; node > 0; node--)
			nodes[node] = goes_before(heads, nodes[2 * node], nodes[2 * node + 1]) ?
				nodes[2 * node] : nodes[2 * node + 1];
		won = nodes[1];
		/* top down, it is replaced by the loser: the child that is not the winner */
		for (size_t node = 1; node < leaves; node++)
			nodes[node] = nodes[2 * node] == nodes[node] ? nodes[2 * node + 1] : nodes[2 * node];
	}

	/* The piece with the next key, and the key. */
	size_t winner() const { return uint32_t(won); }
	Key key() const { return Key(won >> 32); }

	/* The winner has gone on to its next key. */
	void
	replace(const Heads &heads)
	{
		Entry		rising = heads.head(winner());

		for (size_t node = (leaves + winner()) / 2; node > 0; node /= 2)
		{
			Entry		other = nodes[node];
			bool		lost = other < rising;

			if constexpr (Heads::TIES)
			{
				if (__builtin_expect(Key(other >> 32) == Key(rising >> 32), false))
					lost = goes_before(heads, other, rising);

				/* by a mask: of conditions behind that one, compilers make branches */
				Entry		exchange = (other ^ rising) & -Entry(lost);

				nodes[node] = other ^ exchange;
				rising ^= exchange;
			}
			else
			{
				nodes[node] = lost ? rising : other;
				rising = lost ? other : rising;
			}
		}
		won = rising;
	}

  private:
	Entry	   *nodes;			/* [1, leaves): losers */
	size_t		leaves;
	Entry		won;

	static bool
	goes_before(const Heads &heads, Entry a, Entry b)
	{
		if constexpr (Heads::TIES)
		{
			if (__builtin_expect(Key(a >> 32) == Key(b >> 32), false) && a != EXHAUSTED && b != EXHAUSTED)
				return heads.goes_before(uint32_t(a), uint32_t(b));
		}
		return a < b;
	}
};

}								/* namespace */

#endif							/* GPUSORT_CPU_TOURNAMENT_H */
