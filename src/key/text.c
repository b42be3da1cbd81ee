/*-------------------------------------------------------------------------
 *
 * text.c
 *		Words of strings.
 *
 * A string that compares by its bytes (memcmp, then the shorter one first) has two words.  They hold its first 15
 * bytes, padded with zeros.  The last byte holds the length plus one, or 17 if the string is longer than 15 bytes.
 * The length keeps strings apart that padding makes equal: if two strings of up to 15 bytes are equal after padding,
 * the longer one is the shorter one plus some zero bytes (which bytea can have), and the shorter one sorts first.  So
 * the words of a string of up to 15 bytes hold all of it.  The words of a longer string are a prefix, and no short
 * string has the same words.
 *
 * The last byte is 1 to 17, or the complement of that under DESC.  So the words
 * are never all zeros or all ones, which are NULL's.
 *
 * If most strings begin with the same prefix (key/sample_strings.c), the first byte is 1 if a string sorts before
 * those with the prefix, 2 if it has the prefix, and 3 if it sorts after them.  Then come the first 14 bytes, of
 * strings with the prefix those that follow it, and the length plus one, or 16 if there are more than 14 bytes.
 *
 * key/weights.c makes the words of strings under ICU and under libc.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/pg_collation.h"
#include "utils/builtins.h"
#include "utils/formatting.h"

#include "key/column.h"

/* ----------------------------------------------------------------
 *		Case-insensitive text: citext, of PostgreSQL's contrib
 *
 * citext_cmp() makes small letters of both strings, by the rules of the database's default collation, and compares
 * the results as text compares under the collation of the sort.  So it makes a string small log2(n) times in a sort,
 * which takes several times as long as comparing.  Here that is done once for each string, and then the string gets
 * the words of a text.
 *
 * lower() of PostgreSQL decodes the string, allocates memory three times, and asks libc or ICU about each letter: 0.2
 * to 0.6 us for a string of 32 bytes.  Most strings have only ASCII letters, whose small letters are asked for once.
 * They do not depend on neighbours that are ASCII, too: Unicode's rules about neighbours are for Greek letters and
 * combining marks.
 * ----------------------------------------------------------------
 */

#define ASCII		0x80

static uint8 small[256];
static bool small_known;

const uint8 *
gpusort_citext_ascii(void)
{
	if (small_known)
		return small;
	for (int c = 1; c < ASCII; c++)
	{
		char		letter = c;
		char	   *lowered = str_tolower(&letter, 1, DEFAULT_COLLATION_OID);

		if ((uint8) lowered[0] < ASCII && lowered[0] != '\0' && lowered[1] == '\0')
			small[c] = lowered[0];
		pfree(lowered);
	}
	small_known = true;
	return small;
}

char *
gpusort_citext_lower(const char *data, Size length, char *room, Size size, Size *lowered)
{
	const uint8 *table = gpusort_citext_ascii();
	char	   *result;

	if (length <= size)
	{
		Size		i = 0;

		while (i < length && (room[i] = table[(uint8) data[i]]) != 0)
			i++;
		if (i == length)
		{
			*lowered = length;
			return room;
		}
	}
	result = str_tolower(data, length, DEFAULT_COLLATION_OID);
	*lowered = strlen(result);
	if (*lowered > size)
		return result;
	/* str_tolower() allocates four times the memory that its result needs */
	memcpy(room, result, *lowered);
	pfree(result);
	return room;
}

/* ---- words ---- */

/* The words of a string that compares by its bytes hold its first HEAD_BYTES. */
#define HEAD_BYTES	15

/* The same behind the byte that places a string before, among or after those with the prefix */
#define PREFIXED_HEAD_BYTES	14

/* Puts the first HEAD_BYTES of a string into two words, which are 0. */
static inline void
put_head(const char *data, Size length, uint64 *head)
{
	if (length >= HEAD_BYTES)
	{
		head[0] = gpusort_load_be64(data);
		head[1] = gpusort_load_be64(data + 7) << 8;
	}
	else if (length >= 8)
	{
		head[0] = gpusort_load_be64(data);
		/* the last eight bytes, without those that the first word holds */
		if (length > 8)
			head[1] = gpusort_load_be64(data + length - 8) << (8 * (16 - length));
	}
	else if (length >= 4)
	{
		/* the last four bytes, without those that are among the first four */
		uint64		tail = gpusort_load_be32(data + length - 4);

		head[0] = (uint64) gpusort_load_be32(data) << 32 | (uint32) (tail << (8 * (8 - length)));
	}
	else
	{
		for (Size i = 0; i < length; i++)
			head[0] |= (uint64) (unsigned char) data[i] << (56 - 8 * i);
	}
}

/* Moves the bytes of a head by one, without the last one, and puts the place in front. */
static inline void
put_place(uint64 place, uint64 *head)
{
	head[1] = head[0] << 56 | (head[1] >> 16 << 8);
	head[0] = place << 56 | head[0] >> 8;
}

