/*-------------------------------------------------------------------------
 *
 * libc.c
 *		Collations of libc: their locales, and weights that propose an order.
 *
 * Some locales order by bytes, as "C" does: C.UTF-8 of glibc 2.35 and later.  For all
 * others, strxfrm() makes weights.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <langinfo.h>

#include "mb/pg_wchar.h"
#include "utils/memutils.h"

#include "key/column.h"

/* A longer key of strxfrm() is none: the words are zeros. */
#define KEY_BYTES			8192

/* All locales that gpusort_libc_find() has opened */
static GpusortLibc *locales;

/* Does a locale order strings by their bytes? */
static bool
orders_by_bytes(locale_t locale)
{
#ifdef __GLIBC__
	/* a number in place of a pointer: in its first four bytes */
	union
	{
		const char *pointer;
		uint32		number;
	}			rules = {.pointer = nl_langinfo_l(_NL_COLLATE_NRULES, locale)};

	/* without rules, strcoll() is strcmp() */
	return rules.number == 0;
#else
	/* in musl, the weights of strxfrm() are the bytes */
	return false;
#endif
}

/* Opens the locale of two.  Returns 0 if the system lacks one of them. */
static locale_t
open_locale(const char *collate, const char *ctype)
{
	locale_t	part = newlocale(LC_COLLATE_MASK, collate, (locale_t) 0);
	locale_t	locale = part != (locale_t) 0 ? newlocale(LC_CTYPE_MASK, ctype, part) : part;

	if (locale == (locale_t) 0 && part != (locale_t) 0)
		freelocale(part);
	return locale;
}

GpusortLibc *
gpusort_libc_find(const char *collate, const char *ctype)
{
	GpusortLibc *libc;

	for (libc = locales; libc != NULL; libc = libc->next)
	{
		if (strcmp(libc->collate, collate) == 0 && strcmp(libc->ctype, ctype) == 0)
			return libc;
	}
	/* memory first, so that no locale is lost if there is none */
	libc = MemoryContextAllocZero(TopMemoryContext, sizeof(GpusortLibc));
	libc->collate = MemoryContextStrdup(TopMemoryContext, collate);
	libc->ctype = MemoryContextStrdup(TopMemoryContext, ctype);
	libc->locale = open_locale(collate, ctype);
	if (libc->locale == (locale_t) 0)
	{
		pfree(libc->collate);
		pfree(libc->ctype);
		pfree(libc);
		return NULL;
	}
	libc->by_bytes = orders_by_bytes(libc->locale);
	libc->next = locales;
	locales = libc;
	return libc;
}

int
gpusort_libc_clip(const char *data, Size length, int limit)
{
	return length <= limit ? (int) length : pg_mbcliplen(data, length, limit);
}

int
gpusort_libc_key(const GpusortLibc *libc, const char *data, int taken, bool first_level, uint8 *bytes, int n)
{
	char		string[GPUSORT_LIBC_STRING_BYTES + 1];
	char		key[KEY_BYTES];
	Size		size;
	char	   *separator;

	Assert(taken <= GPUSORT_LIBC_STRING_BYTES);
	memcpy(string, data, taken);
	string[taken] = '\0';
	size = strxfrm_l(key, string, KEY_BYTES, libc->locale);
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
		int			size = gpusort_libc_key(libc, data, taken, !whole, bytes, n);

		if (whole || size == n || most >= GPUSORT_LIBC_STRING_BYTES)
			return size;
	}
}
