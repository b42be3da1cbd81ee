/*-------------------------------------------------------------------------
 *
 * keys.c
 *		The key set: takes keys in blocks.
 *
 * Keys never move while a key set grows: each new block is as large as all previous
 * blocks together, up to BLOCK_BYTES, unless the caller wants a smaller one.
 *
 * A parallel worker gathers keys in an arena and publishes where they are.  The
 * leader appends these blocks to its own key set.  The engines sort them where they
 * are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/arena.h"
#include "base/memory.h"
#include "guc.h"
#include "run/state.h"

#define BLOCK_BYTES		((size_t) 16 * 1024 * 1024)

/* Keys and bytes of the smallest block, and blocks for which a key set has room at first */
#define FIRST_ROWS		8
#define FIRST_BYTES		64
#define FIRST_BLOCKS	2

/* Lists an empty block of the given bytes at keys.  local: the key set allocated this memory for itself. */
static void
list_block(GpusortKeySet *set, char *keys, size_t bytes, bool local)
{
	GpusortKeySetBlock *block;

	if (set->nblocks + set->nspare == set->maxblocks)
	{
		set->maxblocks *= 2;
		set->blocks = repalloc(set->blocks, sizeof(GpusortKeySetBlock) * set->maxblocks);
	}
	block = &set->blocks[set->nblocks++];
	block[set->nspare] = block[0];
	block->keys = keys;
	block->first = set->rows;
	block->count = 0;
	block->capacity = bytes / gpusort_spec_width(&set->spec);
	block->local = local;
}

GpusortKeySet *
gpusort_keyset_begin(const GpusortKeySetSpec *spec)
{
	GpusortKeySet *set = palloc0(sizeof(GpusortKeySet));

	Assert(spec->words <= 1 ||
		   (spec->words <= GPUSORT_MAX_WORDS && spec->key_bytes == 8 && spec->rows));
	set->cxt = CurrentMemoryContext;
	set->spec = *spec;
	set->maxblocks = FIRST_BLOCKS;
	set->blocks = palloc(sizeof(GpusortKeySetBlock) * FIRST_BLOCKS);
	INSTR_TIME_SET_CURRENT(set->begun);
	gpusort_memory_keep(gpusort_guc_memory_limit(1));
	return set;
}

uint64_t
gpusort_keyset_rows(const GpusortKeySet *set)
{
	return set->rows;
}

const void *
gpusort_keyset_keys(const GpusortKeySet *set, uint64_t row, uint64_t *count)
{
	const GpusortKeySetBlock *block = set->blocks;

	Assert(row < set->rows);
	/* binary search, without branches, for the last block that begins at or before the row */
	for (int left = set->nblocks; left > 1;)
	{
		int			half = left / 2;

		block = block[half].first <= row ? block + half : block;
		left -= half;
	}
	*count = block->first + block->count - row;
	return block->keys + (row - block->first) * gpusort_spec_width(&set->spec);
}

const void *
gpusort_keyset_key(const GpusortKeySet *set, uint64_t row)
{
	uint64_t	count;

	return gpusort_keyset_keys(set, row, &count);
}

/* Keys that fit into the last block. */
static inline uint64_t
room_left(const GpusortKeySet *set)
{
	const GpusortKeySetBlock *last;

	if (set->nblocks == 0)
		return 0;
	last = &set->blocks[set->nblocks - 1];
	return last->capacity - last->count;
}

size_t
gpusort_keyset_memory(const GpusortKeySet *set, uint64_t more)
{
	size_t		bytes = sizeof(GpusortKeySet) + sizeof(GpusortKeySetBlock) * set->maxblocks + set->local_bytes;
	uint64_t	rows = set->rows + more;
	uint64_t	room = room_left(set);

	for (int i = 0; i < set->nspare; i++)
		room += set->blocks[set->nblocks + i].capacity;
	if (more > room)
		bytes += (more - room) * gpusort_spec_width(&set->spec);
	return bytes + rows * gpusort_keyset_result_width(set) +
		gpusort_cpu_scratch(rows, set->spec.key_bytes, set->spec.rows,
							gpusort_cpu_threads_most(rows));
}

/* Bytes of the next block, which has room for at most this many keys, and for one at least. */
static size_t
block_bytes(const GpusortKeySet *set, size_t most)
{
	size_t		width = gpusort_spec_width(&set->spec);
	size_t		bytes = set->rows < set->spec.expected_rows ?
		(set->spec.expected_rows - set->rows) * width :
		Min(set->rows * width, BLOCK_BYTES);

	bytes = Max(bytes, Max(FIRST_BYTES, FIRST_ROWS * width));
	return Max(Min(bytes / width, most), 1) * width;
}

size_t
gpusort_keyset_missing(const GpusortKeySet *set, uint64_t more, size_t most)
{
	size_t		bytes = gpusort_keyset_memory(set, more) - set->local_bytes;

	if (room_left(set) == 0 && set->nspare == 0)
		bytes += block_bytes(set, most);
	return bytes;
}

/*
 * Adds a block.  It is for all rows that are still expected, or
 * as large as all blocks before.  It has room for at most this many keys, and for one at
 * least.  Returns false if an arena of another process has no memory.
 */
