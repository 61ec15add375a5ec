/* test_table.c - tables for people: how wide they are, and what is left out on a narrow terminal. */
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "ctl/table.h"
#include "suite.h"

static const struct table_column columns[] = {{"A", 4, 3, NULL, 0, false},
                                              {"B", -4, 1, NULL, 0, false},
                                              {"C", 4, 4, "-", 0, false},
                                              {"D", -4, 2, NULL, 3, true}};

static struct table begin(void) { return (struct table){.columns = columns, .count = 4}; }

static void check_printed(struct table *table, size_t indent, size_t width, const char *wanted) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  ck_assert_int_eq(table_print(table, out, indent, width), CTL_OK);
  fclose(out);
  ck_assert_str_eq(text, wanted);
  free(text);
}

static void add_row(struct table *table, const char *a, const char *b, const char *c, const char *d) {
  const char *const cells[] = {a, b, c, d};
  for (int i = 0; i < 4; i++)
    table_add(table, "%s", cells[i]);
}

START_TEST(columns_are_as_wide_as_their_cells) {
  struct table table = begin();
  add_row(&table, "1", "two", "-", "four");
  add_row(&table, "12345", "2", "-", "fourteen");
  check_printed(&table, 2, 0, "      A B     D\n      1 two   four\n  12345 2     fourteen\n");
  add_row(&table, "1", "two", "3", "four");
  table_add_line(&table, "a row of its own, %d", 7);
  add_row(&table, "1", "two", "-", "four");
  check_printed(&table, 0, 0,
                "   A B       C  D\n   1 two     3  four\na row of its own, 7\n   1 two     -  four\n");
}
END_TEST

START_TEST(a_narrow_table_has_the_columns_that_tell_most) {
  static const struct {
    size_t width;
    const char *shown;
  } cases[] = {{40, "  A B    D\n  1 two  three four\n"}, /* no wider than they must be */
               {16, "  A B    D\n  1 two  three\n"},      /* the rest is cut */
               {12, "  A  D\n  1  three\n"},
               {6, "  A\n  1\n"},
               {1, "\n\n"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct table table = begin();
    add_row(&table, "1", "two", "-", i == 0 ? "three four" : "three");
    check_printed(&table, 2, cases[i].width, cases[i].shown);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {columns_are_as_wide_as_their_cells,
                                a_narrow_table_has_the_columns_that_tell_most, NULL};
  return suite_main("table", tests, NULL, NULL);
}
