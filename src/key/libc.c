/*-------------------------------------------------------------------------
 *
 * libc.c
 *		Collations of libc: their locales, and weights that propose an order.
 *
 * Some locales order by bytes, as "C" does: C.UTF-8 of glibc 2.35 and later, and
 * all locales of musl.  probe() finds them.  For all others, strxfrm() makes weights.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <langinfo.h>

#include "mb/pg_wchar.h"
#include "utils/memutils.h"

#include "key/libc.h"

/* Bytes of a whole key that fit on the stack */
#define KEY_BYTES			4096

/* All locales that gpusort_libc_find() has opened */
static GpusortLibc *locales;

/* ----------------------------------------------------------------
 *		Does a locale order by bytes?
 * ----------------------------------------------------------------
 */

/* The probe compares this many pairs of random strings, of up to this many characters. */
#define PROBE_STRINGS	2000
#define PROBE_CHARS		6

/* Code points that the probe compares, each with the one before: from, to, and the step. */
static const int probed[][3] = {
	{0x1, 0x3ff, 1}, {0x400, 0x7ef, 7}, {0x7f0, 0x80f, 1}, {0x810, 0xd7ef, 61}, {0xd7f0, 0xd7ff, 1},
	{0xe000, 0xe00f, 1}, {0xe010, 0xffef, 61}, {0xfff0, 0x1000f, 1}, {0x10010, 0x10ffef, 499},
	{0x10fff0, 0x10ffff, 1},
};

/* Does a locale order two strings by their bytes? */
static inline bool
by_bytes(locale_t locale, const char *a, const char *b)
{
	int			order = strcoll_l(a, b, locale);
	int			bytes = strcmp(a, b);

	return (order < 0) == (bytes < 0) && (order > 0) == (bytes > 0);
}

static bool
code_points_by_bytes(locale_t locale)
{
	char		strings[2][MAX_MULTIBYTE_CHAR_LEN + 1] = {{0}};
	int			current = 0;

	for (int i = 0; i < lengthof(probed); i++)
	{
		for (int code = probed[i][0]; code <= probed[i][1]; code += probed[i][2])
		{
			current = 1 - current;
			memset(strings[current], 0, sizeof(strings[current]));
			unicode_to_utf8(code, (unsigned char *) strings[current]);
			if (!by_bytes(locale, strings[1 - current], strings[current]))
				return false;
		}
	}
	return true;
}

/* Writes a random string of at least one character: of code points in UTF-8, else of bytes. */
static void
random_string(uint32 *seed, char *string)
{
	int			chars = 1 + (*seed >> 8) % PROBE_CHARS;

	for (int i = 0; i < chars; i++)
	{
		int			bits;
		int			code;

		*seed = *seed * 1664525 + 1013904223;
		/* as many of 7 bits as of 11, 16 and 20 */
		bits = "\007\007\013\020\024"[(*seed >> 28) % 5];
		code = 1 + (*seed >> 4) % ((1 << bits) - 1);
		if (GetDatabaseEncoding() != PG_UTF8)
			*string++ = 1 + code % 255;
		else if (code < 0xd800 || code >= 0xe000)
		{
			unicode_to_utf8(code, (unsigned char *) string);
			string += pg_utf_mblen((unsigned char *) string);
		}
	}
	*string = '\0';
}

static bool
random_strings_by_bytes(locale_t locale)
{
	char		strings[2][PROBE_CHARS * MAX_MULTIBYTE_CHAR_LEN + 1];
	uint32		seed = 1;

	for (int i = 0; i < PROBE_STRINGS; i++)
	{
		random_string(&seed, strings[0]);
		random_string(&seed, strings[1]);
		/* a common first byte makes later ones decide */
		if (i % 2 == 0)
			strings[1][0] = strings[0][0];
		if (!by_bytes(locale, strings[0], strings[1]))
			return false;
	}
	return true;
}

/* Does a locale order strings by their bytes? */
static bool
probe(locale_t locale)
{
#ifdef __GLIBC__
	/* a number in place of a pointer: in its first four bytes */
	union
	{
		const char *pointer;
		uint32		number;
	}			rules = {.pointer = nl_langinfo_l(_NL_COLLATE_NRULES, locale)};

	/* with rules, strcoll() is not strcmp(), even if no string below shows it */
	if (rules.number != 0)
		return false;
#endif
	return random_strings_by_bytes(locale) &&
		(GetDatabaseEncoding() != PG_UTF8 || code_points_by_bytes(locale));
}

