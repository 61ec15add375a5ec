/*
 * fuzz_activation.c - bytes as what a service manager passes: LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES with
 * NUL bytes between them, and then a byte for each descriptor. See fuzz_text.h. The system's side is played:
 * each descriptor that has been passed is closed once, or taken.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/log.h"
#include "fuzz_files.h"

#define FIRST 3
#define PASSED 1024
#define PID 4711

/* Bits of a descriptor's byte. */
enum { IS_UNIX = 1, IS_SEQPACKET = 2, LISTENS = 4, HAS_PATH = 8, LONG_PATH = 16, IS_BROKEN = 32 };

static struct {
  uint8_t kinds[PASSED];
  bool closed[PASSED];
  int passed;
} played;

static uint8_t *kind_of(int fd) {
  fuzz_require(fd >= FIRST && fd < FIRST + played.passed, "a descriptor that was not passed");
  fuzz_require(!played.closed[fd - FIRST], "a descriptor that is closed already");
  return &played.kinds[fd - FIRST];
}

static int played_close(int fd) {
  kind_of(fd);
  played.closed[fd - FIRST] = true;
  return 0;
}

static int played_getsockopt(int fd, int level, int option, void *value, socklen_t *size) {
  uint8_t kind = *kind_of(fd);
  (void)level;
  fuzz_require(*size == sizeof(int), "an option of another size");
  *(int *)value = option == SO_DOMAIN ? (kind & IS_UNIX ? AF_UNIX : AF_INET)
                  : option == SO_TYPE ? (kind & IS_SEQPACKET ? SOCK_SEQPACKET : SOCK_STREAM)
                                      : (kind & LISTENS) != 0;
  errno = ENOTSOCK;
  return kind & IS_BROKEN ? -1 : 0;
}

static int played_getsockname(int fd, struct sockaddr *to, socklen_t *size) {
  uint8_t kind = *kind_of(fd);
  struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/run/gpushare/daemon.sock"};
  fuzz_require(*size == sizeof address, "an address of another size");
  if (kind & LONG_PATH)
    memset(address.sun_path, '/', sizeof address.sun_path); /* without an end, as the kernel allows */
  if (!(kind & HAS_PATH))
    address.sun_path[0] = '\0';
  memcpy(to, &address, sizeof address);
  return 0;
}

static int played_fcntl(int fd, int command, ...) {
  errno = EBADF;
  return *kind_of(fd) & 64 && command == F_SETFL ? -1 : 0;
}

static int played_getpid(void) { return PID; }

#undef log_error
#define log_error(...) ((void)0)
#define close played_close
#define getsockopt played_getsockopt
#define getsockname played_getsockname
#define fcntl played_fcntl
#define getpid played_getpid
#include "server/listen.c"
#undef close
#undef getsockopt
#undef getsockname
#undef fcntl
#undef getpid

static const char *const words[] = {"4711", "1",        "2",    "3",     "1023",      "9999999999",
                                    "-1",   "gpushare", ":",    "other", "gpushare:", ":gpushare",
                                    "\x0f", "\x1f",     "\x01", "\x4f",  "\x2f"};

/* The next text of the input. */
static const char *cut(const uint8_t **data, size_t *size, char *to, size_t room) {
  const uint8_t *end = memchr(*data, '\0', *size);
  size_t length = end ? (size_t)(end - *data) : *size, used = length < room ? length : room - 1;
  memcpy(to, *data, used);
  to[used] = '\0';
  *data += length + (end != NULL);
  *size -= length + (end != NULL);
  return to;
}

static void check(int fd, const char *path) {
  int open = 0;
  for (int i = 0; i < played.passed; i++)
    open += !played.closed[i];
  fuzz_require(!getenv("LISTEN_FDS") && !getenv("LISTEN_PID") && !getenv("LISTEN_FDNAMES"),
               "programs that are started would believe that it is for them");
  if (fd < 0)
    return;
  uint8_t kind = *kind_of(fd);
  fuzz_require(open == 1, "a descriptor is left over");
  fuzz_require((kind & (IS_UNIX | IS_SEQPACKET | LISTENS | HAS_PATH | IS_BROKEN)) ==
                   (IS_UNIX | IS_SEQPACKET | LISTENS | HAS_PATH),
               "not what one listens on");
  fuzz_require(path[0] == '/', "no path");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char value[512], path[108];
  memset(&played, 0, sizeof played);
  log_setup("fuzz", (enum log_level) - 1);
  setenv("LISTEN_PID", size && *data % 4 ? "4711" : cut(&data, &size, value, sizeof value), 1);
  setenv("LISTEN_FDS", cut(&data, &size, value, sizeof value), 1);
  int64_t passed;
  played.passed = parse_integer(value, 0, INT32_MAX, &passed) < 0 ? 0
                  : passed > PASSED                               ? PASSED
                                                                  : (int)passed;
  if (size && *data == '-')
    unsetenv("LISTEN_FDNAMES");
  else
    setenv("LISTEN_FDNAMES", cut(&data, &size, value, sizeof value), 1);
  for (int i = 0; i < played.passed; i++)
    played.kinds[i] = size ? data[(size_t)i % size] : 0x0f;
  check(activation_take(path, sizeof path), path);
  return 0;
}

#include "fuzz_text.h"
