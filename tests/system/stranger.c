/* stranger.c - a daemon of another version: answers every REGISTER with REJECTED. usage: stranger SOCKET */
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/wire.h"

static void refuse(int client) {
  struct gs_msg msg;
  struct pollfd readable = {.fd = client, .events = POLLIN};
  if (poll(&readable, 1, 5000) > 0 && wire_recv(client, &msg) == 0) {
    msg = wire_msg(GS_REJECTED, 0);
    msg.version = GS_PROTOCOL_VERSION + 7;
    msg.registered.reason = GS_REJECT_VERSION;
    msg.registered.value = GS_PROTOCOL_VERSION + 7;
    send(client, &msg, sizeof msg, MSG_NOSIGNAL);
  }
  close(client);
}

int main(int argc, char **argv) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (argc != 2)
    return 2;
  snprintf(address.sun_path, sizeof address.sun_path, "%s", argv[1]);
  if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 8) != 0)
    return 1;
  printf("listening\n");
  fflush(stdout);
  for (;;) {
    struct pollfd events[] = {{.fd = 0, .events = POLLIN}, {.fd = listener, .events = POLLIN}};
    if (poll(events, 2, -1) <= 0)
      continue;
    if (events[0].revents)
      return 0;
    refuse(accept(listener, NULL, NULL));
  }
}
