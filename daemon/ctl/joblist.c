/* joblist.c - lines to jobs, and jobs to lines. */
#include "ctl/joblist.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

/* ---- a word ---- */

/* A backslash between these quotes (0: none) makes the next character an ordinary one. */
static bool is_escape(char quote, char next) {
  if (quote == '"')
    return next && strchr("\"\\$`", next);
  return quote == 0;
}

/* Take the quotes off the word at *text, where it lies, and go behind it. NULL, or what is wrong with it. */
static const char *unquote(char **text) {
  char *from = *text, *to = *text, quote = 0;
  for (; *from && (quote || !is_blank(*from)); from++) {
    if (quote ? *from == quote : *from == '\'' || *from == '"') {
      quote = quote ? 0 : *from;
    } else if (*from == '\\' && is_escape(quote, from[1])) {
      if (!*++from)
        return "nothing follows the last backslash";
      *to++ = *from;
    } else {
      *to++ = *from;
    }
  }
  if (quote)
    return "a quote is not closed";
  *text = *from ? from + 1 : from; /* before the word's end is written: it may lie there */
  *to = '\0';
  return NULL;
}

static bool is_setting(const char *text) {
  if (!isalpha((unsigned char)*text) && *text != '_')
    return false;
  while (isalnum((unsigned char)*text) || *text == '_')
    text++;
  return *text == '=';
}

/* ---- a line ---- */

/* Its words go to job->words. NULL, or what is wrong with it. */
static const char *parse_line(char *text, struct joblist_job *job) {
  size_t count = 0;
  for (;;) {
    while (is_blank(*text))
      text++;
    if (!*text || *text == '#')
      break;
    if (job->settings == count && is_setting(text))
      job->settings++;
    job->words[count++] = text;
    const char *wrong = unquote(&text);
    if (wrong)
      return wrong;
  }
  job->words[count] = NULL;
  return NULL;
}

/* Cut the line at *text off, and go behind it. NULL at the end. */
static char *next_line(char **text) {
  char *line = *text, *end = strchr(line, '\n');
  if (!*line)
    return NULL;
  *text = end ? end + 1 : line + strlen(line);
  if (end)
    *end = '\0';
  if (end > line && end[-1] == '\r')
    end[-1] = '\0';
  return line;
}

/* ---- the list ---- */

static int allocate(struct joblist *list, size_t jobs, size_t words) {
  *list =
      (struct joblist){.jobs = calloc(jobs, sizeof *list->jobs), .words = calloc(words, sizeof *list->words)};
  if (list->jobs && list->words)
    return 0;
  joblist_free(list);
  return -ENOMEM;
}

int joblist_parse(struct joblist *list, char *text, struct joblist_error *error) {
  /* Each word and its line's NULL have a character of the text to themselves, but for the last line's. */
  size_t lines = 1;
  for (const char *end = text; (end = strchr(end, '\n')); end++)
    lines++;
  int err = allocate(list, lines, strlen(text) + 2);
  if (err < 0)
    return err;
  char **words = list->words, *line;
  for (size_t number = 1; (line = next_line(&text)); number++) {
    struct joblist_job job = {.words = words, .line = number};
    const char *wrong = parse_line(line, &job);
    if (wrong) {
      joblist_free(list);
      *error = (struct joblist_error){.line = number, .what = wrong};
      return -EINVAL;
    }
    if (!*words)
      continue;
    while (*words++) /* behind its NULL */
      ;
    list->jobs[list->count++] = job;
  }
  return 0;
}

int joblist_repeat(struct joblist *list, size_t count) {
  int err = allocate(list, count, 1);
  if (err < 0)
    return err;
  for (; list->count < count; list->count++)
    list->jobs[list->count] = (struct joblist_job){.words = list->words};
  return 0;
}

/* The last one counts. */
const char *joblist_setting(const struct joblist_job *job, const char *name) {
  size_t length = strlen(name);
  const char *value = NULL;
  for (size_t i = 0; i < job->settings; i++)
    if (strncmp(job->words[i], name, length) == 0 && job->words[i][length] == '=')
      value = job->words[i] + length + 1;
  return value;
}

void joblist_free(struct joblist *list) {
  free(list->jobs);
  free(list->words);
  *list = (struct joblist){0};
}

/* ---- words to text for a shell ---- */

#define PLAIN                                                                                                \
  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"                                           \
  "_-+=./:,@%"

/* A setting's name stays bare: a shell takes no quoted one. Control characters are written as bash, ksh and
 * zsh read them. */
static void write_word(FILE *to, const char *word, bool is_setting) {
  bool escapes = false, plain = *word;
  if (is_setting) {
    const char *value = strchr(word, '=') + 1;
    fwrite(word, 1, (size_t)(value - word), to);
    word = value;
    plain = true;
  }
  for (const char *c = word; *c; c++) {
    escapes |= iscntrl((unsigned char)*c);
    plain &= strchr(PLAIN, *c) != NULL;
  }
  fputs(escapes ? "$'" : plain ? "" : "'", to);
  for (; *word; word++)
    if (iscntrl((unsigned char)*word))
      fprintf(to, "\\%03o", (unsigned)(unsigned char)*word);
    else if (escapes && strchr("'\\", *word))
      fprintf(to, "\\%c", *word);
    else
      fprintf(to, *word == '\'' ? "'\\''" : "%c", *word);
  fputs(escapes || !plain ? "'" : "", to);
}

char *quote_command(char *const *command, const struct joblist_job *job) {
  char *text = NULL;
  size_t size;
  FILE *to = open_memstream(&text, &size);
  if (!to)
    return NULL;
  char *const *const lists[] = {job->words, command, job->words + job->settings};
  const char *gap = "";
  for (size_t list = 0; list < 3; list++)
    for (size_t i = 0; list == 0 ? i < job->settings : lists[list][i] != NULL; i++, gap = " ") {
      fputs(gap, to);
      write_word(to, lists[list][i], list == 0);
    }
  if (fclose(to) == 0)
    return text;
  free(text);
  return NULL;
}
