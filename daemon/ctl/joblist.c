/* joblist.c - many jobs: lines to jobs, and jobs to lines; and which of several GPUs each of them sees. */
#include "ctl/joblist.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/parse.h"
#include "ctl/ctl.h"

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

/* ---- a word ---- */

/* A backslash between these quotes (0: none) makes the next character an ordinary one. */
static bool is_escape(char quote, char next) {
  if (quote == '"')
    return next && strchr("\"\\$`", next);
  return quote == 0;
}

/* Take the quotes off the word at *text, where it lies, and go behind it. NULL, or what is wrong with it. */
static const char *unquote(char **text) {
  char *from = *text, *to = *text, quote = 0;
  for (; *from && (quote || !is_blank(*from)); from++) {
    if (quote ? *from == quote : *from == '\'' || *from == '"') {
      quote = quote ? 0 : *from;
    } else if (*from == '\\' && is_escape(quote, from[1])) {
      if (!*++from)
        return "nothing follows the last backslash";
      *to++ = *from;
    } else {
      *to++ = *from;
    }
  }
  if (quote)
    return "a quote is not closed";
  *text = *from ? from + 1 : from; /* before the word's end is written: it may lie there */
  *to = '\0';
  return NULL;
}

static bool is_setting(const char *text) {
  if (!isalpha((unsigned char)*text) && *text != '_')
    return false;
  while (isalnum((unsigned char)*text) || *text == '_')
    text++;
  return *text == '=';
}

/* ---- a line ---- */

/* Its words go to job->words. NULL, or what is wrong with it. */
static const char *parse_line(char *text, struct joblist_job *job) {
  size_t count = 0;
  for (;;) {
    while (is_blank(*text))
      text++;
    if (!*text || *text == '#')
      break;
    if (job->settings == count && is_setting(text))
      job->settings++;
    job->words[count++] = text;
    const char *wrong = unquote(&text);
    if (wrong)
      return wrong;
  }
  job->words[count] = NULL;
  return NULL;
}

/* Cut the line at *text off, and go behind it. NULL at the end. */
static char *next_line(char **text) {
  char *line = *text, *end = strchr(line, '\n');
  if (!*line)
    return NULL;
  *text = end ? end + 1 : line + strlen(line);
  if (end)
    *end = '\0';
  if (end > line && end[-1] == '\r')
    end[-1] = '\0';
  return line;
}

/* ---- the list ---- */

static int allocate(struct joblist *list, size_t jobs, size_t words) {
  *list =
      (struct joblist){.jobs = calloc(jobs, sizeof *list->jobs), .words = calloc(words, sizeof *list->words)};
  if (list->jobs && list->words)
    return 0;
  joblist_free(list);
  return -ENOMEM;
}

int joblist_parse(struct joblist *list, char *text, struct joblist_error *error) {
  /* Each word and its line's NULL have a character of the text to themselves, but for the last line's. */
  size_t lines = 1;
  for (const char *end = text; (end = strchr(end, '\n')); end++)
    lines++;
  int err = allocate(list, lines, strlen(text) + 2);
  if (err < 0)
    return err;
  char **words = list->words, *line;
  for (size_t number = 1; (line = next_line(&text)); number++) {
    struct joblist_job job = {.words = words, .line = number};
    const char *wrong = parse_line(line, &job);
    if (wrong) {
      joblist_free(list);
      *error = (struct joblist_error){.line = number, .what = wrong};
      return -EINVAL;
    }
    if (!*words)
      continue;
    while (*words++) /* behind its NULL */
      ;
    list->jobs[list->count++] = job;
  }
  return 0;
}

int joblist_repeat(struct joblist *list, size_t count) {
  int err = allocate(list, count, 1);
  if (err < 0)
    return err;
  for (; list->count < count; list->count++)
    list->jobs[list->count] = (struct joblist_job){.words = list->words};
  return 0;
}

/* The last one counts. */
const char *joblist_setting(const struct joblist_job *job, const char *name) {
  size_t length = strlen(name);
  const char *value = NULL;
  for (size_t i = 0; i < job->settings; i++)
    if (strncmp(job->words[i], name, length) == 0 && job->words[i][length] == '=')
      value = job->words[i] + length + 1;
  return value;
}

void joblist_free(struct joblist *list) {
  free(list->jobs);
  free(list->words);
  *list = (struct joblist){0};
}

/* ---- words to text for a shell ---- */

#define PLAIN                                                                                                \
  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"                                           \
  "_-+=./:,@%"

/* A setting's name stays bare: a shell takes no quoted one. Control characters are written as bash, ksh and
 * zsh read them. */
static void write_word(FILE *to, const char *word, bool is_setting) {
  bool escapes = false, plain = *word;
  if (is_setting) {
    const char *value = strchr(word, '=') + 1;
    fwrite(word, 1, (size_t)(value - word), to);
    word = value;
    plain = true;
  }
  for (const char *c = word; *c; c++) {
    escapes |= iscntrl((unsigned char)*c);
    plain &= strchr(PLAIN, *c) != NULL;
  }
  fputs(escapes ? "$'" : plain ? "" : "'", to);
  for (; *word; word++)
    if (iscntrl((unsigned char)*word))
      fprintf(to, "\\%03o", (unsigned)(unsigned char)*word);
    else if (escapes && strchr("'\\", *word))
      fprintf(to, "\\%c", *word);
    else
      fprintf(to, *word == '\'' ? "'\\''" : "%c", *word);
  fputs(escapes || !plain ? "'" : "", to);
}

