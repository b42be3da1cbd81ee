/*-------------------------------------------------------------------------
 *
 * request_lists.c
 *		Writes what a request says of the files of its session.
 *
 * Keys and rows that lie in no file of the session are copied to the request's own: those that
 * were gathered before the session knew that there are many, and arrays.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/memory.h"
#include "gpu/gpu.h"

/*
 * A window has WINDOW_ROW_BYTES bytes for each row of the sort, and WINDOW_BYTES at most.  So the ring
 * takes no more memory than the CPU engine would need to sort the rows.
 */
#define WINDOW_BYTES		((uint64) 16 * 1024 * 1024)
#define WINDOW_ROW_BYTES	4

/* Bytes of words that are copied as keys between two checks for interrupts */
#define COPY_BYTES			((uint64) 16 * 1024 * 1024)

/* The lists that are being filled, in palloc'ed memory */
typedef struct Lists
{
	GpusortArena *arena;		/* of the request's own file */
	GpusortLists head;
	GpusortListedFile *files;
	GpusortListedPart *parts;	/* keys, and behind them rows */
	GpusortCudaRowBlock *blocks;
	uint32		max_files;
} Lists;

/* Notes that the request uses these bytes of a file.  Returns its number. */
static uint32
list_file(Lists *lists, const GpusortFileName *name, GpusortPlace place, uint64 bytes)
{
	uint64		end = TYPEALIGN(GPUSORT_HUGE_PAGE, place + bytes);	/* all of a huge page has memory */
	uint32		i = 0;

	while (i < lists->head.nfiles && (lists->files[i].name.inode != name->inode || lists->files[i].name.device != name->device))
		i++;
	if (i == lists->head.nfiles)
	{
		if (i == lists->max_files)
		{
			lists->max_files *= 2;
			lists->files = repalloc(lists->files, lists->max_files * sizeof(GpusortListedFile));
		}
		lists->files[i] = (GpusortListedFile) {.name = *name};
		lists->head.nfiles++;
	}
	lists->files[i].bytes = Max(lists->files[i].bytes, end);
	return i;
}

/* Allocates in the request's own file.  Returns NULL if there is no memory. */
static void *
allocate(Lists *lists, uint64 bytes, GpusortPlace *place)
{
	void	   *mem = gpusort_arena_alloc(lists->arena, bytes);
	GpusortFileName name;

	if (mem == NULL || !gpusort_arena_find(mem, &name, place))
		return NULL;
	(void) list_file(lists, &name, *place, bytes);
	return mem;
}

/* Copies words as keys, in steps between which it can be interrupted. */
static void
copy_words(const GpusortClientSpec *spec, const char *from, uint64 bytes, char *to)
{
	for (uint64 done = 0; done < bytes; done += COPY_BYTES)
	{
		uint64		n = Min(COPY_BYTES, bytes - done);

		CHECK_FOR_INTERRUPTS();
		gpusort_encode(&spec->encoding, spec->sort.key_bytes, from + done, n / spec->sort.key_bytes, to + done);
	}
}

/*
 * Lists memory that is in a file, or copies it to the request's.  words: it has words that are not keys yet, as this
 * says; else NULL.  Returns false if there is no memory for the copy.
 */
static bool
list_part(Lists *lists, const void *mem, uint64 bytes, const GpusortClientSpec *words, GpusortListedPart *part)
{
	GpusortFileName name;
	char	   *copy;

	part->bytes = bytes;
	if (words == NULL && gpusort_arena_find(mem, &name, &part->place))
	{
		part->file = list_file(lists, &name, part->place, bytes);
		return true;
	}
	copy = allocate(lists, bytes, &part->place);
	part->file = 0;
	if (copy == NULL)
		return false;
	if (words != NULL)
		copy_words(words, mem, bytes, copy);
	else
		gpusort_memory_copy(copy, mem, bytes);
	return true;
}

