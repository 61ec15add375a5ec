/* test_state.c - the folder of what outlives the daemon: what is written is found again, whatever was there,
 * and whatever the disk does. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/thread.h"
#include "server/process.h"
#include "server/state.h"
#include "suite.h"

static char folder[96];
static struct kept kept;
static struct state *state;

/* ---- the disk ---- */

static atomic_bool stops; /* each write says that it has come, and waits until it may go on */
static sem_t comes, goes;
static atomic_int syncs;

ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes) {
  if (fd > STDERR_FILENO && stops) { /* not the log */
    sem_post(&comes);
    sem_wait(&goes);
  }
  return __real_write(fd, data, bytes);
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd) {
  syncs++;
  return __real_fdatasync(fd);
}

static void go_on(void) {
  stops = false;
  sem_post(&goes);
}

static bool threads_fail;

int __real_thread_start(pthread_t *thread, void *(*body)(void *), void *argument);
int __wrap_thread_start(pthread_t *thread, void *(*body)(void *), void *argument);
int __wrap_thread_start(pthread_t *thread, void *(*body)(void *), void *argument) {
  return threads_fail ? -EAGAIN : __real_thread_start(thread, body, argument);
}

/* ---- another daemon ---- */

static int unseen;         /* -errno: there are no descriptors of processes */
static pid_t about_to_end; /* this process ends once it is looked for */
static int looks;

int __real_process_open_since(pid_t pid, uint64_t start_ticks);
int __wrap_process_open_since(pid_t pid, uint64_t start_ticks);
int __wrap_process_open_since(pid_t pid, uint64_t start_ticks) {
  looks++;
  if (about_to_end > 0 && kill(about_to_end, SIGKILL) == 0)
    waitpid(about_to_end, NULL, 0);
  about_to_end = 0;
  return unseen ? unseen : __real_process_open_since(pid, start_ticks);
}

/* ---- the folder ---- */

