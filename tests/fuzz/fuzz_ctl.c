/*
 * fuzz_ctl.c - bytes as what a daemon answers gpusharectl, for each command that reads: it ends with one of
 * its codes, and JSON is JSON.
 *
 * Input: a byte, which command it is; then records of one byte and one message. The byte says: bit 0, the
 * header is made right first; bit 1, the packet is shorter.
 *
 * Built with -fsanitize=fuzzer this is a libFuzzer target. Otherwise it has a main: see fuzz_files.h.
 */
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/splitmix.h"
#include "common/wire.h"
#include "ctl/ctl.h"
#include "ctl/top_view.h"
#include "fuzz_files.h"

#define RECORD (1 + GS_MSG_SIZE)
#define RECORDS 200 /* what a socket's queue has room for */

/* Main of gpusharectl: see CMakeLists.txt. */
int gpusharectl_main(int argc, char **argv);

static const char *const commands[][5] = {{"gpusharectl", "status"},
                                          {"gpusharectl", "status", "--json"},
                                          {"gpusharectl", "jobs"},
                                          {"gpusharectl", "jobs", "--json"},
                                          {"gpusharectl", "why", "1"},
                                          {"gpusharectl", "why", "--json", "1"},
                                          {"gpusharectl", "events"},
                                          {"gpusharectl", "events", "--json"},
                                          {"gpusharectl", "history"},
                                          {"gpusharectl", "history", "--json"},
                                          {"gpusharectl", "timeline"},
                                          {"gpusharectl", "set-tq", "5"},
                                          {"gpusharectl", "set-weight", "1", "5"},
                                          {"gpusharectl", "--gpu", "0", "set-mode", "on"}};
#define COMMANDS (sizeof commands / sizeof *commands)

/* ---- the daemon ---- */

static char folder[] = "/tmp/gpushare-fuzz-XXXXXX", path[64];
static int listener = -1;
static const uint8_t *input;
static size_t input_size;
static pthread_barrier_t barrier;

static size_t make_packet(struct gs_msg *msg, const uint8_t *record) {
  memcpy(msg, record + 1, sizeof *msg);
  if (record[0] & 1) {
    msg->magic = GS_MAGIC;
    msg->version = GS_PROTOCOL_VERSION;
  }
  return record[0] & 2 ? sizeof *msg - 1 : sizeof *msg;
}

static void answer(int fd) {
  struct gs_msg msg;
  if (recv(fd, &msg, sizeof msg, 0) <= 0)
    return;
  const uint8_t *record = input;
  for (size_t left = input_size; left >= RECORD; left -= RECORD, record += RECORD)
    if (send(fd, &msg, make_packet(&msg, record), MSG_NOSIGNAL) < 0)
      return;
}

/* Each connection is answered with the input, and ended. A command is over when the main thread says so. */
static void *serve(void *pipe_end) {
  struct pollfd fds[] = {{.fd = listener, .events = POLLIN}, {.fd = *(int *)pipe_end, .events = POLLIN}};
  for (;;) {
    pthread_barrier_wait(&barrier);
    for (char over = 0; !over;) {
      poll(fds, 2, -1);
      if (fds[0].revents) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        answer(fd);
        close(fd);
      } else if (read(fds[1].fd, &over, 1) != 1) {
        abort();
      }
    }
    pthread_barrier_wait(&barrier);
  }
  return NULL;
}

static int ends[2];

static void clean_up(void) {
  unlink(path);
  rmdir(folder);
}

static void set_up(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  pthread_t thread;
  if (listener >= 0)
    return;
  fuzz_require(mkdtemp(folder) != NULL && pipe(ends) == 0, "no folder to write to");
  snprintf(path, sizeof path, "%s/socket", folder);
  strcpy(address.sun_path, path);
  setenv("GPUSHARE_SOCKET", path, 1);
  listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  fuzz_require(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 8) == 0,
               "nothing to listen on");
  atexit(clean_up);
  pthread_barrier_init(&barrier, NULL, 2);
  fuzz_require(pthread_create(&thread, NULL, serve, &ends[0]) == 0, "no thread");
}

/* ---- what becomes of it ---- */

static bool is_json(const char *const *command) {
  for (int i = 1; i < 4 && command[i]; i++)
    if (strcmp(command[i], "--json") == 0 || strcmp(command[i], "timeline") == 0)
      return true;
  return false;
}

/* Nothing that a terminal would obey. */
static void check_text(const char *text, size_t size) {
  for (size_t i = 0; i < size; i++)
    fuzz_require((unsigned char)text[i] >= ' ' || text[i] == '\n', "a control character in the answer");
}

static void check_json(const char *text, size_t size) {
  json_error_t error;
  for (size_t at = 0; at < size;) {
    json_t *value = json_loadb(text + at, size - at, JSON_DISABLE_EOF_CHECK, &error);
    fuzz_require(value != NULL, "an answer that is not JSON");
    json_decref(value);
    at += (size_t)error.position;
    while (at < size && text[at] == '\n')
      at++;
  }
}

static void run_command_of(const char *const *command) {
  char *text, *argv[6] = {0}, *complaint;
  size_t size, complaint_size;
  int argc = 0;
  for (; argc < 5 && command[argc]; argc++)
    argv[argc] = (char *)(uintptr_t)command[argc];
  FILE *out = stdout, *err = stderr;
  stdout = open_memstream(&text, &size);
  stderr = open_memstream(&complaint, &complaint_size);
  int code = gpusharectl_main(argc, argv);
  fclose(stdout);
  fclose(stderr);
  stdout = out;
  stderr = err;
  fuzz_require(code >= CTL_OK && code <= CTL_NO_DAEMON, "another code than there is");
  fuzz_require(code == CTL_OK || complaint_size > 0, "a failure without a word");
  check_text(complaint, complaint_size);
  check_text(text, size);
  if (code == CTL_OK && is_json(command))
    check_json(text, size);
  free(text);
  free(complaint);
}

