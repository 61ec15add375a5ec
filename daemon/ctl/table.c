/* table.c - a table for people, as wide as what stands in it, or as the terminal has room for. */
#include "ctl/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ctl/ctl.h"

/* ---- filling it ---- */

static void append(struct table *table, char *cell) {
  if (table->filled == table->room) {
    size_t room = table->room ? 2 * table->room : 64;
    char **grown = realloc(table->cells, room * sizeof *grown);
    if (!grown) {
      table->failed = true;
      free(cell);
      return;
    }
    table->cells = grown;
    table->room = room;
  }
  table->cells[table->filled++] = cell;
}

static void append_text(struct table *table, const char *format, va_list list) {
  char *text = NULL;
  if (vasprintf(&text, format, list) < 0) {
    table->failed = true;
    text = NULL;
  }
  append(table, text);
}

void table_add(struct table *table, const char *format, ...) {
  va_list list;
  va_start(list, format);
  append_text(table, format, list);
  va_end(list);
}

void table_add_line(struct table *table, const char *format, ...) {
  va_list list;
  va_start(list, format);
  append_text(table, format, list);
  va_end(list);
  for (size_t i = 1; i < table->count; i++)
    append(table, NULL);
}

/* ---- its columns ---- */

bool table_screen_is_dumb(void) {
  const char *name = getenv("TERM");
  return !name || !*name || strcmp(name, "dumb") == 0;
}

size_t table_screen_width(void) {
  struct winsize size;
  return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* NULL: the row has one text. */
static const char *cell_of(const struct table *table, size_t row, size_t column) {
  const char *const *cells = (const char *const *)table->cells + row * table->count;
  return table->count > 1 && !cells[1] ? NULL : cells[column];
}

/* Of what stands in it; 0: there is nothing worth a column. */
static size_t natural_width(const struct table *table, size_t column) {
  const struct table_column *about = &table->columns[column];
  size_t width = strlen(about->title), rows = table->filled / table->count;
  bool tells = !about->usual;
  for (size_t row = 0; row < rows; row++) {
    const char *cell = cell_of(table, row, column);
    if (!cell)
      continue;
    size_t size = strlen(cell);
    width = size > width ? size : width;
    tells |= about->usual && strcmp(cell, about->usual) != 0;
  }
  return tells ? width : 0;
}

static size_t gap_of(const struct table_column *column) { return column->apart ? 2 : 1; }

static size_t least_width(const struct table_column *column, size_t natural) {
  return column->least && column->least < natural ? column->least : natural;
}

/* The widths of those that are shown, 0 of others. The most important ones come first. What is left then goes
 * to those that could use more, in the same order. */
static void fit(const struct table *table, size_t width, size_t *widths) {
  size_t order[TABLE_COLUMNS_MAX] = {0}, natural[TABLE_COLUMNS_MAX] = {0}, left = width;
  for (size_t i = 0; i < table->count; i++) {
    size_t place = i;
    for (; place > 0 && table->columns[i].importance > table->columns[order[place - 1]].importance; place--)
      order[place] = order[place - 1];
    order[place] = i;
    natural[i] = widths[i];
    widths[i] = 0;
  }
  for (size_t k = 0; k < table->count; k++) {
    size_t i = order[k], needs = least_width(&table->columns[i], natural[i]);
    if (natural[i] == 0 || needs + gap_of(&table->columns[i]) > left)
      continue;
    widths[i] = needs;
    left -= needs + gap_of(&table->columns[i]);
  }
  for (size_t k = 0; k < table->count; k++) {
    size_t i = order[k], more = widths[i] ? natural[i] - widths[i] : 0;
    more = more < left ? more : left;
    widths[i] += more;
    left -= more;
  }
}

/* ---- printing it ---- */

static void print_row(const struct table *table, FILE *out, const char *const *cells, size_t indent,
                      const size_t *widths) {
  size_t due = indent; /* blanks, once something follows */
  bool shown = false;
  for (size_t i = 0; i < table->count; i++) {
    if (widths[i] == 0)
      continue;
    const struct table_column *column = &table->columns[i];
    const char *cell = cells ? cells[i] : column->title;
    size_t size = strnlen(cell, widths[i]), rest = widths[i] - size;
    bool left = column->width < 0;
    due += (shown ? gap_of(column) : 0) + (left ? 0 : rest);
    if (size > 0) {
      fprintf(out, "%*s%.*s", (int)due, "", (int)size, cell);
      due = 0;
    }
    due += left ? rest : 0;
    shown = true;
  }
  fputc('\n', out);
}

static void print_all(const struct table *table, FILE *out, size_t indent, size_t width) {
  size_t widths[TABLE_COLUMNS_MAX] = {0}, rows = table->filled / table->count;
  for (size_t i = 0; i < table->count; i++) {
    size_t least = (size_t)abs(table->columns[i].width);
    widths[i] = natural_width(table, i);
    if (width == 0 && widths[i] && widths[i] < least)
      widths[i] = least;
  }
  if (width)
    fit(table, width > indent ? width - indent : 0, widths);
  print_row(table, out, NULL, indent, widths);
  for (size_t row = 0; row < rows; row++) {
    const char *line = table->cells[row * table->count];
    if (cell_of(table, row, 0))
      print_row(table, out, (const char *const *)table->cells + row * table->count, indent, widths);
    else
      fprintf(out, "%s\n", line);
  }
}

int table_print(struct table *table, FILE *out, size_t indent, size_t width) {
  bool failed = table->failed;
  if (!failed)
    print_all(table, out, indent, width);
  for (size_t i = 0; i < table->filled; i++)
    free(table->cells[i]);
  free(table->cells);
  *table = (struct table){.columns = table->columns, .count = table->count};
  return failed ? command_error(CTL_REFUSED, "out of memory") : CTL_OK;
}
