/* cards.c - see cards.h. */
#include "server/cards.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/gpu_number.h"
#include "common/log.h"
#include "common/parse.h"
#include "common/text_file.h"
#include "core/scheduler.h"
#include "server/process.h"
#include "shared/printable.h"

static int compare(const void *a, const void *b) {
  return gpu_number_compare(((const struct card *)a)->number, ((const struct card *)b)->number);
}

static void make_printable(char *text, size_t size) {
  char copy[64];
  text[size - 1] = '\0';
  printable_copy(copy, text, size);
  memset(text, 0, size); /* of equal cards all bytes are equal */
  memcpy(text, copy, strlen(copy));
}

const char *cards_settle(struct cards *cards) {
  if (cards->count > CARDS_MAX)
    return "too many cards";
  for (uint32_t i = 0; i < cards->count; i++) {
    struct card *card = &cards->list[i];
    make_printable(card->bus, sizeof card->bus);
    make_printable(card->name, sizeof card->name);
    card->split = card->split != 0;
    card->pad = 0;
    if (uuid_is_zero(card->uuid))
      return "a card without a UUID";
    if (card->total_bytes > SCHED_BYTES_MAX)
      return "a card of an impossible size";
    if (GS_GPU_PART(card->number) > GS_GPU_PART_MAX)
      return "a card with an impossible index";
    for (uint32_t k = 0; k < i; k++)
      if (memcmp(card->uuid, cards->list[k].uuid, sizeof card->uuid) == 0 ||
          card->number == cards->list[k].number)
        return "two cards with one UUID or index";
  }
  qsort(cards->list, cards->count, sizeof *cards->list, compare);
  return NULL;
}

const struct card *cards_find(const struct cards *cards, const uint8_t uuid[GS_UUID_SIZE]) {
  for (uint32_t i = 0; i < cards->count; i++)
    if (memcmp(cards->list[i].uuid, uuid, GS_UUID_SIZE) == 0)
      return &cards->list[i];
  return NULL;
}

const struct card *cards_at(const struct cards *cards, uint32_t number) {
  for (uint32_t i = 0; i < cards->count; i++)
    if (cards->list[i].number == number)
      return &cards->list[i];
  return NULL;
}

bool cards_are_same(const struct cards *cards, const struct cards *other) {
  return cards->source == other->source && cards->partial == other->partial && cards->count == other->count &&
         memcmp(cards->list, other->list, cards->count * sizeof *cards->list) == 0;
}

/* ---- claims ---- */

static struct claim *find(struct claims *claims, uid_t uid) {
  for (uint32_t i = 0; i < claims->count; i++)
    if (claims->list[i].uid == uid)
      return &claims->list[i];
  return NULL;
}

static unsigned count_size(const struct claims *claims, uint64_t total_bytes) {
  unsigned count = 0;
  for (uint32_t i = 0; i < claims->count; i++)
    count += claims->list[i].total_bytes == total_bytes;
  return count;
}

static unsigned count_name(const struct claims *claims, const char *name) {
  unsigned count = 0;
  for (uint32_t i = 0; i < claims->count; i++)
    count += strcmp(claims->list[i].name, name) == 0;
  return count;
}

/* Of two with the same number of votes, the one that is there for longer counts. */
static void decide(struct claims *claims) {
  unsigned size_votes = count_size(claims, claims->total_bytes),
           name_votes = count_name(claims, claims->name);
  for (uint32_t i = 0; i < claims->count; i++) {
    const struct claim *claim = &claims->list[i];
    unsigned votes = count_size(claims, claim->total_bytes);
    if (votes > size_votes) {
      claims->total_bytes = claim->total_bytes;
      size_votes = votes;
    }
    votes = count_name(claims, claim->name);
    if (votes > name_votes) {
      memcpy(claims->name, claim->name, sizeof claims->name);
      name_votes = votes;
    }
  }
}

