/* request.c - what every command does with its request: says what is wrong with it, and reaches its daemon.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ctl/ctl.h"

int usage_error(const char *what, const char *word) {
  fprintf(stderr, "gpusharectl: %s%s%s%s; try --help\n", what, word ? " '" : "", word ? word : "",
          word ? "'" : "");
  return CTL_USAGE;
}

int command_error(int code, const char *format, ...) {
  va_list list;
  va_start(list, format);
  fprintf(stderr, "gpusharectl: ");
  vfprintf(stderr, format, list);
  fprintf(stderr, "\n");
  va_end(list);
  return code;
}

const char *daemon_path(const struct run_request *request) {
  const char *environment = getenv("GPUSHARE_SOCKET");
  const char *path = environment && *environment ? environment : GS_DEFAULT_SOCKET;
  return request->socket ? request->socket : path;
}

int connect_daemon(const struct request *request, int *fd) {
  return ask_connect(daemon_path(&request->run), fd);
}

int fetch_status(const struct request *request, struct gs_msg **msgs, size_t *count) {
  int fd, code = connect_daemon(request, &fd);
  if (code != CTL_OK)
    return code;
  code = ask_status(fd, msgs, count);
  close(fd);
  return code;
}
