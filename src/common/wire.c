/* wire.c - make, check, send and receive protocol messages. */
#include "common/wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/splitmix.h"

/* Between attempts to connect while no more may wait: an eighth of the time that it has been so, within these
 * bounds, and up to a quarter more. The places are taken by whoever asks first, so none asks in step with
 * others. An attempt costs some microseconds. */
#define AGAIN_PART 8
#define AGAIN_MIN_NS NS_PER_MS
#define AGAIN_MAX_NS (16 * NS_PER_MS)

struct gs_msg wire_msg(enum gs_msg_type type, uint32_t gpu) {
  struct gs_msg msg;
  memset(&msg, 0, sizeof msg);
  msg.magic = GS_MAGIC;
  msg.version = GS_PROTOCOL_VERSION;
  msg.type = (uint16_t)type;
  msg.gpu = gpu;
  return msg;
}

const char *wire_type_name(unsigned type) {
  switch (type) {
#define X(name, value)                                                                                       \
  case value:                                                                                                \
    return #name;
    GS_MSG_TYPES(X)
#undef X
  default:
    return "?";
  }
}

static void terminate_texts(struct gs_msg *msg) {
  switch (msg->type) {
  case GS_REGISTER:
    msg->reg.name[sizeof msg->reg.name - 1] = '\0';
    break;
  case GS_ATTACH:
    msg->attach.name[sizeof msg->attach.name - 1] = '\0';
    break;
  case GS_COMMAND:
    msg->command.text[sizeof msg->command.text - 1] = '\0';
    break;
  case GS_ALLOT:
    msg->allot.pod[sizeof msg->allot.pod - 1] = '\0';
    break;
  case GS_POD_NAMESPACE:
  case GS_POD_NAME:
    msg->pod.pod[sizeof msg->pod.pod - 1] = '\0';
    msg->pod.text[sizeof msg->pod.text - 1] = '\0';
    break;
  case GS_EVENT:
    if (msg->event.kind == GS_EVENT_COMMAND)
      msg->event.text[sizeof msg->event.text - 1] = '\0';
    else
      msg->event.name[sizeof msg->event.name - 1] = '\0';
    break;
  case GS_DECLARE:
    msg->declare.gang[sizeof msg->declare.gang - 1] = '\0';
    break;
  case GS_REPLY:
    msg->reply.text[sizeof msg->reply.text - 1] = '\0';
    break;
  case GS_NOTE:
    msg->note.text[sizeof msg->note.text - 1] = '\0';
    break;
  case GS_STATUS_DAEMON:
    msg->daemon.release[sizeof msg->daemon.release - 1] = '\0';
    break;
  case GS_STATUS_GPU:
    msg->gpu_status.name[sizeof msg->gpu_status.name - 1] = '\0';
    break;
  case GS_STATUS_JOB:
    msg->job_status.name[sizeof msg->job_status.name - 1] = '\0';
    break;
  case GS_STATUS_TERMS:
    msg->terms_status.gang[sizeof msg->terms_status.gang - 1] = '\0';
    break;
  case GS_STATUS_ORIGIN:
    msg->origin_status.name[sizeof msg->origin_status.name - 1] = '\0';
    msg->origin_status.container[sizeof msg->origin_status.container - 1] = '\0';
    break;
  case GS_STATUS_COMMAND:
    msg->command_status.text[sizeof msg->command_status.text - 1] = '\0';
    break;
  default:
    break;
  }
}

int wire_check(struct gs_msg *msg, size_t size) {
  if (size != sizeof *msg || msg->magic != GS_MAGIC)
    return -EBADMSG;
  if (msg->version != GS_PROTOCOL_VERSION)
    return -EPROTONOSUPPORT;
  if (wire_type_name(msg->type)[0] == '?')
    return -ENOSYS;
  terminate_texts(msg);
  return 0;
}

/* Room for one descriptor; alignment may leave some for a second one. */
union control {
  char bytes[CMSG_SPACE(sizeof(int))];
  struct cmsghdr align;
};

static int send_packet(int fd, const void *bytes, size_t size, void *control, size_t control_size) {
  struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
  struct msghdr header = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = control_size};
  ssize_t n;
  do
    n = sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  return n < 0 ? -errno : 0; /* a packet goes whole or not at all */
}

int wire_send(int fd, const struct gs_msg *msg) { return send_packet(fd, msg, sizeof *msg, NULL, 0); }

