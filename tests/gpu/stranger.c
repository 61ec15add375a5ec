/*
 * stranger.c - a process that speaks to the daemon as the library does, and uses no GPU.
 * Arguments: UUID (or "any": an invented one), bytes that it says the card has.
 * Prints "attached CAPACITY" or "rejected REASON", then "ok".
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/parse.h"
#include "common/wire.h"

static int connection;

static struct gs_msg hear(unsigned one, unsigned other) {
  struct gs_msg msg;
  for (;;) {
    int err = wire_recv(connection, &msg);
    if (err == -EAGAIN) {
      struct pollfd readable = {.fd = connection, .events = POLLIN};
      poll(&readable, 1, -1);
    } else if (err < 0) {
      printf("the connection has ended: %s\n", strerror(-err));
      exit(1);
    } else if (msg.type == one || msg.type == other) {
      return msg;
    }
  }
}

int main(int argc, char **argv) {
  struct gs_msg attach = wire_msg(GS_ATTACH, 0), hello = wire_msg(GS_REGISTER, 0);
  uint8_t invented[GS_UUID_SIZE] = "an invented card";
  memcpy(attach.attach.uuid, invented, sizeof invented);
  if (argc != 3 || (strcmp(argv[1], "any") != 0 && parse_uuid(argv[1], attach.attach.uuid) < 0)) {
    fprintf(stderr, "usage: stranger UUID|any BYTES\n");
    return 2;
  }
  attach.attach.total_bytes = strtoull(argv[2], NULL, 10);
  attach.attach.flags = GS_ATTACH_MANAGED;
  strcpy(attach.attach.name, "a lie");
  hello.reg.pid = getpid();
  strcpy(hello.reg.name, "stranger");
  connection = wire_connect(getenv("GPUSHARE_SOCKET"));
  if (connection < 0 || wire_send(connection, &hello) < 0)
    return 1;
  hear(GS_REGISTERED, GS_REGISTERED);
  wire_send(connection, &attach);
  struct gs_msg answer = hear(GS_ATTACHED, GS_REJECTED);
  if (answer.type == GS_ATTACHED)
    printf("attached %lu\n", answer.attached.capacity_bytes);
  else
    printf("rejected %u\n", answer.registered.reason);
  printf("ok\n");
  return 0;
}
