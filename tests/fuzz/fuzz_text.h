/*
 * fuzz_text.h - the main of a target whose input is a text, where there is no libFuzzer: random texts of the
 * words that the target names in `static const char *const words[]`, some of their bytes changed.
 * Include it once, behind LLVMFuzzerTestOneInput.
 */
#ifndef GS_FUZZ_TEXT_H
#define GS_FUZZ_TEXT_H

#ifndef GS_LIBFUZZER

#include "common/splitmix.h"
#include "fuzz_files.h"

#define TEXT_SIZE 2048

static uint64_t random_state;
static uint8_t text[TEXT_SIZE];

static size_t random_below(size_t bound) { return (size_t)(splitmix_next(&random_state) % bound); }

static size_t make_text(void) {
  size_t size = 0;
  for (size_t left = 1 + random_below(60); left > 0 && size + 256 < TEXT_SIZE; left--) {
    const char *word = words[random_below(sizeof words / sizeof *words)];
    size_t length = strlen(word), times = random_below(40) ? 1 : 1 + random_below(64);
    for (; times > 0 && size + length < TEXT_SIZE; times--, size += length)
      memcpy(text + size, word, length);
    if (random_below(30) == 0)
      text[size++] = '\0';
  }
  for (size_t changes = random_below(4) ? 0 : random_below(8); changes > 0 && size > 0; changes--)
    text[random_below(size)] = (uint8_t)random_below(256);
  return size;
}

static int run_random(uint64_t seed, uint64_t runs) {
  for (uint64_t i = 0; i < runs; i++) {
    random_state = seed + i;
    fprintf(stderr, "\rseed %llu ", (unsigned long long)random_state);
    LLVMFuzzerTestOneInput(text, make_text());
  }
  fprintf(stderr, "\n");
  return EXIT_SUCCESS;
}

static int write_corpus(const char *to) {
  int result = EXIT_SUCCESS;
  for (unsigned i = 0; i < 64 && result == EXIT_SUCCESS; i++) {
    random_state = i;
    result = fuzz_write(to, "text", i, text, make_text());
  }
  return result;
}

int main(int argc, char **argv) { return fuzz_main(argc, argv, run_random, write_corpus); }

#endif
#endif
