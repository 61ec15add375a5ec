/* printable.h - texts from programs, for terminals and logs. */
#ifndef GS_PRINTABLE_H
#define GS_PRINTABLE_H

#include <stddef.h>

/* Copy at most size - 1 characters and a '\0'; what is no printable ASCII becomes '?'. */
void printable_copy(char *to, const char *from, size_t size);

#endif
