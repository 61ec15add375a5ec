/* web_main.c - gpushare-web: a page for browsers on a socket that somebody else has opened, and its data. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/parse.h"
#include "http/http_server.h"
#include "web/page.h"
#include "web/snapshot.h"

enum { EXIT_USAGE = 64, EXIT_ABSENT = 69, EXIT_RIGHTS = 77 };

#define PASSED_FD 3  /* as sd_listen_fds(3) describes it */
#define NOBODY 65534 /* user and group */
#define FRESH_NS                                                                                             \
  (NS_PER_S / 10 * 9) /* a snapshot is for all who ask within that time; the page asks each second */
#define PLACES 64u    /* a browser has up to three at a time */
#define NONCE_SIZE 33

#define POLICY "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

struct web {
  struct http_server *http;
  struct snapshot snapshot;
  struct MHD_Response *status, *why; /* of the last snapshot; NULL: there is an error instead */
};

/* ---- who may ask ---- */

/* Against DNS rebinding: a page of somebody else reaches us only under a name that is theirs. So the host is
 * an address, or a name that is ours: localhost, or the machine's. */
static bool is_ours(const char *host) {
  char name[256], own[256] = "";
  struct in6_addr ip6;
  struct in_addr ip4;
  bool bracket = *host == '[';
  const char *begin = host + bracket, *end = begin + strcspn(begin, bracket ? "]" : ":");
  const char *port = end + (bracket && *end);
  if (end == begin || end - begin >= (ptrdiff_t)sizeof name ||
      (*port && (*port != ':' || port[1 + strspn(port + 1, "0123456789")])))
    return false;
  snprintf(name, sizeof name, "%.*s", (int)(end - begin), begin);
  if (bracket)
    return *end && inet_pton(AF_INET6, name, &ip6) == 1;
  gethostname(own, sizeof own - 1);
  return inet_pton(AF_INET, name, &ip4) == 1 || strcasecmp(name, "localhost") == 0 ||
         (*own && strcasecmp(name, own) == 0);
}

/* ---- what is answered ---- */

/* The page, in which a nonce, of this answer only, lets its own script and style be. */
static int send_page(const struct web *web, const struct http_request *request) {
  char nonce[NONCE_SIZE], policy[512], *text = NULL;
  uint64_t random[2];
  size_t size;
  FILE *out = getrandom(random, sizeof random, 0) == sizeof random ? open_memstream(&text, &size) : NULL;
  if (!out)
    return http_say(web->http, request, 503, "out of memory\n");
  snprintf(nonce, sizeof nonce, "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
  for (const char *rest = page_begin; rest < page_end;) {
    const char *mark = memmem(rest, (size_t)(page_end - rest), NONCE_MARK, strlen(NONCE_MARK));
    fwrite(rest, 1, (size_t)((mark ? mark : page_end) - rest), out);
    fputs(mark ? nonce : "", out);
    rest = mark ? mark + strlen(NONCE_MARK) : page_end;
  }
  if (fclose(out) != 0) {
    free(text);
    return http_say(web->http, request, 503, "out of memory\n");
  }
  struct MHD_Response *page = http_page(web->http, text, size, "text/html; charset=utf-8");
  snprintf(policy, sizeof policy,
           POLICY "; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'; img-src data:; "
                  "require-trusted-types-for 'script'",
           nonce, nonce);
  int result = page && http_set_header(page, "Content-Security-Policy", policy)
                   ? http_send(request, page)
                   : http_say(web->http, request, 503, "out of memory\n");
  http_drop(page);
  return result;
}

static struct MHD_Response *data_page(const struct web *web, char *text, size_t size, const char *type) {
  struct MHD_Response *page = text ? http_page(web->http, text, size, type) : NULL;
  if (page)
    http_set_header(page, "Content-Security-Policy", POLICY);
  return page;
}

static int send_events(const struct web *web, const struct http_request *request) {
  const char *argument = http_argument_of(request, "after");
  int64_t after = 0;
  size_t size = 0;
  if (argument && parse_integer(argument, 0, INT64_MAX, &after) < 0)
    return http_say(web->http, request, 400, "after is the number of an event (seq), or is left out\n");
  char *text = snapshot_events(&web->snapshot, (uint64_t)after, &size);
  struct MHD_Response *page = data_page(web, text, size, "application/x-ndjson");
  int result = page ? http_send(request, page) : http_say(web->http, request, 503, "out of memory\n");
  http_drop(page);
  return result;
}

/* One snapshot is for all who ask while it is made, or soon after. */
static int answer(void *context, const struct http_request *request) {
  struct web *web = context;
  const char *host = http_header_of(request, "Host"), *path = request->path;
  uint64_t now_ns = clock_now_ns();
  if (!host || !is_ours(host))
    return http_say(web->http, request, 403,
                    "not under this host's name: open the page by localhost or an address, as in "
                    "http://127.0.0.1:9466/\n");
  if (strcmp(path, "/") == 0)
    return send_page(web, request);
  bool events = strcmp(path, "/api/events") == 0, status = strcmp(path, "/api/status") == 0;
  if (!events && !status && strcmp(path, "/api/why") != 0)
    return http_say(web->http, request, 404,
                    "the page is at /, its data at /api/status, /api/why, /api/events\n");
  bool fresh = web->snapshot.made_ns && now_ns - web->snapshot.made_ns < FRESH_NS;
  if (!request->waited && (!fresh || web->snapshot.step != SNAPSHOT_RESTS)) {
    snapshot_begin(&web->snapshot, now_ns);
    return http_wait(request, 0);
  }
  if (!web->status || !web->why)
    return http_say(web->http, request, 503,
                    *web->snapshot.error.text ? web->snapshot.error.text : "out of memory");
  if (events)
    return send_events(web, request);
  return http_send(request, status ? web->status : web->why);
}

static void publish(struct web *web) {
  struct snapshot *snapshot = &web->snapshot;
  bool failed = *snapshot->error.text;
  http_drop(web->status);
  http_drop(web->why);
  web->status = web->why = NULL;
  if (!failed) {
    web->status = data_page(web, snapshot->status, strlen(snapshot->status), "application/json");
    web->why = data_page(web, snapshot->why, strlen(snapshot->why), "application/json");
    snapshot->status = snapshot->why = NULL;
  }
  http_resume(web->http, 0);
}

/* ---- from the beginning ---- */

/* By the daemon, or by systemd. The environment goes no further. */
static bool is_passed(void) {
  const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
  int64_t number;
  return pid && count && parse_integer(pid, 1, INT32_MAX, &number) == 0 && number == getpid() &&
         strcmp(count, "1") == 0 && fcntl(PASSED_FD, F_SETFD, FD_CLOEXEC) == 0 &&
         fcntl(PASSED_FD, F_SETFL, fcntl(PASSED_FD, F_GETFL) | O_NONBLOCK) == 0;
}

/* Other ids make the kernel forget that this process ends with its parent. */
static bool give_up_rights(void) {
  pid_t parent = getppid();
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
                         setresuid(NOBODY, NOBODY, NOBODY) < 0))
    return false;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return getppid() == parent;
}

