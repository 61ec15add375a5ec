/* job_output.c - what becomes of the output of many jobs: among ours, line by line, or in a folder, beside
 * the table of their ends; and how far they are, a line that is written anew on a terminal, else a line per
 * event. */
#include "ctl/job_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "ctl/ctl.h"

#define ROOM 8192
#define TABLE "results.tsv"
#define CLEAR "\r\033[K"

/* ---- lines ---- */

int lines_open(struct lines *lines) {
  int fds[2];
  char *text = malloc(ROOM);
  if (!text)
    return -ENOMEM;
  if (pipe2(fds, O_CLOEXEC) < 0) {
    int err = -errno;
    free(text);
    return err;
  }
  *lines = (struct lines){.fd = fds[0], .text = text};
  return fds[1];
}

static void print(const char *text, size_t size, size_t index, FILE *to) {
  fprintf(to, "[%zu] ", index);
  fwrite(text, 1, size, to);
  fputc('\n', to);
}

static void end(struct lines *lines, size_t index, FILE *to) {
  if (lines->filled)
    print(lines->text, lines->filled, index, to);
  close(lines->fd);
  free(lines->text);
  *lines = (struct lines){.fd = -1};
}

/* Once; more than 0: so many bytes. Whole lines are printed, and what is as long as there is room. */
static ssize_t copy(struct lines *lines, size_t index, FILE *to) {
  ssize_t count = read(lines->fd, lines->text + lines->filled, ROOM - lines->filled);
  if (count <= 0)
    return count;
  char *text = lines->text, *newline;
  size_t left = lines->filled + (size_t)count;
  for (; (newline = memchr(text, '\n', left)); text = newline + 1) {
    print(text, (size_t)(newline - text), index, to);
    left -= (size_t)(newline + 1 - text);
  }
  if (left == ROOM) {
    print(text, left, index, to);
    left = 0;
  }
  memmove(lines->text, text, left);
  lines->filled = left;
  return count;
}

void lines_copy(struct lines *lines, size_t index, FILE *to) {
  if (copy(lines, index, to) == 0)
    end(lines, index, to);
  fflush(to);
}

/* Not until its end: a process that has left the job's group may hold it open. */
void lines_close(struct lines *lines, size_t index, FILE *to) {
  int left;
  if (lines->fd < 0)
    return;
  if (ioctl(lines->fd, FIONREAD, &left) < 0)
    left = 0;
  for (ssize_t count = 1; left > 0 && count > 0; left -= (int)count)
    count = copy(lines, index, to);
  end(lines, index, to);
  fflush(to);
}

/* ---- the folder and the table ---- */

static int complain(const char *what, const char *path) {
  return command_error(CTL_REFUSED, "can't %s %s: %s", what, path, strerror(errno));
}

/* *path, from malloc. Name NULL: one with the time, and a number if others have begun in the same second. */
static int make_folder(const char *name, char **path) {
  char stamp[32] = "";
  time_t now = time(NULL);
  struct tm parts;
  if (!name && localtime_r(&now, &parts))
    strftime(stamp, sizeof stamp, "-%Y%m%d-%H%M%S", &parts);
  for (unsigned number = 1;; number++) {
    int length = name          ? asprintf(path, "%s", name)
                 : number == 1 ? asprintf(path, "gpushare-run%s", stamp)
                               : asprintf(path, "gpushare-run%s-%u", stamp, number);
    if (length < 0)
      return complain("make", "a folder");
    if (mkdir(*path, 0777) == 0 || (name && errno == EEXIST))
      return CTL_OK;
    int code = errno == EEXIST ? CTL_OK : complain("make the folder", *path);
    free(*path);
    if (code != CTL_OK)
      return code;
  }
}

static int make_table(struct results *results) {
  int fd = openat(results->folder, TABLE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0 && errno == EEXIST)
    return command_error(CTL_REFUSED, "there are results in %s: name another folder", results->path);
  results->table = fd < 0 ? NULL : fdopen(fd, "w");
  if (!results->table)
    return complain("write " TABLE " in", results->path);
  fprintf(results->table, "index\tresult\tseconds\ttries\tcommand\tgpus\n");
  return CTL_OK;
}

int results_open(struct results *results, const char *name) {
  *results = (struct results){.folder = -1};
  int code = make_folder(name, &results->path);
  if (code != CTL_OK) {
    results->path = NULL;
    return code;
  }
  results->folder = open(results->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  code = results->folder < 0 ? complain("open the folder", results->path) : make_table(results);
  if (code != CTL_OK)
    results_close(results);
  return code;
}

void results_add(struct results *results, size_t index, const struct ending *ending, const char *command) {
  char result[32] = "not started";
  if (!results->table)
    return;
  if (ending->tries > 0 && WIFSIGNALED(ending->status))
    snprintf(result, sizeof result, "signal %d", WTERMSIG(ending->status));
  else if (ending->tries > 0)
    snprintf(result, sizeof result, "%d", WEXITSTATUS(ending->status));
  fprintf(results->table, "%zu\t%s\t%.3f\t%u\t%s\t%s\n", index, result, (double)ending->took_ns / NS_PER_S,
          ending->tries, command, ending->gpus ? ending->gpus : "");
  fflush(results->table);
}

int results_open_stream(const struct results *results, size_t index, const char *stream, bool first) {
  char name[32];
  snprintf(name, sizeof name, "%zu.%s", index, stream);
  int fd =
      openat(results->folder, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (first ? O_TRUNC : 0), 0666);
  return fd < 0 ? -errno : fd;
}

int results_close(struct results *results) {
  int code = CTL_OK;
  if (results->table) {
    bool lost = ferror(results->table);
    if (fclose(results->table) != 0 || lost)
      code = complain("write " TABLE " in", results->path);
  }
  if (results->folder >= 0)
    close(results->folder);
  free(results->path);
  return code;
}

/* ---- on stderr ---- */

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

void progress_end(struct progress *progress, size_t index, const struct ending *ending, bool again) {
  int status = ending->status;
  double took_s = (double)ending->took_ns / NS_PER_S;
  progress->running--;
  progress->waiting += again;
  progress->failed += status != 0 && !again;
  progress->done += status == 0;
  if (status != 0) {
    fprintf(stderr, "%sgpusharectl: job %zu failed after %.1f s%s%s: ", clear(progress), index, took_s,
            ending->gpus ? " on " : "", ending->gpus ? ending->gpus : "");
    if (WIFSIGNALED(status))
      fprintf(stderr, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
      fprintf(stderr, "exit code %d", WEXITSTATUS(status));
    fprintf(stderr, "%s\n", again ? ", it is tried again" : "");
  } else if (!progress->live) {
    fprintf(stderr, "gpusharectl: job %zu done in %.1f s\n", index, took_s);
  }
  show(progress);
}

void progress_close(struct progress *progress, const char *folder) {
  fprintf(stderr, "%sgpusharectl: %zu done, %zu failed, %zu not started%s%s\n", clear(progress),
          progress->done, progress->failed, progress->waiting, folder ? "; their output is in " : "",
          folder ? folder : "");
}
