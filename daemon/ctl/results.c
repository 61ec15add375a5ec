/* results.c - a folder for the output of many jobs, and the table of their ends. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "ctl/ctl.h"
#include "ctl/sweep.h"

#define TABLE "results.tsv"

static int complain(const char *what, const char *path) {
  fprintf(stderr, "gpusharectl: can't %s %s: %s\n", what, path, strerror(errno));
  return CTL_REFUSED;
}

/* ---- the folder ---- */

/* A name with the time, and a number if others have begun in the same second. NULL without memory. */
static char *new_name(unsigned number) {
  char stamp[32] = "", *name;
  time_t now = time(NULL);
  struct tm parts;
  if (localtime_r(&now, &parts))
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &parts);
  int length = number == 1 ? asprintf(&name, "gpushare-run-%s", stamp)
                           : asprintf(&name, "gpushare-run-%s-%u", stamp, number);
  return length < 0 ? NULL : name;
}

static int make_new_folder(char **path) {
  for (unsigned number = 1;; number++) {
    char *name = new_name(number);
    if (!name)
      return complain("make", "a folder");
    if (mkdir(name, 0777) == 0) {
      *path = name;
      return CTL_OK;
    }
    int code = errno == EEXIST ? CTL_OK : complain("make the folder", name);
    free(name);
    if (code != CTL_OK)
      return code;
  }
}

static int make_folder(const char *name, char **path) {
  if (!name)
    return make_new_folder(path);
  if (mkdir(name, 0777) < 0 && errno != EEXIST)
    return complain("make the folder", name);
  *path = strdup(name);
  return *path ? CTL_OK : complain("make the folder", name);
}

/* ---- the table ---- */

static int make_table(struct results *results) {
  int fd = openat(results->folder, TABLE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0 && errno == EEXIST) {
    fprintf(stderr, "gpusharectl: there are results in %s: name another folder\n", results->path);
    return CTL_REFUSED;
  }
  results->table = fd < 0 ? NULL : fdopen(fd, "w");
  if (!results->table)
    return complain("write " TABLE " in", results->path);
  fprintf(results->table, "index\tresult\tseconds\ttries\tcommand\tgpus\n");
  return CTL_OK;
}

int results_open(struct results *results, const char *name) {
  *results = (struct results){.folder = -1};
  int code = make_folder(name, &results->path);
  if (code != CTL_OK)
    return code;
  results->folder = open(results->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  code = results->folder < 0 ? complain("open the folder", results->path) : make_table(results);
  if (code != CTL_OK)
    results_close(results);
  return code;
}

static void format_result(const struct ending *ending, char text[32]) {
  if (ending->tries == 0)
    strcpy(text, "not started");
  else if (WIFSIGNALED(ending->status))
    snprintf(text, 32, "signal %d", WTERMSIG(ending->status));
  else
    snprintf(text, 32, "%d", WEXITSTATUS(ending->status));
}

void results_add(struct results *results, size_t index, const struct ending *ending, const char *command) {
  char result[32];
  if (!results->table)
    return;
  format_result(ending, result);
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
