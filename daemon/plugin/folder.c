/* folder.c - inotify on one folder. */
#include "plugin/folder.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#define WATCHED                                                                                              \
  (IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)
#define GONE (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)

/* False: it is gone. */
static bool handle(struct folder *folder, const struct inotify_event *event) {
  if (event->mask & GONE) {
    folder->on_gone(folder);
    return false;
  }
  folder->on_entry(folder, event->mask & IN_Q_OVERFLOW || event->len == 0 ? NULL : event->name);
  return true;
}

static void on_event(struct source *source, uint32_t events) {
  struct folder *folder = list_entry(source, struct folder, source);
  union {
    struct inotify_event event;
    char bytes[4096];
  } buffer;
  (void)events;
  ssize_t size = read(source->fd, &buffer, sizeof buffer);
  for (ssize_t at = 0; at < size;) {
    const struct inotify_event *event = (const void *)(buffer.bytes + at);
    at += (ssize_t)(sizeof *event + event->len);
    if (!handle(folder, event))
      return;
  }
}

int folder_open(struct folder *folder, struct loop *loop, const char *path) {
  folder->loop = loop;
  folder->source = (struct source){.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), .on_event = on_event};
  if (folder->source.fd < 0)
    return -errno;
  int err = inotify_add_watch(folder->source.fd, path, WATCHED) < 0 ? -errno : 0;
  if (err == 0)
    err = loop_add(loop, &folder->source, EPOLLIN);
  if (err < 0)
    folder_close(folder);
  return err;
}

void folder_close(struct folder *folder) { loop_remove(folder->loop, &folder->source); }
