/* doctor.c - gpusharectl doctor: whether programs share the GPUs of this machine, and what keeps them from
 * it: driver, library, daemon, rights, limits, kernel. What can't be seen from here is said so, and is no
 * failure. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/host.h"
#include "common/text_file.h"
#include "common/variables.h"
#include "common/wire.h"
#include "ctl/figures.h"
#include "ctl/probe.h"
#include "shared/nvml.h"
#include "shared/printable.h"

/* ---- findings ---- */

/* In this order: a later one is worse. */
enum verdict { VERDICT_OK, VERDICT_UNKNOWN, VERDICT_WARNING, VERDICT_FAILING };
static const char *const verdicts[] = {"ok", "unknown", "warning", "failing"};

struct finding {
  const char *check;
  enum verdict verdict;
  char found[512];
  const char *advice; /* NULL: none is needed */
};

struct doctor {
  const struct request *request;
  struct finding findings[48];
  size_t count;
  bool in_container;
  bool asked; /* the daemon has told its state: */
  struct status status;
};

static void find(struct doctor *doctor, const char *check, enum verdict verdict, const char *advice,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));
static void find(struct doctor *doctor, const char *check, enum verdict verdict, const char *advice,
                 const char *format, ...) {
  struct finding *finding = &doctor->findings[doctor->count];
  char text[sizeof finding->found];
  va_list list;
  if (doctor->count == sizeof doctor->findings / sizeof *doctor->findings)
    return;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  *finding = (struct finding){.check = check, .verdict = verdict, .advice = advice};
  printable_copy(finding->found, text, sizeof text);
  doctor->count++;
}

/* The first line of a small file; "": it can't be read. */
static const char *first_line(const char *path, char text[256]) {
  text_file_read(AT_FDCWD, path, text, 256);
  text[strcspn(text, "\n")] = '\0';
  return text;
}

static void cut_line(char *text) { text[strcspn(text, "\n")] = '\0'; }

/* ---- where this is ---- */

static void check_container(struct doctor *doctor) {
  const char *container = getenv("container");
  doctor->in_container = access("/run/.containerenv", F_OK) == 0 || access("/.dockerenv", F_OK) == 0 ||
                         (container && *container) || getenv("KUBERNETES_SERVICE_HOST");
  if (doctor->in_container)
    find(doctor, "container", VERDICT_OK, NULL,
         "this is one: what the host has beside it is not seen from here; ask there, too");
}

/* ---- the driver ---- */

static int load_cuda(const void *argument) {
  (void)argument;
  bool loaded = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!loaded)
    puts(dlerror());
  return !loaded;
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Wed ..." */
static const char *version_in(char *line) {
  for (char *word = strtok(line, " "); word; word = strtok(NULL, " "))
    if (*word >= '0' && *word <= '9' && strchr(word, '.'))
      return word;
  return "of unknown version";
}

static void check_driver(struct doctor *doctor) {
  const char *root = getenv("GPUSHARE_HOST_ROOT");
  char path[PATH_MAX], line[256], why[400];
  snprintf(path, sizeof path, "%s/proc/driver/nvidia/version", root ? root : "");
  bool present = *first_line(path, line);
  int result = probe(load_cuda, NULL, why, sizeof why);
  cut_line(why);
  if (!present && result != 0)
    find(doctor, "driver", VERDICT_UNKNOWN,
         "on a machine with a GPU, install NVIDIA's driver; a container must be given GPUs",
         "there is no NVIDIA driver here, or this container does not show it");
  else if (result == -ETIMEDOUT)
    find(doctor, "driver", VERDICT_FAILING, "see the kernel's log (dmesg); a restart of the machine helps",
         "libcuda.so.1 hangs as it is loaded");
  else if (result != 0)
    find(doctor, "driver", VERDICT_FAILING, "install the driver's library for CUDA (libcuda1, or its like)",
         "NVIDIA %s; but libcuda.so.1 can't be loaded: %s", version_in(line), why);
  else if (!present)
    find(doctor, "driver", VERDICT_UNKNOWN, NULL, "libcuda.so.1 is there; which driver it is can't be told");
  else
    find(doctor, "driver", VERDICT_OK, NULL, "NVIDIA %s", version_in(line));
}

