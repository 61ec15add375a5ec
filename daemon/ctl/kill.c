/* kill.c - gpusharectl kill: a signal to the processes of jobs, by descriptors that the daemon has of them:
 * their numbers may be others' by now, and mean others in another pid namespace. The kernel decides who may.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/parse.h"
#include "ctl/ctl.h"
#include "ctl/output.h"

struct killing {
  const struct request *request;
  int signal;
};

/* TERM, SIGTERM or 15. */
static int read_signal(const char *text, int *number) {
  int64_t value;
  if (parse_integer(text, 1, SIGRTMAX, &value) == 0) {
    *number = (int)value;
    return CTL_OK;
  }
  const char *name = strncasecmp(text, "SIG", 3) == 0 ? text + 3 : text;
  for (int i = 1; i < SIGRTMIN; i++)
    if (sigabbrev_np(i) && strcasecmp(sigabbrev_np(i), name) == 0) {
      *number = i;
      return CTL_OK;
    }
  return usage_error("not a signal (TERM, INT, KILL, 15):", text);
}

static int kill_one(void *context, uint32_t job, struct ask_error *error) {
  const struct killing *killing = context;
  struct ask_error told;
  int process, code = ask_process(daemon_path(&killing->request->run), job, &process, &told);
  if (code != CTL_OK) {
    *error = told;
    return code;
  }
  bool sent = syscall(SYS_pidfd_send_signal, process, killing->signal, NULL, 0) == 0;
  const char *why = errno == EINVAL ? "it is in a pid namespace that this one does not see" : strerror(errno);
  close(process);
  if (!sent)
    return ask_complain(error, CTL_REFUSED, "can't send a signal to its process (%s): %s", told.text, why);
  if (!killing->request->json) {
    printf("job %u (%s): sent signal %d (%s)\n", job, told.text, killing->signal, strsignal(killing->signal));
    return CTL_OK;
  }
  json_t *object = json_object();
  output_number(object, "job", job);
  output_number(object, "signal", (uint64_t)killing->signal);
  return output_line(object);
}

int kill_command(const struct request *request) {
  struct killing killing = {request, SIGTERM};
  int code = request->signal ? read_signal(request->signal, &killing.signal) : CTL_OK;
  return code == CTL_OK ? for_each_job(request, request->word_count, kill_one, &killing) : code;
}