void claims_enter(struct claims *claims, uid_t uid, uint64_t total_bytes, const char *name) {
  struct claim *claim = find(claims, uid);
  claims->jobs++;
  if (claim) {
    claim->jobs++;
    return;
  }
  if (claims->count == CLAIMS_MAX)
    return;
  claim = &claims->list[claims->count++];
  *claim = (struct claim){.uid = uid, .jobs = 1, .total_bytes = total_bytes};
  strncpy(claim->name, name, sizeof claim->name - 1);
  decide(claims);
}

/* Users without a vote go by what has counted, also when the last one with a vote has gone. */
void claims_leave(struct claims *claims, uid_t uid) {
  struct claim *claim = find(claims, uid);
  if (--claims->jobs == 0) {
    *claims = (struct claims){0};
    return;
  }
  if (!claim || --claim->jobs > 0)
    return;
  claims->count--;
  memmove(claim, claim + 1, (claims->count - (size_t)(claim - claims->list)) * sizeof *claim);
  if (claims->count > 0)
    decide(claims);
}

/* ---- asking NVML ---- */

/* ---- in the helper ---- */

static bool read_uuid(void *device, uint8_t uuid[GS_UUID_SIZE]) {
  char text[NVML_TEXT_SIZE];
  return nvml_uuid(device, text) == 0 && parse_uuid(text, uuid) == 0;
}

static struct card *add_card(struct cards *cards, void *device, uint32_t number, const struct card *whole) {
  char text[NVML_TEXT_SIZE] = "";
  if (cards->count == CARDS_MAX)
    return NULL;
  struct card *card = &cards->list[cards->count];
  *card = (struct card){.number = number, .minor = CARD_MINOR_UNKNOWN};
  if (!read_uuid(device, card->uuid))
    return NULL; /* it does not answer: programs can't use it either */
  if (nvml_usable_memory(device, &card->total_bytes) != 0)
    card->total_bytes = 0;
  if (nvml_name(device, text) == 0)
    snprintf(card->name, sizeof card->name, "%.31s", text);
  else if (whole)
    memcpy(card->name, whole->name, sizeof card->name);
  if (whole) {
    card->minor = whole->minor;
    memcpy(card->bus, whole->bus, sizeof card->bus);
  } else {
    unsigned minor;
    if (nvml_minor(device, &minor) == 0)
      card->minor = minor;
    if (nvml_bus_id(device, text) == 0)
      snprintf(card->bus, sizeof card->bus, "%.31s", text);
  }
  cards->count++;
  return card;
}

static bool is_of_mps(unsigned pid) {
  char comm[32];
  process_read((pid_t)pid, "comm", comm, sizeof comm);
  return strncmp(comm, NVML_MPS_COMM, strlen(NVML_MPS_COMM)) == 0;
}

static void count_unshared(const struct card_query *query, void *device, struct card_reading *reading) {
  struct nvml_process processes[NVML_PROCESSES_MAX];
  unsigned count;
  if (!query->is_job || query->is_job(query->of, 0) || nvml_processes(device, processes, &count) != 0)
    return;
  reading->processes_known = 1;
  for (unsigned i = 0; i < count; i++) {
    if (query->is_job(query->of, (pid_t)processes[i].pid) || is_of_mps(processes[i].pid))
      continue;
    reading->unshared++;
    reading->unshared_bytes += processes[i].bytes;
  }
}

static void read_what_it_does(const struct card_query *query, void *device, const struct card *card) {
  struct card_readings *readings = &query->answer->readings;
  struct card_reading *reading = &readings->list[readings->count];
  uint64_t bytes;
  if (nvml_memory(device, &bytes) != 0)
    return; /* it does not answer */
  memcpy(reading->uuid, card->uuid, sizeof reading->uuid);
  reading->does = nvml_read(device);
  count_unshared(query, device, reading);
  readings->count++;
}

