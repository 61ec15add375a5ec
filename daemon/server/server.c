/* server.c - the event loop: accepts, receives, keeps time. */
#include "server/server.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "server/daemon_log.h"
#include "server/keep.h"
#include "server/listen.h"

#define EVENTS_PER_TURN 512
/* In one turn of the loop, between two looks at timers. */
#define ACCEPT_NS (NS_PER_MS / 2)
#define LEAVE_NS (NS_PER_MS / 4)
#define SERVE_NS (NS_PER_MS / 2)
#define PICTURE_NS (NS_PER_MS / 4)
#define ORDERS_NS (NS_PER_MS / 4)
#define ORDERS_BETWEEN_LOOKS 4 /* jobs, at the clock */
#define ACCEPT_PAUSE_NS (NS_PER_S / 10)

/* ---- set-up ---- */

static int watch(struct server *server, int fd, void *what) {
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
  return epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* How many descriptors there may be: as many as it is allowed. */
static uint64_t raise_descriptor_limit(void) {
  struct rlimit limit = {.rlim_cur = 1024};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    struct rlimit most = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &most) == 0)
      limit = most;
  }
  return limit.rlim_cur < USERS_UNBOUNDED ? limit.rlim_cur : USERS_UNBOUNDED;
}

static void close_descriptor(int *fd) {
  if (*fd >= 0)
    close(*fd);
  *fd = -1;
}

int server_open(struct server *server, struct daemon *daemon, const char *path, int passed_fd,
                const sigset_t *signals) {
  *server = (struct server){
      .daemon = daemon, .path = path, .passed = passed_fd >= 0, .timer_ns = UINT64_MAX, .group = (gid_t)-1};
  server->epoll_fd = server->timer_fd = server->signal_fd = -1;
  list_init(&server->open);
  list_init(&server->closed);
  list_init(&server->due);
  list_init(&server->readers);
  list_init(&server->reloads);
  list_init(&server->asking);
  list_init(&server->answering);
  rota_init(&server->rota);
  rota_init(&server->leaving);
  users_init(&server->users, raise_descriptor_limit());
  daemon->accounts = &server->users;
  daemon->scheduler.deferred = true;
  server->listen_fd = server->passed ? passed_fd : listen_open(path, SOCK_SEQPACKET, &server->identity);
  if (server->listen_fd < 0)
    return server->listen_fd;
  server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  server->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  server->signal_fd = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
  int err = server->epoll_fd < 0 || server->timer_fd < 0 || server->signal_fd < 0 ? -errno : 0;
  int *const watched[] = {&server->timer_fd, &server->signal_fd, &server->listen_fd};
  for (size_t i = 0; err == 0 && i < sizeof watched / sizeof *watched; i++)
    err = watch(server, *watched[i], watched[i]);
  presence_open(server);
  if (err < 0) {
    log_error("can't set up the event loop: %s", strerror(-err));
    server_close(server);
  }
  return err;
}

int server_add_guest(struct server *server, const struct server_guest *guest) {
  int err = watch(server, guest->fd, &server->guest);
  if (err == 0)
    server->guest = *guest;
  return err;
}

void server_remove_guest(struct server *server) { server->guest = (struct server_guest){0}; }

void server_close(struct server *server) {
  if (server->listen_fd >= 0)
    listen_remove(server->path, &server->identity);
  close_descriptor(&server->listen_fd);
  peers_close_all(server);
  presence_close(server);
  users_end(&server->users);
  close_descriptor(&server->signal_fd);
  close_descriptor(&server->timer_fd);
  close_descriptor(&server->epoll_fd);
}

/* ---- accepting ---- */

static void set_accepting(struct server *server, bool accepting, uint64_t now_ns) {
  struct epoll_event event = {.events = accepting ? EPOLLIN : 0, .data.ptr = &server->listen_fd};
  epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, server->listen_fd, &event);
  server->accept_ns = accepting ? 0 : now_ns + ACCEPT_PAUSE_NS;
}

