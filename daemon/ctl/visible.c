/* visible.c - GPUs, as others tell of them: the driver, which are visible; the daemon, who uses them.
 *
 * The driver alone knows what CUDA_VISIBLE_DEVICES means, and what else hides GPUs, so it is asked: in a
 * process of its own, for it does not let go of what it has opened. */
#include <ctype.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/parse.h"
#include "ctl/ctl.h"
#include "ctl/spread.h"

#define NO_DEVICE 100 /* CUDA_ERROR_NO_DEVICE */

/* ---- the driver, in a child ---- */

static struct {
  int (*init)(unsigned);
  int (*count)(int *);
  int (*device)(int *, int);
  int (*card_uuid)(uint8_t *, int); /* of the card, also where the device is a part of it */
  int (*uuid)(uint8_t *, int);
} driver;

static bool load(void) {
  static const struct {
    const char *name;
    void *function;
  } functions[] = {{"cuInit", &driver.init},
                   {"cuDeviceGetCount", &driver.count},
                   {"cuDeviceGet", &driver.device},
                   {"cuDeviceGetUuid", &driver.card_uuid},
                   {"cuDeviceGetUuid_v2", &driver.uuid}};
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  for (size_t i = 0; library && i < sizeof functions / sizeof *functions; i++) {
    void *function = dlsym(library, functions[i].name);
    if (!function)
      return false;
    memcpy(functions[i].function, &function, sizeof function);
  }
  return library != NULL;
}

/* Write their names. An exit status: 0 if the driver has answered. */
static int tell_names(int fd) {
  int count = 0, result = load() ? driver.init(0) : -1;
  if (result == NO_DEVICE)
    return 0;
  if (result != 0 || driver.count(&count) != 0)
    return 1;
  for (int i = 0; i < count; i++) {
    uint8_t uuid[GS_UUID_SIZE], card[GS_UUID_SIZE];
    char name[SPREAD_NAME_SIZE] = "";
    int device;
    if (driver.device(&device, i) != 0 || driver.uuid(uuid, device) != 0 ||
        driver.card_uuid(card, device) != 0)
      return 1;
    format_uuid(uuid, name);
    if (memcmp(uuid, card, sizeof uuid) != 0)
      memcpy(name, "MIG-", 4);
    if (write(fd, name, sizeof name) != sizeof name)
      return 1;
  }
  return 0;
}

/* False: there is none, or it does not work. */
static bool ask_driver(struct spread *spread) {
  int fds[2], status = -1;
  if (pipe2(fds, O_CLOEXEC) < 0)
    return false;
  pid_t pid = fork();
  if (pid == 0)
    _exit(tell_names(fds[1]));
  close(fds[1]);
  if (pid > 0) {
    char name[SPREAD_NAME_SIZE];
    while (read(fds[0], name, sizeof name) == sizeof name) /* at once: they are written so */
      spread_add(spread, name);
    waitpid(pid, &status, 0);
  }
  close(fds[0]);
  return status == 0;
}

/* ---- CUDA_VISIBLE_DEVICES ---- */

static bool names_part(const char *element) { return strncmp(element, "MIG-", 4) == 0; }

static bool names_device(const char *element) {
  return isdigit((unsigned char)*element) || strncmp(element, "GPU-", 4) == 0 || names_part(element);
}

/* The next one of the list, without blanks in front; NULL: there is none that names a device. */
static const char *next_element(const char *list) {
  list += strspn(list, ", \t");
  return names_device(list) ? list : NULL;
}

/* Parts of cards, of which a program sees only the first: as they are named. */
static void add_parts(struct spread *spread, const char *list) {
  for (const char *element = list; (element = next_element(element)) && names_part(element);) {
    char name[SPREAD_NAME_SIZE];
    size_t length = strcspn(element, ", \t");
    snprintf(name, sizeof name, "%.*s", (int)length, element);
    spread_add(spread, name);
    element += length;
  }
}

/* The driver stops at the first one that is not there, and says nothing. */
static int check_all_seen(const struct spread *spread, const char *list) {
  size_t wanted = 0;
  for (const char *element = list; (element = next_element(element)); element += strcspn(element, ","))
    wanted++;
  if (wanted <= spread->count)
    return CTL_OK;
  return command_error(CTL_USAGE,
                       "CUDA_VISIBLE_DEVICES=%s names %zu GPU%s, of which the driver finds %zu: "
                       "correct it, or leave it to the jobs with --gpus-per-job all",
                       list, wanted, wanted == 1 ? "" : "s", spread->count);
}

int visible_find(struct spread *spread) {
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  if (list && names_part(list)) {
    add_parts(spread, list);
    return CTL_OK;
  }
  bool answered = ask_driver(spread);
  return answered && list ? check_all_seen(spread, list) : CTL_OK;
}

/* ---- the daemon ---- */

void visible_look_at_rooms(struct spread *spread, const char *socket) {
  struct ask_error error;
  struct gs_msg *msgs;
  size_t count;
  int fd;
  if (ask_try_connect(socket, &fd, &error) != CTL_OK)
    return;
  if (ask_try_status(fd, &msgs, &count, &error) == CTL_OK) {
    spread_forget_rooms(spread);
    for (size_t i = 0; i < count; i++)
      if (msgs[i].type == GS_STATUS_GPU)
        spread_set_use(spread, msgs[i].gpu_status.uuid, msgs[i].gpu_status.capacity_bytes,
                       msgs[i].gpu_status.used_bytes);
    free(msgs);
  }
  close(fd);
}
