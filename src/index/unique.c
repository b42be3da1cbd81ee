/*-------------------------------------------------------------------------
 *
 * unique.c
 *		Finds keys that a unique index would have twice.
 *
 * Rows with the same key come one after the other, so each is compared with the one before.  Equal
 * keys have equal words, and nearly all comparisons end there.  Tuples that are dead for new
 * snapshots do not count.  The error names the first live row's key, as core's does.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "executor/executor.h"
#include "utils/rel.h"

#include "base/fault.h"
#include "index/btree.h"

/* Raises core's error: the index would have two live rows with the slot's key. */
static void
raise_duplicate(const GpusortIndexBuild *build, TupleTableSlot *slot)
{
	Relation	index = build->index;
	char	   *key;

	if (GPUSORT_FAULT(INDEX_UNIQUE))
		return;
	slot_getallattrs(slot);
	key = BuildIndexValueDescription(index, slot->tts_values, slot->tts_isnull);
	ereport(ERROR,
			(errcode(ERRCODE_UNIQUE_VIOLATION),
			 errmsg("could not create unique index \"%s\"", RelationGetRelationName(index)),
			 key ? errdetail("Key %s is duplicated.", key) : errdetail("Duplicate keys exist."),
			 errtableconstraint(build->heap, RelationGetRelationName(index))));
}

/* Is a key column of the slot's row NULL? */
static bool
has_null(const GpusortIndexBuild *build, TupleTableSlot *slot)
{
	for (int i = 1; i <= build->spec.ncolumns; i++)
	{
		if (slot_attisnull(slot, i))
			return true;
	}
	return false;
}

/* Has the row the key of the one before?  Puts that one into build->left. */
static bool
has_same_key(const GpusortIndexBuild *build, MinimalTuple previous, MinimalTuple row)
{
	ExecStoreMinimalTuple(previous, build->left, false);
	ExecStoreMinimalTuple(row, build->right, false);
	if (!build->info->ii_NullsNotDistinct && has_null(build, build->right))
		return false;
	return gpusort_stream_compare(build->stream, build->left, build->right) == 0;
}

/*
 * Checks a row.  previous: the one before, if it may have the same key; else NULL.  Returns true if it is the previous
 * one from now on.  A dead row behind others with its key leaves them there.
 */
static inline bool
check(GpusortUnique *unique, const GpusortIndexBuild *build, MinimalTuple previous, MinimalTuple row)
{
	bool		alive = (row->t_infomask & GPUSORT_INDEX_DEAD) == 0;

	if (previous == NULL || !has_same_key(build, previous, row))
		unique->alive = false;
	else if (!alive)
		return false;
	if (alive && unique->alive)
		raise_duplicate(build, build->left);
	unique->alive |= alive;
	return true;
}

bool
gpusort_unique_check(GpusortUnique *unique, const GpusortIndexBuild *build, MinimalTuple row, uint64 place, bool same,
					 bool in_thread)
{
	if (in_thread && same)
		return false;
	/* dead rows that were left out have the words of the previous one, too */
	if (check(unique, build, same ? gpusort_stream_row(build->stream, unique->place) : NULL, row))
		unique->place = place;
	return true;
}

void
gpusort_unique_check_merged(GpusortUnique *unique, const GpusortIndexBuild *build, MinimalTuple row)
{
	int			turn = 1 - unique->turn;
	int			n;
	bool		same;

	/* equal keys have equal words, and nearly all comparisons end there */
	ExecStoreMinimalTuple(row, build->right, false);
	n = gpusort_stream_words(build->stream, build->right, unique->words[turn]);
	same = unique->merged != NULL && memcmp(unique->words[0], unique->words[1], n * sizeof(uint64)) == 0;
	if (!check(unique, build, same ? unique->merged : NULL, row))
		return;
	unique->turn = turn;
	unique->merged = memcpy(unique->copies[turn].data, row, row->t_len);
}

bool
gpusort_unique_check_word(GpusortUnique *unique, const GpusortIndexBuild *build, uint64 word, bool in_thread)
{
	uint64		key = gpusort_word_key(word);
	bool		isnull = gpusort_word_is_null(build->words, word);
	bool		alive = !gpusort_word_is_dead(word);

	if (key != unique->key || (isnull && !build->info->ii_NullsNotDistinct))
		unique->alive = false;
	if (alive && unique->alive)
	{
		if (in_thread)
			return false;
		build->row->tts_isnull[0] = isnull;
		build->row->tts_values[0] = isnull ? (Datum) 0 : gpusort_word_value(build->words, word);
		raise_duplicate(build, build->row);
	}
	unique->alive |= alive;
	unique->key = key;
	return true;
}
