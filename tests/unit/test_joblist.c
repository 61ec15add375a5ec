/* test_joblist.c - lists of jobs: words, quotes, settings, what is wrong; and words back to text for a shell.
 */
#include "ctl/joblist.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "suite.h"

static char text[4096];
static struct joblist list;
static struct joblist_error error;

static int parse(const char *given) {
  ck_assert_int_lt(snprintf(text, sizeof text, "%s", given), (int)sizeof text);
  return joblist_parse(&list, text, &error);
}

/* Its words, each in <>. */
static void expect_job(size_t index, size_t settings, size_t line, const char *wanted) {
  char found[1024] = "";
  ck_assert_uint_lt(index, list.count);
  const struct joblist_job *job = &list.jobs[index];
  for (char **word = job->words; *word; word++)
    snprintf(found + strlen(found), sizeof found - strlen(found), "<%s>", *word);
  ck_assert_str_eq(found, wanted);
  ck_assert_uint_eq(job->settings, settings);
  ck_assert_uint_eq(job->line, line);
}

static void expect_words(const char *given, size_t settings, const char *wanted) {
  ck_assert_int_eq(parse(given), 0);
  ck_assert_uint_eq(list.count, 1);
  expect_job(0, settings, 1, wanted);
  joblist_free(&list);
}

static void expect_error(const char *given, size_t line, const char *wanted) {
  ck_assert_int_eq(parse(given), -EINVAL);
  ck_assert_uint_eq(error.line, line);
  ck_assert_str_eq(error.what, wanted);
}

START_TEST(a_job_is_a_line_with_words) {
  ck_assert_int_eq(parse("--lr 0.1\n\n  # nothing\n \t \n--lr\t0.2   # the better one \r\nlast"), 0);
  ck_assert_uint_eq(list.count, 3);
  expect_job(0, 0, 1, "<--lr><0.1>");
  expect_job(1, 0, 5, "<--lr><0.2>");
  expect_job(2, 0, 6, "<last>");
  joblist_free(&list);
  ck_assert_int_eq(parse("# none\n\n"), 0);
  ck_assert_uint_eq(list.count, 0);
  joblist_free(&list);
  ck_assert_int_eq(parse(""), 0);
  ck_assert_uint_eq(list.count, 0);
  joblist_free(&list);
}
END_TEST

START_TEST(quotes_and_backslashes_are_those_of_a_shell) {
  expect_words("'a  b'c \"d 'e'\" 'f \"g\"'", 0, "<a  bc><d 'e'><f \"g\">");
  expect_words("'' \"\" x''", 0, "<><><x>");
  expect_words("a\\ b \\' \\\\ \\\"", 0, "<a b><'><\\><\">");
  expect_words("'a\\b' \"\\\"\\\\\\$\\`\\n\"", 0, "<a\\b><\"\\$`\\n>");
  expect_words("a#b \\# '#' #c", 0, "<a#b><#><#>");
  expect_words("$HOME * ~ `x` ;", 0, "<$HOME><*><~><`x`><;>");
  expect_words("a\r", 0, "<a\r>"); /* not at a line's end */
}
END_TEST

START_TEST(settings_stand_in_front) {
  expect_words("A=1 _b2='x y' python C=3", 2, "<A=1><_b2=x y><python><C=3>");
  expect_words("A= B=a=b", 2, "<A=><B=a=b>");
  expect_words("'A=1' B=2", 0, "<A=1><B=2>");
  expect_words("A\\=1", 0, "<A=1>");
  expect_words("model.lr=1", 0, "<model.lr=1>");
  expect_words("1A=1 =x", 0, "<1A=1><=x>");
}
END_TEST

START_TEST(what_is_wrong_is_told_with_its_line) {
  expect_error("a\n'b\nc'", 2, "a quote is not closed");
  expect_error("\n\n\"b\\\"", 3, "a quote is not closed");
  expect_error("a b\\\nc", 1, "nothing follows the last backslash");
}
END_TEST

START_TEST(repeated_jobs_have_no_words) {
  ck_assert_int_eq(joblist_repeat(&list, 3), 0);
  ck_assert_uint_eq(list.count, 3);
  for (size_t i = 0; i < 3; i++)
    expect_job(i, 0, 0, "");
  joblist_free(&list);
}
END_TEST

/* ---- words to text ---- */

static void expect_quoted(char *const *command, const char *line, const char *wanted) {
  ck_assert_int_eq(parse(line), 0);
  char *quoted =
      quote_command(command, &(struct joblist_job){.words = list.words, .settings = list.jobs->settings});
  ck_assert_str_eq(quoted, wanted);
  free(quoted);
  joblist_free(&list);
}

START_TEST(a_command_is_quoted_where_it_must_be) {
  char *const command[] = {"sh", "-c", "echo $0's", NULL};
  expect_quoted(command, "A='1 2' B= x '' --lr=0.1", "A='1 2' B= sh -c 'echo $0'\\''s' x '' --lr=0.1");
  char *const strange[] = {"a\tb\n\001c", "\\'\t", "~", "#", "\xc3\xa9", NULL};
  expect_quoted(strange, "x", "$'a\\011b\\012\\001c' $'\\\\\\'\\011' '~' '#' '\xc3\xa9' x");
}
END_TEST

/* Random words, without control characters: to text, and back to the same. */
START_TEST(quoted_words_are_read_as_they_were) {
  static const char letters[] = "ab=#'\"\\ $`*;~\xc3";
  static char storage[16][16];
  unsigned seed = (unsigned)time(NULL);
  printf("seed %u\n", seed);
  srandom(seed);
  for (int round = 0; round < 2000; round++) {
    char *words[17] = {"program"};
    size_t count = 1 + (size_t)random() % 15;
    for (size_t i = 1; i <= count; i++) {
      size_t length = (size_t)random() % 15;
      for (size_t k = 0; k < length; k++)
        storage[i][k] = letters[(size_t)random() % (sizeof letters - 1)];
      storage[i][length] = '\0';
      words[i] = storage[i];
    }
    words[count + 1] = NULL;
    char *none[] = {NULL};
    char *quoted = quote_command(words, &(struct joblist_job){.words = none});
    ck_assert_int_eq(parse(quoted), 0);
    for (size_t i = 0; words[i] || list.jobs->words[i]; i++)
      ck_assert_pstr_eq(list.jobs->words[i], words[i]);
    joblist_free(&list);
    free(quoted);
  }
}
END_TEST

static void nothing(void) {}

int main(void) {
  const TTest *const tests[] = {a_job_is_a_line_with_words,
                                quotes_and_backslashes_are_those_of_a_shell,
                                settings_stand_in_front,
                                what_is_wrong_is_told_with_its_line,
                                repeated_jobs_have_no_words,
                                a_command_is_quoted_where_it_must_be,
                                quoted_words_are_read_as_they_were,
                                NULL};
  return suite_main("joblist", tests, nothing, nothing);
}
