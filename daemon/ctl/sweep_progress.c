/* sweep_progress.c - how far many jobs are: a line that is written anew on a terminal, else a line per event.
 */
#include <string.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "ctl/sweep.h"

#define CLEAR "\r\033[K"

static void show(const struct progress *progress) {
  if (progress->live)
    fprintf(stderr, CLEAR "%zu running, %zu waiting, %zu done, %zu failed ", progress->running,
            progress->waiting, progress->done, progress->failed);
}

static const char *clear(const struct progress *progress) { return progress->live ? CLEAR : ""; }

void progress_open(struct progress *progress, size_t jobs, bool live) {
  *progress = (struct progress){.waiting = jobs, .live = live};
}

void progress_start(struct progress *progress, size_t index, const char *gpus, const char *command) {
  progress->waiting--;
  progress->running++;
  if (!progress->live)
    fprintf(stderr, "gpusharectl: job %zu started%s%s: %s\n", index, gpus ? " on " : "", gpus ? gpus : "",
            command);
  show(progress);
}

static void show_failure(const struct progress *progress, size_t index, const struct ending *ending,
                         bool again) {
  int status = ending->status;
  fprintf(stderr, "%sgpusharectl: job %zu failed after %.1f s%s%s: ", clear(progress), index,
          (double)ending->took_ns / NS_PER_S, ending->gpus ? " on " : "", ending->gpus ? ending->gpus : "");
  if (WIFSIGNALED(status))
    fprintf(stderr, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  else
    fprintf(stderr, "exit code %d", WEXITSTATUS(status));
  fprintf(stderr, "%s\n", again ? ", it is tried again" : "");
}

void progress_end(struct progress *progress, size_t index, const struct ending *ending, bool again) {
  bool failed = ending->status != 0;
  progress->running--;
  progress->waiting += again;
  progress->failed += failed && !again;
  progress->done += !failed;
  if (failed)
    show_failure(progress, index, ending, again);
  else if (!progress->live)
    fprintf(stderr, "gpusharectl: job %zu done in %.1f s\n", index, (double)ending->took_ns / NS_PER_S);
  show(progress);
}

void progress_close(struct progress *progress, const char *folder) {
  fprintf(stderr, "%sgpusharectl: %zu done, %zu failed, %zu not started%s%s\n", clear(progress),
          progress->done, progress->failed, progress->waiting, folder ? "; their output is in " : "",
          folder ? folder : "");
}
