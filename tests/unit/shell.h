/* shell.h - run a command line, for tests of programs as a person uses them. */
#ifndef GS_TEST_SHELL_H
#define GS_TEST_SHELL_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "suite.h"

static char output[65536]; /* of the last command */

/* Its exit code; -1: it died of a signal. */
__attribute__((format(printf, 1, 2))) static inline int run_shell(const char *format, ...) {
  char command[2048];
  va_list list;
  va_start(list, format);
  ck_assert_int_lt(vsnprintf(command, sizeof command, format, list), (int)sizeof command);
  va_end(list);
  FILE *pipe = popen(command, "r");
  ck_assert_ptr_nonnull(pipe);
  output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
  int status = pclose(pipe);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define output_has(text) ck_assert_msg(strstr(output, text), "'%s' is not in: %s", text, output)
#define output_lacks(text) ck_assert_msg(!strstr(output, text), "'%s' is in: %s", text, output)

#endif