/* ---- the library ---- */

/* The loader says on stderr what it does not preload. */
static int run_with_library(const void *library) {
  if (setenv("LD_PRELOAD", library, 1) < 0)
    return CTL_NOT_RUN;
  execl("/proc/self/exe", "gpusharectl", "--version", (char *)NULL);
  return CTL_NOT_RUN;
}

static void check_library(struct doctor *doctor) {
  static const char mark[] = "cannot be preloaded";
  char path[PATH_MAX], text[1024];
  struct ask_error error;
  const char *why;
  if (library_find(doctor->request->run.library, path, &error) != CTL_OK) {
    find(doctor, "library", VERDICT_FAILING, "name it with --lib or GPUSHARE_LIB, or install gpushare again",
         "%s", error.text);
    return;
  }
  int result = probe(run_with_library, path, text, sizeof text);
  if ((why = strstr(text, mark))) {
    why += sizeof mark - 1;
    find(doctor, "library", VERDICT_FAILING, "install gpushare again, or name the library with --lib",
         "%s can't be preloaded%.*s", path, (int)strcspn(why, ":\n"), why);
  } else if (result != 0) {
    cut_line(text);
    find(doctor, "library", VERDICT_FAILING, "install gpushare again, in one version",
         "with %s preloaded a program fails: %s", path, text);
  } else {
    find(doctor, "library", VERDICT_OK, NULL, "%s is preloaded by the loader", path);
  }
}

/* ---- the daemon ---- */

static void find_no_daemon(struct doctor *doctor, const char *path, const struct ask_error *error) {
  struct stat there;
  const char *advice = "see gpushare-daemon's log (journalctl -u gpushare-daemon)";
  if (stat(path, &there) < 0 && errno == EACCES)
    advice = "let this user search the socket's folder, or mount that into the container";
  else if (access(path, F_OK) < 0)
    advice = doctor->in_container ? "mount the folder of the host's socket, not the socket"
                                  : "systemctl start gpushare-daemon; until then programs run unshared";
  find(doctor, "daemon", VERDICT_FAILING, advice, "%s", error->text);
}

static void check_daemon(struct doctor *doctor) {
  const char *path = daemon_path(&doctor->request->run);
  struct ask_error error;
  struct gs_msg *msgs;
  size_t count;
  if (ask_status(path, &msgs, &count, &error) != CTL_OK) {
    find_no_daemon(doctor, path, &error);
    return;
  }
  doctor->asked = status_read(&doctor->status, msgs, count) == 0 && doctor->status.daemon;
  if (!doctor->asked)
    return;
  const struct gs_msg *daemon = doctor->status.daemon;
  bool same = strcmp(daemon->daemon.release, GPUSHARE_VERSION) == 0;
  find(doctor, "daemon", same ? VERDICT_OK : VERDICT_WARNING,
       same ? NULL : "install the same version of both, and restart the older one",
       "version %s at %s, %u GPU%s, %u program%s", daemon->daemon.release, path, daemon->daemon.gpus,
       daemon->daemon.gpus == 1 ? "" : "s", daemon->daemon.jobs, daemon->daemon.jobs == 1 ? "" : "s");
  if (daemon->daemon.presence == GS_PRESENCE_BLIND)
    find(doctor, "presence", VERDICT_WARNING, "see gpushare-daemon's log; setting require_device",
         "of some program the daemon can't tell whether it has its GPU's device open");
}

/* What its file has that the daemon does not. */
struct differences {
  unsigned count;
  char first[400];
  bool wrong;
};

static void take_difference(void *argument, enum gs_note kind, const char *text) {
  struct differences *differences = argument;
  if (differences->count++ == 0)
    snprintf(differences->first, sizeof differences->first, "%s", text);
  differences->wrong |= kind == GS_NOTE_WRONG;
}

