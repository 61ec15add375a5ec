/* test_process.c - the process at the other end of a connection, and the next one of its number. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/process.h"
#include "suite.h"

/* As linux/sched.h has it, up to what is needed here. */
struct clone_arguments {
  uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size;
};

static pid_t start(pid_t number) {
  struct clone_arguments arguments = {.exit_signal = SIGCHLD};
  if (number) {
    arguments.set_tid = (uint64_t)(uintptr_t)&number;
    arguments.set_tid_size = 1;
  }
  pid_t pid = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid == 0)
    for (;;)
      pause();
  return pid;
}

static void end(pid_t pid) {
  kill(pid, SIGKILL);
  ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

TEST(its_end_is_told) {
  pid_t pid = start(0);
  ck_assert_int_gt(pid, 0);
  int pidfd = process_open_since(pid, process_start_ticks(pid));
  ck_assert_int_ge(pidfd, 0);
  ck_assert(!process_has_ended(pidfd));
  kill(pid, SIGKILL);
  ck_assert_int_eq(poll(&(struct pollfd){.fd = pidfd, .events = POLLIN}, 1, 20000), 1);
  ck_assert(process_has_ended(pidfd)); /* though nobody has waited for it yet */
  end(pid);
  ck_assert(process_has_ended(pidfd));
  close(pidfd);
  ck_assert(!process_has_ended(-1));
}

TEST(another_one_of_its_number_is_not_it) {
  pid_t first = start(0);
  ck_assert_int_gt(first, 0);
  uint64_t began = process_start_ticks(first);
  ck_assert_uint_gt(began, 0);
  end(first);
  ck_assert_uint_eq(process_start_ticks(first), 0);
  ck_assert_int_eq(process_open_since(first, began), -ESRCH);
  pid_t second;
  do { /* until it begins in a later tick; nothing tells when that is */
    poll(NULL, 0, 10);
    second = start(first);
    ck_assert_msg(second == first || errno == EPERM || errno == ENOSYS, "clone3: %d", errno);
    if (second < 0)
      return; /* only root may choose numbers */
    if (process_start_ticks(second) == began) {
      end(second);
      second = 0;
    }
  } while (second == 0);
  ck_assert_int_eq(process_open_since(first, began), -ESRCH);
  int pidfd = process_open_since(second, process_start_ticks(second));
  ck_assert_int_ge(pidfd, 0);
  close(pidfd);
  end(second);
}

TEST(a_connection_tells_its_process) {
  int ends[2];
  ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  int pidfd = process_open(ends[0], getpid());
  ck_assert_int_ge(pidfd, 0);
  ck_assert(!process_has_ended(pidfd));
  close(pidfd);
  close(ends[0]);
  close(ends[1]);
}

TEST(a_stopped_process_is_known) {
  siginfo_t info;
  pid_t pid = start(0);
  ck_assert(!process_is_stopped(pid));
  kill(pid, SIGSTOP);
  ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WSTOPPED), 0);
  ck_assert(process_is_stopped(pid));
  kill(pid, SIGCONT);
  ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WCONTINUED), 0);
  ck_assert(!process_is_stopped(pid));
  end(pid);
  ck_assert(!process_is_stopped(pid));
}

/* ") T 1" is the name's, not a state. */
TEST(a_name_is_no_state) {
  char name[16], text[64];
  uint64_t began = process_start_ticks(getpid());
  prctl(PR_GET_NAME, name);
  prctl(PR_SET_NAME, "a) T 1 2 (b");
  ck_assert(!process_is_stopped(getpid()));
  ck_assert_uint_eq(process_start_ticks(getpid()), began);
  process_read(getpid(), "comm", text, sizeof text);
  ck_assert_str_eq(text, "a) T 1 2 (b\n");
  prctl(PR_SET_NAME, name);
}

int main(void) { return suite_run_all("process", NULL, NULL); }