int wire_send_passing(int fd, const void *bytes, size_t size, int passed) {
  union control control = {
      .align = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
  memcpy(CMSG_DATA(&control.align), &passed, sizeof passed);
  return send_packet(fd, bytes, size, &control, sizeof control);
}

/* The descriptor that has come, if it is the only one. */
static int take_descriptor(struct msghdr *header) {
  int taken = -1, count = 0;
  for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
    size_t bytes = c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS ? c->cmsg_len - CMSG_LEN(0) : 0;
    for (size_t i = 0; i < bytes / sizeof(int); i++) {
      if (count++ > 0)
        close(taken);
      memcpy(&taken, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
    }
  }
  if (count <= 1)
    return taken;
  close(taken);
  return -1;
}

/* That the other side has closed without having read all is told once, before what it had sent. */
static ssize_t receive(int fd, void *bytes, size_t size, struct msghdr *header) {
  struct iovec part = {.iov_base = bytes, .iov_len = size};
  header->msg_iov = &part;
  header->msg_iovlen = 1;
  ssize_t n;
  unsigned told = 0;
  do
    n = recvmsg(fd, header, MSG_CMSG_CLOEXEC);
  while (n < 0 && (errno == EINTR || (errno == ECONNRESET && told++ == 0)));
  if (n < 0) {
    header->msg_controllen = 0;
    return -errno;
  }
  if (n == 0)
    return -ECONNRESET;
  return header->msg_flags & MSG_TRUNC ? -EBADMSG : n;
}

int wire_recv(int fd, struct gs_msg *msg) {
  ssize_t n = receive(fd, msg, sizeof *msg, &(struct msghdr){0});
  return n < 0 ? (int)n : wire_check(msg, (size_t)n);
}

ssize_t wire_recv_passed(int fd, void *bytes, size_t size, int *passed) {
  union control control;
  struct msghdr header = {.msg_control = &control, .msg_controllen = sizeof control};
  ssize_t n = receive(fd, bytes, size, &header);
  *passed = take_descriptor(&header);
  return n;
}

int wire_connect(const char *path) { return wire_connect_as(path, SOCK_SEQPACKET); }

static int address_of(const char *path, struct sockaddr_un *address) {
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address->sun_path)
    return -ENAMETOOLONG;
  strcpy(address->sun_path, path);
  return 0;
}

int wire_connect_as(const char *path, int type) {
  struct sockaddr_un address;
  int err = address_of(path, &address);
  if (err < 0)
    return err;
  int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return -errno;
  if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
    return fd;
  err = -errno;
  close(fd);
  return err;
}

uint64_t wire_connect_again_ns(int err, uint64_t *since_ns, uint64_t patience_ns) {
  uint64_t now_ns = clock_now_ns(), random = now_ns + (uint64_t)getpid();
  if (err != -EAGAIN || *since_ns == 0)
    *since_ns = err == -EAGAIN ? now_ns : 0;
  if (err != -EAGAIN || now_ns - *since_ns >= patience_ns)
    return 0;
  uint64_t pause_ns = (now_ns - *since_ns) / AGAIN_PART;
  pause_ns = pause_ns < AGAIN_MIN_NS ? AGAIN_MIN_NS : pause_ns > AGAIN_MAX_NS ? AGAIN_MAX_NS : pause_ns;
  return now_ns + pause_ns + splitmix_next(&random) % (pause_ns / 4);
}

int wire_connect_patiently(const char *path, uint64_t patience_ns) {
  uint64_t since_ns = 0, again_ns, now_ns;
  int fd;
  while ((fd = wire_connect(path)) < 0 && (again_ns = wire_connect_again_ns(fd, &since_ns, patience_ns)))
    if ((now_ns = clock_now_ns()) < again_ns)
      clock_sleep(again_ns - now_ns);
  return fd;
}

/* As socket(2) has made it. */
static bool is_fresh_socket(int fd, const void *unused) {
  (void)unused;
  struct sockaddr_un peer;
  socklen_t size = sizeof peer;
  int type = 0;
  socklen_t type_size = sizeof type;
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) == 0 && type == SOCK_SEQPACKET &&
         getpeername(fd, (struct sockaddr *)&peer, &size) < 0 && errno == ENOTCONN;
}

struct descriptor wire_socket_as_guest(void) {
  long fd = syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  return descriptor_keep((int)fd, is_fresh_socket, NULL); /* descriptor.c says why a system call */
}

int wire_connect_as_guest(const char *path, struct descriptor *kept) {
  struct sockaddr_un address;
  int err = address_of(path, &address);
  if (err < 0)
    return err;
  struct descriptor made = wire_socket_as_guest();
  if (made.fd < 0)
    return -errno;
  if (syscall(SYS_connect, made.fd, &address, sizeof address) < 0) {
    err = -errno;
    descriptor_close(&made);
    return err;
  }
  *kept = made;
  return 0;
}