/* Those who may change settings may ask what is in the file: so the answer tells both. */
static void check_rights(struct doctor *doctor) {
  struct differences differences = {.count = 0};
  struct ask_error error;
  int fd;
  if (!doctor->asked || ask_try_connect(daemon_path(&doctor->request->run), &fd, &error) != CTL_OK)
    return;
  int code = ask_try_reload(fd, true, take_difference, &differences, &error);
  close(fd);
  bool may = code == CTL_OK || differences.wrong;
  if (!may && code != CTL_REFUSED) {
    find(doctor, "rights", VERDICT_UNKNOWN, NULL, "%s", error.text);
    return;
  }
  find(doctor, "rights", VERDICT_OK, NULL, "%s",
       may ? "this user may share GPUs, and change settings"
           : "this user may share GPUs and change its own jobs, but no settings");
  if (differences.wrong)
    find(doctor, "configuration", VERDICT_FAILING, "mend it: the daemon would not start with it", "%s",
         differences.first);
  else if (may && differences.count)
    find(doctor, "configuration", VERDICT_WARNING, "gpusharectl reload, or restart the daemon",
         "the daemon has not read what is in its file now: %s%s", differences.first,
         differences.count > 1 ? "; and more" : "");
  else if (may)
    find(doctor, "configuration", VERDICT_OK, NULL, "the daemon has what its file says");
}

/* ---- limits ---- */

#define SLAB_MOST_BYTES (UINT64_C(256) << 20) /* that is pinned at once */

static void check_memlock(struct doctor *doctor) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0)
    find(doctor, "memlock", VERDICT_UNKNOWN, NULL, "the limit of locked memory: %s", strerror(errno));
  else if (limit.rlim_cur == RLIM_INFINITY || geteuid() == 0)
    find(doctor, "memlock", VERDICT_OK, NULL, "this user may lock any amount of memory");
  else
    find(doctor, "memlock", limit.rlim_cur < SLAB_MOST_BYTES ? VERDICT_WARNING : VERDICT_OK,
         limit.rlim_cur < SLAB_MOST_BYTES
             ? "if programs say that host memory can't be pinned: ulimit -l unlimited (limits.conf, "
               "LimitMEMLOCK=)"
             : NULL,
         "a process of this user may lock %s", BYTES_TEXT(limit.rlim_cur));
}

static uint64_t largest_card_bytes(const struct doctor *doctor) {
  uint64_t most = 0;
  for (size_t i = 0; i < doctor->status.gpu_count; i++) {
    uint64_t bytes = doctor->status.gpus[i].gpu->gpu_status.total_bytes;
    most = bytes > most ? bytes : most;
  }
  return most;
}

static void check_host_memory(struct doctor *doctor) {
  char text[4096];
  text_file_read(AT_FDCWD, "/proc/meminfo", text, sizeof text);
  uint64_t total = host_parse_meminfo(text, "MemTotal"), spare = host_spare_bytes();
  uint64_t card = largest_card_bytes(doctor);
  uint64_t bound = doctor->asked ? doctor->status.daemon->daemon.host_memory_bytes : 0;
  bool tight = spare < total / 10;
  find(doctor, "host_memory", tight ? VERDICT_WARNING : VERDICT_OK,
       tight ? "end what takes it, or raise the limit of this control group" : NULL,
       "%s of %s are available to this process", BYTES_TEXT(spare), BYTES_TEXT(total));
  if (doctor->asked)
    find(doctor, "host_memory", bound < card ? VERDICT_WARNING : VERDICT_OK,
         bound < card ? "a job as large as the card may not fit beside another: setting host_memory, or more "
                        "memory"
                      : NULL,
         "the daemon allows %s for what is not on the cards%s%s", BYTES_TEXT(bound),
         card ? ", of which the largest has " : "", card ? BYTES_TEXT(card) : "");
}

/* ---- how the GPUs are shared ---- */

