/* state.c - see state.h. */
#include "server/state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/text_file.h"
#include "common/thread.h"
#include "server/process.h"

#define FILE_NAME "state"
#define NEW_NAME "state.new"
#define LOCK_NAME "lock"
#define FILE_MOST                                                                                            \
  (UINT64_C(64) << 20) /* nobody needs more: 8192 runs, 65536 jobs and as many accounts are 30 MiB */
#define PENDING_MOST (UINT64_C(1) << 20)      /* lines that wait for room on the disk */
#define OUT_OF_DATE_LEAST (UINT64_C(1) << 20) /* less is not worth to be written anew */
#define RETRY_NS NS_PER_S
#define RETRY_ANEW_NS (60 * NS_PER_S)
#define LOCK_NS (2 * NS_PER_S)
#define LOCK_RETRY_NS (20 * NS_PER_MS)
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

/* Lines, one after the other. */
struct lines {
  char *text;
  size_t bytes, room;
};

struct state {
  char *folder;
  int folder_fd, lock_fd;
  char boot[64];
  /* the loop's */
  uint64_t due_ns; /* when lines are to be written, or it is to be looked what the threads have done */
  bool failing, lost;
  bool restores;          /* what was lost is added again */
  uint64_t heard;         /* of `tried` */
  bool unsettled;         /* the threads have been asked for something, and it is not known what came of it */
  uint64_t retry_anew_ns; /* when a file that may not grow is written anew again */
  /* under the mutex, which nobody holds while the disk is waited for */
  pthread_mutex_t mutex;
  pthread_cond_t wanted; /* something, of one of the threads */
  struct lines pending;  /* the writer is yet to take these; */
  struct lines taken;    /* the writer's, which it alone touches; */
  size_t left_bytes;     /* and these of them it could not write */
  uint64_t added, tried; /* bytes of lines so far; of these, that have been written, or could not be */
  int write_err;         /* of the last that it has tried */
  bool wants_write, writes;
  bool lasting;  /* what is to be written next gets to the disk */
  bool unsynced; /* some has been written that need not */
  bool wants_sync, wants_anew, works, ends;
  int keep_err; /* of what the keeper has tried last */
  pthread_t writer, keeper;
  bool has_writer, has_keeper;
  int event_fd; /* the writer has tried some */
  /* under the mutex of the file, which both threads hold while the disk is waited for */
  pthread_mutex_t file_mutex;
  int fd;                     /* of the file. The keeper alone changes it */
  uint64_t bytes, anew_bytes; /* of the file: now, and when it was written anew */
};

/* ---- files ---- */

/* No call is interrupted: the daemon has no handlers of signals. */

/* 0 or -errno; of `bytes` those that have been written are told. */
static int write_all(int fd, const char *data, size_t bytes, size_t *written) {
  *written = 0;
  while (*written < bytes) {
    ssize_t n = write(fd, data + *written, bytes - *written);
    if (n <= 0)
      return n < 0 ? -errno : -EIO;
    *written += (size_t)n;
  }
  return 0;
}

/* Its bytes from there on, from malloc; fewer if it is shorter. NULL: errno says why. */
static char *read_bytes(int fd, uint64_t from, size_t bytes, size_t *got) {
  char *data = malloc(bytes + 1);
  ssize_t n = 1;
  for (*got = 0; data && *got < bytes && n > 0; *got += n > 0 ? (size_t)n : 0)
    n = pread(fd, data + *got, bytes - *got, (off_t)(from + *got));
  if (n >= 0)
    return data;
  int err = errno;
  free(data);
  errno = err;
  return NULL;
}

/* ---- written anew, by the keeper ---- */

struct anew {
  struct kept_output output; /* first: kept_write's */
  int fd;
  size_t used;
  uint64_t bytes;
  char buffer[1 << 16];
};

static bool is_there(const struct kept_process *process) {
  return process_start_ticks(process->pid) == process->start;
}

static int empty_buffer(struct anew *anew) {
  size_t written;
  int err = write_all(anew->fd, anew->buffer, anew->used, &written);
  anew->bytes += written;
  anew->used = 0;
  return err;
}

