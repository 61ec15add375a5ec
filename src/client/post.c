/*
 * post.c - see post.h.
 *
 * Why two threads: only a descriptor, or a signal, which is the program's, wakes a thread that waits for a
 * socket. So the one that waits for the socket waits for nothing else. The other one, which may be asked to
 * send, or to make and end connections, waits on a condition.
 */
#include "client/post.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "common/condition.h"
#include "common/descriptor.h"
#include "common/futex.h"
#include "common/lock.h"
#include "common/thread.h"
#include "common/wire.h"

#define LETTERS 64   /* that have come and are not taken; then nothing more is received */
#define MESSAGES 256 /* that are to go */
#define CHECK_MS 500 /* how often a socket in the program's table is looked after */

enum readiness { STARTING, READY, FAILED };

static struct post {
  struct lock *lock; /* protects everything here */
  void (*arrived)(void);
  struct descriptor socket; /* in the table of these threads */
  uint64_t connection;      /* counts them: which one a thread has waited for */
  int end;                  /* why the connection has ended: -errno; 0: it has not */
  const char *connect_to;   /* an order to the sender; NULL once it is obeyed */
  int connect_err;
  bool shut, hang_up; /* likewise */
  bool polls;         /* the receiver waits for the socket */
  struct condition orders, arrivals, obeyed, left;
  unsigned letter_first, letter_count, message_first, message_count;
  struct letter letters[LETTERS];
  struct gs_msg messages[MESSAGES];
} post = {.socket = {.fd = -1}};

static _Atomic uint32_t readiness; /* enum readiness; futex */
static bool own_table;             /* written before the threads are ready */

static void end(int err) {
  post.end = err;
  post.arrived();
}

/* The program has closed it, if it is not ours: then there is nothing left to close. */
static bool is_there(void) {
  if (post.socket.fd >= 0 && !descriptor_is_ours(&post.socket)) {
    post.socket = DESCRIPTOR_NONE;
    end(-ECONNRESET);
  }
  return post.socket.fd >= 0;
}

/* ---- the sender ---- */

/* The receiver, which may wait for the old socket, sees its end, and leaves. Why that is waited for: a poll
 * that wakes up looks at what has its number by then, and would sleep on for good if that is a new socket. */
static void close_socket(void) {
  post.end = post.end ? post.end : -ENOTCONN;
  if (is_there())
    shutdown(post.socket.fd, SHUT_RDWR);
  while (post.polls && own_table) /* else it does not wait for long */
    condition_wait(&post.left, post.lock, UINT64_MAX);
  descriptor_close(&post.socket);
  post.end = 0;
  post.connection++;
}

static int open_socket(const char *path) {
  int err = wire_connect_as_guest(path, &post.socket);
  if (err == 0)
    condition_wake_all(&post.arrivals);
  return err;
}

/* Lock held. */
static void send_first(void) {
  struct gs_msg *msg = &post.messages[post.message_first];
  if (!post.end && is_there() && wire_send(post.socket.fd, msg) < 0)
    shutdown(post.socket.fd, SHUT_RDWR); /* the receiver sees the end */
  post.message_first = (post.message_first + 1) % MESSAGES;
  post.message_count--;
}

static void *sender_run(void *unused) {
  thread_begin("gpushare-send");
  lock_take(post.lock);
  for (;;) {
    if (post.hang_up) {
      close_socket();
      post.hang_up = post.shut = false;
    } else if (post.connect_to) {
      close_socket();
      post.connect_err = open_socket(post.connect_to);
      post.connect_to = NULL;
    } else if (post.message_count) {
      send_first();
    } else if (post.shut) {
      if (is_there())
        shutdown(post.socket.fd, SHUT_RDWR);
      post.shut = false;
    } else {
      condition_wake_all(&post.obeyed);
      condition_wait(&post.orders, post.lock, UINT64_MAX);
    }
  }
  return unused;
}

/* ---- the receiver ---- */

static void receive(void) {
  struct letter *letter = &post.letters[(post.letter_first + post.letter_count) % LETTERS];
  if (!is_there())
    return;
  *letter = (struct letter){0};
  letter->err = wire_recv(post.socket.fd, &letter->msg);
  if (letter->err == -EAGAIN)
    return;
  if (letter->err == 0 || letter->err == -ENOSYS || letter->err == -EPROTONOSUPPORT) {
    post.letter_count++;
    post.arrived();
  } else {
    end(letter->err);
  }
}

static void *receiver_run(void *unused) {
  own_table = descriptor_own_table();
  bool started = thread_start_needed(sender_run, NULL) == 0; /* it shares this thread's table */
  atomic_store(&readiness, started ? READY : FAILED);
  futex_wake(&readiness, INT32_MAX);
  if (!started)
    return unused;
  thread_begin("gpushare-recv");
  lock_take(post.lock);
  for (;;) {
    if (post.end || post.letter_count == LETTERS || !is_there()) {
      condition_wait(&post.arrivals, post.lock, UINT64_MAX);
      continue;
    }
    struct pollfd readable = {.fd = post.socket.fd, .events = POLLIN};
    uint64_t connection = post.connection;
    post.polls = true;
    lock_release(post.lock);
    poll(&readable, 1, own_table ? -1 : CHECK_MS);
    lock_take(post.lock);
    post.polls = false;
    condition_wake_all(&post.left);
    if (connection == post.connection && !post.end)
      receive();
  }
  return unused;
}

/* ---- what the others ask for ---- */

/* The caller has the lock, which neither thread takes before it is ready. */
int post_start(struct lock *lock, void (*arrived)(void)) {
  if (atomic_load(&readiness) == READY)
    return 0;
  atomic_store(&readiness, STARTING);
  post.lock = lock;
  post.arrived = arrived;
  int err = thread_start_needed(receiver_run, NULL);
  if (err < 0)
    return err;
  while (atomic_load(&readiness) == STARTING)
    futex_wait(&readiness, STARTING, UINT64_MAX);
  return atomic_load(&readiness) == READY ? 0 : -EAGAIN;
}

int post_connect(const char *path) {
  post.connect_to = path;
  condition_wake_all(&post.orders);
  while (post.connect_to)
    condition_wait(&post.obeyed, post.lock, UINT64_MAX);
  return post.connect_err;
}

void post_send(const struct gs_msg *msg) {
  if (post.message_count == MESSAGES) {
    post_shut();
    return;
  }
  post.messages[(post.message_first + post.message_count++) % MESSAGES] = *msg;
  condition_wake_all(&post.orders);
}

bool post_take(struct letter *letter) {
  if (post.letter_count) {
    *letter = post.letters[post.letter_first];
    post.letter_first = (post.letter_first + 1) % LETTERS;
    if (post.letter_count-- == LETTERS)
      condition_wake_all(&post.arrivals);
    return true;
  }
  *letter = (struct letter){.err = post.end};
  return post.end != 0;
}

void post_shut(void) {
  post.shut = true;
  condition_wake_all(&post.orders);
}

void post_hang_up(void) {
  for (struct letter letter; post.letter_count && post_take(&letter);)
    ;
  post.message_count = 0;
  post.end = -ENOTCONN; /* nothing more is received by it */
  post.hang_up = true;
  condition_wake_all(&post.orders);
}

void post_flush(uint64_t deadline_ns) {
  while (post.message_count && condition_wait(&post.obeyed, post.lock, deadline_ns))
    ;
}

/* Where the socket was in the program's table, the child has it, too. */
void post_fork_child(void) {
  descriptor_close(&post.socket);
  post = (struct post){.socket = DESCRIPTOR_NONE};
  atomic_store(&readiness, STARTING);
}