static void check_mps(struct doctor *doctor) {
  static const char advice[] = "under it work can't be stopped in its middle: end it (echo quit | "
                               "nvidia-cuda-mps-control), or let the daemon start it: spatial = mps";
  const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
  char control[PATH_MAX];
  unsigned state = doctor->asked ? doctor->status.daemon->daemon.mps : GS_MPS_OFF;
  snprintf(control, sizeof control, "%s/control", folder && *folder ? folder : "/tmp/nvidia-mps");
  if (state == GS_MPS_DOWN)
    find(doctor, "mps", VERDICT_WARNING, "see gpushare-daemon's log",
         "the daemon is to share by MPS, which does not run: programs share by time");
  else if (state == GS_MPS_RUNS)
    find(doctor, "mps", VERDICT_OK, NULL, "it runs, started by the daemon, for %u programs",
         doctor->status.daemon->daemon.mps_programs);
  else if (access(control, F_OK) == 0)
    find(doctor, "mps", VERDICT_WARNING, advice,
         "programs of this user find one at %s that is not the daemon's", control);
  else
    find(doctor, "mps", VERDICT_OK, NULL, "programs do not use it");
}

/* Whether work can be stopped is known by trying: a job that has taken turns has tried. */
static void check_preemption(struct doctor *doctor) {
  const char *variable = getenv("GPUSHARE_PREEMPT");
  unsigned can = 0, can_not = 0;
  for (size_t i = 0; i < doctor->status.job_count; i++) {
    const struct job_figures *job = &doctor->status.jobs[i];
    bool stops = job->job->job_status.flags & GS_STATE_PREEMPTS;
    can += stops;
    can_not +=
        !stops && job->job->job_status.turns > 1 && job->gpu->gpu->gpu_status.flags & GS_GPU_SERIALIZED;
  }
  if (variable && strcmp(variable, "off") == 0)
    find(doctor, "preemption", VERDICT_WARNING, "unset GPUSHARE_PREEMPT",
         "GPUSHARE_PREEMPT=off here: turns end only when submitted work has finished");
  if (can_not)
    find(doctor, "preemption", VERDICT_WARNING,
         "GPUSHARE_LOG=info tells why (MPS, GPUSHARE_PREEMPT=off, or a driver that is not known)",
         "the work of %u of %u jobs can't be stopped in its middle: their turns end when it has finished",
         can_not, can + can_not);
  else if (can)
    find(doctor, "preemption", VERDICT_OK, NULL, "work is stopped in its middle (%u job%s)", can,
         can == 1 ? "" : "s");
  else
    find(doctor, "preemption", VERDICT_UNKNOWN, NULL,
         "it is found out as jobs take turns, and none %s: look again then",
         doctor->asked ? "has so far" : "can be seen without the daemon");
}

/* ---- processes without us ---- */

/* "gpus N", then "pid GPU PID" of each, and "untold GPU" where it is not told; or in a line why not, and not
 * 0. */
static int list_processes(const void *library) {
  struct nvml_process processes[NVML_PROCESSES_MAX];
  unsigned count;
  char why[NVML_WHY_SIZE];
  if (nvml_open(library, why) < 0) {
    puts(why);
    return 1;
  }
  printf("gpus %u\n", nvml_count());
  for (unsigned gpu = 0; gpu < nvml_count(); gpu++) {
    void *device = nvml_device(gpu);
    if (!device || nvml_processes(device, processes, &count) < 0) {
      printf("untold %u\n", gpu);
      continue;
    }
    for (unsigned i = 0; i < count; i++)
      printf("pid %u %u\n", gpu, processes[i].pid);
  }
  return 0;
}

static bool is_job(const struct status *status, unsigned pid) {
  for (size_t i = 0; i < status->job_count; i++)
    if (status->jobs[i].job->job_status.pid == (int32_t)pid)
      return true;
  return false;
}

/* Jobs whose process the daemon can't see may be any of those that NVML tells of. */
static bool sees_all_jobs(const struct status *status) {
  for (size_t i = 0; i < status->job_count; i++)
    if (status->jobs[i].job->job_status.pid == 0)
      return false;
  return true;
}

