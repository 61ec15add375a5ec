/* spelling.h - which word was meant by one that is nearly right. No allocation. */
#ifndef GS_SPELLING_H
#define GS_SPELLING_H

#include <stdbool.h>
#include <stddef.h>

#define SPELLING_MOST 32u /* a longer word is like none */

/* How many characters must be put in, left out, replaced, or exchanged with the next one to make one of the
 * other. Caller must: give no more than SPELLING_MOST of each. */
unsigned spelling_distance(const char *a, size_t a_size, const char *b, size_t b_size);

/* The word may be a misspelt `name`, and is nearer to it than *best, which it becomes; UINT_MAX: to none so
 * far. */
bool spelling_is_nearer(const char *word, const char *name, unsigned *best);

#endif
