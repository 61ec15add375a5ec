/* connection.c - the connection to the daemon: connect, register, attach, obey, and do without it. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/cache.h"
#include "client/client.h"
#include "client/client_state.h"
#include "client/command.h"
#include "client/declaration.h"
#include "client/fork.h"
#include "client/mps_choice.h"
#include "client/post.h"
#include "client/progress.h"
#include "common/clock.h"
#include "common/condition.h"
#include "common/futex.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/thread.h"
#include "common/words.h"
#include "driver/driver.h"
#include "gate/gate.h"
#include "memory/memory.h"
#include "settings.h"

/* Between attempts to connect: a sixteenth of the time that the daemon has been away, within these bounds. A
 * daemon that is started anew is found at once, and one that comes back late within the longer bound. An
 * attempt without a daemon costs some microseconds. Why attempts: a socket that is bound but not yet listened
 * on can't be watched, nor can a folder that is not there. */
#define RETRY_PART 16
#define RETRY_MIN_NS (20 * NS_PER_MS)
#define RETRY_MAX_NS (200 * NS_PER_MS)
#define RETRY_REFUSED_NS (30 * NS_PER_S) /* after the daemon has said no */
#define HANDSHAKE_NS (2 * NS_PER_S)      /* for the daemon to accept, and to answer REGISTER and ATTACH */
#define NO_ANSWER "it does not answer"

/* ---- doing without a daemon ---- */

/* How long to wait before the next attempt to connect. */
static uint64_t retry_ns(void) {
  uint64_t part_ns = (clock_now_ns() - client.away_since_ns) / RETRY_PART;
  return part_ns < RETRY_MIN_NS ? RETRY_MIN_NS : part_ns > RETRY_MAX_NS ? RETRY_MAX_NS : part_ns;
}

/* What this program does meanwhile. */
static const char *without_daemon(void) {
  return settings()->required ? "waiting, as GPUSHARE_REQUIRED says" : "running unshared until there is one";
}

/* why: for the log; NULL where that is done. */
static void go_alone(const char *why) {
  bool wait = settings()->required;
  if (!client.alone && why)
    log_warn("no daemon at %s (%s): %s", settings()->socket, why, without_daemon());
  client.alone = true;
  for (struct gpu *gpu = client.gpus; gpu < client.gpus + GS_GPUS_PER_CLIENT; gpu++)
    if (gpu->used && !wait)
      client_tell(gpu, machine_hold);
  condition_wake_all(&client.memory_changed);
}

/* Memory that leaves is passed to nobody, and comes back as far as there is room. */
static void unbind(struct gpu *gpu, void (*event)(struct machine *machine, struct orders *orders)) {
  memory_set_heir(gpu->device, &(struct memory_heir){.pid = 0});
  gpu->filling = (struct filling){.said = false};
  client_order(gpu, event);
}

/* What the last daemon has said is void. Who held the lock holds on; who did not runs unshared. */
static void forget_daemon(void) {
  client.registered = false;
  for (struct gpu *gpu = client.gpus; gpu < client.gpus + GS_GPUS_PER_CLIENT; gpu++) {
    if (!gpu->used)
      continue;
    gpu->attach_sent = false;
    gpu->refused_until_ns = 0;
    gpu->capacity_bytes = gpu->slice_us = 0;
    unbind(gpu, machine_lose);
    share_take(gpu, GS_SHARE_ALL);
    progress_watch(gpu, GS_WATCH_NOT);
  }
  condition_wake_all(&client.memory_changed);
}

static void disconnect(const char *why, uint64_t pause_ns) {
  post_hang_up();
  client.connected = client.alone = false;
  client.handshake_by_ns = 0;
  client.retry_at_ns = clock_now_ns() + pause_ns;
  forget_daemon();
  if (!client.evicted)
    go_alone(why);
}

/* ---- messages from the daemon ---- */