static void check_process(struct doctor *doctor, unsigned gpu, unsigned pid, unsigned *unshared) {
  char path[64], name[256];
  snprintf(path, sizeof path, "/proc/%u/comm", pid);
  first_line(path, name);
  if (is_job(&doctor->status, pid) || strncmp(name, NVML_MPS_COMM, strlen(NVML_MPS_COMM)) == 0)
    return;
  if (++*unshared <= 8)
    find(doctor, "unshared", VERDICT_WARNING,
         "start it by gpusharectl run; if it must stay so, leave space for it (setting capacity)",
         "process %u%s%s%s uses GPU %u, and is no job", pid, *name ? " (" : "", name, *name ? ")" : "", gpu);
}

static void check_processes(struct doctor *doctor) {
  static const char check[] = "unshared";
  const char *library = getenv("GPUSHARE_NVML");
  char text[16384];
  unsigned gpus = 0, gpu, pid, unshared = 0, untold = 0;
  int result = probe(list_processes, library && *library ? library : NVML_LIBRARY, text, sizeof text);
  if (result == -ETIMEDOUT) {
    find(doctor, check, VERDICT_FAILING, "see the kernel's log (dmesg); nvidia-smi will hang, too",
         "NVML does not answer");
  } else if (result != 0) {
    cut_line(text);
    find(doctor, check, VERDICT_UNKNOWN, NULL, "NVML does not tell which processes use GPUs: %s",
         *text ? text : "it has crashed");
  } else if (!doctor->asked) {
    find(doctor, check, VERDICT_UNKNOWN, NULL, "without the daemon it can't be told which processes share");
  } else if (!sees_all_jobs(&doctor->status)) {
    find(doctor, check, VERDICT_UNKNOWN, NULL,
         "some jobs are in pid namespaces that the daemon can't see: which processes share can't be told");
  } else {
    for (const char *line = text; line; line = strchr(line, '\n')) {
      line += *line == '\n';
      sscanf(line, "gpus %u", &gpus);
      if (sscanf(line, "pid %u %u", &gpu, &pid) == 2)
        check_process(doctor, gpu, pid, &unshared);
      if (sscanf(line, "untold %u", &gpu) == 1 && untold++ < 8)
        find(doctor, check, VERDICT_UNKNOWN, NULL, "NVML does not tell which processes use GPU %u", gpu);
    }
    if (unshared > 8)
      find(doctor, check, VERDICT_WARNING, NULL, "and %u others", unshared - 8);
    else if (!unshared && !untold)
      find(doctor, check, VERDICT_OK, NULL, "all processes on %u GPU%s are jobs", gpus, gpus == 1 ? "" : "s");
  }
}

/* ---- the kernel ---- */

static void check_kernel(struct doctor *doctor) {
  char line[256];
  bool fences = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) & MEMBARRIER_CMD_PRIVATE_EXPEDITED;
  int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
  find(doctor, "membarrier", fences ? VERDICT_OK : VERDICT_WARNING,
       fences ? NULL : "let the sandbox allow membarrier(2), or take a kernel from 4.14 on",
       fences ? "calls pass the gate without a fence" : "the kernel has none: each call costs a fence more");
  find(doctor, "pidfd", pidfd >= 0 ? VERDICT_OK : VERDICT_WARNING,
       pidfd >= 0 ? NULL : "take a kernel from 5.3 on",
       pidfd >= 0 ? "the ends of processes can be watched"
                  : "the kernel has none: a dead program's GPU may be freed late");
  if (pidfd >= 0)
    close(pidfd);
  first_line("/sys/kernel/mm/transparent_hugepage/enabled", line);
  bool never = strstr(line, "[never]");
  find(doctor, "huge_pages",
       !*line  ? VERDICT_UNKNOWN
       : never ? VERDICT_WARNING
               : VERDICT_OK,
       never ? "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled" : NULL, "%s",
       !*line  ? "this kernel does not tell of transparent huge pages"
       : never ? "transparent huge pages are off: host memory is pinned more slowly"
               : "transparent huge pages are there for those who ask");
  first_line("/proc/sys/vm/overcommit_memory", line);
  bool strict = strcmp(line, "2") == 0;
  find(doctor, "overcommit",
       !*line   ? VERDICT_UNKNOWN
       : strict ? VERDICT_WARNING
                : VERDICT_OK,
       strict ? "sysctl vm.overcommit_memory=0" : NULL, "%s",
       !*line   ? "the kernel's rule can't be read"
       : strict ? "the kernel commits no more than it has: CUDA programs reserve more than they use"
                : "memory may be reserved before it is used");
}

