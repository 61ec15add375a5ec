/* opener.h - opens a library that is found along opener's own run path only. */
#ifndef TEST_OPENER_H
#define TEST_OPENER_H

/* NULL: see dlerror. */
void *opener_open(const char *name);

#endif
