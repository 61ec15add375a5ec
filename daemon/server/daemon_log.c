/* daemon_log.c - see daemon_log.h. */
#include "server/daemon_log.h"

#include <errno.h>
#include <poll.h>
#include <pwd.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/gpu_number.h"
#include "common/log.h"
#include "common/parse.h"
#include "common/thread.h"
#include "server/events.h"
#include "shared/printable.h"

struct bucket {
  uid_t uid;
  enum log_level level;
  const char *kind; /* NULL: it has never been used; of the one that is shared: always */
  uint64_t full_ns; /* when it will be full again: each line puts that off */
  uint64_t left_out;
  uint64_t tell_ns; /* how many; if there are any */
};

static struct bucket buckets[LOG_FOR_BUCKETS], shared;
static uint64_t next_ns = UINT64_MAX; /* when the first of them is to be told of */

static struct bucket *find(uid_t uid, const char *kind, uint64_t now_ns) {
  struct bucket *unused = NULL;
  for (struct bucket *bucket = buckets; bucket < buckets + LOG_FOR_BUCKETS; bucket++) {
    if (bucket->uid == uid && bucket->kind == kind)
      return bucket;
    if (!unused && bucket->left_out == 0 && bucket->full_ns <= now_ns)
      unused = bucket; /* a full one is as good as none: nobody is let say more by losing it */
  }
  if (!unused)
    return &shared;
  *unused = (struct bucket){.uid = uid, .kind = kind};
  return unused;
}

void log_for(uid_t uid, enum log_level level, const char *format, ...) {
  if (level > log_level())
    return;
  uint64_t now_ns = clock_now_ns();
  struct bucket *bucket = find(uid, format, now_ns);
  if (bucket->full_ns > now_ns + (LOG_FOR_BURST - 1) * LOG_FOR_INTERVAL_NS) { /* it has no token */
    if (bucket->left_out++ == 0) {
      bucket->tell_ns = now_ns + LOG_FOR_TELL_NS;
      bucket->level = level;
      next_ns = bucket->tell_ns < next_ns ? bucket->tell_ns : next_ns;
    }
    bucket->level = level < bucket->level ? level : bucket->level;
    return;
  }
  bucket->full_ns = (bucket->full_ns > now_ns ? bucket->full_ns : now_ns) + LOG_FOR_INTERVAL_NS;
  va_list args;
  va_start(args, format);
  log_line_list(level, format, args);
  va_end(args);
}

/* ---- what is left out ---- */

/* "closing the connection of %s: %s" -> "closing the connection of ...: ..." */
static void describe_kind(const char *kind, char *text, size_t size) {
  size_t length = 0;
  for (const char *p = kind; *p && length + 4 < size; p++) {
    if (*p != '%') {
      text[length++] = *p;
      continue;
    }
    while (p[1] == 'l' || p[1] == 'z')
      p++;
    p++;
    for (int i = 0; i < 3; i++)
      text[length++] = '.';
  }
  text[length] = '\0';
}

static void tell(struct bucket *bucket) {
  const char *name = user_names_find(bucket->uid);
  char kind[256];
  if (bucket == &shared) {
    log_line(bucket->level, "%lu lines that other users have caused are left out", bucket->left_out);
  } else {
    describe_kind(bucket->kind, kind, sizeof kind);
    log_line(bucket->level, "%lu more lines like this, caused by %s (uid %d), are left out: %s",
             bucket->left_out, name ? name : "a user", (int)bucket->uid, kind);
  }
  bucket->left_out = 0;
}

uint64_t log_for_deadline_ns(void) { return next_ns; }

void log_for_on_time(uint64_t now_ns) {
  if (now_ns < next_ns)
    return;
  next_ns = UINT64_MAX;
  for (unsigned i = 0; i <= LOG_FOR_BUCKETS; i++) {
    struct bucket *bucket = i < LOG_FOR_BUCKETS ? &buckets[i] : &shared;
    if (bucket->left_out && bucket->tell_ns <= now_ns)
      tell(bucket);
    else if (bucket->left_out && bucket->tell_ns < next_ns)
      next_ns = bucket->tell_ns;
  }
}

void log_for_end(void) { log_for_on_time(UINT64_MAX); }

/* ---- names ---- */

#define UUID_DIGITS 12 /* with its prefix: as many as tell the GPUs of a machine apart */

struct log_text label_process(uid_t uid, pid_t pid, const char *process) {
  struct log_text label;
  const char *name = user_names_find(uid), *gap = *process ? ", " : "";
  if (name)
    snprintf(label.text, sizeof label.text, "%s (uid %u, pid %d%s%s)", name, uid, pid, gap, process);
  else
    snprintf(label.text, sizeof label.text, "uid %u (pid %d%s%s)", uid, pid, gap, process);
  return label;
}

struct log_text label_peer(const struct peer *peer) {
  return label_process(peer->uid, peer->pid, peer->name);
}

struct log_text label_job(const struct peer *client) {
  struct log_text label;
  const char *name = user_names_find(client->uid);
  char number[16];
  snprintf(number, sizeof number, "uid %u", client->uid);
  snprintf(label.text, sizeof label.text, "job %u (pid %d, %s, of %s)", client->job_id, client->pid,
           client->name, name ? name : number);
  return label;
}