/*
 * Makes the words of a string that compares by its bytes, of which data has all or at least HEAD_BYTES behind the prefix.
 * Returns true if they hold all of it.
 */
static inline bool
encode_text(const GpusortRowColumn *column, const char *data, Size length, uint64 *words)
{
	const GpusortPrefix *prefix = column->prefix;
	Size		most = HEAD_BYTES;
	uint64		head[2] = {0};

	if (likely(prefix == NULL))
		put_head(data, length, head);
	else
	{
		int			order = memcmp(data, prefix->string, Min(length, prefix->length));
		bool		prefixed = order == 0 && length >= prefix->length;

		most = PREFIXED_HEAD_BYTES;
		data += prefixed ? prefix->length : 0;
		length -= prefixed ? prefix->length : 0;
		put_head(data, length, head);
		put_place(prefixed ? 2 : order > 0 ? 3 : 1, head);
	}
	words[0] = head[0] ^ column->masks.flip[0];
	words[1] = (head[1] | (Min(length, most + 1) + 1)) ^ column->masks.flip[1];
	return length <= most;
}

/*
 * Returns how many bytes of a value that is compressed or stored out of line are fetched,
 * one more than words are made from; 0: all.  Trailing blanks show only in the whole value.
 */
static Size
bytes_to_fetch(const GpusortRowColumn *column)
{
	if (column->blank_padded || column->lowered || column->kind == GPUSORT_ROW_ICU)
		return 0;
	return (column->prefix != NULL ? column->prefix->length : 0) +
		(column->kind == GPUSORT_ROW_TEXT ? HEAD_BYTES : GPUSORT_LIBC_STRING_BYTES) + 1;
}

void
gpusort_rowstring_tail(const GpusortRowColumn *column, Datum value, uint64 *words)
{
	struct varlena *datum = (struct varlena *) DatumGetPointer(value);
	bool		remote = gpusort_varlena_remote(datum);
	const GpusortPrefix *prefix = column->prefix;
	Size		most = (prefix != NULL ? prefix->length : 0) + HEAD_BYTES + GPUSORT_TAIL_WORDS * sizeof(uint64);
	char		bytes[GPUSORT_TAIL_WORDS * sizeof(uint64)] = {0};
	const char *data;
	Size		length;
	Size		begin = HEAD_BYTES;

	if (unlikely(remote))
		datum = column->blank_padded ? pg_detoast_datum_packed(datum) : detoast_attr_slice(datum, 0, most);
	data = VARDATA_ANY(datum);
	length = VARSIZE_ANY_EXHDR(datum);
	if (column->blank_padded)
		length = bpchartruelen(unconstify(char *, data), length);
	if (prefix != NULL)
		begin = PREFIXED_HEAD_BYTES +
			(length >= prefix->length && memcmp(data, prefix->string, prefix->length) == 0 ? prefix->length : 0);
	if (length > begin)
		memcpy(bytes, data + begin, Min(length - begin, sizeof(bytes)));
	for (int i = 0; i < GPUSORT_TAIL_WORDS; i++)
		words[i] = gpusort_load_be64(bytes + i * sizeof(uint64)) ^ (column->descending ? PG_UINT64_MAX : 0);
	if (unlikely(remote))
		pfree(datum);
}

bool
gpusort_rowstring_encode(GpusortRowColumn *column, Datum value, uint64 *words)
{
	struct varlena *datum = (struct varlena *) DatumGetPointer(value);
	struct varlena *copy = NULL;
	char		room[GPUSORT_CITEXT_ROOM];
	char	   *data;
	Size		length;
	bool		whole = false;

	if (unlikely(column->is_name))
	{
		/* it has NAMEDATALEN bytes, padded with zeros, and no length */
		data = NameStr(*DatumGetName(value));
		length = strnlen(data, NAMEDATALEN);
	}
	else
	{
		if (unlikely(gpusort_varlena_remote(datum)))
		{
			Size		most = bytes_to_fetch(column);

			datum = copy = most > 0 ? detoast_attr_slice(datum, 0, most) : pg_detoast_datum_packed(datum);
		}
		data = VARDATA_ANY(datum);
		length = VARSIZE_ANY_EXHDR(datum);
		if (column->blank_padded)
			length = bpchartruelen(data, length);
		if (unlikely(column->lowered))
			data = gpusort_citext_lower(data, length, room, sizeof(room), &length);
	}

	if (column->kind == GPUSORT_ROW_TEXT || column->kind == GPUSORT_ROW_NAME)
		whole = encode_text(column, data, length, words);
	else
		gpusort_weights_encode(column, data, length, words);

	if (unlikely(column->lowered) && data != room)
		pfree(data);
	if (unlikely(copy != NULL))
		pfree(copy);
	return whole;
}