/* What the driver says about the device. */
static void describe_device(struct gs_msg *msg, CUdevice device) {
  CUuuid uuid;
  size_t total = 0;
  CUresult (*get_uuid)(CUuuid *, CUdevice) =
      driver.cuDeviceGetUuid_v2 ? driver.cuDeviceGetUuid_v2 : driver.cuDeviceGetUuid;
  if (get_uuid(&uuid, device) == CUDA_SUCCESS)
    memcpy(msg->attach.uuid, uuid.bytes, sizeof msg->attach.uuid);
  driver.cuDeviceTotalMem_v2(&total, device);
  driver.cuDeviceGetName(msg->attach.name, sizeof msg->attach.name, device);
  msg->attach.total_bytes = total;
  msg->attach.flags = memory_attach_flags(device);
  msg->attach.pass = memory_pass(device);
}

static void send_attach(struct gpu *gpu) {
  struct gs_msg msg = wire_msg(GS_ATTACH, (uint32_t)gpu->device);
  describe_device(&msg, gpu->device);
  lock_take(&client.lock);
  struct sight sight = client_see(gpu);
  machine_attach(&gpu->machine, &sight, &msg);
  client_send(&msg);
  lock_release(&client.lock);
  client.handshake_by_ns = clock_now_ns() + HANDSHAKE_NS;
}

/* Attach what is in use and not yet attached. Lock not held: asks the driver. */
static void attach_all(void) {
  for (struct gpu *gpu = client.gpus; gpu < client.gpus + GS_GPUS_PER_CLIENT; gpu++) {
    lock_take(&client.lock);
    bool due = gpu->used && client.registered && !gpu->machine.attached && !gpu->attach_sent;
    gpu->attach_sent |= due;
    lock_release(&client.lock);
    if (due)
      send_attach(gpu);
  }
}

static void on_share(struct gpu *gpu, const struct gs_msg *msg) {
  lock_take(&client.lock);
  gpu->slice_us = msg->share.slice_us;
  share_take(gpu, msg->share.share_ppm);
  progress_watch(gpu, msg->share.watch);
  lock_release(&client.lock);
}

void client_hear(struct gpu *gpu, const struct gs_msg *msg) {
  struct orders orders = {0};
  if (msg->type == GS_LOCK_OK || msg->type == GS_DROP_LOCK || msg->type == GS_ROOM)
    memory_set_heir(gpu->device, &(struct memory_heir){.pass = msg->room.pass, .pid = msg->room.pass_pid});
  struct sight sight = client_see(gpu);
  machine_hear(&gpu->machine, msg, &sight, &orders);
  if (msg->type == GS_ATTACHED) {
    gpu->told_abilities = 0;
    worker_tell_abilities(gpu);
  }
  client_obey(gpu, &orders);
  if (orders.try_open)
    worker_try_open(gpu);
}

static void on_order(struct gpu *gpu, const struct gs_msg *msg) {
  lock_take(&client.lock);
  client_hear(gpu, msg);
  lock_release(&client.lock);
}

static void say_in_the_way(struct gpu *gpu) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  if (atomic_flag_test_and_set(&said))
    return;
  struct memory_usage usage = memory_usage(gpu->device);
  char kinds[LOG_LINE_SIZE] = "", bytes[WORDS_SIZE];
  size_t length = 0;
  for (int kind = 0; kind < GS_PINNED_COUNT; kind++) {
    struct words_pinned words = words_pinned((enum gs_pinned)kind);
    if (usage.kind_bytes[kind] && length < sizeof kinds)
      length += (size_t)snprintf(kinds + length, sizeof kinds - length, "%s%s of %s (%s)", length ? ", " : "",
                                 words_bytes(usage.kind_bytes[kind], bytes), words.title, words.help);
  }
  log_warn(
      "GPU %d: another job can't run beside the %llu bytes of this program that can't leave the card: %s",
      gpu->device, (unsigned long long)usage.pinned_bytes, kinds);
}

static void on_attached(struct gpu *gpu, const struct gs_msg *msg) {
  lock_take(&client.lock);
  gpu->capacity_bytes = msg->attached.capacity_bytes;
  gpu->limited = msg->attached.limited;
  if (msg->type == GS_ATTACHED)
    gpu->memory_mode = (int)msg->attached.memory;
  client_hear(gpu, msg);
  lock_release(&client.lock);
  memory_set_host_tight(msg->attached.host_tight);
  if (msg->attached.in_the_way)
    say_in_the_way(gpu);
  memory_set_host_copies((enum gs_host_copies)msg->attached.host_copies);
}

