/* card_query.c - see card_query.h. */
#include "server/card_query.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "common/parse.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

/* ---- in the helper ---- */

/* An open copy of a connection would keep it alive after the daemon has ended it. */
static void close_all(void) {
  if (syscall(SYS_close_range, 0u, ~0u, 0u) == 0)
    return;
  struct rlimit limit = {0}; /* a kernel before 5.9, or a sandbox */
  DIR *folder = opendir("/proc/self/fd");
  for (const struct dirent *entry; folder && (entry = readdir(folder));)
    if (*entry->d_name != '.' && atoi(entry->d_name) != dirfd(folder))
      close(atoi(entry->d_name));
  if (folder)
    closedir(folder);
  else if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
    for (rlim_t fd = 0; fd < limit.rlim_cur; fd++)
      close((int)fd);
}

static void leave_daemon(pid_t daemon) {
  struct rlimit no_core = {0};
  sigset_t none;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != daemon)
    _exit(1);
  close_all();
  for (int fd = 0; fd <= 2; fd++) /* what the library prints is nobody's log */
    (void)!open("/dev/null", O_RDWR);
  setrlimit(RLIMIT_CORE, &no_core);
  signal(SIGPIPE, SIG_DFL);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

static struct card *add_card(struct cards *cards, void *device, uint32_t number, const struct card *whole) {
  char text[NVML_TEXT_SIZE] = "";
  if (cards->count == CARDS_MAX)
    return NULL;
  struct card *card = &cards->list[cards->count];
  *card = (struct card){.number = number, .minor = CARD_MINOR_UNKNOWN};
  if (nvml_uuid(device, text) != 0 || parse_uuid(text, card->uuid) != 0)
    return NULL; /* it does not answer: programs can't use it either */
  if (nvml_usable_memory(device, &card->total_bytes) != 0)
    card->total_bytes = 0;
  if (nvml_name(device, text) == 0)
    snprintf(card->name, sizeof card->name, "%.31s", text);
  else if (whole)
    memcpy(card->name, whole->name, sizeof card->name);
  if (whole) {
    card->minor = whole->minor;
    memcpy(card->bus, whole->bus, sizeof card->bus);
  } else {
    unsigned minor;
    if (nvml_minor(device, &minor) == 0)
      card->minor = minor;
    if (nvml_bus_id(device, text) == 0)
      snprintf(card->bus, sizeof card->bus, "%.31s", text);
  }
  cards->count++;
  return card;
}

static void add_parts(struct cards *cards, void *device, struct card *whole) {
  unsigned limit = nvml_part_limit(device);
  for (unsigned i = 0; i < limit && i < GS_GPU_PART_MAX; i++) {
    void *part = nvml_part(device, i);
    if (part)
      add_card(cards, part, GS_GPU_NUMBER(GS_GPU_CARD(whole->number), i + 1), whole);
  }
}

/* Its exit status. */
static int answer_all(struct card_answer *answer, const char *library) {
  struct cards *cards = &answer->cards;
  if (nvml_open(library, answer->why) < 0)
    return 1;
  unsigned count = nvml_count();
  for (unsigned i = 0; i < count && i <= GS_GPU_CARD_MAX && cards->count < CARDS_MAX; i++) {
    void *device = nvml_device(i);
    struct card *card = device ? add_card(cards, device, i, NULL) : NULL;
    if (card && nvml_is_split(device)) {
      card->split = true;
      add_parts(cards, device, card);
    }
  }
  snprintf(answer->why, sizeof answer->why, "NVML knows no GPU");
  return cards->count == 0;
}

/* ---- in the daemon ---- */

int card_query_begin(struct card_query *query, uint64_t now_ns) {
  if (!query->library)
    return -ENOENT;
  query->again = query->pid;
  if (query->pid)
    return 0;
  query->asked = true;
  query->asked_ns = now_ns;
  if (!query->answer) {
    void *shared =
        mmap(NULL, sizeof *query->answer, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
      return -errno;
    query->answer = shared;
  }
  memset(query->answer, 0, sizeof *query->answer);
  pid_t daemon = getpid(), pid = fork();
  if (pid < 0)
    return -errno;
  if (pid == 0) {
    leave_daemon(daemon);
    _exit(answer_all(query->answer, query->library));
  }
  query->pid = pid;
  query->killed = false;
  return 0;
}

/* 1, or -errno and why. The helper is no more: nobody changes the answer while it is checked. */
static int take_answer(struct card_query *query, int status, struct cards *cards, char why[NVML_WHY_SIZE]) {
  if (WIFSIGNALED(status)) {
    snprintf(why, NVML_WHY_SIZE,
             query->killed ? "it did not answer, and was ended" : "it crashed (signal %d)", WTERMSIG(status));
    return query->killed ? -ETIMEDOUT : -EFAULT;
  }
  query->answer->why[NVML_WHY_SIZE - 1] = '\0';
  if (WEXITSTATUS(status) != 0) {
    memcpy(why, query->answer->why, NVML_WHY_SIZE);
    if (!*why)
      snprintf(why, NVML_WHY_SIZE, "it ended without an answer (exit status %d)", WEXITSTATUS(status));
    return -ENODEV;
  }
  const char *wrong = cards_settle(&query->answer->cards);
  if (wrong || query->answer->cards.count == 0) {
    snprintf(why, NVML_WHY_SIZE, "its answer makes no sense: %s", wrong ? wrong : "no cards");
    return -EPROTO;
  }
  *cards = query->answer->cards;
  cards->source = CARDS_NVML;
  cards->partial = false; /* what does not answer programs can't use either */
  return 1;
}

int card_query_on_child(struct card_query *query, struct cards *cards, char why[NVML_WHY_SIZE]) {
  int status;
  if (query->pid == 0 || waitpid(query->pid, &status, WNOHANG) != query->pid)
    return 0;
  query->pid = 0;
  return take_answer(query, status, cards, why);
}

uint64_t card_query_deadline_ns(const struct card_query *query) {
  return query->pid && !query->killed ? query->asked_ns + query->patience_ns : UINT64_MAX;
}

void card_query_on_time(struct card_query *query, uint64_t now_ns) {
  if (now_ns < card_query_deadline_ns(query))
    return;
  kill(query->pid, SIGKILL);
  query->killed = true;
}

void card_query_end(struct card_query *query) {
  if (query->pid)
    kill(query->pid, SIGKILL);
  if (query->answer)
    munmap(query->answer, sizeof *query->answer);
  *query = (struct card_query){.library = NULL};
}