/* Its exit status. */
static int answer_all(const struct card_query *query) {
  struct card_answer *answer = query->answer;
  struct cards *cards = &answer->cards;
  if (nvml_open(query->library, answer->why) < 0)
    return 1;
  unsigned count = nvml_count();
  for (unsigned i = 0; i < count && i <= GS_GPU_CARD_MAX && cards->count < CARDS_MAX; i++) {
    void *device = nvml_device(i);
    struct card *card = device ? add_card(cards, device, i, NULL) : NULL;
    if (card)
      read_what_it_does(query, device, card);
    if (!card || !nvml_is_split(device))
      continue;
    card->split = true;
    unsigned limit = nvml_part_limit(device);
    for (unsigned k = 0; k < limit && k < GS_GPU_PART_MAX; k++) {
      void *part = nvml_part(device, k);
      const struct card *instance =
          part ? add_card(cards, part, GS_GPU_NUMBER(GS_GPU_CARD(card->number), k + 1), card) : NULL;
      if (instance)
        read_what_it_does(query, part, instance);
    }
  }
  snprintf(answer->why, sizeof answer->why, "NVML knows no GPU");
  return cards->count == 0;
}

/* ---- in the daemon ---- */

/* Memory that a helper shares with the daemon, all zero; `before`, if that is there. NULL: errno says why
 * not. */
static void *share(void *before, size_t size) {
  void *shared =
      before ? before : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return shared == MAP_FAILED ? NULL : memset(shared, 0, size);
}

/* 0 or -errno. */
static int start_helper(struct card_query *query, bool only_reads, uint64_t now_ns) {
  query->begun_ns = now_ns;
  query->only_reads = only_reads;
  struct card_answer *answer = share(query->answer, sizeof *answer);
  if (!answer)
    return -errno;
  query->answer = answer;
  pid_t daemon = getpid(), pid = fork();
  if (pid < 0)
    return -errno;
  if (pid == 0) {
    process_leave(daemon);
    _exit(answer_all(query));
  }
  query->pid = pid;
  query->killed = false;
  return 0;
}

int card_query_begin(struct card_query *query, uint64_t now_ns) {
  if (!query->library)
    return -ENOENT;
  query->again = query->pid;
  if (query->pid)
    return 0;
  query->asked = true;
  query->asked_ns = now_ns;
  return start_helper(query, false, now_ns);
}

/* 1, or -errno and why. The helper is no more: nobody changes the answer while it is checked. */
static int check_answer(struct card_query *query, int status, char why[NVML_WHY_SIZE]) {
  if (WIFSIGNALED(status)) {
    snprintf(why, NVML_WHY_SIZE,
             query->killed ? "it did not answer, and was ended" : "it crashed (signal %d)", WTERMSIG(status));
    return query->killed ? -ETIMEDOUT : -EFAULT;
  }
  query->answer->why[NVML_WHY_SIZE - 1] = '\0';
  if (WEXITSTATUS(status) != 0) {
    memcpy(why, query->answer->why, NVML_WHY_SIZE);
    if (!*why)
      snprintf(why, NVML_WHY_SIZE, "it ended without an answer (exit status %d)", WEXITSTATUS(status));
    return -ENODEV;
  }
  const char *wrong = cards_settle(&query->answer->cards);
  if (wrong || query->answer->cards.count == 0) {
    snprintf(why, NVML_WHY_SIZE, "its answer makes no sense: %s", wrong ? wrong : "no cards");
    return -EPROTO;
  }
  query->answer->cards.source = CARDS_NVML;
  query->answer->cards.partial = false; /* what does not answer programs can't use either */
  return 1;
}

static void check_reading(struct card_reading *reading) {
  if (reading->does.temperature_c > 1000)
    reading->does.known &= ~(uint32_t)NVML_TEMPERATURE;
  if (reading->does.gpu_percent > 100 || reading->does.memory_percent > 100)
    reading->does.known &= ~(uint32_t)NVML_UTILIZATION;
  if (reading->unshared > NVML_PROCESSES_MAX || reading->unshared_bytes > SCHED_BYTES_MAX)
    reading->processes_known = 0;
}