/* What top shows of it, when it is answered twice. */
static void check_line(const char *line) { check_text(line, strnlen(line, TOP_TEXT_SIZE)); }

static bool make_model(struct top_model *model, const struct top_model *before) {
  struct gs_msg *msgs;
  struct ask_error error;
  size_t count;
  int fd, code = ask_try_connect(path, &fd, &error);
  fuzz_require(code == CTL_OK, "the played daemon is not there");
  code = ask_try_status(fd, &msgs, &count, &error);
  close(fd);
  if (code != CTL_OK)
    check_text(error.text, strlen(error.text));
  return code == CTL_OK && top_model_make(model, msgs, count, before) == 0;
}

static void show_top(void) {
  struct top_model none = {0}, first, second;
  struct top_view view = top_view_init(NS_PER_S);
  char line[TOP_TEXT_SIZE];
  if (!make_model(&first, &none))
    return;
  fuzz_require(make_model(&second, &first), "another answer than before");
  unsigned columns = top_text_columns(100, &second);
  if (second.status.daemon) {
    top_text_daemon(line, &second);
    check_line(line);
  }
  for (size_t i = 0; i < second.status.gpu_count; i++) {
    top_text_gpu(line, &second.gpus[i]);
    check_line(line);
    top_text_memory(line, &second.gpus[i]);
    top_text_handovers(line, &second.gpus[i]);
  }
  for (size_t i = 0; i < second.status.job_count; i++) {
    top_text_job(line, columns, &second.jobs[i]);
    check_line(line);
  }
  for (const char *key = "jkc/a\nMPTNs"; *key; key++) {
    top_view_press(&view, *key);
    top_view_arrange(&view, key[1] % 2 ? &first : &second);
  }
  top_view_end(&view);
  top_model_clear(&first);
  top_model_clear(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0 || size > RECORDS * RECORD)
    return 0;
  set_up();
  input = data + 1;
  input_size = size - 1;
  pthread_barrier_wait(&barrier);
  if (*data % (COMMANDS + 1) == COMMANDS)
    show_top();
  else
    run_command_of(commands[*data % (COMMANDS + 1)]);
  fuzz_require(write(ends[1], "x", 1) == 1, "the pipe is broken");
  pthread_barrier_wait(&barrier);
  return 0;
}

#ifndef GS_LIBFUZZER

/* ---- without libFuzzer ---- */

static uint64_t random_state;
static uint8_t history[1 + RECORDS * RECORD];

static unsigned random_below(unsigned bound) { return (unsigned)(splitmix_next(&random_state) % bound); }

static void make_record(uint8_t *record, bool events, bool last) {
  static const enum gs_msg_type of_status[] = {GS_STATUS_GPU,   GS_STATUS_HANDOVER, GS_STATUS_JOB,
                                               GS_STATUS_TERMS, GS_STATUS_WAIT,     GS_STATUS_ORIGIN,
                                               GS_STATUS_MEMORY};
  enum gs_msg_type type = events ? GS_EVENT : of_status[random_below(7)];
  if (random_below(60) == 0)
    type = (enum gs_msg_type)(96 + random_below(20));
  if (last)
    type = events ? GS_EVENTS_END : GS_STATUS_END;
  struct gs_msg msg = wire_msg(type, random_below(3));
  for (size_t i = 0; i < sizeof msg.raw; i++)
    msg.raw[i] = random_below(3) ? (uint8_t)random_below(4) : (uint8_t)random_below(256);
  if (type == GS_STATUS_JOB && random_below(2))
    msg.job_status.job = 1;
  if (type == GS_EVENT) {
    msg.event.kind = (uint16_t)random_below(40);
    msg.event.job = random_below(4);
  }
  if (random_below(20) == 0)
    msg.status = (int32_t)splitmix_next(&random_state);
  record[0] = (uint8_t)(random_below(200) ? 1 : random_below(4));
  memcpy(record + 1, &msg, sizeof msg);
}

/* A status or a record of events: with its first message, and mostly with its end. */
static size_t make_history(void) {
  size_t records = 2 + random_below(40);
  history[0] = (uint8_t)random_below(COMMANDS + 1);
  bool events = history[0] >= 6 && (history[0] < 10 || random_below(2));
  for (size_t i = 0; i < records; i++)
    make_record(history + 1 + i * RECORD, events, i == records - 1 && random_below(8));
  if (random_below(8)) {
    struct gs_msg msg = wire_msg(events ? GS_EVENTS_BEGIN : GS_STATUS_DAEMON, GS_GPU_ALL);
    memcpy(history + 2, &msg, sizeof msg);
  }
  return 1 + records * RECORD;
}

static int run_random(uint64_t seed, uint64_t runs) {
  for (uint64_t i = 0; i < runs; i++) {
    random_state = seed + i;
    fprintf(stderr, "\rseed %llu ", (unsigned long long)random_state);
    LLVMFuzzerTestOneInput(history, make_history());
  }
  fprintf(stderr, "\n");
  return EXIT_SUCCESS;
}

static int write_corpus(const char *write_to) {
  int result = EXIT_SUCCESS;
  for (unsigned i = 0; i < 64 && result == EXIT_SUCCESS; i++) {
    random_state = i;
    result = fuzz_write(write_to, "answer", i, history, make_history());
  }
  return result;
}

int main(int argc, char **argv) { return fuzz_main(argc, argv, run_random, write_corpus); }

#endif