char *quote_command(char *const *command, const struct joblist_job *job) {
  char *text = NULL;
  size_t size;
  FILE *to = open_memstream(&text, &size);
  if (!to)
    return NULL;
  char *const *const lists[] = {job->words, command, job->words + job->settings};
  const char *gap = "";
  for (size_t list = 0; list < 3; list++)
    for (size_t i = 0; list == 0 ? i < job->settings : lists[list][i] != NULL; i++, gap = " ") {
      fputs(gap, to);
      write_word(to, lists[list][i], list == 0);
    }
  if (fclose(to) == 0)
    return text;
  free(text);
  return NULL;
}

/* ---- for which jobs GPUs are taken ---- */

/* Programs that start several processes, each of which takes a GPU of its own. */
static bool is_launcher(const char *program) {
  static const char *const names[] = {"torchrun", "deepspeed", "accelerate", "horovodrun",
                                      "mpirun",   "mpiexec",   "srun"};
  static const char *const modules[] = {"torch.distributed.run", "torch.distributed.launch",
                                        "accelerate.commands.launch"};
  const char *slash = strrchr(program, '/');
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(slash ? slash + 1 : program, names[i]) == 0)
      return true;
  for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
    if (strcmp(program, modules[i]) == 0)
      return true;
  return false;
}

/* python -m MODULE */
static bool names_launcher(char *const *words) {
  bool is_module = false;
  for (; *words && !(is_module && is_launcher(*words)); words++)
    is_module = strcmp(*words, "-m") == 0;
  return *words;
}

bool spread_is_needed(const struct spread *spread) { return spread->count > spread->per_job; }

bool spread_concerns(const struct spread *spread, char *const *command, const struct joblist_job *job) {
  char *const *words = job->words + job->settings;
  const char *gang = joblist_setting(job, "GPUSHARE_GANG");
  if (!spread_is_needed(spread) || joblist_setting(job, "CUDA_VISIBLE_DEVICES"))
    return false;
  if (spread->as_told)
    return true;
  bool is_of_gang = gang && *gang && strcmp(gang, "none") != 0;
  return !is_of_gang && !is_launcher(*command ? *command : *words) && !names_launcher(command) &&
         !names_launcher(words);
}

void spread_add(struct spread *spread, const char *name) {
  if (spread->count == SPREAD_GPUS_MAX)
    return;
  struct spread_gpu *gpu = &spread->gpus[spread->count++];
  *gpu = (struct spread_gpu){.room_bytes = SPREAD_UNUSED};
  snprintf(gpu->name, sizeof gpu->name, "%s", name);
}

void spread_forget_rooms(struct spread *spread) {
  for (size_t i = 0; i < spread->count; i++)
    spread->gpus[i].room_bytes = SPREAD_UNUSED;
}

void spread_set_use(struct spread *spread, const uint8_t uuid[GS_UUID_SIZE], uint64_t capacity_bytes,
                    uint64_t used_bytes) {
  uint8_t own[GS_UUID_SIZE];
  for (size_t i = 0; i < spread->count; i++)
    if (parse_uuid(spread->gpus[i].name, own) == 0 && memcmp(own, uuid, sizeof own) == 0)
      spread->gpus[i].room_bytes = capacity_bytes == 0           ? SPREAD_UNUSED
                                   : capacity_bytes > used_bytes ? capacity_bytes - used_bytes
                                                                 : 0;
}

/* ---- the choice: a job that has just been started has no memory yet, so their number counts before their
 * room
 * ---- */

static uint64_t bit(size_t gpu) { return UINT64_C(1) << gpu; }

uint64_t spread_take(struct spread *spread) {
  uint64_t taken = 0;
  for (size_t n = 0; n < spread->per_job && n < spread->count; n++) {
    struct spread_gpu *best = NULL;
    for (struct spread_gpu *gpu = spread->gpus; gpu < spread->gpus + spread->count; gpu++)
      if (!(taken & bit((size_t)(gpu - spread->gpus))) &&
          (!best || gpu->running < best->running ||
           (gpu->running == best->running && gpu->room_bytes > best->room_bytes)))
        best = gpu;
    taken |= bit((size_t)(best - spread->gpus));
    best->running++;
  }
  return taken;
}

void spread_give_back(struct spread *spread, uint64_t taken) {
  for (size_t i = 0; i < spread->count; i++)
    if (taken & bit(i))
      spread->gpus[i].running--;
}

char *spread_text(const struct spread *spread, uint64_t taken) {
  char *text = calloc(SPREAD_GPUS_MAX, SPREAD_NAME_SIZE), *end = text;
  for (size_t i = 0; text && i < spread->count; i++)
    if (taken & bit(i))
      end += sprintf(end, "%s%s", end == text ? "" : ",", spread->gpus[i].name);
  return text;
}

#define NO_DEVICE 100 /* CUDA_ERROR_NO_DEVICE */

/* ---- the driver, in a child ----
 *
 * The driver alone knows what CUDA_VISIBLE_DEVICES means, and what else hides GPUs, so it is asked: in a
 * process of its own, for it does not let go of what it has opened. */

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
  if (ask_status(socket, &msgs, &count, &error) != CTL_OK)
    return;
  spread_forget_rooms(spread);
  for (size_t i = 0; i < count; i++)
    if (msgs[i].type == GS_STATUS_GPU)
      spread_set_use(spread, msgs[i].gpu_status.uuid, msgs[i].gpu_status.capacity_bytes,
                     msgs[i].gpu_status.used_bytes);
  free(msgs);
}
