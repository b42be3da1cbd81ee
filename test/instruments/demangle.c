/*
 * demangle.c - a symbol that AddressSanitizer looks for.
 *
 * Preloaded into a program that was not built with it, AddressSanitizer begins
 * with the first malloc().  In Debian's postgres, that is in a constructor of
 * libgpg-error, within bindtextdomain(); in psql and initdb, in one of
 * libp11-kit, within newlocale().  glibc holds a lock of its translations or
 * locales then.  AddressSanitizer looks for a demangler of Swift's, and when
 * there is none, asks dlerror(), which translates "undefined symbol": reader and
 * writer of a lock in one thread, they leave it in a state in which the program
 * waits for ever.  So here is one, that demangles nothing.
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
