/* process.c - see process.h. Linux 6.5 tells the process of a connection; before that there is its number. */
#include "server/process.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/text_file.h"
#include "shared/printable.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* Of the fields of /proc/PID/stat, from 1. */
#define STATE_FIELD 3
#define START_FIELD 22

void process_read(pid_t pid, const char *name, char *text, size_t size) {
  char path[32];
  snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
  text_file_read(AT_FDCWD, path, text, size);
}

/* From the third on: the second is the name, which may have anything in it. "": there is no such process. */
static const char *read_field(pid_t pid, int wanted, char *text, size_t size) {
  process_read(pid, "stat", text, size);
  const char *at = strrchr(text, ')');
  for (int field = 2; at && field < wanted; field++)
    at = strchr(at + 1, ' ');
  return at ? at + 1 : "";
}

uint64_t process_start_ticks(pid_t pid) {
  char text[1024];
  return strtoull(read_field(pid, START_FIELD, text, sizeof text), NULL, 10);
}

bool process_is_stopped(pid_t pid) {
  char text[1024];
  char state = *read_field(pid, STATE_FIELD, text, sizeof text);
  return state == 'T' || state == 't';
}

/* While the descriptor is there the number is nobody else's: what is read after that is of this process. */
int process_open_since(pid_t pid, uint64_t start_ticks) {
  if (pid <= 0 || start_ticks == 0)
    return -ESRCH;
  int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
  if (pidfd < 0)
    return -errno;
  if (process_start_ticks(pid) == start_ticks)
    return pidfd;
  close(pidfd);
  return -ESRCH;
}

int process_open(int socket, pid_t pid) {
  int pidfd = -1;
  socklen_t size = sizeof pidfd;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0)
    return pidfd;
  if (errno == EINVAL) /* of one that is gone, before 6.16 */
    return -ESRCH;
  if (errno != ENOPROTOOPT)
    return -errno;
  uint64_t start_ticks = process_start_ticks(pid);
  return start_ticks ? process_open_since(pid, start_ticks) : -ENOSYS;
}

bool process_has_ended(int pidfd) {
  struct pollfd ended = {.fd = pidfd, .events = POLLIN};
  return poll(&ended, 1, 0) > 0 && ended.revents & POLLIN;
}

/* ---- children of the daemon ---- */

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

bool process_bind_to(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return getppid() == parent;
}

void process_close_from(int first) {
  if (syscall(SYS_close_range, (unsigned)first, ~0u, 0u) == 0)
    return;
  struct rlimit limit = {0}; /* a kernel before 5.9, or a sandbox */
  DIR *folder = opendir("/proc/self/fd");
  for (const struct dirent *entry; folder && (entry = readdir(folder));) {
    int fd = *entry->d_name == '.' ? -1 : atoi(entry->d_name);
    if (fd >= first && fd != dirfd(folder))
      close(fd);
  }
  if (folder)
    closedir(folder);
  else if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
    for (rlim_t fd = (rlim_t)first; fd < limit.rlim_cur; fd++)
      close((int)fd);
}

void process_leave(pid_t daemon) {
  struct rlimit no_core = {0};
  sigset_t none;
  if (!process_bind_to(daemon))
    _exit(1);
  process_close_from(0); /* an open copy of a connection would keep it alive after the daemon has ended it */
  for (int fd = 0; fd <= 2; fd++) /* what it prints is nobody's log */
    (void)!open("/dev/null", O_RDWR);
  setrlimit(RLIMIT_CORE, &no_core);
  signal(SIGPIPE, SIG_DFL);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

bool process_await_child(uint64_t end_ns) {
  uint64_t now_ns = clock_now_ns();
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  if (now_ns >= end_ns)
    return false;
  struct timespec left = clock_timespec(end_ns - now_ns);
  sigtimedwait(&child, NULL, &left);
  return true;
}

/*
 * ---- who may change settings ----
 *
 * Who may change settings, judged by what the kernel says of the process at the other end. Its groups are
 * those it had when it connected (SO_PEERGROUPS): no look-up of users, which could block on a network
 * service. And it must be in the daemon's own pid namespace: root of a container may be root of the host by
 * its number, and in any group that it likes.
 */

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

gid_t permission_find_group(const char *name) {
  const struct group *group = getgrnam(name);
  if (group)
    return group->gr_gid;
  char *end;
  unsigned long number = strtoul(name, &end, 10);
  return *name >= '0' && *name <= '9' && *end == '\0' ? (gid_t)number : PERMISSION_NO_GROUP;
}

static bool in_supplementary(int fd, gid_t group) {
  gid_t few[64], *groups = few;
  socklen_t size = sizeof few;
  int err = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size);
  if (err < 0 && errno == ERANGE) {
    groups = malloc(size);
    if (!groups)
      return false;
    err = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size);
  }
  bool member = false;
  for (size_t i = 0; err == 0 && i < size / sizeof *groups; i++)
    member |= groups[i] == group;
  if (groups != few)
    free(groups);
  return member;
}