static void on_memory_reply(struct gpu *gpu, const struct gs_msg *msg) {
  on_order(gpu, msg);
  if (msg->status == -EAGAIN)
    log_warn("GPU %d: waits until other programs have left as much memory as this one says that it needs "
             "(gpusharectl why tells more)",
             gpu->device);
}

static void send_command(void) {
  struct gs_msg msg = wire_msg(GS_COMMAND, 0);
  strncpy(msg.command.text, command_text(), sizeof msg.command.text - 1);
  if (*msg.command.text)
    client_send(&msg);
}

static void on_registered(const struct gs_msg *msg) {
  lock_take(&client.lock);
  if (client.alone)
    log_warn("the daemon is there: sharing");
  client.registered = true;
  client.job = msg->registered.job;
  client.alone = false;
  client.handshake_by_ns = 0;
  send_command();
  declaration_send();
  lock_release(&client.lock);
  attach_all();
}

static void on_other_version(uint64_t version) {
  log_warn("the daemon speaks protocol %lu, this library %u: %s; install the same version of both", version,
           GS_PROTOCOL_VERSION, without_daemon());
  lock_take(&client.lock);
  disconnect(NULL, RETRY_REFUSED_NS);
  lock_release(&client.lock);
}

/* The daemon does not know this GPU, or does not find it open here; or not yet: the program does without the
 * daemon there. */
static void on_gpu_rejected(struct gpu *gpu, const struct gs_msg *msg) {
  uint64_t pause_ns = msg->registered.value;
  pause_ns = pause_ns < RETRY_MAX_NS       ? RETRY_MAX_NS
             : pause_ns > RETRY_REFUSED_NS ? RETRY_REFUSED_NS
                                           : pause_ns;
  lock_take(&client.lock);
  gpu->refused_until_ns = clock_now_ns() + pause_ns;
  if (!gpu->refusal_said && pause_ns == RETRY_REFUSED_NS) {
    const char *then =
        settings()->required ? "waiting, as GPUSHARE_REQUIRED says" : "not shared with other programs";
    if (msg->registered.reason == GS_REJECT_DEVICE)
      log_warn("GPU %d: the daemon does not find its device among the open files of this process: %s",
               gpu->device, then);
    else
      log_warn("GPU %d: to the daemon this host has no such GPU (its log tells more): %s", gpu->device, then);
    gpu->refusal_said = true;
  }
  unbind(gpu, machine_unbind);
  if (!settings()->required)
    client_tell(gpu, machine_hold);
  condition_wake_all(&client.memory_changed);
  lock_release(&client.lock);
}

/* The time has come to ask for it again. Lock held. */
static bool is_asked_again(struct gpu *gpu, uint64_t now_ns) {
  if (!client.connected || !gpu->refused_until_ns || now_ns < gpu->refused_until_ns)
    return false;
  gpu->refused_until_ns = 0;
  gpu->attach_sent = false;
  return true;
}

static void on_rejected(const struct gs_msg *msg) {
  if (msg->registered.reason == GS_REJECT_VERSION) {
    on_other_version(msg->registered.value);
    return;
  }
  log_warn("the daemon has no room for another client of this user (limit %lu): %s", msg->registered.value,
           without_daemon());
  lock_take(&client.lock);
  disconnect(NULL, RETRY_REFUSED_NS);
  lock_release(&client.lock);
}

/* It has lost its place. It comes back as others come, and until then it submits nothing: that would be at
 * the cost of those for whom it was evicted. Its memory stays as it is. */
static void on_evicted(const struct gs_msg *msg) {
  log_warn(
      "evicted from the GPU%s: it waits for %llu ms, and then for its turn as others that have just come",
      msg->evicted.by_pid ? "" : ", as it has not stopped when it was told to",
      (unsigned long long)(msg->evicted.wait_ns / NS_PER_MS));
  lock_take(&client.lock);
  client.evicted = true;
  disconnect(NULL, msg->evicted.wait_ns);
  for (struct gpu *gpu = client.gpus; gpu < client.gpus + GS_GPUS_PER_CLIENT; gpu++)
    if (gpu->used && (gpu->machine.holding || gpu->machine.releasing))
      client_order(gpu, machine_order_drop);
  lock_release(&client.lock);
}

