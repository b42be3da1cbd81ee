/*
 * demangle.c - defines a symbol that AddressSanitizer looks up.
 *
 * If AddressSanitizer is preloaded into a program that was not built with it, it
 * initialises itself at the first malloc().  In Debian's postgres, this call comes from a
 * constructor of libgpg-error within bindtextdomain(); in psql and initdb, from one of
 * libp11-kit within newlocale().  At that moment glibc holds the lock of its translations
 * or locales.  AddressSanitizer then looks up Swift's demangler, and if there is none,
 * calls dlerror(), which translates "undefined symbol" and takes the same lock again.
 * One thread is then both reader and writer of the lock, and the program waits for ever.
 * With this function the lookup succeeds.  It demangles nothing.
 */
#include <stddef.h>

char *
swift_demangle(const char *name, size_t length, char *out, size_t *size, unsigned flags)
{
	(void) name;
	(void) length;
	(void) out;
	(void) size;
	(void) flags;
	return NULL;
}
