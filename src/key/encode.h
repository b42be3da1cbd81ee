/*-------------------------------------------------------------------------
 *
 * encode.h
 *		Words to keys, many at a time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_ENCODE_H
#define GPUSORT_KEY_ENCODE_H

#include <stddef.h>

#include "key/keybits.h"

/* Encodes count words of key_bytes (4 or 8) to keys; the two do not overlap. */
extern void gpusort_encode(const GpusortEncoding *encoding, int key_bytes,
						   const void *words, size_t count, void *keys);

#endif							/* GPUSORT_KEY_ENCODE_H */