static void handshake_check(void) {
  lock_take(&client.lock);
  bool outstanding = !client.registered;
  for (struct gpu *gpu = client.gpus; gpu < client.gpus + GS_GPUS_PER_CLIENT; gpu++)
    outstanding |= gpu->used && !gpu->machine.attached && !gpu->refused_until_ns;
  lock_release(&client.lock);
  if (!outstanding)
    client.handshake_by_ns = 0;
}

static bool is_used(struct gpu *gpu) {
  lock_take(&client.lock);
  bool used = gpu->used;
  lock_release(&client.lock);
  return used;
}

static void on_message(struct letter *letter) {
  const struct gs_msg *msg = &letter->msg;
  struct gpu *gpu = msg->gpu < GS_GPUS_PER_CLIENT ? &client.gpus[msg->gpu] : NULL;
  log_debug("got %s gpu %u epoch %lu", wire_type_name(msg->type), msg->gpu, msg->epoch);
  switch (msg->type) {
  case GS_REGISTERED:
    on_registered(msg);
    return;
  case GS_REJECTED:
    if (msg->registered.reason == GS_REJECT_GPU || msg->registered.reason == GS_REJECT_DEVICE)
      break;
    on_rejected(msg);
    return;
  case GS_EVICTED:
    on_evicted(msg);
    return;
  }
  if (!gpu || !is_used(gpu))
    return;
  switch (msg->type) {
  case GS_ATTACHED:
  case GS_CAPACITY:
    on_attached(gpu, msg);
    handshake_check();
    break;
  case GS_REJECTED:
    on_gpu_rejected(gpu, msg);
    handshake_check();
    break;
  case GS_LOCK_OK:
  case GS_ROOM:
  case GS_LOCK_WANTED:
  case GS_DROP_LOCK:
    on_order(gpu, msg);
    break;
  case GS_MEM_REPLY:
    on_memory_reply(gpu, msg);
    break;
  case GS_SCHED_ON:
  case GS_SCHED_OFF:
    memory_expect_moves(gpu->device, msg->type == GS_SCHED_ON);
    break;
  case GS_SHARE:
    on_share(gpu, msg);
    break;
  }
}

/* ---- the connection thread ---- */

static void send_register(void) {
  struct gs_msg msg = wire_msg(GS_REGISTER, 0);
  msg.reg.pid = getpid();
  msg.reg.command_hash = command_hash();
  msg.reg.flags = mps_choice_is_on() ? GS_REGISTER_MPS : 0;
  const char *name = settings()->name;
  snprintf(msg.reg.name, sizeof msg.reg.name, "%.*s", GS_NAME_SIZE - 1,
           *name ? name : program_invocation_short_name);
  client_send(&msg);
}

static const char *describe(int err, char *buffer, size_t size) { return strerror_r(err, buffer, size); }

/* A daemon that many connect to at once is there: what it is to say is waited for, as long as for what it
 * says otherwise. */
static void try_connect(void) {
  lock_take(&client.lock);
  client.evicted = false;
  int err = post_connect(settings()->socket);
  uint64_t again_ns = wire_connect_again_ns(err, &client.full_since_ns, HANDSHAKE_NS);
  if (again_ns) {
    client.retry_at_ns = again_ns;
  } else if (err < 0) {
    if (!client.away_since_ns)
      client.away_since_ns = clock_now_ns();
    client.retry_at_ns = clock_now_ns() + retry_ns();
    go_alone(err == -EAGAIN ? NO_ANSWER : describe(-err, (char[64]){0}, 64));
  } else {
    client.connected = true;
    client.handshake_by_ns = clock_now_ns() + HANDSHAKE_NS;
    send_register();
  }
  lock_release(&client.lock);
}

static bool take_letter(struct letter *letter) {
  lock_take(&client.lock);
  bool taken = client.connected && post_take(letter);
  lock_release(&client.lock);
  return taken;
}

