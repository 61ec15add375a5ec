/* fuzz_folder.h - for targets that read files: a folder of their own, gone at the end. Include it once. */
#ifndef GS_FUZZ_FOLDER_H
#define GS_FUZZ_FOLDER_H

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz_files.h"

static char fuzz_folder[] = "/tmp/gpushare-fuzz-XXXXXX";

static int fuzz_remove(const char *path, const struct stat *file, int kind, struct FTW *where) {
  (void)file, (void)kind, (void)where;
  return remove(path);
}

static void fuzz_remove_folder(void) { nftw(fuzz_folder, fuzz_remove, 8, FTW_DEPTH | FTW_PHYS); }

/* True: it has just been made. */
static int fuzz_provide_folder(void) {
  static int made;
  if (made++)
    return 0;
  fuzz_require(mkdtemp(fuzz_folder) != NULL, "no folder to write to");
  atexit(fuzz_remove_folder);
  return 1;
}

static void fuzz_make_folder(const char *path) {
  fuzz_require(mkdir(path, 0700) == 0, "no folder to write to");
}

/* The input up to its next NUL byte becomes a file, or all of it the last one. */
static inline void fuzz_cut_file(const char *path, int last, const uint8_t **data, size_t *size) {
  const uint8_t *end = last ? NULL : memchr(*data, '\0', *size);
  size_t length = end ? (size_t)(end - *data) : *size, used = length + (end != NULL);
  FILE *file = fopen(path, "w");
  fuzz_require(file && fwrite(*data, 1, length, file) == length && fclose(file) == 0, "can't write a file");
  *data += used;
  *size -= used;
}

#endif
