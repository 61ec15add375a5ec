/*
 * fuzz_elf.c - bytes as a loaded library, its dynamic section at the beginning: whatever its tables say,
 * nothing outside of it is read, and a look-up ends.
 *
 * Built with -fsanitize=fuzzer this is a libFuzzer target. Otherwise it has a main: see fuzz_files.h.
 */
#include <stddef.h>

#include "common/splitmix.h"
#include "driver/elf.h"
#include "fuzz_files.h"

static void read_import(const char *name, uintptr_t *slot, void *read) {
  uintptr_t value;
  memcpy(&value, slot, sizeof value); /* aligned in the object, which here begins anywhere */
  *(uintptr_t *)read += value + (uintptr_t)*name;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const names[] = {"cuInit", "dlsym", "", "cuDeviceGetCount"};
  struct elf_object object;
  char *image = malloc(size + 1); /* of its own: a sanitizer sees what is read behind it */
  if (!image)
    return 0;
  memcpy(image, data, size);
  uintptr_t base = (uintptr_t)image, end = base + size;
  if (elf_read(&object, base, end, (const void *)image)) {
    const ElfW(Rela) * lists[] = {object.relocations, object.plt_relocations};
    const size_t counts[] = {object.relocation_count, object.plt_relocation_count};
    for (size_t i = 0; i < 2; i++)
      fuzz_require(counts[i] == 0 || (uintptr_t)(lists[i] + counts[i]) <= end,
                   "relocations that are not there");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
      elf_find_function(&object, names[i]);
    elf_each_import(&object, read_import, &(uintptr_t){0});
  }
  free(image);
  return 0;
}

#ifndef GS_LIBFUZZER

/* ---- without libFuzzer ---- */

#define SYMBOLS 6

/* A library that could be. */
struct image {
  ElfW(Dyn) dynamic[8];
  ElfW(Sym) symbols[SYMBOLS];
  ElfW(Rela) relocations[4];
  struct {
    uint32_t bucket_count, first, bloom_size, bloom_shift;
    ElfW(Addr) bloom;
    uint32_t buckets[2], chains[SYMBOLS];
  } gnu;
  struct {
    uint32_t bucket_count, chain_count, buckets[2], chains[SYMBOLS];
  } sysv;
  char strings[32];
};

static uint64_t random_state;

static size_t random_below(size_t bound) { return (size_t)(splitmix_next(&random_state) % bound); }

static struct image make_image(void) {
  struct image image = {
      .dynamic = {{.d_tag = DT_SYMTAB, .d_un.d_ptr = offsetof(struct image, symbols)},
                  {.d_tag = DT_STRTAB, .d_un.d_ptr = offsetof(struct image, strings)},
                  {.d_tag = random_below(2) ? DT_GNU_HASH : DT_DEBUG,
                   .d_un.d_ptr = offsetof(struct image, gnu)},
                  {.d_tag = DT_HASH, .d_un.d_ptr = offsetof(struct image, sysv)},
                  {.d_tag = DT_RELA, .d_un.d_ptr = offsetof(struct image, relocations)},
                  {.d_tag = DT_RELASZ, .d_un.d_val = sizeof image.relocations},
                  {.d_tag = random_below(8) ? DT_NULL : DT_JMPREL}},
      .gnu = {.bucket_count = 2, .first = 1, .bloom_size = 1, .buckets = {1, 3}},
      .sysv = {.bucket_count = 2, .chain_count = SYMBOLS, .buckets = {1, 3}, .chains = {0, 2, 0, 4, 5, 0}},
      .strings = "\0cuInit\0dlsym\0cuDeviceGetCount"};
  for (int i = 0; i < SYMBOLS; i++) {
    image.symbols[i] = (ElfW(Sym)){.st_name = (uint32_t)random_below(sizeof image.strings),
                                   .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                                   .st_shndx = 1,
                                   .st_value = 64};
    image.gnu.chains[i] = (uint32_t)splitmix_next(&random_state) & (random_below(4) ? ~1u : ~0u);
  }
  return image;
}

/* Numbers that are too large, or only just. */
static size_t make_input(struct image *image) {
  static const uint64_t values[] = {0,      1,          2,          7,          0x7f,
                                    0xffff, 0x7fffffff, 0xffffffff, UINT64_MAX, UINT64_C(1) << 63};
  *image = make_image();
  for (size_t changes = random_below(6); changes > 0; changes--) {
    size_t bytes = random_below(2) ? 4 : 8, at = random_below(sizeof *image / bytes) * bytes;
    uint64_t value = random_below(3) ? values[random_below(sizeof values / sizeof *values)]
                                     : random_below(2 * sizeof *image);
    memcpy((char *)image + at, &value, bytes);
  }
  return random_below(4) ? sizeof *image : random_below(sizeof *image);
}

static int run_random(uint64_t seed, uint64_t runs) {
  struct image image;
  for (uint64_t i = 0; i < runs; i++) {
    random_state = seed + i;
    if (i % 256 == 0)
      fprintf(stderr, "\rseed %llu ", (unsigned long long)random_state);
    size_t size = make_input(&image);
    LLVMFuzzerTestOneInput((const uint8_t *)&image, size);
  }
  fprintf(stderr, "\n");
  return EXIT_SUCCESS;
}

static int write_corpus(const char *folder) {
  struct image image;
  int result = EXIT_SUCCESS;
  for (unsigned i = 0; i < 64 && result == EXIT_SUCCESS; i++) {
    random_state = i;
    size_t size = make_input(&image);
    result = fuzz_write(folder, "image", i, (const uint8_t *)&image, size);
  }
  return result;
}

int main(int argc, char **argv) { return fuzz_main(argc, argv, run_random, write_corpus); }

#endif