/* The helper has ended, and the next one for readings comes after a pause. */
static void take_readings(struct card_query *query, bool told, uint64_t now_ns) {
  struct card_readings *readings = &query->readings;
  uint64_t pause_ns = CARD_READ_PARTS * (now_ns > query->begun_ns ? now_ns - query->begun_ns : 0);
  pause_ns = pause_ns < CARD_READ_PAUSE_NS       ? CARD_READ_PAUSE_NS
             : pause_ns > CARD_READ_PAUSE_MAX_NS ? CARD_READ_PAUSE_MAX_NS
                                                 : pause_ns;
  query->rest_ns = now_ns + pause_ns;
  query->read_ns = now_ns < query->wanted_ns ? query->rest_ns : 0;
  readings->until_ns = 0;
  if (!told || query->answer->readings.count > CARDS_MAX)
    return;
  *readings = query->answer->readings;
  readings->at_ns = now_ns;
  readings->until_ns = now_ns + (3 * pause_ns > CARD_READ_OLD_NS ? 3 * pause_ns : CARD_READ_OLD_NS);
  for (uint32_t i = 0; i < readings->count; i++)
    check_reading(&readings->list[i]);
}

int card_query_on_child(struct card_query *query, struct cards *cards, char why[NVML_WHY_SIZE]) {
  int status;
  if (query->pid == 0 || waitpid(query->pid, &status, WNOHANG) != query->pid)
    return 0;
  query->pid = 0;
  int result = check_answer(query, status, why);
  take_readings(query, result > 0, clock_now_ns());
  if (query->only_reads) {
    if (query->again)
      card_query_begin(query, clock_now_ns());
    return 0;
  }
  if (result > 0)
    *cards = query->answer->cards;
  return result;
}

void card_query_want_readings(struct card_query *query, uint64_t now_ns, uint64_t for_ns) {
  if (!query->library)
    return;
  query->wanted_ns = now_ns + for_ns > query->wanted_ns ? now_ns + for_ns : query->wanted_ns;
  if (!query->pid && !query->read_ns)
    query->read_ns = now_ns > query->rest_ns ? now_ns : query->rest_ns;
}

const struct card_reading *card_query_find_reading(const struct card_query *query,
                                                   const uint8_t uuid[GS_UUID_SIZE], uint64_t now_ns) {
  const struct card_readings *readings = &query->readings;
  for (uint32_t i = 0; card_query_has_readings(query, now_ns) && i < readings->count; i++)
    if (memcmp(readings->list[i].uuid, uuid, GS_UUID_SIZE) == 0)
      return &readings->list[i];
  return NULL;
}

uint64_t card_query_deadline_ns(const struct card_query *query) {
  if (query->pid)
    return query->killed ? UINT64_MAX : query->begun_ns + query->patience_ns;
  return query->read_ns ? query->read_ns : UINT64_MAX;
}

void card_query_on_time(struct card_query *query, uint64_t now_ns) {
  if (now_ns < card_query_deadline_ns(query))
    return;
  if (!query->pid) {
    query->read_ns = 0;
    if (start_helper(query, true, now_ns) < 0)
      query->rest_ns = now_ns + CARD_READ_PAUSE_NS;
    return;
  }
  kill(query->pid, SIGKILL);
  query->killed = true;
}

void card_query_end(struct card_query *query) {
  if (query->pid)
    kill(query->pid, SIGKILL);
  if (query->answer)
    munmap(query->answer, sizeof *query->answer);
  *query = (struct card_query){.library = NULL};
}

/* ---- watching what is in use ---- */

/* NULL: the card is not there any more. */
static void *find_device(const struct card *card) {
  uint8_t uuid[GS_UUID_SIZE];
  void *device = nvml_device(GS_GPU_CARD(card->number));
  if (device && GS_GPU_PART(card->number))
    device = nvml_is_split(device) ? nvml_part(device, GS_GPU_PART(card->number) - 1) : NULL;
  bool same = device && read_uuid(device, uuid) && memcmp(uuid, card->uuid, sizeof uuid) == 0;
  return same ? device : NULL;
}