/* Its numbers in all pid namespaces from ours on: of a process in ours there is one. */
bool permission_is_near(pid_t pid) {
  char path[32], line[256];
  bool ours = false;
  snprintf(path, sizeof path, "/proc/%d/status", pid);
  FILE *status = pid > 0 ? fopen(path, "re") : NULL;
  while (status && fgets(line, sizeof line, status))
    if (strncmp(line, "NSpid:\t", 7) == 0)
      ours = strtol(line + 7, NULL, 10) == pid && !strchr(line + 7, '\t');
  if (status)
    fclose(status);
  return ours;
}

bool permission_granted(int fd, gid_t group) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
    return false;
  if (peer.uid == 0 || peer.uid == geteuid())
    return true;
  return group != PERMISSION_NO_GROUP && (peer.gid == group || in_supplementary(fd, group));
}

/*
 * ---- where a process comes from ----
 *
 * By the names that runtimes and managers give control groups.
 */

#define ID_SIZE 64          /* hexadecimal digits of a container's id */
#define CONTAINER_DIGITS 12 /* of these, that people know it by */
#define UID_SIZE 36         /* of a pod, with dashes; 32 without: of one that the kubelet knows from a file */

struct walk {
  struct origin *origin;
  const char *part, *before; /* of the path; the one before, "" at its beginning */
  bool slurm;                /* a part has said so */
  bool pod;
};

static bool begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

static bool ends(const char *text, const char *with) {
  size_t size = strlen(text), end = strlen(with);
  return size >= end && strcmp(text + size - end, with) == 0;
}

/* Nothing without a name. */
static void become(const struct walk *walk, enum gs_origin kind, const char *name) {
  if (!*name)
    return;
  *walk->origin = (struct origin){.kind = kind};
  printable_copy(walk->origin->name, name, sizeof walk->origin->name);
}

/* ---- containers ---- */

/* "ID", "ID.scope", "PREFIX-ID.scope": where ID begins; NULL: there is none. */
static const char *find_id(const char *part) {
  const char *dash = strrchr(part, '-'), *id = dash ? dash + 1 : part;
  size_t size = strspn(id, "0123456789abcdef");
  return size == ID_SIZE && (id[size] == '\0' || strcmp(id + size, ".scope") == 0) ? id : NULL;
}

static bool take_container(struct walk *walk) {
  const char *id = find_id(walk->part);
  char name[GS_CONTAINER_SIZE];
  if (!id)
    return false;
  snprintf(name, sizeof name, "%.*s", CONTAINER_DIGITS, id);
  /* What is in front of the id, or the part before. */
  const char *said = id == walk->part ? walk->before : walk->part;
  if (!walk->pod)
    become(walk,
           begins(said, "docker")   ? GS_ORIGIN_DOCKER
           : begins(said, "libpod") ? GS_ORIGIN_PODMAN
                                    : GS_ORIGIN_CONTAINER,
           name);
  strcpy(walk->origin->container, name);
  walk->pod = false; /* what is further down is in this one */
  return true;
}

/* "podUID", "kubepods-burstable-podUID.slice" with underscores. */
static bool take_pod(struct walk *walk) {
  char uid[UID_SIZE + 1];
  const char *at = begins(walk->part, "pod") ? walk->part : strstr(walk->part, "-pod");
  if (!at)
    return false;
  at += *at == '-' ? strlen("-pod") : strlen("pod");
  size_t size = strspn(at, "0123456789abcdef-_");
  if ((size != UID_SIZE && size != UID_SIZE - 4) || (at[size] != '\0' && strcmp(at + size, ".slice") != 0))
    return false;
  snprintf(uid, sizeof uid, "%.*s", (int)size, at);
  for (char *c = uid; *c; c++)
    *c = *c == '_' ? '-' : *c;
  become(walk, GS_ORIGIN_POD, uid);
  return walk->pod = true;
}

static bool take_lxc(struct walk *walk) {
  if (begins(walk->part, "lxc.payload."))
    become(walk, GS_ORIGIN_LXC, walk->part + strlen("lxc.payload."));
  else if (strcmp(walk->before, "lxc") == 0 || strcmp(walk->before, "lxc.payload") == 0)
    become(walk, GS_ORIGIN_LXC, walk->part);
  else
    return false;
  return true;
}

