/*
 * played_mps.c - plays nvidia-cuda-mps-control, as far as gpushare and the simulated driver see of it.
 *
 * With -f: notes in control.log, below CUDA_MPS_LOG_DIRECTORY, what it was started with, makes a socket
 * "control" in CUDA_MPS_PIPE_DIRECTORY, and takes clients until it is told to quit. Without: passes the lines
 * of its stdin on to there.
 *
 * A file "mps" two folders above that of the pipes says what goes wrong: "exit": it ends at once with 3;
 * "refuse": it takes no clients; "deaf": it neither quits nor minds SIGTERM.
 */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CONNECTIONS_MOST 32

static char fault[16];
static struct pollfd polls[1 + CONNECTIONS_MOST];
static nfds_t count;

static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value ? value : "-";
}

static void read_fault(void) {
  char path[256];
  snprintf(path, sizeof path, "%s/../../mps", variable("CUDA_MPS_PIPE_DIRECTORY"));
  FILE *file = fopen(path, "r");
  if (file && fscanf(file, "%15s", fault) != 1)
    *fault = '\0';
  if (file)
    fclose(file);
}

static void note(const char *format, const char *text) {
  char path[256];
  snprintf(path, sizeof path, "%s/control.log", variable("CUDA_MPS_LOG_DIRECTORY"));
  FILE *file = fopen(path, "a");
  if (!file)
    exit(1);
  fprintf(file, format, text);
  fclose(file);
}

static struct sockaddr_un address(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%.90s/control", variable("CUDA_MPS_PIPE_DIRECTORY"));
  return address;
}

/* ---- the control ---- */

static void listen_there(void) {
  struct sockaddr_un at = address();
  polls[0] = (struct pollfd){.fd = socket(AF_UNIX, SOCK_STREAM, 0), .events = POLLIN};
  if (bind(polls[0].fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(polls[0].fd, CONNECTIONS_MOST) < 0)
    exit(2);
  count = 1;
}

static void obey(int fd, const char *line) {
  if (strncmp(line, "quit", 4) == 0 && strcmp(fault, "deaf") != 0) {
    note("quit%s\n", "");
    exit(0);
  }
  if (strncmp(line, "client", 6) == 0) {
    note("%s", line);
    const char *answer = strcmp(fault, "refuse") == 0 ? "no\n\n" : "yes\n";
    if (write(fd, answer, 4) != 4)
      exit(4);
  }
}

/* False: its other end has gone. */
static bool hear(int fd) {
  char line[64];
  ssize_t length = read(fd, line, sizeof line - 1);
  if (length <= 0)
    return false;
  line[length] = '\0';
  obey(fd, line);
  return true;
}

static _Noreturn void control(void) {
  char number[16];
  if (strcmp(fault, "deaf") == 0)
    signal(SIGTERM, SIG_IGN);
  snprintf(number, sizeof number, "%d", getpid());
  note("start %s", number);
  note(" visible=%s", variable("CUDA_VISIBLE_DEVICES"));
  note(" preload=%s\n", variable("LD_PRELOAD"));
  if (strcmp(fault, "exit") == 0) {
    fprintf(stderr, "a first line\nno GPU \033[31mhere\n");
    exit(3);
  }
  listen_there();
  for (;;) {
    poll(polls, count, -1);
    if (polls[0].revents && count < CONNECTIONS_MOST)
      polls[count++] = (struct pollfd){.fd = accept(polls[0].fd, NULL, NULL), .events = POLLIN};
    for (nfds_t i = 1; i < count; i++)
      if (polls[i].revents && !hear(polls[i].fd)) {
        close(polls[i].fd);
        polls[i--] = polls[--count];
      }
  }
}

/* ---- its interface ---- */

static int pass_on(void) {
  struct sockaddr_un at = address();
  char line[64];
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (connect(fd, (struct sockaddr *)&at, sizeof at) < 0)
    return 1;
  while (fgets(line, sizeof line, stdin))
    if (write(fd, line, strlen(line)) < 0)
      return 1;
  return 0;
}

int main(int argc, char **argv) {
  read_fault();
  if (argc == 1)
    return pass_on();
  if (argc != 2 || strcmp(argv[1], "-f") != 0)
    return 64;
  control();
}