static void receive_all(void) {
  struct letter letter;
  while (take_letter(&letter)) {
    if (letter.err == 0)
      on_message(&letter);
    if (letter.err == 0 || letter.err == -ENOSYS)
      continue;
    if (letter.err == -EPROTONOSUPPORT) {
      on_other_version(letter.msg.version);
      continue;
    }
    lock_take(&client.lock);
    if (client.registered)
      client.away_since_ns = clock_now_ns();
    disconnect("the connection ended", retry_ns());
    lock_release(&client.lock);
  }
}

static uint64_t earlier(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* What is due for one GPU. Lock held. */
static uint64_t run_gpu_timers(struct gpu *gpu, uint64_t now_ns) {
  if (!gpu->used)
    return UINT64_MAX;
  if (is_asked_again(gpu, now_ns))
    return now_ns;
  uint64_t again_ns = gpu->refused_until_ns ? gpu->refused_until_ns : UINT64_MAX;
  struct sight sight = client_see(gpu);
  struct orders orders = {0};
  uint64_t report_ns = machine_check_memory(&gpu->machine, &sight, &orders);
  client_obey(gpu, &orders);
  uint64_t check_ns = earlier(worker_check(gpu, now_ns), cache_check(gpu, now_ns));
  return earlier(again_ns, earlier(check_ns, report_ns));
}

/* Things that are due; returns when the next one is. */
static uint64_t run_timers(void) {
  uint64_t now_ns = clock_now_ns(), next_ns = memory_run_timers(now_ns);
  if (!client.connected && now_ns >= client.retry_at_ns)
    try_connect();
  lock_take(&client.lock);
  if (client.connected && client.handshake_by_ns && now_ns >= client.handshake_by_ns)
    disconnect(NO_ANSWER, retry_ns());
  for (struct gpu *gpu = client.gpus; gpu < client.gpus + GS_GPUS_PER_CLIENT; gpu++)
    next_ns = earlier(next_ns, run_gpu_timers(gpu, now_ns));
  if (!client.connected)
    next_ns = earlier(next_ns, client.retry_at_ns);
  if (client.connected && client.handshake_by_ns)
    next_ns = earlier(next_ns, client.handshake_by_ns);
  lock_release(&client.lock);
  return next_ns;
}

static void *connection_run(void *unused) {
  thread_begin("gpushare");
  for (;;) {
    uint32_t seen = atomic_load(&client.events); /* before anything is looked at: what comes later moves it */
    receive_all();
    attach_all();
    uint64_t next_ns = run_timers(), now_ns = clock_now_ns();
    if (next_ns > now_ns)
      futex_wait(&client.events, seen, next_ns == UINT64_MAX ? UINT64_MAX : next_ns - now_ns);
  }
  return unused;
}

/* ---- what the rest of the library calls ---- */

static bool start(void) {
  client_mark_process();
  settings_complain();
  fork_watch();
  client.started =
      post_start(&client.lock, client_wake) == 0 && thread_start_needed(connection_run, NULL) == 0;
  if (!client.started)
    log_error("can't start the thread that speaks with the daemon: running unshared");
  return client.started;
}

void client_attach_device(struct gpu *gpu, CUdevice device) {
  if (gpu->used || gpu->unshared)
    return;
  gpu->device = device;
  gpu->machine.move_again_ns = UINT64_MAX;
  bool works = client.started || start();
  gpu->used = works && thread_start_needed(worker_run, gpu) == 0;
  gpu->unshared = !gpu->used;
  if (gpu->unshared || (client.alone && !settings()->required))
    client_tell(gpu, machine_hold);
  client_wake();
}

void client_attach(CUdevice device) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu || gate_is_used(device))
    return;
  lock_take(&client.lock);
  gate_add(device);
  client_attach_device(gpu, device);
  bool unshared = gpu->unshared;
  lock_release(&client.lock);
  if (unshared) {
    room_fill(device);
    gate_open(device);
  }
}

void client_want(CUdevice device) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu) { /* a stray child: the driver shall say what it thinks of its calls */
    gate_open(device);
    return;
  }
  lock_take(&client.lock);
  client_tell(gpu, machine_want);
  lock_release(&client.lock);
}
