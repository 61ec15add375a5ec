/* test_permission.c - who may change settings: not who is root in a container only. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/process.h"
#include "suite.h"

static char folder[] = "/tmp/gpushare-permission-XXXXXX";
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int listener;

static void set_up(void) {
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", folder);
  listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
  ck_assert_int_eq(listen(listener, 1), 0);
}

static void tear_down(void) {
  close(listener);
  unlink(address.sun_path);
  rmdir(folder);
}

/* Connects, and is there until the other end has judged. */
static void be_peer(void) {
  char byte;
  int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
    _exit(1);
  _exit(read(fd, &byte, 1) == 1 ? 0 : 1);
}

static pid_t start_peer(void) {
  pid_t child = fork();
  if (child == 0)
    be_peer();
  return child;
}

/* As root of a container that has the numbers of the host's users; ends with 77 where that is not allowed. */
static pid_t start_contained_peer(void) {
  int status;
  pid_t child = fork();
  if (child != 0)
    return child;
  if (unshare(CLONE_NEWPID) != 0) {
    connect(socket(AF_UNIX, SOCK_SEQPACKET, 0), (struct sockaddr *)&address, sizeof address);
    _exit(77);
  }
  waitpid(start_peer(), &status, 0);
  _exit(WEXITSTATUS(status));
}

static pid_t pid_of(int fd) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  ck_assert_int_eq(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size), 0);
  return peer.pid;
}

static bool may(int fd) { return permission_is_near(pid_of(fd)) && permission_granted(fd, getgid()); }

static bool judge(pid_t child, int *status) {
  int fd = accept(listener, NULL, NULL);
  bool granted = may(fd);
  ck_assert_int_ge(send(fd, "", 1, MSG_NOSIGNAL), -1);
  ck_assert_int_eq(waitpid(child, status, 0), child);
  close(fd);
  return granted;
}

TEST(our_user_may) {
  int status;
  ck_assert(judge(start_peer(), &status));
  ck_assert_int_eq(WEXITSTATUS(status), 0);
}

TEST(nobody_in_a_container_may) {
  int status;
  bool granted = judge(start_contained_peer(), &status);
  if (WEXITSTATUS(status) == 77) {
    puts("not tried: new namespaces are not allowed here");
    return;
  }
  ck_assert(!granted);
  ck_assert_int_eq(WEXITSTATUS(status), 0);
}

/* Nobody knows where it was. */
TEST(nor_who_has_ended) {
  int status, fd;
  pid_t child = fork();
  if (child == 0) {
    connect(socket(AF_UNIX, SOCK_SEQPACKET, 0), (struct sockaddr *)&address, sizeof address);
    _exit(0);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  fd = accept(listener, NULL, NULL);
  ck_assert(!may(fd));
  close(fd);
}

int main(void) { return suite_run_all("permission", set_up, tear_down); }