GpusortLibc *
gpusort_libc_find(const char *collate, const char *ctype)
{
	GpusortLibc *libc;
	locale_t	part;
	locale_t	locale;

	for (libc = locales; libc != NULL; libc = libc->next)
	{
		if (strcmp(libc->collate, collate) == 0 && strcmp(libc->ctype, ctype) == 0)
			return libc;
	}
	part = newlocale(LC_COLLATE_MASK, collate, (locale_t) 0);
	if (part == (locale_t) 0)
		return NULL;
	locale = newlocale(LC_CTYPE_MASK, ctype, part);
	if (locale == (locale_t) 0)
	{
		freelocale(part);
		return NULL;
	}
	libc = MemoryContextAllocExtended(TopMemoryContext, sizeof(GpusortLibc),
									  MCXT_ALLOC_ZERO | MCXT_ALLOC_NO_OOM);
	if (libc != NULL)
	{
		libc->collate = strdup(collate);
		libc->ctype = strdup(ctype);
	}
	if (libc == NULL || libc->collate == NULL || libc->ctype == NULL)
	{
		freelocale(locale);
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	}
	libc->locale = locale;
	libc->by_bytes = probe(locale);
	libc->next = locales;
	locales = libc;
	return libc;
}

/* ----------------------------------------------------------------
 *		Weights
 * ----------------------------------------------------------------
 */

int
gpusort_libc_clip(const char *data, Size length, int limit)
{
	if (length <= limit)
		return length;
	if (GetDatabaseEncoding() == PG_UTF8)
	{
		int			clipped = limit;

		/* the byte after the cut must begin a character */
		while (clipped > 0 && limit - clipped < MAX_MULTIBYTE_CHAR_LEN &&
			   ((unsigned char) data[clipped] & 0xc0) == 0x80)
			clipped--;
		return clipped;
	}
	return pg_database_encoding_max_length() == 1 ? limit : pg_mbcliplen(data, length, limit);
}

/*
 * Makes the key of the first taken bytes of a string.  Returns it, in room, which has
 * KEY_BYTES, if it fits, else in memory to be pfree'd.  Sets *size to the bytes of the
 * whole key, or of its first level only.
 */
static char *
make_key(locale_t locale, const char *data, int taken, bool first_level, char *room, Size *size)
{
	char		string[GPUSORT_LIBC_STRING_BYTES + 1];
	char	   *key = room;
	char	   *separator;

	Assert(taken <= GPUSORT_LIBC_STRING_BYTES);
	memcpy(string, data, taken);
	string[taken] = '\0';
	*size = strxfrm_l(room, string, KEY_BYTES, locale);
	if (unlikely(*size >= KEY_BYTES))
	{
		/* the contents of room are undefined; without a key, libc has returned -1 */
		Size		room_needed = *size <= MaxAllocSize - 1 ? *size + 1 : 1;

		key = palloc(room_needed);
		*size = strxfrm_l(key, string, room_needed, locale);
		/* if it does not fit now, there is no key */
		if (*size >= room_needed)
			*size = 0;
	}
	if (first_level && (separator = memchr(key, GPUSORT_LIBC_SEPARATOR, *size)) != NULL)
		*size = separator - key;
	return key;
}

/* Copies the first n bytes of a key that make_key() has made, with zeros behind it, and frees it. */
static int
take_key(char *key, const char *room, Size size, uint8 *bytes, int n)
{
	size = Min(size, n);
	memcpy(bytes, key, size);
	memset(bytes + size, 0, n - size);
	if (unlikely(key != room))
		pfree(key);
	return size;
}

int
gpusort_libc_weights(const GpusortLibc *libc, const char *data, Size length,
					 int cut, uint8 *bytes, int n)
{
	char		room[KEY_BYTES];

	for (;;)
	{
		int			most = Min(cut, GPUSORT_LIBC_STRING_BYTES);
		int			taken = gpusort_libc_clip(data, length, most);
		bool		whole = taken == length;
		Size		size;
		char	   *key = make_key(libc->locale, data, taken, !whole, room, &size);

		if (whole || size >= n || most == GPUSORT_LIBC_STRING_BYTES)
			return take_key(key, room, size, bytes, n);
		if (key != room)
			pfree(key);
		cut = 2 * most;
	}
}

int
gpusort_libc_first_level(const GpusortLibc *libc, const char *data, int length, uint8 *bytes, int n)
{
	char		room[KEY_BYTES];
	Size		size;
	char	   *key = make_key(libc->locale, data, length, true, room, &size);

	return take_key(key, room, size, bytes, n);
}

int
gpusort_libc_needed(const GpusortLibc *libc, const char *data, Size length, int n)
{
	uint8		bytes[GPUSORT_LIBC_WEIGHT_BYTES];

	for (int limit = 1; limit <= GPUSORT_LIBC_STRING_BYTES; limit++)
	{
		int			taken = gpusort_libc_clip(data, length, limit);

		if (taken == length)
			break;
		if (taken == limit && gpusort_libc_first_level(libc, data, taken, bytes, n) == n)
			return taken;
	}
	return 0;
}