/* ---- the environment ---- */

static void check_variable(struct doctor *doctor, const char *assignment, bool *wrong) {
  char name[64];
  const char *like = variable_like(assignment), *end = strchr(assignment, '='), *allowed;
  snprintf(name, sizeof name, "%.*s", (int)strcspn(assignment, "="), assignment);
  if (variable_is_unknown(assignment)) {
    find(doctor, "environment", like ? VERDICT_WARNING : VERDICT_UNKNOWN,
         "mend its name, or unset it: it has no effect", "%s is no variable of gpushare's%s%s%s", name,
         like ? ": did you mean " : "", like ? like : "", like ? "?" : "");
    *wrong = true;
  } else if (end && end[1] && (allowed = variable_complaint(name, end + 1))) {
    find(doctor, "environment", VERDICT_WARNING, "set it right, or unset it: the default is taken",
         "%s is %s, not '%s'", name, allowed, end + 1);
    *wrong = true;
  }
}

static void check_environment(struct doctor *doctor) {
  bool wrong = false;
  for (char **assignment = environ; *assignment; assignment++)
    if (strncmp(*assignment, "GPUSHARE_", strlen("GPUSHARE_")) == 0)
      check_variable(doctor, *assignment, &wrong);
  if (!wrong)
    find(doctor, "environment", VERDICT_OK, NULL, "no GPUSHARE_ variable is wrong");
}

/* ---- all of it ---- */

static enum verdict worst_of(const struct doctor *doctor) {
  enum verdict worst = VERDICT_OK;
  for (size_t i = 0; i < doctor->count; i++)
    worst = doctor->findings[i].verdict > worst ? doctor->findings[i].verdict : worst;
  return worst;
}

static json_t *doctor_json(const struct doctor *doctor) {
  json_t *checks = json_array();
  for (size_t i = 0; i < doctor->count; i++) {
    const struct finding *finding = &doctor->findings[i];
    json_t *object = json_object();
    output_text(object, "check", finding->check);
    output_text(object, "verdict", verdicts[finding->verdict]);
    output_text(object, "found", finding->found);
    output_text(object, "advice", finding->advice);
    json_array_append_new(checks, object);
  }
  return json_pack("{ss so}", "verdict", verdicts[worst_of(doctor)], "checks", checks);
}

static void print_findings(const struct doctor *doctor) {
  for (size_t i = 0; i < doctor->count; i++) {
    const struct finding *finding = &doctor->findings[i];
    printf("%-8s %-13s %s\n", verdicts[finding->verdict], finding->check, finding->found);
    if (finding->advice)
      printf("%-22s -> %s\n", "", finding->advice);
  }
}

int doctor_command(const struct request *request) {
  struct doctor doctor = {.request = request};
  int code = CTL_OK;
  check_container(&doctor);
  check_driver(&doctor);
  check_library(&doctor);
  check_daemon(&doctor);
  check_rights(&doctor);
  check_memlock(&doctor);
  check_host_memory(&doctor);
  check_mps(&doctor);
  check_preemption(&doctor);
  check_processes(&doctor);
  check_kernel(&doctor);
  check_environment(&doctor);
  if (request->json)
    code = output_json(doctor_json(&doctor));
  else
    print_findings(&doctor);
  status_free(&doctor.status);
  return code == CTL_OK && worst_of(&doctor) == VERDICT_FAILING ? CTL_REFUSED : code;
}
