/*
 * text.h - comparing text without the C library: look-ups come from sanitizers that have replaced strcmp and
 * its like, and have not finished doing so. The empty asm keeps the compiler from turning a loop back into a
 * call.
 */
#ifndef GS_TEXT_H
#define GS_TEXT_H

#include <stdbool.h>
#include <stddef.h>

static inline bool text_equal(const char *a, const char *b) {
  for (; *a && *a == *b; a++, b++)
    __asm__ volatile("");
  return *a == *b;
}

/* What follows the prefix, or NULL. */
static inline const char *text_after(const char *text, const char *prefix) {
  for (; *prefix; text++, prefix++)
    if (*text != *prefix)
      return NULL;
  return text;
}

/* The last part of a path. */
static inline const char *text_file_name(const char *path) {
  const char *file = path;
  for (; *path; path++) {
    __asm__ volatile("");
    if (*path == '/')
      file = path + 1;
  }
  return file;
}

#endif