static void set_up(void) {
  sem_init(&comes, 0, 0);
  sem_init(&goes, 0, 0);
  strcpy(folder, "/tmp/gpushare-test-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void path_of(const char *name, char path[512]) { snprintf(path, 512, "%s/%s", folder, name); }

static int count_files(bool (*counts)(const char *name)) {
  DIR *directory = opendir(folder);
  int count = 0;
  for (const struct dirent *entry; (entry = readdir(directory));)
    count += *entry->d_name != '.' && counts(entry->d_name);
  closedir(directory);
  return count;
}

static bool is_aside(const char *name) { return strncmp(name, "state.aside-", 12) == 0; }

static void tear_down(void) {
  char command[256];
  snprintf(command, sizeof command, "chmod -R u+w %s; rm -rf %s", folder, folder);
  ck_assert_int_eq(system(command), 0);
}

static void begin(void) {
  kept_init(&kept);
  state = state_open(folder, &kept);
}

static void end(void) {
  state_close(state);
  kept_end(&kept);
}

/* Until all has been tried that is to be written. */
static void await(void) { ck_assert(state_await(state, clock_now_ns() + 60 * NS_PER_S)); }

/* Until there is nothing to do for the loop, nor for its threads. */
static void settle(void) {
  for (int turns = 0; state_deadline_ns(state) < UINT64_MAX; turns++) {
    state_on_time(state, state_deadline_ns(state));
    clock_sleep(NS_PER_S / 100);
    ck_assert_int_lt(turns, 500);
  }
}

static void add_number(uint32_t job_id) {
  char line[KEPT_LINE_SIZE];
  state_add(state, line, kept_line_last(line, job_id), 1);
}

static void number(uint32_t job_id) {
  add_number(job_id);
  state_write(state, false, 1);
  await();
}

static void write_file(const char *bytes, size_t size) {
  char path[512];
  path_of("state", path);
  FILE *file = fopen(path, "w");
  ck_assert(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

TEST(what_is_written_is_found) {
  struct stat status;
  char path[512];
  begin();
  ck_assert_ptr_nonnull(state);
  number(5);
  end();
  begin();
  ck_assert_uint_eq(kept.last_job_id, 5);
  path_of("state", path);
  ck_assert_int_eq(stat(path, &status), 0);
  ck_assert_uint_eq(status.st_mode & 0777, 0600);
  end();
}

/* Killed at once: by then it is in the kernel's hands. */
TEST(it_outlives_the_process) {
  for (uint32_t i = 1; i <= 20; i++) {
    pid_t child = fork();
    if (child == 0) {
      begin();
      number(i);
      kill(getpid(), SIGKILL);
    }
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    begin();
    ck_assert_uint_eq(kept.last_job_id, i);
    end();
  }
}

/* Killed or not. */
TEST_LOOP(it_is_kept_without_threads, 2) {
  pid_t child = fork();
  if (child == 0) {
    threads_fail = true;
    begin();
    number(7);
    if (_i == 0)
      kill(getpid(), SIGKILL);
    end();
    _exit(syncs > 0 ? 0 : 1);
  }
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert(_i == 0 || status == 0);
  begin();
  ck_assert_uint_eq(kept.last_job_id, 7);
  end();
}

/* The process may have as many threads again. */
TEST(threads_that_could_not_be_started_take_over) {
  threads_fail = true;
  begin();
  number(7);
  threads_fail = false;
  settle();
  number(8);
  end();
  begin();
  ck_assert_uint_eq(kept.last_job_id, 8);
  end();
}

/* The writer is with another line, takes this one as well, and is with it, or done, before it hears that it
 * is to last. */
TEST_LOOP(what_is_to_last_gets_to_the_disk, 2) {
  begin();
  settle();
  int before = syncs;
  stops = true;
  add_number(1);
  state_write(state, false, 1);
  sem_wait(&comes);
  add_number(2);
  if (_i == 0) {
    sem_post(&goes);
    sem_wait(&comes);
    state_write(state, true, 1);
    go_on();
  } else {
    go_on();
    await();
    state_write(state, true, 1);
  }
  uint64_t end_ns = clock_now_ns() + 20 * NS_PER_S;
  while (syncs == before) {
    ck_assert_uint_lt(clock_now_ns(), end_ns);
    clock_sleep(NS_PER_S / 100);
  }
  end();
}

TEST(it_does_not_grow_for_ever) {
  struct stat status;
  char path[512];
  char line[KEPT_LINE_SIZE];
  begin();
  for (uint32_t i = 1; i <= 200000; i++) {
    state_add(state, line, kept_line_last(line, i), 1);
    state_write(state, false, 1);
    if (i % 1000 == 0)
      await();
  }
  end();
  path_of("state", path);
  begin();
  ck_assert_uint_eq(kept.last_job_id, 200000);
  end();
  begin(); /* by now it has been written anew, at the latest */
  end();
  ck_assert_int_eq(stat(path, &status), 0);
  ck_assert_int_lt(status.st_size, 1 << 20);
}

/* An earlier daemon ended while it wrote the file anew: what is left of that is in nobody's way. */
TEST(a_file_that_was_not_finished_is_replaced) {
  struct stat before, after;
  char path[512], unfinished[512];
  begin();
  number(1000);
  end();
  path_of("state", path);
  path_of("state.new", unfinished);
  ck_assert_int_eq(stat(path, &before), 0);
  ck_assert_int_eq(link(path, unfinished), 0);
  begin();
  end();
  ck_assert_int_eq(stat(path, &after), 0);
  ck_assert_uint_ne(after.st_ino, before.st_ino); /* it has been written anew */
  ck_assert_int_ne(access(unfinished, F_OK), 0);
  begin();
  ck_assert_uint_eq(kept.last_job_id, 1000);
  end();
}

TEST(a_torn_line_harms_no_other) {
  char text[4096], path[512];
  begin();
  number(7);
  number(8);
  end();
  path_of("state", path);
  FILE *file = fopen(path, "r");
  size_t size = fread(text, 1, sizeof text, file);
  fclose(file);
  write_file(text, size - 3);
  begin();
  ck_assert_uint_ge(kept.last_job_id, 7);
  number(9);
  end();
  begin();
  ck_assert_uint_eq(kept.last_job_id, 9);
  end();
}

/* Whatever lies in its place: from now on it is kept there. */
static void check_begun_anew(void) {
  begin();
  ck_assert_ptr_nonnull(state);
  number(3);
  end();
  begin();
  ck_assert_uint_eq(kept.last_job_id, 3);
  end();
}

TEST(damage_is_put_aside_and_the_rest_used) {
  char text[4096], path[512];
  begin();
  number(7);
  end();
  path_of("state", path);
  FILE *file = fopen(path, "a");
  fputs("what is this?\n", file);
  fclose(file);
  begin();
  ck_assert_uint_eq(kept.last_job_id, 7);
  ck_assert_uint_eq(kept.wrong_lines, 1);
  end();
  ck_assert_int_eq(count_files(is_aside), 1);
  begin(); /* it has been healed */
  ck_assert_uint_eq(kept.wrong_lines, 0);
  ck_assert_uint_eq(kept.last_job_id, 7);
  end();
  memset(text, 0xa5, sizeof text);
  write_file(text, sizeof text);
  check_begun_anew();
}

TEST(a_later_versions_file_is_kept_for_it) {
  char line[KEPT_LINE_SIZE];
  write_file(line, kept_line_text(line, "gpushare-state\t2"));
  check_begun_anew();
  ck_assert_int_eq(count_files(is_aside), 1);
}

static void in_the_way(int (*make)(const char *path)) {
  char path[512];
  path_of("state", path);
  ck_assert_int_eq(make(path), 0);
  check_begun_anew();
  ck_assert_int_eq(count_files(is_aside), 1);
}

static int make_link(const char *path) { return symlink("/etc/passwd", path); }
static int make_dangling(const char *path) { return symlink("/nowhere/at/all", path); }
static int make_pipe(const char *path) { return mkfifo(path, 0600); }
static int make_directory(const char *path) { return mkdir(path, 0700); }
static int make_huge(const char *path) {
  int fd = open(path, O_CREAT | O_WRONLY, 0600);
  int err = ftruncate(fd, (off_t)1 << 32);
  close(fd);
  return err;
}
TEST_LOOP(nothing_in_its_place_is_believed, 5) {
  static int (*const makers[])(const char *) = {make_link, make_dangling, make_pipe, make_directory,
                                                make_huge};
  in_the_way(makers[_i]);
}

TEST(one_daemon_has_it) {
  int ends[2];
  char byte;
  ck_assert_int_eq(pipe(ends), 0);
  begin();
  number(4);
  pid_t child = fork();
  if (child == 0) {
    struct state *own = state;
    struct kept other;
    close(ends[0]);
    kept_init(&other);
    state = state_open(folder, &other); /* the parent's lock is not the child's */
    _exit(own && !state && other.last_job_id == 0 ? 0 : 1);
  }
  close(ends[1]);
  ck_assert_int_eq(read(ends[0], &byte, 1), 0);
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  end();
}

/* It has the folder until it ends. */
static pid_t start_other(void) {
  int begun[2];
  char byte;
  ck_assert_int_eq(pipe(begun), 0);
  pid_t child = fork();
  if (child == 0) {
    begin();
    (void)!write(begun[1], "", 1);
    pause();
  }
  ck_assert_int_eq(read(begun[0], &byte, 1), 1);
  return child;
}

/* In another pid namespace, for example; or the kernel is old. */
TEST_LOOP(another_daemon_that_is_not_seen_is_waited_for, 3) {
  about_to_end = start_other();
  unseen = (const int[]){-ESRCH, -ENOSYS, -EPERM}[_i];
  begin();
  ck_assert_ptr_nonnull(state);
  end();
}

TEST(it_is_not_waited_for_all_the_time) {
  pid_t other = start_other();
  unseen = -ESRCH;
  begin();
  ck_assert_ptr_null(state);
  ck_assert_int_le(looks, 101); /* in 2 s */
  kill(other, SIGKILL);
  ck_assert_int_eq(waitpid(other, NULL, 0), other);
  end();
}

TEST(a_folder_of_others_is_not_used) {
  chmod(folder, 0777);
  begin();
  ck_assert_ptr_null(state);
  end();
  chmod(folder, 0700);
  if (geteuid() == 0) {
    ck_assert_int_eq(chown(folder, 65534, 65534), 0);
    begin();
    ck_assert_ptr_null(state);
    end();
  }
  strcat(folder, "/not/there");
  begin();
  ck_assert_ptr_null(state);
  end();
  *strstr(folder, "/not/there") = '\0';
}

/* As a user who may not write there what is there is used all the same. */
TEST(where_nothing_can_be_written_it_is_read) {
  char path[512];
  int status;
  begin();
  number(6);
  end();
  path_of("lock", path);
  unlink(path);
  chmod(folder, 0555);
  path_of("state", path);
  chmod(path, 0444);
  pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setuid(65534) < 0)
      _exit(2);
    begin();
    _exit(!state && kept.last_job_id == 6 ? 0 : 1);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
}

static void limit_files(rlim_t bytes) {
  struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
  if (setrlimit(RLIMIT_FSIZE, &limit) < 0)
    abort();
}

/* Nothing more fits: in the middle of a line. */
TEST(a_full_disk_is_waited_for) {
  struct stat status;
  char path[512];
  signal(SIGXFSZ, SIG_IGN);
  begin();
  number(1);
  path_of("state", path);
  ck_assert_int_eq(stat(path, &status), 0);
  limit_files((rlim_t)status.st_size + 10);
  number(2);
  number(3);
  uint64_t due_ns = state_deadline_ns(state); /* what Check writes has no room either */
  limit_files(RLIM_INFINITY);
  ck_assert_uint_lt(due_ns, UINT64_MAX);
  settle();
  end();
  begin();
  ck_assert_uint_eq(kept.last_job_id, 3);
  ck_assert_uint_eq(kept.wrong_lines, 0);
  end();
}

static char said[256];
static bool hear(const char *text, size_t length, unsigned lines) {
  (void)lines;
  snprintf(said, sizeof said, "%.*s", (int)length, text);
  return true;
}

/* Also what the thread could not do, of which is only heard later: it is not told for ever that something is
 * wrong. */
TEST(the_end_of_a_full_disk_is_told) {
  signal(SIGXFSZ, SIG_IGN);
  begin();
  number(1);
  log_setup("test", LOG_LEVEL_INFO);
  log_to(hear);
  limit_files(1);
  number(2);
  clock_sleep(NS_PER_S / 2); /* by now the file could not be written anew: if not yet, less is tested */
  state_hear(state);
  limit_files(RLIM_INFINITY);
  ck_assert_ptr_nonnull(strstr(said, "can't be kept"));
  settle();
  state_hear(state);
  log_to(NULL);
  ck_assert_msg(strstr(said, "is kept in "), "%s", said);
  end();
}

/* And for ever: memory has a bound. */
TEST(a_disk_that_stays_full_costs_no_memory) {
  signal(SIGXFSZ, SIG_IGN);
  begin();
  limit_files(1);
  for (uint32_t i = 1; i <= 100000; i++) {
    char line[KEPT_LINE_SIZE];
    state_add(state, line, kept_line_last(line, i), 1);
  }
  state_write(state, true, 1);
  await();
  limit_files(RLIM_INFINITY);
  state_write(state, true, 1);
  await();
  ck_assert(state_take_loss(state));
  settle();
  number(100001);
  end();
  begin();
  ck_assert_uint_eq(kept.last_job_id, 100001);
  end();
}

/* That something was lost is known once there is room for more. */
TEST(what_a_full_disk_costs_is_told) {
  char line[KEPT_LINE_SIZE];
  signal(SIGXFSZ, SIG_IGN);
  begin();
  ck_assert(!state_take_loss(state));
  limit_files(1);
  for (uint32_t i = 1; i <= 100000; i++)
    state_add(state, line, kept_line_last(line, i), 1);
  state_write(state, true, 1);
  await();
  bool told = state_take_loss(state);
  limit_files(RLIM_INFINITY);
  ck_assert(!told);
  state_write(state, true, 1);
  await();
  ck_assert_uint_lt(state_deadline_ns(state), UINT64_MAX);
  ck_assert(state_take_loss(state));
  ck_assert(!state_take_loss(state));
  settle();
  end();
}

/* However much that is. Later there is a bound again. */
TEST(what_was_lost_fits_when_it_comes_again) {
  signal(SIGXFSZ, SIG_IGN);
  begin();
  settle();
  for (int turn = 0; turn < 2; turn++) {
    limit_files(1);
    for (uint32_t i = 1; i <= 100000; i++)
      add_number(i);
    state_write(state, true, 1);
    await();
    limit_files(RLIM_INFINITY);
    state_write(state, true, 1);
    await();
    ck_assert(state_take_loss(state));
    for (uint32_t i = 1; i <= 200000; i++)
      add_number(i);
    state_end_loss(state);
    state_write(state, true, 1);
    await();
    ck_assert(!state_take_loss(state));
  }
  end();
  begin();
  ck_assert_uint_eq(kept.last_job_id, 200000);
  end();
}

/* Written anew it is small: that it once could not be is not for ever. */
TEST(a_file_that_may_not_grow_is_written_anew_in_time) {
  static char run[300];
  struct stat status;
  char line[KEPT_LINE_SIZE], path[512], in_the_way[512], below[600];
  path_of("state", path);
  path_of("state.new", in_the_way);
  snprintf(below, sizeof below, "%s/file", in_the_way);
  memset(run, 'x', sizeof run - 1);
  begin();
  number(1);
  settle();
  ck_assert_int_eq(mkdir(in_the_way, 0700), 0);
  ck_assert_int_eq(mkdir(below, 0700), 0);
  off_t before;
  do { /* until it may not grow any more */
    ck_assert_int_eq(stat(path, &status), 0);
    before = status.st_size;
    for (int i = 0; i < 2000; i++)
      state_add(state, line, kept_line_text(line, run), 1);
    state_write(state, false, 1);
    await();
    ck_assert_int_eq(stat(path, &status), 0);
  } while (status.st_size > before);
  ck_assert_int_gt(status.st_size, 63 << 20);
  clock_sleep(2 * NS_PER_S); /* by now it has been tried in vain: if it has not, less is tested */
  ck_assert_int_eq(rmdir(below), 0);
  ck_assert_int_eq(rmdir(in_the_way), 0);
  for (uint64_t now_ns = 1; state_deadline_ns(state) < UINT64_MAX; now_ns += 61 * NS_PER_S) {
    clock_sleep(NS_PER_S / 100);
    state_on_time(state, now_ns);
  }
  end();
  begin();
  ck_assert_ptr_nonnull(state);
  ck_assert_uint_eq(kept.last_job_id, 1);
  end();
}

TEST(without_a_state_nothing_is_kept) {
  state = NULL;
  number(1);
  ck_assert_uint_eq(state_deadline_ns(state), UINT64_MAX);
  state_on_time(state, 1);
  state_close(state);
  ck_assert_uint_gt(process_start_ticks(getpid()), 0);
  ck_assert_uint_eq(process_start_ticks(0), 0);
}

int main(void) { return suite_run_all("state", set_up, tear_down); }
