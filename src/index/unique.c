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
#include "index/words.h"

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

/* Has the row the key of the one before, whose words it has?  Puts that one into gather->left. */
static bool
has_same_key(const GpusortUnique *unique, const GpusortIndexBuild *build, MinimalTuple row)
{
	const GpusortGather *gather = &build->gather;

	ExecStoreMinimalTuple(unique->previous, gather->left, false);
	ExecStoreMinimalTuple(row, gather->right, false);
	if (!build->info->ii_NullsNotDistinct && has_null(build, gather->right))
		return false;
	return gpusort_rowkey_compare(gather->rows.key, gather->left, gather->right) == 0;
}

/* Has the row whose words are in keys[1 - turn] the words of the one before? */
static inline bool
has_same_words(const GpusortUnique *unique, int words)
{
	return unique->previous != NULL && memcmp(unique->keys[0], unique->keys[1], words * sizeof(uint64)) == 0;
}

/*
 * Checks a row, of which as many words are in keys[1 - turn].  Returns true if it is the previous
 * one from now on.  A dead row behind others with its key leaves them there.
 */
static inline bool
check(GpusortUnique *unique, const GpusortIndexBuild *build, MinimalTuple row, int words)
{
	bool		alive = (row->t_infomask & GPUSORT_INDEX_DEAD) == 0;

	if (!has_same_words(unique, words) || !has_same_key(unique, build, row))
		unique->alive = false;
	else if (!alive)
		return false;
	if (alive && unique->alive)
		raise_duplicate(build, build->gather.left);
	unique->alive |= alive;
	unique->turn = 1 - unique->turn;
	return true;
}

bool
gpusort_unique_check(GpusortUnique *unique, const GpusortIndexBuild *build, MinimalTuple row, uint32 number, bool in_thread)
{
	const GpusortGather *gather = &build->gather;
	int			words = gather->rows.doubt.words;

	memcpy(unique->keys[1 - unique->turn], gpusort_keyset_key(gather->set, number), words * sizeof(uint64));
	if (in_thread && has_same_words(unique, words))
		return false;
	/* the row may be a copy that does not last */
	if (check(unique, build, row, words))
		unique->previous = gpusort_rowstore_row(&gather->rows.store, number);
	return true;
}

void
gpusort_unique_check_merged(GpusortUnique *unique, const GpusortIndexBuild *build, MinimalTuple row)
{
	const GpusortGather *gather = &build->gather;

	ExecStoreMinimalTuple(row, gather->left, false);
	gpusort_rowkey_encode(gather->rows.key, gather->left, unique->keys[1 - unique->turn]);
	if (check(unique, build, row, gpusort_rowkey_words(gather->rows.key)))
		unique->previous = memcpy(unique->copies[unique->turn].data, row, row->t_len);
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