/* In the process. Returns if NVML can't be asked. */
static void look_for_ever(struct card_figure *figures, const struct cards *cards, const char *library) {
  static void *devices[CARDS_MAX];
  char why[NVML_WHY_SIZE];
  if (nvml_open(library, why) < 0)
    return;
  for (uint32_t i = 0; i < cards->count; i++)
    devices[i] = cards->list[i].split ? NULL : find_device(&cards->list[i]);
  for (;;) {
    for (uint32_t i = 0; i < cards->count; i++) {
      uint64_t now_ns = clock_now_ns(), bytes; /* it is from then on, not from before */
      if (!devices[i] || nvml_used_memory(devices[i], &bytes) != 0)
        continue;
      atomic_store(&figures[i].used_bytes, bytes);
      atomic_store(&figures[i].at_ns, now_ns);
    }
    clock_sleep(SCHED_LOOK_NS - clock_now_ns() % SCHED_LOOK_NS);
  }
}

static void begin_watch(struct card_watch *watch, const struct cards *cards, uint64_t now_ns) {
  struct card_figure *figures = share(watch->figures, CARDS_MAX * sizeof *figures);
  watch->begun_ns = now_ns;
  if (!figures)
    return;
  watch->figures = figures;
  pid_t daemon = getpid(), pid = fork();
  if (pid == 0) {
    process_leave(daemon);
    look_for_ever(watch->figures, cards, watch->library);
    _exit(1);
  }
  watch->pid = pid > 0 ? pid : 0;
}

/* NVML begins within CARD_QUERY_NS, or hangs. */
static bool has_hung(const struct card_watch *watch, const struct cards *cards, uint64_t now_ns) {
  uint64_t bytes, at_ns, last_ns = watch->begun_ns;
  for (uint32_t i = 0; i < cards->count; i++)
    if (card_watch_read(watch, i, &bytes, &at_ns) && at_ns > last_ns)
      last_ns = at_ns;
  return now_ns > last_ns && now_ns - last_ns >= CARD_QUERY_NS;
}

void card_watch_go_on(struct card_watch *watch, const struct cards *cards, bool needed, uint64_t now_ns) {
  if (needed)
    watch->needed_ns = now_ns;
  if (watch->pid && (now_ns - watch->needed_ns >= CARD_WATCH_IDLE_NS || has_hung(watch, cards, now_ns)))
    kill(watch->pid, SIGKILL);
  bool may_begin = !watch->begun_ns || now_ns - watch->begun_ns >= CARD_QUERY_PAUSE_NS;
  if (needed && !watch->pid && may_begin)
    begin_watch(watch, cards, now_ns);
  watch->next_ns = now_ns - now_ns % SCHED_LOOK_NS + SCHED_LOOK_NS / 2;
  watch->next_ns += watch->next_ns <= now_ns ? SCHED_LOOK_NS : 0;
}

bool card_watch_read(const struct card_watch *watch, uint32_t card, uint64_t *bytes, uint64_t *at_ns) {
  if (!watch->figures)
    return false;
  *at_ns = atomic_load(&watch->figures[card].at_ns);
  *bytes = atomic_load(&watch->figures[card].used_bytes);
  return *at_ns != 0;
}

void card_watch_on_child(struct card_watch *watch) {
  if (watch->pid && waitpid(watch->pid, NULL, WNOHANG) == watch->pid)
    watch->pid = 0;
}

void card_watch_stop(struct card_watch *watch) {
  if (watch->pid)
    kill(watch->pid, SIGKILL);
  if (watch->figures)
    munmap(watch->figures, CARDS_MAX * sizeof *watch->figures); /* it may still write there */
  watch->figures = NULL;
  watch->begun_ns = 0;
}

void card_watch_end(struct card_watch *watch) {
  card_watch_stop(watch);
  *watch = (struct card_watch){.library = NULL};
}

/* ---- the kernel module's word ---- */

/* What follows "LABEL:" and blanks in its line; false: there is no such line. */
static bool find_value(const char *text, const char *label, char *value, size_t size) {
  size_t length = strlen(label);
  for (const char *line = text; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (strncmp(line, label, length) != 0 || line[length] != ':')
      continue;
    line += length + 1;
    line += strspn(line, " \t");
    snprintf(value, size, "%.*s", (int)strcspn(line, "\n"), line);
    return true;
  }
  return false;
}

