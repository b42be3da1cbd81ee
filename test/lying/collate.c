/*-------------------------------------------------------------------------
 *
 * collate.c
 *		A C library whose locales lie, for a server that preloads this.
 *
 * The file that GPUSORT_LIE names contains one word, which a process reads when it
 * first compares or transforms a string.  strxfrm() and strxfrm_l() then make keys
 * whose order is not that of strcoll() and strcoll_l():
 *
 *	 swapped	  a and b are exchanged, also in capitals
 *	 rare		  one key of 500 is that of the string in reverse
 *	 local		  one key of 100 is that of the string without its last byte
 *	 truncated	  all keys are those of the first three bytes
 *	 reversed	  the order of all keys is reversed
 *	 random		  each call makes another key
 *	 unequal	  one call of 50 makes a key that ends in a random byte
 *	 growing	  each call asks for one more byte than there is room for
 *	 constant	  all keys are the same
 *
 * Or strcoll() and strcoll_l() have no order:
 *
 *	 intransitive the comparison of every fourth pair is reversed
 *	 fickle		  every fourth comparison is reversed
 *
 * Or they tell the truth, but take 50 microseconds or more for each string:
 *
 *	 slow_keys	  strxfrm() and strxfrm_l()
 *	 slow_order	  strcoll() and strcoll_l()
 *	 slow_ties	  strcoll() and strcoll_l(); all keys are the same
 *
 * All processes count their calls in the file that GPUSORT_LIE_CALLS names: those of
 * strxfrm() and strxfrm_l(), then those of strcoll() and strcoll_l(), 8 bytes each.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A comparison or a transformation in a locale, or in the process's own one */
typedef int (*Strcoll) (const char *a, const char *b);
typedef int (*StrcollL) (const char *a, const char *b, locale_t locale);
typedef size_t (*Strxfrm) (char *key, const char *text, size_t size);
typedef size_t (*StrxfrmL) (char *key, const char *text, size_t size, locale_t locale);

static Strcoll strcoll_true;
static StrcollL strcoll_l_true;
static Strxfrm strxfrm_true;
static StrxfrmL strxfrm_l_true;

static char lie[32];
static pthread_once_t lie_read = PTHREAD_ONCE_INIT;

enum
{
	KEYS, ORDERS
};
static _Atomic uint64_t no_calls[2];
static _Atomic uint64_t *calls = no_calls;

/* A child of the process that has read the lie reads it again. */
static void
forget_lie(void)
{
	static const pthread_once_t unread = PTHREAD_ONCE_INIT;

	lie_read = unread;
}

static __attribute__((constructor)) void
find_truth(void)
{
	const char *name = getenv("GPUSORT_LIE_CALLS");
	int			file = name != NULL ? open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;

	strcoll_true = (Strcoll) dlsym(RTLD_NEXT, "strcoll");
	strcoll_l_true = (StrcollL) dlsym(RTLD_NEXT, "strcoll_l");
	strxfrm_true = (Strxfrm) dlsym(RTLD_NEXT, "strxfrm");
	strxfrm_l_true = (StrxfrmL) dlsym(RTLD_NEXT, "strxfrm_l");
	pthread_atfork(NULL, NULL, forget_lie);
	if (file >= 0)
	{
		void	   *map;

		if (ftruncate(file, sizeof(no_calls)) == 0 &&
			(map = mmap(NULL, sizeof(no_calls), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)) != MAP_FAILED)
			calls = map;
		close(file);
	}
}

static void
read_lie(void)
{
	const char *name = getenv("GPUSORT_LIE");
	FILE	   *file = name != NULL ? fopen(name, "r") : NULL;

	lie[0] = '\0';
	if (file != NULL)
	{
		if (fscanf(file, "%31s", lie) != 1)
			lie[0] = '\0';
		fclose(file);
	}
}

static bool
lies(const char *which)
{
	pthread_once(&lie_read, read_lie);
	return strcmp(lie, which) == 0;
}

static uint32_t
random_number(void)
{
	static _Thread_local uint64_t state = 1;

	state = state * 6364136223846793005 + 1442695040888963407;
	return (uint32_t) (state >> 33);
}

static uint32_t
hash(const char *text)
{
	uint32_t	h = 2166136261;

	while (*text != '\0')
		h = (h ^ (unsigned char) *text++) * 16777619;
	return h ^ (h >> 15);
}

static size_t
true_key(char *key, const char *text, size_t size, locale_t locale)
{
	return locale != NULL ? strxfrm_l_true(key, text, size, locale) : strxfrm_true(key, text, size);
}

static char
swap_letter(char c)
{
	return strchr("aA", c) != NULL ? c + 1 : strchr("bB", c) != NULL ? c - 1 : c;
}

/* The string whose key is returned in place of the text's, allocated by malloc() */
static char *
other_text(const char *text)
{
	char	   *copy = strdup(text);
	size_t		length = strlen(text);

	if (copy == NULL)
		abort();
	if (lies("swapped"))
	{
		for (size_t i = 0; i < length; i++)
			copy[i] = copy[i] != '\0' ? swap_letter(copy[i]) : '\0';
	}
	else if (lies("rare") && hash(text) % 500 == 0)
	{
		for (size_t i = 0; i < length; i++)
			copy[i] = text[length - 1 - i];
	}
	else if (lies("local") && length > 0 && hash(text) % 100 == 0)
		copy[length - 1] = '\0';
	else if (lies("truncated") && length > 3)
		copy[3] = '\0';
	else if (lies("constant") || lies("slow_ties"))
		strcpy(copy, length > 0 ? "x" : "");
	return copy;
}

static size_t
make_key(char *key, const char *text, size_t size, locale_t locale)
{
	char	   *other = other_text(text);
	size_t		length = true_key(key, other, size, locale);

	free(other);
	atomic_fetch_add(&calls[KEYS], 1);
	if (lies("slow_keys"))
		usleep(50);
	if (lies("growing"))
		return size;
	if (length < size && length > 0 && lies("unequal") && random_number() % 50 == 0)
		key[length - 1] = (char) (1 + random_number() % 255);
	else if (length < size && lies("reversed"))
	{
		for (size_t i = 0; i < length; i++)
			key[i] = (char) (256 - (unsigned char) key[i]);
	}
	else if (length < size && lies("random"))
	{
		for (size_t i = 0; i < length; i++)
			key[i] = (char) (1 + random_number() % 255);
	}
	return length;
}

size_t
strxfrm(char *key, const char *text, size_t size)
{
	return make_key(key, text, size, NULL);
}

size_t
strxfrm_l(char *key, const char *text, size_t size, locale_t locale)
{
	return make_key(key, text, size, locale);
}

static int
compare(const char *a, const char *b, locale_t locale)
{
	int			order = locale != NULL ? strcoll_l_true(a, b, locale) : strcoll_true(a, b);

	atomic_fetch_add(&calls[ORDERS], 1);
	if (lies("slow_order") || lies("slow_ties"))
		usleep(50);
	if ((lies("intransitive") && (hash(a) + hash(b)) % 4 == 0) || (lies("fickle") && random_number() % 4 == 0))
		order = -order;
	return order;
}

int
strcoll(const char *a, const char *b)
{
	return compare(a, b, NULL);
}

int
strcoll_l(const char *a, const char *b, locale_t locale)
{
	return compare(a, b, locale);
}