static int put_line(struct kept_output *output, const char *line, size_t length) {
  struct anew *anew = (struct anew *)(void *)output;
  int err = anew->used + length > sizeof anew->buffer ? empty_buffer(anew) : 0;
  memcpy(anew->buffer + anew->used, line, length);
  anew->used += length;
  return err;
}

/* What the lines so far come to, as a new file on the disk. Its descriptor, or -errno; of the old one
 * `covered` bytes are in it. */
static int write_anew(struct state *state, uint64_t size, uint64_t *covered, uint64_t *written) {
  size_t got;
  char *text = read_bytes(state->fd, 0, size, &got);
  struct kept *kept = malloc(sizeof *kept);
  struct anew *anew = malloc(sizeof *anew);
  int err = -ENOMEM, fd = -1;
  if (text && kept && anew) {
    const char *end = memrchr(text, '\n', got);
    *covered = end ? (uint64_t)(end - text) + 1 : 0;
    kept_init(kept);
    err = kept_read(kept, text, *covered, state->boot);
    unlinkat(state->folder_fd, NEW_NAME, 0);
    fd = openat(state->folder_fd, NEW_NAME, O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    err = fd < 0 ? -errno : err;
    *anew = (struct anew){.output = {.put = put_line, .there = is_there}, .fd = fd};
    if (err == 0)
      err = kept_write(kept, state->boot, &anew->output);
    if (err == 0)
      err = empty_buffer(anew);
    if (err == 0 && fsync(fd) < 0)
      err = -errno;
    *written = anew->bytes;
    kept_end(kept);
  }
  free(anew);
  free(kept);
  free(text);
  if (err == 0)
    return fd;
  if (fd >= 0)
    close(fd);
  return err;
}

/* What has been added up to there goes behind it. */
static int catch_up(const struct state *state, int fd, uint64_t until, uint64_t *covered, uint64_t *written) {
  size_t got = 0, added = 0;
  char *tail = read_bytes(state->fd, *covered, until - *covered, &got);
  int err = tail ? write_all(fd, tail, got, &added) : -ENOMEM;
  free(tail);
  *covered += added;
  *written += added;
  return err;
}

/* And it takes the file's place. With the mutex of the file held. */
static int put_in_place(struct state *state, int fd, uint64_t covered, uint64_t written) {
  uint64_t anew_bytes = written;
  int err = catch_up(state, fd, state->bytes, &covered, &written);
  if (err == 0 && renameat(state->folder_fd, NEW_NAME, state->folder_fd, FILE_NAME) < 0)
    err = -errno;
  if (err < 0)
    return err;
  close(state->fd);
  state->fd = fd;
  state->bytes = written;
  state->anew_bytes = anew_bytes;
  return 0;
}

#define CATCH_UPS 3 /* the last one is short: what has come during the one before */

/* With the mutex of the file held, but for the long part: lines are written meanwhile. */
static int make_anew(struct state *state) {
  pthread_mutex_lock(&state->file_mutex);
  uint64_t size = state->bytes, covered = 0, written = 0;
  pthread_mutex_unlock(&state->file_mutex);
  int fd = write_anew(state, size, &covered, &written), err = fd < 0 ? fd : 0;
  pthread_mutex_lock(&state->file_mutex);
  for (int i = 0; err == 0 && i < CATCH_UPS; i++) {
    uint64_t until = state->bytes;
    pthread_mutex_unlock(&state->file_mutex);
    err = catch_up(state, fd, until, &covered, &written);
    if (err == 0 && fdatasync(fd) < 0)
      err = -errno;
    pthread_mutex_lock(&state->file_mutex);
  }
  if (err == 0)
    err = put_in_place(state, fd, covered, written);
  if (err < 0) {
    unlinkat(state->folder_fd, NEW_NAME, 0);
    if (fd >= 0)
      close(fd);
    state->anew_bytes = size; /* not before it has grown as much again */
  }
  pthread_mutex_unlock(&state->file_mutex);
  return err;
}

static void *keep(void *argument) {
  struct state *state = argument;
  thread_begin("state");
  pthread_mutex_lock(&state->mutex);
  while (!state->ends || state->wants_anew || state->wants_sync || state->wants_write || state->writes) {
    bool anew = state->wants_anew, sync = state->wants_sync;
    if (!anew && !sync) {
      pthread_cond_wait(&state->wanted, &state->mutex);
      continue;
    }
    state->works = true;
    state->wants_anew = anew ? false : state->wants_anew;
    state->wants_sync = anew ? state->wants_sync : false;
    pthread_mutex_unlock(&state->mutex);
    int err = anew ? make_anew(state) : fdatasync(state->fd) < 0 || fsync(state->folder_fd) < 0 ? -errno : 0;
    pthread_mutex_lock(&state->mutex);
    state->wants_sync |= anew && err == 0;
    state->keep_err = err;
    state->works = false;
  }
  pthread_mutex_unlock(&state->mutex);
  return NULL;
}

/* ---- written, by the writer ---- */

/* Those that are left stay. True: much of the file is out of date. */
static bool write_lines(struct state *state, struct lines *lines, int *err) {
  size_t written = 0;
  pthread_mutex_lock(&state->file_mutex);
  *err = state->bytes + lines->bytes <= FILE_MOST ? write_all(state->fd, lines->text, lines->bytes, &written)
                                                  : -EFBIG;
  state->bytes += written;
  bool long_enough = state->bytes > 2 * state->anew_bytes + OUT_OF_DATE_LEAST;
  pthread_mutex_unlock(&state->file_mutex);
  lines->bytes -= written;
  if (lines->bytes)
    memmove(lines->text, lines->text + written, lines->bytes);
  return long_enough;
}

/* With the mutex held, but while it writes. */
static void write_pending(struct state *state) {
  struct lines *lines = &state->taken;
  uint64_t tried = state->added;
  int err = 0;
  bool anew = false, sync = state->lasting;
  state->wants_write = state->lasting = false;
  state->writes = true;
  for (int i = 0; i < 2 && err == 0; i++) { /* what was left before, and what has come since */
    if (lines->bytes == 0) {
      struct lines taken = state->pending;
      state->pending = *lines;
      *lines = taken;
    }
    pthread_mutex_unlock(&state->mutex);
    anew |= write_lines(state, lines, &err);
    pthread_mutex_lock(&state->mutex);
  }
  state->left_bytes = lines->bytes;
  state->tried = tried;
  state->write_err = err;
  state->wants_anew |= anew;
  state->wants_sync |= sync;
  state->unsynced = !sync;
  state->writes = false;
  pthread_cond_broadcast(&state->wanted);
  eventfd_write(state->event_fd, 1);
}

static void *write_all_pending(void *argument) {
  struct state *state = argument;
  thread_begin("write");
  pthread_mutex_lock(&state->mutex);
  while (!state->ends || state->wants_write)
    if (state->wants_write)
      write_pending(state);
    else
      pthread_cond_wait(&state->wanted, &state->mutex);
  pthread_mutex_unlock(&state->mutex);
  return NULL;
}

/* With the mutex held. Without a thread it is tried again the next time. Until then lines are written here:
 * the loop may wait for the disk, but nothing is lost. */
static void want(struct state *state) {
  if (!state->has_writer)
    state->has_writer = thread_start(&state->writer, write_all_pending, state) == 0;
  if (!state->has_keeper)
    state->has_keeper = thread_start(&state->keeper, keep, state) == 0;
  if (!state->has_writer && state->wants_write)
    write_pending(state);
  pthread_cond_broadcast(&state->wanted);
}

/* ---- what the loop asks for ---- */

/* Once, until it is otherwise. */
static void tell(struct state *state, int err) {
  if (err < 0 && !state->failing)
    log_warn("what is set can't be kept in %s: %s: it is tried again, and lost if the daemon ends before",
             state->folder, strerror(-err));
  else if (err == 0 && state->failing)
    log_info("what is set is kept in %s again", state->folder);
  state->failing = err < 0;
}

/* With the mutex held. */
static bool provide_room(struct lines *lines, size_t bytes, size_t most) {
  if (lines->bytes + bytes <= lines->room)
    return lines->bytes + bytes <= most;
  size_t room = lines->room ? 2 * lines->room : 4096;
  char *more = room <= most ? realloc(lines->text, room) : NULL;
  if (!more)
    return false;
  lines->text = more;
  lines->room = room;
  return true;
}

void state_add(struct state *state, const char *line, size_t length, uint64_t now_ns) {
  if (!state)
    return;
  size_t most = state->restores ? FILE_MOST : PENDING_MOST; /* or what was lost would be lost for ever */
  pthread_mutex_lock(&state->mutex);
  bool fits = provide_room(&state->pending, length, most), first = state->pending.bytes == 0;
  if (fits) {
    memcpy(state->pending.text + state->pending.bytes, line, length);
    state->pending.bytes += length;
    state->added += length;
  }
  pthread_mutex_unlock(&state->mutex);
  if (fits && first && !state->failing)
    state->due_ns = now_ns + STATE_SOON_NS;
  state->unsettled |= fits;
  if (!fits && !state->lost)
    log_warn(
        "%s: too much waits to be kept: runs that end now are lost, and if the daemon ends so are settings",
        state->folder);
  state->lost |= !fits;
}

/* The writer may have taken lines before they were said to be lasting: then it makes one more round, or the
 * keeper syncs what has been written.
 * What the threads could not do, they are asked for again: a sync does for a file that could not be written
 * anew, as the old one has all that the new one would have. */
void state_write(struct state *state, bool lasting, uint64_t now_ns) {
  if (!state || !state->unsettled)
    return;
  pthread_mutex_lock(&state->mutex);
  bool some = state->pending.bytes > 0 || state->left_bytes > 0 || state->writes;
  int err = state->write_err < 0 ? state->write_err : state->keep_err;
  state->wants_write |= some;
  state->lasting |= some && (lasting || state->failing);
  state->wants_sync |= !some && ((lasting && state->unsynced) || state->failing || state->keep_err < 0);
  state->unsynced &= !state->wants_sync;
  if (state->write_err == -EFBIG && now_ns >= state->retry_anew_ns) {
    state->wants_anew = true;
    state->retry_anew_ns = now_ns + RETRY_ANEW_NS;
  }
  state->unsettled =
      state->wants_write || state->writes || state->wants_sync || state->wants_anew || state->works;
  if (state->unsettled)
    want(state);
  pthread_mutex_unlock(&state->mutex);
  state->due_ns = now_ns + RETRY_NS;
  tell(state, err);
}

bool state_take_loss(struct state *state) {
  if (!state || !state->lost)
    return false;
  pthread_mutex_lock(&state->mutex);
  state->lost = state->pending.bytes > 0 || state->left_bytes > 0 || state->writes;
  pthread_mutex_unlock(&state->mutex);
  state->restores = !state->lost;
  return !state->lost;
}

void state_end_loss(struct state *state) { state->restores = false; }

/* Without an event it would never be heard. */
bool state_waits(const struct state *state) {
  return state && state->event_fd >= 0 && state->heard != state->added;
}

uint64_t state_added(const struct state *state) { return state->added; }

int state_fd(const struct state *state) { return state ? state->event_fd : -1; }

uint64_t state_hear(struct state *state) {
  eventfd_t times;
  eventfd_read(state->event_fd, &times);
  pthread_mutex_lock(&state->mutex);
  state->heard = state->tried;
  int err = state->write_err < 0 ? state->write_err : state->keep_err;
  pthread_mutex_unlock(&state->mutex);
  tell(state, err);
  return state->heard;
}

bool state_await(struct state *state, uint64_t until_ns) {
  struct timespec until = clock_timespec(until_ns);
  int err = 0;
  if (!state)
    return true;
  pthread_mutex_lock(&state->mutex);
  while (err == 0 && (state->wants_write || state->writes))
    err = pthread_cond_clockwait(&state->wanted, &state->mutex, CLOCK_MONOTONIC, &until);
  pthread_mutex_unlock(&state->mutex);
  return err == 0;
}

uint64_t state_deadline_ns(const struct state *state) {
  return state && (state->lost || state->unsettled) ? state->due_ns : UINT64_MAX;
}

void state_on_time(struct state *state, uint64_t now_ns) {
  if (now_ns >= state_deadline_ns(state))
    state_write(state, true, now_ns);
}

/* ---- it begins, and ends ---- */

static void release(struct state *state) {
  int fds[] = {state->fd, state->lock_fd, state->folder_fd, state->event_fd};
  for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
    if (fds[i] >= 0)
      close(fds[i]);
  pthread_mutex_destroy(&state->mutex);
  pthread_mutex_destroy(&state->file_mutex);
  pthread_cond_destroy(&state->wanted);
  free(state->pending.text);
  free(state->taken.text);
  free(state->folder);
  free(state);
}

void state_close(struct state *state) {
  if (!state)
    return;
  state_write(state, true, clock_now_ns());
  pthread_mutex_lock(&state->mutex);
  state->ends = true;
  pthread_cond_broadcast(&state->wanted);
  pthread_mutex_unlock(&state->mutex);
  if (state->has_writer)
    pthread_join(state->writer, NULL);
  if (state->has_keeper)
    pthread_join(state->keeper, NULL);
  else
    fdatasync(state->fd);
  release(state);
}

/* NULL, or what is wrong with the folder. */
static const char *enter_folder(struct state *state) {
  struct stat status;
  if (mkdir(state->folder, 0700) < 0 && errno != EEXIST && errno != EROFS)
    return strerror(errno);
  state->folder_fd = open(state->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (state->folder_fd < 0 || fstat(state->folder_fd, &status) < 0)
    return strerror(errno);
  if (status.st_uid != geteuid() && status.st_uid != 0)
    return "it is another user's";
  return status.st_mode & 022 ? "others may write there" : NULL;
}

/* Waits for the end of this process, but not beyond that time. False: it is there still. */
static bool await_end(pid_t pid, uint64_t end_ns) {
  uint64_t now_ns = clock_now_ns();
  int pidfd = process_open_since(pid, process_start_ticks(pid));
  struct pollfd ended = {.fd = pidfd, .events = POLLIN};
  if (pidfd < 0) { /* it has ended, or can't be seen from here: only the lock tells */
    clock_sleep(LOCK_RETRY_NS);
    return now_ns < end_ns;
  }
  bool seen = now_ns < end_ns && poll(&ended, 1, (int)((end_ns - now_ns) / NS_PER_MS) + 1) > 0;
  close(pidfd);
  return seen;
}

/* The lock is the process's: children don't have it, and it ends with the daemon. One that is about to end is
 * waited for. -EBUSY: another daemon stays there. */
static int lock_folder(struct state *state) {
  const struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  uint64_t end_ns = clock_now_ns() + LOCK_NS;
  state->lock_fd =
      openat(state->folder_fd, LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  if (state->lock_fd < 0)
    return -errno;
  while (fcntl(state->lock_fd, F_SETLK, &lock) < 0) {
    struct flock other = lock;
    if ((errno != EACCES && errno != EAGAIN) || fcntl(state->lock_fd, F_GETLK, &other) < 0)
      return -errno;
    if (other.l_type != F_UNLCK && !await_end(other.l_pid, end_ns))
      return -EBUSY;
  }
  return 0;
}

static void name_aside(char name[64]) {
  snprintf(name, 64, FILE_NAME ".aside-%llu", (unsigned long long)(clock_realtime_ns() / NS_PER_S));
}

/* It is not lost: somebody may look at it. */
static void put_aside(const struct state *state, const char *why) {
  char name[64];
  name_aside(name);
  renameat(state->folder_fd, FILE_NAME, state->folder_fd, name);
  log_warn("%s/" FILE_NAME " can't be used, and is %s now: %s", state->folder, name, why);
}

static const char *file_wrong(const struct stat *status) {
  if (!S_ISREG(status->st_mode))
    return "it is no file";
  if (status->st_uid != geteuid() && status->st_uid != 0)
    return "it is another user's";
  return (uint64_t)status->st_size > FILE_MOST ? "it is too large" : NULL;
}

/* Its descriptor; -errno. What is wrong there is put aside. */
static int open_file(struct state *state, struct stat *status) {
  int flags = O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  for (int tries = 2; tries > 0; tries--) {
    int fd = openat(state->folder_fd, FILE_NAME, flags, 0600), err = fd < 0 ? -errno : 0;
    if (fd >= 0 && fstat(fd, status) < 0)
      err = -errno;
    const char *wrong = err == 0 ? file_wrong(status) : NULL;
    if (err == 0 && !wrong)
      return fd;
    if (fd >= 0)
      close(fd);
    if (err < 0 && err != -ELOOP && err != -EISDIR && err != -ENXIO)
      return err;
    put_aside(state, wrong ? wrong : strerror(-err));
  }
  return -EEXIST;
}

/* As far as it can be read, where nothing can be written. */
static void read_only(const struct state *state, struct kept *kept) {
  struct stat status;
  size_t size = 0;
  int fd = openat(state->folder_fd, FILE_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  bool usable = fd >= 0 && fstat(fd, &status) == 0 && !file_wrong(&status);
  char *text = usable ? read_bytes(fd, 0, (size_t)status.st_size, &size) : NULL;
  if (text)
    kept_read(kept, text, size, state->boot);
  free(text);
  if (fd >= 0)
    close(fd);
}

static void note_wrong_lines(const struct state *state, const struct kept *kept) {
  char name[64];
  name_aside(name);
  if (kept->wrong_lines == 0)
    return;
  bool saved = linkat(state->folder_fd, FILE_NAME, state->folder_fd, name, 0) == 0;
  log_warn("%zu lines of %s/" FILE_NAME " are damaged: the others are used%s%s", kept->wrong_lines,
           state->folder, saved ? ", and all are in " : "", saved ? name : "");
}

/* What the file says; and what it must say before a line can be added: that it is one, and of which boot. */
static int read_file(struct state *state, size_t size, struct kept *kept) {
  size_t got;
  char *text = read_bytes(state->fd, 0, size, &got);
  if (!text)
    return -errno;
  int err = kept_read(kept, text, got, state->boot);
  bool torn = got > 0 && text[got - 1] != '\n';
  free(text);
  if (err < 0)
    return err;
  note_wrong_lines(state, kept);
  if (torn)
    state_add(state, "\n", 1, 0);
  if (got == 0 || !kept->this_boot) {
    char line[KEPT_LINE_SIZE];
    if (got == 0)
      state_add(state, line, kept_line_version(line), 0);
    state_add(state, line, kept_line_boot(line, state->boot), 0);
  }
  state->bytes = got;
  state_write(state, true, clock_now_ns());
  return 0;
}

static int open_and_read(struct state *state, struct kept *kept) {
  struct stat status;
  state->fd = open_file(state, &status);
  return state->fd < 0 ? state->fd : read_file(state, (size_t)status.st_size, kept);
}

/* NULL, or why nothing can be kept. What is there is read all the same, if it is to be trusted. */
static const char *begin(struct state *state, struct kept *kept) {
  const char *wrong = enter_folder(state);
  if (wrong)
    return wrong;
  int err = lock_folder(state);
  if (err == -EBUSY)
    return "another daemon keeps its state there";
  if (err == 0)
    err = open_and_read(state, kept);
  else
    read_only(state, kept);
  if (err == -EPROTONOSUPPORT) {
    close(state->fd);
    put_aside(state, "a later version has written it");
    kept_end(kept);
    kept_init(kept);
    err = open_and_read(state, kept);
  }
  return err < 0 ? strerror(-err) : NULL;
}

struct state *state_open(const char *folder, struct kept *kept) {
  struct state *state = calloc(1, sizeof *state);
  if (!state || !(state->folder = strdup(folder))) {
    free(state);
    log_warn("out of memory: nothing is kept over restarts");
    return NULL;
  }
  state->folder_fd = state->lock_fd = state->fd = -1;
  state->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  pthread_mutex_init(&state->mutex, NULL);
  pthread_mutex_init(&state->file_mutex, NULL);
  pthread_cond_init(&state->wanted, NULL);
  text_file_read(AT_FDCWD, BOOT_ID, state->boot, sizeof state->boot);
  state->boot[strcspn(state->boot, "\n\t")] = '\0'; /* empty: as which no boot is known again */
  const char *wrong = begin(state, kept);
  if (!wrong) {
    pthread_mutex_lock(&state->mutex);
    state->wants_anew = true;
    want(state);
    pthread_mutex_unlock(&state->mutex);
    return state;
  }
  log_warn("nothing is kept over restarts: %s: %s", folder, wrong);
  release(state);
  return NULL;
}
