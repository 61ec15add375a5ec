/*
 * proxy.c - stands between the clients and the daemon, forwards every message, and kills one party at the
 * n-th message of a type: so that tests can kill each party at each message.
 *
 * usage: proxy LISTEN-SOCKET DAEMON-SOCKET TYPE NTH client|daemon before|after DAEMON-PID
 *
 * TYPE is a number of enum gs_msg_type; `client` is the one whose connection the message passes. Says
 * "listening", then "hit" when it has killed. Ends when its stdin ends.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/wire.h"

#define PAIRS_MAX 64

struct pair {
  int client, daemon; /* -1: free */
};

static struct pair pairs[PAIRS_MAX];
static unsigned wanted_type;
static int wanted_count;
static bool kill_client, kill_before;
static pid_t daemon_pid;

static int listen_at(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, PAIRS_MAX) != 0) {
    perror(path);
    exit(1);
  }
  return fd;
}

static void pair_close(struct pair *pair) {
  close(pair->client);
  close(pair->daemon);
  pair->client = pair->daemon = -1;
}

static void pair_open(int client, const char *daemon_path) {
  int daemon = client < 0 ? -1 : wire_connect(daemon_path);
  for (int i = 0; daemon >= 0 && i < PAIRS_MAX; i++)
    if (pairs[i].client < 0) {
      pairs[i] = (struct pair){client, daemon};
      return;
    }
  if (daemon >= 0)
    close(daemon);
  if (client >= 0)
    close(client);
}

static void kill_victim(const struct pair *pair) {
  struct ucred peer = {0};
  socklen_t size = sizeof peer;
  getsockopt(pair->client, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  kill(kill_client ? peer.pid : daemon_pid, SIGKILL);
  printf("hit\n");
  fflush(stdout);
}

static bool is_the_one(const struct gs_msg *msg) {
  return msg->type == wanted_type && wanted_count > 0 && --wanted_count == 0;
}

/* One packet from one end to the other. False: the connection is over. */
static bool forward(const struct pair *pair, int from, int to) {
  struct gs_msg msg;
  ssize_t got = recv(from, &msg, sizeof msg, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return true;
  if (got <= 0)
    return false;
  bool hit = got == sizeof msg && is_the_one(&msg);
  if (hit && kill_before)
    kill_victim(pair);
  send(to, &msg, (size_t)got, MSG_NOSIGNAL);
  if (hit && !kill_before)
    kill_victim(pair);
  return true;
}

static void serve(int listener, const char *daemon_path) {
  struct pollfd events[2 + 2 * PAIRS_MAX];
  for (;;) {
    events[0] = (struct pollfd){.fd = 0, .events = POLLIN};
    events[1] = (struct pollfd){.fd = listener, .events = POLLIN};
    for (int i = 0; i < PAIRS_MAX; i++) {
      events[2 + 2 * i] = (struct pollfd){.fd = pairs[i].client, .events = POLLIN};
      events[3 + 2 * i] = (struct pollfd){.fd = pairs[i].daemon, .events = POLLIN};
    }
    if (poll(events, 2 + 2 * PAIRS_MAX, -1) < 0)
      continue;
    if (events[0].revents)
      return;
    for (int i = 0; i < PAIRS_MAX; i++) {
      struct pair *pair = &pairs[i];
      bool over = (events[2 + 2 * i].revents && !forward(pair, pair->client, pair->daemon)) ||
                  (events[3 + 2 * i].revents && !forward(pair, pair->daemon, pair->client));
      if (over)
        pair_close(pair);
    }
    if (events[1].revents)
      pair_open(accept4(listener, NULL, NULL, SOCK_CLOEXEC), daemon_path);
  }
}

int main(int argc, char **argv) {
  if (argc != 8)
    return 2;
  wanted_type = (unsigned)atoi(argv[3]);
  wanted_count = atoi(argv[4]);
  kill_client = strcmp(argv[5], "client") == 0;
  kill_before = strcmp(argv[6], "before") == 0;
  daemon_pid = atoi(argv[7]);
  for (int i = 0; i < PAIRS_MAX; i++)
    pairs[i].client = pairs[i].daemon = -1;
  int listener = listen_at(argv[1]);
  printf("listening\n");
  fflush(stdout);
  serve(listener, argv[2]);
  return 0;
}