static bool
add_block(GpusortKeySet *set, size_t most)
{
	size_t		bytes = block_bytes(set, most);
	char	   *keys = NULL;

	if (set->nspare > 0)
	{
		set->nspare--;
		set->blocks[set->nblocks++].first = set->rows;
		return true;
	}
	if (set->arena != NULL)
	{
		keys = gpusort_arena_alloc(set->arena, bytes);
		if (keys == NULL && !gpusort_arena_is_own(set->arena))
			return false;
		if (keys == NULL)
			set->arena = NULL;
	}
	if (keys == NULL)
		keys = gpusort_memory_alloc_pages(set->cxt, bytes);
	list_block(set, keys, bytes, set->arena == NULL);
	set->local_bytes += bytes;
	return true;
}

void *
gpusort_keyset_reserve(GpusortKeySet *set, size_t most, size_t *room)
{
	const GpusortKeySetBlock *last;

	*room = 0;
	if (room_left(set) == 0 && !add_block(set, most))
		return NULL;
	last = &set->blocks[set->nblocks - 1];
	*room = last->capacity - last->count;
	return last->keys + last->count * gpusort_spec_width(&set->spec);
}

void
gpusort_keyset_lend(GpusortKeySet *set, const void *words, size_t count,
				 const GpusortEncoding *encoding)
{
	Assert(set->rows == 0 && set->spec.words <= 1);
	set->nblocks = 0;
	list_block(set, (char *) words, count * set->spec.key_bytes, false);
	set->blocks[0].count = count;
	set->rows = count;
	set->encoding = *encoding;
}

void
gpusort_keyset_commit(GpusortKeySet *set, size_t count)
{
	GpusortKeySetBlock *last = &set->blocks[set->nblocks - 1];

	Assert(last->count + count <= last->capacity);
	last->count += count;
	set->rows += count;
}

void
gpusort_keyset_append(GpusortKeySet *set, const void *keys, uint64_t count)
{
	size_t		width = gpusort_spec_width(&set->spec);

	for (uint64 done = 0; done < count;)
	{
		size_t		room;
		void	   *to = gpusort_keyset_reserve(set, count - done, &room);
		size_t		n = Min(room, count - done);

		CHECK_FOR_INTERRUPTS();
		memcpy(to, (const char *) keys + done * width, n * width);
		gpusort_keyset_commit(set, n);
		done += n;
	}
}

void
gpusort_keyset_empty(GpusortKeySet *set)
{
	for (int i = 0; i < set->nblocks; i++)
		set->blocks[i].count = 0;
	set->nspare += set->nblocks;
	set->nblocks = 0;
	set->rows = 0;
	INSTR_TIME_SET_CURRENT(set->begun);
}

void
gpusort_keyset_end(GpusortKeySet *set)
{
	GpusortReport report;

	if (set->sorted)
		gpusort_keyset_finish(set, &report);
	for (int i = 0; i < set->nblocks + set->nspare; i++)
	{
		GpusortKeySetBlock *block = &set->blocks[i];

		if (block->local)
			gpusort_memory_free(block->keys, block->capacity * gpusort_spec_width(&set->spec));
	}
	pfree(set->blocks);
	pfree(set);
}

/* The directory that a key set's owner publishes: where its keys are in its arena. */
typedef struct SharedKeys
{
	int			nblocks;
	struct
	{
		GpusortPlace keys;
		uint64		count;
		Size		bytes;			/* of the block, which may have unused room */
	}			blocks[FLEXIBLE_ARRAY_MEMBER];
} SharedKeys;

void
gpusort_keyset_share(GpusortKeySet *set, GpusortArena *arena)
{
	Assert(gpusort_arena_is_own(arena) || set->nblocks == 0);
	set->arena = arena;
}

bool
gpusort_keyset_publish(GpusortKeySet *set, uint64_t *place)
{
	SharedKeys *shared = gpusort_arena_alloc(set->arena, offsetof(SharedKeys, blocks) +
											 set->nblocks * sizeof(shared->blocks[0]));

	if (shared == NULL)
		return false;
	shared->nblocks = set->nblocks;
	for (int i = 0; i < set->nblocks; i++)
	{
		shared->blocks[i].keys = gpusort_arena_place(set->arena, set->blocks[i].keys);
		shared->blocks[i].count = set->blocks[i].count;
		shared->blocks[i].bytes = set->blocks[i].capacity * gpusort_spec_width(&set->spec);
	}
	*place = gpusort_arena_place(set->arena, shared);
	return true;
}

void
gpusort_keyset_adopt(GpusortKeySet *set, const GpusortArena *arena, uint64_t place)
{
	const SharedKeys *shared = gpusort_arena_address(arena, place);

	for (int i = 0; i < shared->nblocks; i++)
	{
		uint64		count = shared->blocks[i].count;

		list_block(set, gpusort_arena_address(arena, shared->blocks[i].keys),
							  count * gpusort_spec_width(&set->spec), false);
		set->blocks[set->nblocks - 1].count = count;
		set->rows += count;
		set->local_bytes += shared->blocks[i].bytes;
	}
}