/* As fast as can be: all users' connections wait in the same queue. */
static void accept_peers(struct server *server) {
  uint64_t now_ns = clock_now_ns();
  for (uint64_t end_ns = now_ns + ACCEPT_NS; now_ns < end_ns; now_ns = clock_now_ns()) {
    int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      peers_add(server, fd, now_ns);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      log_for(LOG_NOBODY, LOG_LEVEL_WARN, "no room for more connections: %s", strerror(errno));
      set_accepting(server, false, now_ns); /* those in the queue keep the listener readable: don't spin */
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

/* ---- time ---- */

static uint64_t next_deadline_ns(const struct server *server) {
  const uint64_t all_ns[] = {peers_deadline_ns(server),
                             server->notify->next_ns,
                             log_for_deadline_ns(),
                             pictures_deadline_ns(server),
                             presence_deadline_ns(server),
                             server->guest.of ? server->guest.deadline_ns(server->guest.of) : UINT64_MAX,
                             server->accept_ns ? server->accept_ns : UINT64_MAX};
  uint64_t next_ns = daemon_deadline_ns(server->daemon);
  for (size_t i = 0; i < sizeof all_ns / sizeof *all_ns; i++)
    next_ns = all_ns[i] < next_ns ? all_ns[i] : next_ns;
  return next_ns;
}

/* The timer may be set for earlier than needed, never for later: most changes then cost no call. */
static void set_timer(struct server *server) {
  uint64_t next_ns = next_deadline_ns(server);
  if (next_ns >= server->timer_ns)
    return;
  struct itimerspec when = {.it_value = clock_timespec(next_ns ? next_ns : 1)}; /* 0 would switch it off */
  if (timerfd_settime(server->timer_fd, TFD_TIMER_ABSTIME, &when, NULL) == 0)
    server->timer_ns = next_ns;
}

static void do_what_is_due(struct server *server, uint64_t now_ns) {
  daemon_on_time(server->daemon, now_ns);
  peers_on_time(server, now_ns);
  presence_on_time(server, now_ns);
  if (server->accept_ns && now_ns >= server->accept_ns)
    set_accepting(server, true, now_ns);
  if (server->guest.of && now_ns >= server->guest.deadline_ns(server->guest.of))
    server->guest.run(server->guest.of, now_ns);
  notify_alive(server->notify, now_ns, server->daemon->client_count);
  log_for_on_time(now_ns);
}

/* What events have left over, whose users pay for it. */
static void tell_orders(struct server *server) {
  struct daemon *daemon = server->daemon;
  if (actions_are_told(daemon))
    return;
  uint64_t begin_ns = clock_now_ns(), now_ns = begin_ns;
  struct user *user =
      daemon->actions_uid == LOG_NOBODY ? NULL : users_find(&server->users, daemon->actions_uid);
  for (; !actions_are_told(daemon) && now_ns < begin_ns + ORDERS_NS; now_ns = clock_now_ns())
    actions_tell_some(daemon, ORDERS_BETWEEN_LOOKS, now_ns);
  if (user)
    rota_spend(&user->rota, now_ns - begin_ns);
  if (actions_are_told(daemon))
    daemon->actions_uid = LOG_NOBODY;
}

/* ---- the loop ---- */

static void handle(struct server *server, const struct epoll_event *event) {
  const void *what = event->data.ptr;
  struct signalfd_siginfo info;
  uint64_t expirations;
  if (what == &server->listen_fd) {
    accept_peers(server);
  } else if (what == &server->timer_fd) {
    if (read(server->timer_fd, &expirations, sizeof expirations) > 0)
      server->timer_ns = UINT64_MAX;
  } else if (what == &server->signal_fd) {
    while (read(server->signal_fd, &info, sizeof info) == sizeof info)
      server->on_signal(server, &info);
  } else if (what == &server->guest) {
    if (server->guest.of) /* else it was removed in this turn of the loop */
      server->guest.run(server->guest.of, clock_now_ns());
  } else if (what == &server->presence) {
    presence_on_event(server);
  } else if (what == &server->daemon->state) {
    keep_on_written(server->daemon);
  } else {
    peers_on_event(event->data.ptr, event->events);
  }
}

/* Each turn of it is short, however much there is to do: what epoll tells is put down for the users whom it
 * concerns, GPUs are given back for a while, users are served for a while, and timers are looked at. */
int server_run(struct server *server) {
  struct epoll_event events[EVENTS_PER_TURN];
  bool more = false;
  int err =
      server->daemon->state ? watch(server, state_fd(server->daemon->state), &server->daemon->state) : 0;
  if (err < 0)
    log_warn("it can't be heard of what is kept: %s: answers come late", strerror(-err));
  while (!server->stop) {
    if (!more)
      set_timer(server);
    int count = epoll_wait(server->epoll_fd, events, EVENTS_PER_TURN, more ? 0 : -1);
    if (count < 0 && errno != EINTR) {
      err = -errno;
      log_error("epoll_wait: %s", strerror(errno));
      return err;
    }
    server->turn_ns = clock_now_ns();
    for (int i = 0; i < count; i++)
      handle(server, &events[i]);
    uint64_t now_ns = clock_now_ns();
    do_what_is_due(server, now_ns);
    peers_admit_settled(server);
    peers_serve_leaving(server, now_ns + LEAVE_NS);
    peers_serve(server, clock_now_ns() + SERVE_NS);
    tell_orders(server);
    if ((now_ns = clock_now_ns()) >= pictures_deadline_ns(server))
      pictures_run(server, now_ns + PICTURE_NS);
    readers_on_news(server);
    more = rota_next(&server->leaving) || rota_next(&server->rota) || !list_empty(&server->answering) ||
           !actions_are_told(server->daemon);
  }
  return 0;
}