static int wait_ms(uint64_t deadline_ns, uint64_t now_ns) {
  if (deadline_ns == HTTP_NEVER)
    return -1;
  uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
  return left_ns > 60 * NS_PER_S ? 60000 : (int)((left_ns + NS_PER_MS - 1) / NS_PER_MS);
}

static _Noreturn void serve(struct web *web) {
  for (;;) {
    uint64_t now_ns = clock_now_ns(), http_ns = http_deadline_ns(web->http),
             snapshot_ns = snapshot_deadline_ns(&web->snapshot);
    struct pollfd ready[] = {
        {.fd = http_fd(web->http), .events = POLLIN},
        {.fd = web->snapshot.step == SNAPSHOT_RESTS ? -1 : web->snapshot.fd, .events = POLLIN}};
    poll(ready, 2, wait_ms(http_ns < snapshot_ns ? http_ns : snapshot_ns, now_ns));
    http_run(web->http, clock_now_ns());
    if (snapshot_go_on(&web->snapshot, clock_now_ns()))
      publish(web);
  }
}

int main(int argc, char **argv) {
  static const struct http_header headers[] = {{"Cache-Control", "no-store"},
                                               {"X-Content-Type-Options", "nosniff"},
                                               {"X-Frame-Options", "DENY"},
                                               {"Referrer-Policy", "no-referrer"},
                                               {"Cross-Origin-Resource-Policy", "same-origin"},
                                               {"Cross-Origin-Opener-Policy", "same-origin"},
                                               {NULL, NULL}};
  static const struct http_site site = {
      .what = "pages", .places = PLACES, .headers = headers, .answer = answer};
  static struct web web;
  log_setup("gpushare-web", LOG_LEVEL_INFO);
  signal(SIGPIPE, SIG_IGN);
  if (argc > 2 || (argc == 2 && *argv[1] != '/') || !is_passed()) {
    fprintf(stderr, "usage: gpushare-web [SOCKET]\n\n"
                    "A page about the daemon at SOCKET (default " GS_DEFAULT_SOCKET
                    "), for browsers. Its own socket is passed by the\n"
                    "daemon (gpushare-daemon --web ADDRESS), or by systemd (gpushare-web.socket).\n");
    return EXIT_USAGE;
  }
  snapshot_open(&web.snapshot, argc == 2 ? argv[1] : GS_DEFAULT_SOCKET);
  web.http = http_open(&site, &web, PASSED_FD);
  if (!web.http)
    return EXIT_ABSENT;
  if (!give_up_rights()) {
    log_error("can't become the user nobody: %s", strerror(errno));
    return EXIT_RIGHTS;
  }
  serve(&web);
}
