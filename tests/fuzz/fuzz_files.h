/* fuzz_files.h - inputs of fuzz targets as files, where libFuzzer is not there to read and write them. */
#ifndef GS_FUZZ_FILES_H
#define GS_FUZZ_FILES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An exit code, after a line on stderr unless it is EXIT_SUCCESS. */
static inline int fuzz_replay(const char *path) {
  static uint8_t data[1 << 20];
  FILE *file = fopen(path, "rb");
  if (!file) {
    perror(path);
    return EXIT_FAILURE;
  }
  LLVMFuzzerTestOneInput(data, fread(data, 1, sizeof data, file));
  fclose(file);
  return EXIT_SUCCESS;
}

/* Likewise: folder/NAME-NUMBER. */
static inline int fuzz_write(const char *folder, const char *name, unsigned number, const uint8_t *data,
                             size_t size) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s-%u", folder, name, number);
  FILE *file = fopen(path, "wb");
  if (file && fwrite(data, 1, size, file) == size && fclose(file) == 0)
    return EXIT_SUCCESS;
  perror(path);
  return EXIT_FAILURE;
}

#endif
