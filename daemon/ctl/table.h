/* table.h - a table for people: columns are as wide as what stands in them; on a terminal there are only
 * those that it has room for. */
#ifndef GS_CTL_TABLE_H
#define GS_CTL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 32

struct table_column {
  const char *title;
  int width;         /* at least, but on a terminal; below 0: to the left */
  int importance;    /* where there is no room for all, the most important ones are shown */
  const char *usual; /* a column is left out if all of it is that; NULL: it is shown in any case */
  size_t least;      /* not 0: where there is no room for all of it, so much is enough */
  bool apart;        /* two blanks before it */
};

struct table {
  const struct table_column *columns;
  size_t count;
  char **cells; /* by rows; NULL without memory. A row with one text has NULL behind it */
  size_t filled, room;
  bool failed; /* for want of memory */
};

/* The next cell; and a whole row of one text. */
void table_add(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_add_line(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* TERM says that it can only write line after line. */
bool table_screen_is_dumb(void);

/* Of the terminal that stdout is; 0: it is none. */
size_t table_screen_width(void);

/* Print it, and empty it. `width` 0: there is room for all. An exit code, after a line on stderr unless it
 * is CTL_OK. */
int table_print(struct table *table, FILE *out, size_t indent, size_t width);

#endif
