/* fuzz_files.h - inputs of fuzz targets as files, where libFuzzer is not there to read and write them. */
#ifndef GS_FUZZ_FILES_H
#define GS_FUZZ_FILES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold, whatever the input. */
static inline void fuzz_require(int right, const char *what) {
  if (right)
    return;
  fprintf(stderr, "broken: %s\n", what);
  abort();
}

/* As a text, from malloc; of its own size: a sanitizer sees what is read behind it. */
static inline char *fuzz_text_of(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  fuzz_require(text != NULL, "no memory");
  memcpy(text, data, size);
  text[size] = '\0';
  return text;
}

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

/* main() of a target without libFuzzer: --random SEED RUNS, --corpus FOLDER, or inputs to replay. */
static inline int fuzz_main(int argc, char **argv, int (*run_random)(uint64_t seed, uint64_t runs),
                            int (*write_corpus)(const char *folder)) {
  int result = EXIT_SUCCESS;
  if (argc == 4 && strcmp(argv[1], "--random") == 0)
    return run_random(strtoull(argv[2], NULL, 0), strtoull(argv[3], NULL, 0));
  if (argc == 3 && strcmp(argv[1], "--corpus") == 0)
    return write_corpus(argv[2]);
  for (int i = 1; i < argc; i++)
    result |= fuzz_replay(argv[i]);
  return result;
}

#endif