/* What follows "NAME-" or "NAME/"; NULL: it is of nobody of that name. */
static const char *find_number(const struct walk *walk, const char *name) {
  size_t size = strlen(name);
  if (strcmp(walk->before, name) == 0)
    return walk->part;
  return begins(walk->part, name) && walk->part[size] == '-' ? walk->part + size + 1 : NULL;
}

/* "apptainer-PID.scope", "singularity/PID": the process that has made it. */
static bool take_apptainer(struct walk *walk) {
  const char *number = find_number(walk, "apptainer");
  if (!number)
    number = find_number(walk, "singularity");
  size_t digits = number ? strspn(number, "0123456789") : 0;
  if (digits == 0 || (number[digits] != '\0' && strcmp(number + digits, ".scope") != 0))
    return false;
  char name[GS_CONTAINER_SIZE];
  snprintf(name, sizeof name, "%.*s", (int)digits, number);
  become(walk, GS_ORIGIN_APPTAINER, name);
  return true;
}

/* ---- batch jobs and units ---- */

/* "job_N" below something of Slurm's; then "step_M". */
static bool take_slurm(struct walk *walk) {
  walk->slurm = walk->slurm || strstr(walk->part, "slurm");
  if (!walk->slurm)
    return false;
  if (begins(walk->part, "job_")) {
    become(walk, GS_ORIGIN_SLURM, walk->part + strlen("job_"));
    return true;
  }
  if (!begins(walk->part, "step_") || walk->origin->kind != GS_ORIGIN_SLURM)
    return false;
  size_t size = strlen(walk->origin->name);
  char step[GS_ORIGIN_SIZE];
  printable_copy(step, walk->part + strlen("step_"), sizeof step);
  snprintf(walk->origin->name + size, sizeof walk->origin->name - size, ".%s", step);
  return true;
}

/* "\x2d" stands for a dash. */
static void copy_unescaped(char *to, const char *from, size_t size) {
  unsigned code;
  size_t used = 0;
  while (*from && used + 1 < size) {
    bool escaped = from[0] == '\\' && from[1] == 'x' && isxdigit((unsigned char)from[2]) &&
                   isxdigit((unsigned char)from[3]) && sscanf(from + 2, "%2x", &code) == 1;
    to[used++] = escaped ? (char)code : *from;
    from += escaped ? 4 : 1;
  }
  to[used] = '\0';
}

/* Not what every user's processes are in. Less than anything else: containers have units inside and around.
 */
static void take_unit(struct walk *walk) {
  static const char *const common[] = {"user@", "session-", "init.scope"};
  char name[GS_ORIGIN_SIZE];
  if (walk->origin->kind > GS_ORIGIN_UNIT || (!ends(walk->part, ".service") && !ends(walk->part, ".scope")))
    return;
  for (size_t i = 0; i < sizeof common / sizeof *common; i++)
    if (begins(walk->part, common[i]))
      return;
  copy_unescaped(name, walk->part, sizeof name);
  become(walk, GS_ORIGIN_UNIT, name);
}

/* ---- a path ---- */

/* containerd writes SLICE:cri-containerd:ID where it is told systemd's names and uses none of systemd. */
static char *split_part(char *part) {
  char *colon = strstr(part, ".slice:");
  if (!colon)
    return NULL;
  colon += strlen(".slice");
  *colon = '\0';
  char *last = strrchr(colon + 1, ':');
  return last ? last + 1 : colon + 1;
}

static struct origin parse_path(char *path) {
  struct origin origin = {.kind = GS_ORIGIN_NONE};
  struct walk walk = {.origin = &origin, .before = ""};
  char *left;
  for (char *part = strtok_r(path, "/", &left); part; part = strtok_r(NULL, "/", &left)) {
    char *more = split_part(part);
    for (; part; part = more, more = NULL) {
      walk.part = part;
      if (!take_container(&walk) && !take_pod(&walk) && !take_slurm(&walk) && !take_apptainer(&walk) &&
          !take_lxc(&walk))
        take_unit(&walk);
      walk.before = part;
    }
  }
  return origin;
}

/* Version 1 has a line for each hierarchy, of which not all tell as much. */
struct origin origin_parse(char *text) {
  struct origin best = {.kind = GS_ORIGIN_NONE};
  char *left;
  for (char *line = strtok_r(text, "\n", &left); line; line = strtok_r(NULL, "\n", &left)) {
    char *path = strchr(line, ':');
    path = path ? strchr(path + 1, ':') : NULL;
    if (!path)
      continue;
    struct origin origin = parse_path(path + 1);
    if (best.kind <= GS_ORIGIN_UNIT && origin.kind > best.kind)
      best = origin;
  }
  return best;
}
