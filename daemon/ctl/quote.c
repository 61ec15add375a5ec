/* quote.c - words to text for a shell. */
#include "ctl/quote.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLAIN                                                                                                \
  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"                                           \
  "_-+=./:,@%"

static bool is_control(char c) { return (unsigned char)c < ' ' || c == 0x7f; }

static bool has_control(const char *word) {
  while (*word && !is_control(*word))
    word++;
  return *word;
}

static void write_escaped(FILE *to, const char *word) {
  fputs("$'", to);
  for (; *word; word++) {
    if (is_control(*word))
      fprintf(to, "\\%03o", (unsigned)(unsigned char)*word);
    else
      fprintf(to, *word == '\'' || *word == '\\' ? "\\%c" : "%c", *word);
  }
  fputc('\'', to);
}

static void write_quoted(FILE *to, const char *word) {
  fputc('\'', to);
  for (; *word; word++) {
    if (*word == '\'')
      fputs("'\\''", to);
    else
      fputc(*word, to);
  }
  fputc('\'', to);
}

static void write_word(FILE *to, const char *word) {
  if (has_control(word))
    write_escaped(to, word);
  else if (!*word || word[strspn(word, PLAIN)])
    write_quoted(to, word);
  else
    fputs(word, to);
}

/* The name stays bare: a shell takes no quoted one. */
static void write_setting(FILE *to, const char *word) {
  const char *value = strchr(word, '=') + 1;
  fwrite(word, 1, (size_t)(value - word), to);
  if (*value)
    write_word(to, value);
}

char *quote_command(char *const *command, const struct joblist_job *job) {
  char *text = NULL;
  size_t size;
  FILE *to = open_memstream(&text, &size);
  if (!to)
    return NULL;
  const char *gap = "";
  for (size_t i = 0; i < job->settings; i++, gap = " ") {
    fputs(gap, to);
    write_setting(to, job->words[i]);
  }
  for (; *command; command++, gap = " ") {
    fputs(gap, to);
    write_word(to, *command);
  }
  for (char *const *word = job->words + job->settings; *word; word++, gap = " ") {
    fputs(gap, to);
    write_word(to, *word);
  }
  if (fclose(to) == 0)
    return text;
  free(text);
  return NULL;
}
