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

/* A longer key of strxfrm() is none: the words are zeros. */
#define KEY_BYTES			8192

/* All locales that gpusort_libc_find() has opened */
static GpusortLibc *locales;

/* The probe compares this many pairs of random strings, of up to this many characters. */
#define PROBE_STRINGS	2000
#define PROBE_CHARS		6

/* Does a locale order two strings by their bytes? */
static inline bool
by_bytes(locale_t locale, const char *a, const char *b)
{
	int			order = strcoll_l(a, b, locale);
	int			bytes = strcmp(a, b);

	return (order < 0) == (bytes < 0) && (order > 0) == (bytes > 0);
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
	return random_strings_by_bytes(locale);
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
 * Sets bytes to the first n bytes of the key of the first taken bytes of a string, or of
 * the key's first level only, and zeros behind them.  Returns their number.
 */
static int
make_key(locale_t locale, const char *data, int taken, bool first_level, uint8 *bytes, int n)
{
	char		string[GPUSORT_LIBC_STRING_BYTES + 1];
	char		key[KEY_BYTES];
	Size		size;
	char	   *separator;

	Assert(taken <= GPUSORT_LIBC_STRING_BYTES);
	memcpy(string, data, taken);
	string[taken] = '\0';
	size = strxfrm_l(key, string, KEY_BYTES, locale);
	if (size >= KEY_BYTES)
		size = 0;
	if (first_level && (separator = memchr(key, GPUSORT_LIBC_SEPARATOR, size)) != NULL)
		size = separator - key;
	size = Min(size, n);
	memcpy(bytes, key, size);
	memset(bytes + size, 0, n - size);
	return size;
}

int
gpusort_libc_weights(const GpusortLibc *libc, const char *data, Size length, uint8 *bytes, int n)
{
	/* many letters have more than one byte of weights */
	for (int most = n * 3 / 4;; most *= 2)
	{
		int			taken = gpusort_libc_clip(data, length, Min(most, GPUSORT_LIBC_STRING_BYTES));
		bool		whole = taken == length;
		int			size = make_key(libc->locale, data, taken, !whole, bytes, n);

		if (whole || size == n || most >= GPUSORT_LIBC_STRING_BYTES)
			return size;
	}
}

int
gpusort_libc_first_level(const GpusortLibc *libc, const char *data, int length, uint8 *bytes, int n)
{
	return make_key(libc->locale, data, length, true, bytes, n);
}