static bool
list_keys(Lists *lists, const GpusortClientSpec *spec)
{
	bool		encoded = spec->encoding.kind == GPUSORT_ENCODING_WORD && spec->encoding.flip == 0;

	for (int i = 0; i < spec->nkeys; i++)
	{
		uint64		bytes = spec->keys[i].count * gpusort_cuda_width(&spec->sort);

		if (bytes > 0 &&
			!list_part(lists, spec->keys[i].words, bytes, encoded ? NULL : spec, &lists->parts[lists->head.nkeys++]))
			return false;
	}
	return true;
}

static bool
list_rows(Lists *lists, const GpusortClientSpec *spec)
{
	GpusortListedPart *rows = lists->parts + lists->head.nkeys;
	uint64		offset = 0;

	for (int i = 0; i < spec->nrow_spans; i++)
	{
		const GpusortRowSpan *span = &spec->row_spans[i];
		Size		directory_bytes = span->stride == 0 ? span->count * sizeof(uint32) : 0;

		lists->blocks[i] = (GpusortCudaRowBlock) {
			.offset = offset,
			.bytes = span->bytes,
			.directory = offset + span->bytes + directory_bytes,
			.first = span->first,
			.stride = span->stride,
		};
		offset += span->bytes + MAXALIGN(directory_bytes);
		if (!list_part(lists, span->rows, span->bytes, NULL, &rows[lists->head.nrows++]) ||
			(span->stride == 0 &&
			 !list_part(lists, span->directory, directory_bytes, NULL, &rows[lists->head.nrows++])))
			return false;
	}
	lists->head.nblocks = spec->nrow_spans;
	return true;
}

/* Allocates memory for the result. */
static bool
list_result(Lists *lists, const GpusortClientSpec *spec)
{
	GpusortLists *head = &lists->head;

	if (allocate(lists, gpusort_request_result_bytes(&spec->sort), &head->result) == NULL ||
		(spec->ties && allocate(lists, spec->sort.rows, &head->ties) == NULL))
		return false;
	if (spec->nrow_spans == 0)
		return true;
	head->window_bytes = MAXALIGN_DOWN(Min(WINDOW_BYTES, spec->sort.rows * WINDOW_ROW_BYTES));
	return allocate(lists, GPUSORT_RING * head->window_bytes, &head->windows) != NULL;
}

/* Writes the lists to the request's file, and their place to the request. */
static bool
write_lists(Lists *lists, GpusortRequest *request)
{
	Size		files = lists->head.nfiles * sizeof(GpusortListedFile);
	Size		parts = (lists->head.nkeys + lists->head.nrows) * sizeof(GpusortListedPart);
	Size		blocks = lists->head.nblocks * sizeof(GpusortCudaRowBlock);
	char	   *to;

	request->lists_bytes = sizeof(GpusortLists) + files + parts + blocks;
	to = allocate(lists, request->lists_bytes, &request->lists);
	if (to == NULL)
		return false;
	request->file = lists->files[0].name;
	memcpy(to, &lists->head, sizeof(GpusortLists));
	memcpy(to + sizeof(GpusortLists), lists->files, files);
	memcpy(to + sizeof(GpusortLists) + files, lists->parts, parts);
	memcpy(to + sizeof(GpusortLists) + files + parts, lists->blocks, blocks);
	return true;
}

bool
gpusort_lists_write(GpusortArena *arena, const GpusortClientSpec *spec, GpusortRequest *request, GpusortLists *head)
{
	Lists		lists = {.arena = arena, .max_files = 16};
	bool		written;

	lists.files = palloc(lists.max_files * sizeof(GpusortListedFile));
	lists.parts = palloc0((spec->nkeys + 2 * spec->nrow_spans) * sizeof(GpusortListedPart));
	lists.blocks = palloc(spec->nrow_spans * sizeof(GpusortCudaRowBlock) + 1);
	/* first this: the request's file has number 0 */
	written = list_result(&lists, spec) && list_keys(&lists, spec) && list_rows(&lists, spec) &&
		write_lists(&lists, request);
	*head = lists.head;
	pfree(lists.files);
	pfree(lists.parts);
	pfree(lists.blocks);
	return written;
}