/* A GPU that nobody has used since the start of the machine has no UUID yet, only question marks. Its UUID
 * here is zero then, as that of a GPU that can't be read. */
static void read_card(int folder, const char *gpu, struct card *card) {
  char path[300], text[4096], value[64], number[16];
  int64_t minor;
  *card = (struct card){.minor = CARD_MINOR_UNKNOWN};
  snprintf(card->bus, sizeof card->bus, "%.31s", gpu);
  snprintf(path, sizeof path, "%.255s/information", gpu);
  if (text_file_read(folder, path, text, sizeof text) < 0 ||
      !find_value(text, "GPU UUID", value, sizeof value))
    return;
  value[strcspn(value, " \t")] = '\0';
  if (parse_uuid(value, card->uuid) < 0)
    memset(card->uuid, 0, sizeof card->uuid);
  if (find_value(text, "Device Minor", number, sizeof number) &&
      parse_integer(number, 0, INT32_MAX, &minor) == 0)
    card->minor = (uint32_t)minor;
  find_value(text, "Model", card->name, sizeof card->name);
}

static int read_folder(const char *folder, struct card *cards, int most) {
  DIR *directory = opendir(folder);
  int count = 0;
  if (!directory)
    return -errno;
  for (const struct dirent *entry; count >= 0 && (entry = readdir(directory));) {
    if (entry->d_name[0] == '.')
      continue;
    if (count < most)
      read_card(dirfd(directory), entry->d_name, &cards[count++]);
    else
      count = -E2BIG;
  }
  closedir(directory);
  return count;
}

int host_gpus_read(const char *folder, uint8_t (*uuids)[GS_UUID_SIZE], int most) {
  static struct card cards[CARDS_MAX];
  int count = read_folder(folder, cards, most < (int)CARDS_MAX ? most : (int)CARDS_MAX);
  for (int i = 0; i < count; i++)
    if (uuid_is_zero(cards[i].uuid))
      return -ENODATA;
  for (int i = 0; i < count; i++)
    memcpy(uuids[i], cards[i].uuid, GS_UUID_SIZE);
  return count;
}

/* "0000:65:00.0": hexadecimal digits, as many in each. */
static int compare_places(const void *a, const void *b) {
  return strcmp(((const struct card *)a)->bus, ((const struct card *)b)->bus);
}

/* By its minor; of a card without one: any may be meant. */
static bool has_instances(const char *folder, uint32_t minor) {
  char pattern[300], which[16] = "*";
  glob_t found;
  if (minor != CARD_MINOR_UNKNOWN)
    snprintf(which, sizeof which, "%u", minor);
  snprintf(pattern, sizeof pattern, "%.200s/../capabilities/gpu%s/mig/gi*", folder, which);
  bool some = glob(pattern, GLOB_NOSORT, NULL, &found) == 0;
  if (some)
    globfree(&found);
  return some;
}

int host_gpus_cards(const char *folder, struct cards *cards) {
  int count = read_folder(folder, cards->list, CARDS_MAX);
  if (count < 0)
    return count;
  qsort(cards->list, (size_t)count, sizeof *cards->list, compare_places);
  for (int i = 0; i < count; i++) /* all have one, as nvidia-smi sees all of them */
    cards->list[i].number = GS_GPU_NUMBER((uint32_t)i, 0u);
  cards->source = CARDS_HOST;
  cards->partial = false;
  cards->count = 0;
  for (int i = 0; i < count; i++) {
    struct card *card = &cards->list[i];
    card->split = has_instances(folder, card->minor);
    cards->partial |= card->split || uuid_is_zero(card->uuid);
    if (!uuid_is_zero(card->uuid))
      cards->list[cards->count++] = *card;
  }
  if (cards->count == 0)
    return -ENODATA;
  return cards_settle(cards) ? -EINVAL : 0;
}
