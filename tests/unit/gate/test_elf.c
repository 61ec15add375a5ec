/* test_elf.c - symbol look-up by hand finds what the dynamic linker finds. */
#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "driver/elf.h"

static struct elf_object libc_object(void) {
  struct elf_object object;
  for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next)
    if (elf_name_matches(map->l_name, "libc.so") &&
        elf_read(&object, map->l_addr, ELF_END_UNKNOWN, map->l_ld))
      return object;
  ck_abort_msg("no libc.so among the loaded objects");
}

START_TEST(finds_what_dlsym_finds) {
  static const char *const names[] = {"dlsym", "dlopen", "getpid",        "puts",
                                      "qsort", "socket", "pthread_create"};
  struct elf_object libc = libc_object();
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    void *handle = dlopen("libc.so.6", RTLD_LAZY);
    void *expected = dlsym(handle, names[i]);
    void *found = elf_find_function(&libc, names[i]);
    ck_assert_ptr_nonnull(expected);
    ck_assert_msg(found == expected, "%s: %p, not %p", names[i], found, expected);
    dlclose(handle);
  }
}
END_TEST

START_TEST(finds_nothing_that_is_not_there) {
  struct elf_object libc = libc_object();
  ck_assert_ptr_null(elf_find_function(&libc, "cuLaunchKernel"));
  ck_assert_ptr_null(elf_find_function(&libc, ""));
  ck_assert_ptr_null(elf_find_function(&libc, "environ")); /* data, not a function */
}
END_TEST

START_TEST(names_match_by_last_component) {
  ck_assert(elf_name_matches("/usr/lib/libcuda.so.1", "libcuda.so"));
  ck_assert(elf_name_matches("libcuda.so", "libcuda.so"));
  ck_assert(elf_name_matches("/x/libcuda.so.580.95.05", "libcuda.so"));
  ck_assert(!elf_name_matches("/libcuda.so.1/libcudart.so", "libcuda.so"));
  ck_assert(!elf_name_matches("/usr/lib/libcuda.so.old", "libcuda.so"));
  ck_assert(!elf_name_matches("", "libcuda.so"));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("elf");
  TCase *tests = tcase_create("elf");
  tcase_add_test(tests, finds_what_dlsym_finds);
  tcase_add_test(tests, finds_nothing_that_is_not_there);
  tcase_add_test(tests, names_match_by_last_component);
  suite_add_tcase(suite, tests);
  return suite_run(suite);
}