struct log_text label_gpu(const struct sched_gpu *gpu) {
  struct log_text label = {"all GPUs"};
  char uuid[GS_UUID_TEXT_SIZE];
  if (!gpu)
    return label;
  const struct card *card = cards_find(&daemon_of(gpu->scheduler)->cards, gpu->uuid);
  const char *colon = card ? strchr(card->bus, ':') : NULL;
  format_uuid(gpu->uuid, uuid);
  /* NVML writes eight digits of the domain, others four. */
  const char *place = colon && colon - card->bus == 8 && strncmp(card->bus, "0000", 4) == 0 ? card->bus + 4
                      : colon                                                               ? card->bus
                                                                                            : uuid;
  snprintf(label.text, sizeof label.text, "GPU %s (%s, %.*s)", GPU_NUMBER_TEXT(gpu_of(gpu)->number),
           gpu->name, colon ? CARD_BUS_SIZE : UUID_DIGITS, place);
  return label;
}

/* ---- names of users ---- */

#define NAMES_MAX 4096 /* the first ones of a longer file: nobody waits for the rest */

struct user_name {
  uid_t uid;
  size_t at;     /* in the file */
  char name[33]; /* as long as useradd lets it be */
};

static struct user_names known;

static bool add(struct user_names *names, const struct passwd *user) {
  if (names->count % 64 == 0) {
    struct user_name *more = realloc(names->entries, (names->count + 64) * sizeof *more);
    if (!more)
      return false;
    names->entries = more;
  }
  struct user_name *entry = &names->entries[names->count];
  entry->at = names->count++;
  entry->uid = user->pw_uid;
  printable_copy(entry->name, user->pw_name, sizeof entry->name);
  return true;
}

/* Of several names for a number, the first in the file is what others show, too: it comes first. */
static int compare_names(const void *a, const void *b) {
  const struct user_name *x = a, *y = b;
  return x->uid != y->uid ? (x->uid > y->uid) - (x->uid < y->uid) : (x->at > y->at) - (x->at < y->at);
}

struct user_names user_names_read(const char *path) {
  struct user_names names = {.count = 0};
  const struct passwd *user;
  FILE *file = fopen(path, "re");
  while (file && names.count < NAMES_MAX && (user = fgetpwent(file)) && add(&names, user))
    ;
  if (file)
    fclose(file);
  if (names.count > 0)
    qsort(names.entries, names.count, sizeof *names.entries, compare_names);
  return names;
}

void user_names_free(struct user_names *names) {
  free(names->entries);
  *names = (struct user_names){.count = 0};
}

void user_names_use(const struct user_names *names) {
  user_names_free(&known);
  known = *names;
}

const char *user_names_find(uid_t uid) {
  size_t first = 0, end = known.count; /* it is in between, if it is there */
  while (first < end) {
    size_t middle = first + (end - first) / 2;
    if (known.entries[middle].uid < uid)
      first = middle + 1;
    else
      end = middle;
  }
  return first < known.count && known.entries[first].uid == uid ? known.entries[first].name : NULL;
}

/*
 * ---- the ring ----
 */

struct slot {
  size_t length;
  unsigned lines; /* that are lost with it */
  char text[LOG_LINE_SIZE];
};

static struct {
  struct slot slots[LOG_RING_LINES];
  unsigned put;   /* of the event loop: lines so far */
  unsigned taken; /* of the writer */
  sem_t empty;    /* slots: the writer posts each that it has written */
  sem_t filled;   /* and the event loop each that it has filled */
  pid_t owner;    /* a child that is forked has no writer */
} ring;

/* Another process may have made stderr non-blocking for all who share it. */
static void write_line(const struct slot *slot) {
  for (size_t written = 0; written < slot->length;) {
    ssize_t n = write(STDERR_FILENO, slot->text + written, slot->length - written);
    if (n > 0) {
      written += (size_t)n;
    } else if (n < 0 && errno == EAGAIN) {
      poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, -1);
    } else if (n == 0 || errno != EINTR) {
      log_note_lost(slot->lines);
      return;
    }
  }
}

static void *write_lines(void *unused) {
  (void)unused;
  thread_begin("log");
  for (;;) {
    if (sem_wait(&ring.filled) < 0)
      continue;
    write_line(&ring.slots[ring.taken++ % LOG_RING_LINES]);
    sem_post(&ring.empty);
  }
  return NULL;
}

static bool take_line(const char *text, size_t length, unsigned lines) {
  if (getpid() != ring.owner)
    return write(STDERR_FILENO, text, length) > 0;
  if (sem_trywait(&ring.empty) < 0)
    return false;
  struct slot *slot = &ring.slots[ring.put++ % LOG_RING_LINES];
  memcpy(slot->text, text, length);
  slot->length = length;
  slot->lines = lines;
  sem_post(&ring.filled);
  return true;
}

void log_ring_start(void) {
  sem_init(&ring.empty, 0, LOG_RING_LINES); /* also where no thread takes lines from them: all are empty */
  sem_init(&ring.filled, 0, 0);
  ring.owner = getpid();
  int err = thread_start(NULL, write_lines, NULL);
  if (err == 0)
    log_to(take_line);
  else
    log_warn("no thread for the log (%s): who stops reading it stops the daemon", strerror(-err));
}

bool log_ring_flush(uint64_t end_ns) {
  if (!ring.owner)
    return true; /* it has never been started */
  struct timespec end = clock_timespec(end_ns);
  unsigned empty = 0;
  while (empty < LOG_RING_LINES) {
    if (sem_clockwait(&ring.empty, CLOCK_MONOTONIC, &end) == 0)
      empty++;
    else if (errno != EINTR)
      break;
  }
  for (unsigned i = 0; i < empty; i++)
    sem_post(&ring.empty);
  return empty == LOG_RING_LINES;
}

void log_ring_end(uint64_t end_ns) {
  if (!log_ring_flush(end_ns))
    return;
  if (log_has_lost())
    log_info("the log ends");
  if (log_ring_flush(end_ns))
    log_to(NULL);
}
