/*
 * remover.c - put before a program by LD_PRELOAD: the file of the first socket that listens is gone at once,
 * as if another program had removed it just then.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

__attribute__((visibility("default"))) int listen(int fd, int backlog) {
  static atomic_flag done = ATOMIC_FLAG_INIT;
  struct sockaddr_un address = {0};
  socklen_t size = sizeof address - 1;
  int (*next)(int, int);
  *(void **)&next = dlsym(RTLD_NEXT, "listen");
  if (getsockname(fd, (struct sockaddr *)&address, &size) == 0 && address.sun_family == AF_UNIX &&
      !atomic_flag_test_and_set(&done))
    unlink(address.sun_path);
  return next(fd, backlog);
}
