/*
 * early.c - lets AddressSanitizer begin before a lock is held that it needs.
 *
 * Preloaded into a program that was not built with it, AddressSanitizer begins
 * with the first malloc().  In Debian's postgres, that is in a constructor of
 * libgpg-error, within bindtextdomain(): glibc holds the lock of its
 * translations, and AddressSanitizer, which looks for a symbol in vain, asks for
 * the translation of "undefined symbol".  Reader and writer of a lock in one
 * thread, they leave it in a state in which the server waits for ever.  Here the
 * first malloc() comes before.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <libintl.h>
#include <stdlib.h>

char *
bindtextdomain(const char *domain, const char *directory)
{
	void	   *volatile first = malloc(1);
	char	   *(*next) (const char *, const char *);

	free(first);
	*(void **) &next = dlsym(RTLD_NEXT, "bindtextdomain");
	return next(domain, directory);
}
