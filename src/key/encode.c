/*-------------------------------------------------------------------------
 *
 * encode.c
 *		Encodes arrays of stored values as keys.
 *
 * There is one tight loop for each kind and width, which the compiler vectorises (the Makefile asks for -O3 here).
 *
 *-------------------------------------------------------------------------
 */
#include "key/keybits.h"

#define ENCODE_LOOP(word_t, function) \
	do { \
		const word_t *in = (const word_t *) words; \
		word_t	   *out = (word_t *) keys; \
		word_t		flip = (word_t) encoding->flip; \
		for (size_t i = 0; i < count; i++) \
			out[i] = function(in[i]) ^ flip; \
	} while (0)

void
gpusort_encode(const GpusortEncoding *encoding, int key_bytes,
			   const void *words, size_t count, void *keys)
{
	switch (encoding->kind)
	{
		case GPUSORT_ENCODING_WORD:
			if (key_bytes == 4)
				ENCODE_LOOP(uint32_t, );
			else
				ENCODE_LOOP(uint64_t, );
			break;
		case GPUSORT_ENCODING_FLOAT:
			if (key_bytes == 4)
				ENCODE_LOOP(uint32_t, gpusort_key_float4);
			else
				ENCODE_LOOP(uint64_t, gpusort_key_float8);
			break;
		case GPUSORT_ENCODING_FLOAT_RANK:
			if (key_bytes == 4)
				ENCODE_LOOP(uint32_t, gpusort_rank_float4);
			else
				ENCODE_LOOP(uint64_t, gpusort_rank_float8);
			break;
	}
}
