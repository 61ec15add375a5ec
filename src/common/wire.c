/* wire.c - make, check, send and receive protocol messages. */
#include "common/wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

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
  case GS_DECLARE:
    msg->declare.gang[sizeof msg->declare.gang - 1] = '\0';
    break;
  case GS_REPLY:
    msg->reply.text[sizeof msg->reply.text - 1] = '\0';
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

int wire_send(int fd, const struct gs_msg *msg) {
  ssize_t n;
  do
    n = send(fd, msg, sizeof *msg, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  return n < 0 ? -errno : 0; /* a packet goes whole or not at all */
}

int wire_recv(int fd, struct gs_msg *msg) {
  struct iovec part = {.iov_base = msg, .iov_len = sizeof *msg};
  struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
  ssize_t n;
  do
    n = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n < 0)
    return -errno;
  if (n == 0)
    return -ECONNRESET;
  if (header.msg_flags & MSG_TRUNC)
    return -EBADMSG;
  return wire_check(msg, (size_t)n);
}

int wire_connect(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path)
    return -ENAMETOOLONG;
  strcpy(address.sun_path, path);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return -errno;
  if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
    return fd;
  int err = -errno;
  close(fd);
  return err;
}
