/* service.c - see service.h. */
#include "meter/service.h"

#include <errno.h>
#include <pthread.h>

#include "common/clock.h"
#include "common/lock.h"
#include "gate/capture.h"
#include "gate/gate.h"
#include "gate/streams.h"
#include "interpose/driver.h"

/* Asking all streams costs some microseconds, where there are many some tens: not after every tiny kernel
 * that somebody waits for, and never for more than half a hundredth of the time; but a few may follow each
 * other, of threads whose work overlaps. */
#define LOOK_NS (NS_PER_MS / 5)
#define LOOK_PART 200
#define LOOKS_AHEAD_NS (10 * NS_PER_MS)

/* A copy that took no longer has not waited, so nothing is over by it. */
#define BRIEF_NS (NS_PER_MS / 100)

/* What goes on for so long, and for twice as long as what was seen to end before it, is accounted for before
 * it has ended; and nothing is waited for longer than the most. */
#define PIECE_NS (100 * NS_PER_MS)
#define PIECE_MOST_NS (400 * NS_PER_MS)

struct service {
  uint64_t begun_ns; /* what is under way */
  uint64_t before;   /* submissions by then */
  uint64_t total_ns; /* of what is over */
  uint64_t paid_ns;  /* looks have taken their part of the time until then */
  uint64_t usual_ns; /* the last that is over took so long, if that was seen; else 0 */

  /* Of what is under way, the piece that is not accounted for yet. */
  uint64_t piece_ns;                 /* when it began */
  uint64_t waited_ns;                /* by calls */
  uint64_t submitted;                /* by then */
  uint64_t served, served_waited_ns; /* the sums of those before */
  uint64_t left_ns;                  /* when the last wait returned, if no look tells more; else 0 */
  uint64_t left_at;                  /* submissions by then */
};

_Atomic uint64_t service_wanted;
static _Atomic uint64_t resting; /* mask: nothing is under way there */
static _Atomic uint64_t polled;  /* mask: since it began, it may have waited where nobody sees it */

/* Protects `services`, and changes of the masks. Never held over a call of the driver. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct service services[GS_GPUS_PER_CLIENT];

static uint64_t bit(CUdevice device) { return UINT64_C(1) << device; }

static bool is_wanted(CUdevice device) { return device >= 0 && (atomic_load(&service_wanted) & bit(device)); }

static bool is_resting(CUdevice device) { return atomic_load(&resting) & bit(device); }

static uint64_t submissions(CUdevice device) {
  uint64_t counts[GATE_COUNTS];
  gate_counts(device, counts);
  return counts[GATE_SUBMISSIONS];
}

/* Lock held, here and in the next ones. */
static void begin_piece(CUdevice device, uint64_t now_ns) {
  struct service *service = &services[device];
  service->piece_ns = now_ns;
  service->waited_ns = service->left_ns = 0;
  service->submitted = submissions(device);
}

/* seen: a call has waited until it was over. */
static void end_piece(CUdevice device, uint64_t now_ns, bool seen) {
  struct service *service = &services[device];
  uint64_t submitted = service->submitted, elapsed_ns = now_ns - service->piece_ns;
  bool known = seen && !(atomic_load(&polled) & bit(device));
  known = known && service->waited_ns < elapsed_ns; /* of several threads that wait: all the time */
  service->served_waited_ns += known ? service->waited_ns : elapsed_ns;
  begin_piece(device, now_ns);
  service->served += service->submitted - submitted;
}

static void begin(CUdevice device) {
  atomic_fetch_and(&resting, ~bit(device));
  atomic_fetch_and(&polled, ~bit(device));
  services[device].begun_ns = clock_now_ns();
  begin_piece(device, services[device].begun_ns);
  services[device].before = services[device].submitted;
}

static void end(CUdevice device, uint64_t now_ns, bool seen) {
  struct service *service = &services[device];
  if (!is_resting(device)) {
    service->total_ns += now_ns - service->begun_ns;
    service->usual_ns = seen ? now_ns - service->begun_ns : 0;
    end_piece(device, now_ns, seen);
  }
  atomic_fetch_or(&resting, bit(device));
}

static void set_look(void) {
  gate_set_look(GATE_LOOK_RESTING, (atomic_load(&service_wanted) & atomic_load(&resting)) != 0);
}

void service_want(CUdevice device, bool wanted) {
  if (is_wanted(device) == wanted)
    return;
  lock_take(&lock);
  if (wanted) {
    begin(device);
    atomic_fetch_or(&service_wanted, bit(device));
  } else {
    end(device, clock_now_ns(), false);
    atomic_fetch_and(&service_wanted, ~bit(device));
  }
  set_look();
  lock_release(&lock);
}

/* While one GPU rests all calls come by here: those of the others go on at once. */
void service_begin(CUdevice device) {
  if (!is_wanted(device) || !is_resting(device))
    return;
  lock_take(&lock);
  if (is_wanted(device) && is_resting(device))
    begin(device);
  set_look();
  lock_release(&lock);
}

/* Who is not in flight any more has been counted. */
static bool is_over(CUdevice device, uint64_t finished) {
  bool in_flight = gate_in_flight();
  uint64_t submitted = submissions(device);
  return submitted == finished && !(in_flight && submitted == services[device].before);
}

/* The last wait has ended it, as far as is known: nobody looked then, but waits have ended those before. */
static bool has_left(CUdevice device, uint64_t submitted) {
  const struct service *service = &services[device];
  bool polls = atomic_load(&polled) & bit(device);
  return service->left_ns && service->left_at == submitted && service->usual_ns && !polls;
}

/* Who submits just now and has not seen the reason to look counts from its next submission on. */
static void end_service(CUdevice device, uint64_t finished, bool seen) {
  lock_take(&lock);
  if (is_wanted(device) && is_over(device, finished)) {
    bool left = !seen && has_left(device, finished);
    end(device, left ? services[device].left_ns : clock_now_ns(), seen || left);
  }
  set_look();
  lock_release(&lock);
}

void service_end(CUdevice device, uint64_t finished) { end_service(device, finished, false); }

void service_goes_on(CUdevice device) {
  lock_take(&lock);
  services[device].left_ns = 0;
  lock_release(&lock);
}

static uint64_t patience_ns(const struct service *service) {
  uint64_t ns = 2 * service->usual_ns;
  return ns < PIECE_NS ? PIECE_NS : ns > PIECE_MOST_NS ? PIECE_MOST_NS : ns;
}

struct service_sums service_sums(CUdevice device) {
  lock_take(&lock);
  struct service *service = &services[device];
  uint64_t now_ns = clock_now_ns(), running_ns = 0;
  bool runs = is_wanted(device) && !is_resting(device);
  if (runs && now_ns - service->piece_ns >= patience_ns(service)) {
    service->usual_ns = 0;
    end_piece(device, now_ns, false);
  }
  if (runs)
    running_ns = (has_left(device, submissions(device)) ? service->left_ns : now_ns) - service->begun_ns;
  struct service_sums sums = {service->total_ns + running_ns, service->served, service->served_waited_ns};
  lock_release(&lock);
  return sums;
}

static void note_wait(CUdevice device, uint64_t since_ns) {
  lock_take(&lock);
  struct service *service = &services[device];
  uint64_t now_ns = clock_now_ns(), from_ns = since_ns > service->piece_ns ? since_ns : service->piece_ns;
  service->waited_ns += now_ns - from_ns;
  service->left_ns = now_ns;
  service->left_at = submissions(device);
  lock_release(&lock);
}

static bool is_worth_asking(CUdevice device) {
  lock_take(&lock);
  const struct service *service = &services[device];
  uint64_t now_ns = clock_now_ns();
  bool is = !is_resting(device) && now_ns - service->begun_ns >= LOOK_NS &&
            service->paid_ns <= now_ns + LOOKS_AHEAD_NS;
  lock_release(&lock);
  return is;
}

/* One that took long by chance is paid for, too: it says nothing of those to come. */
static void pay(CUdevice device, uint64_t start_ns) {
  lock_take(&lock);
  struct service *service = &services[device];
  uint64_t from_ns = service->paid_ns > start_ns ? service->paid_ns : start_ns;
  service->paid_ns = from_ns + (clock_now_ns() - start_ns) * LOOK_PART;
  lock_release(&lock);
}

static bool has_finished(CUdevice device) {
  uint64_t start_ns = clock_now_ns();
  capture_forbid();
  bool has = capture_count() == 0 && streams_ask(device) == STREAMS_FINISHED;
  capture_allow();
  pay(device, start_ns);
  return has;
}

static void waited(CUdevice device, uint64_t since_ns) {
  note_wait(device, since_ns);
  if (!is_worth_asking(device))
    return;
  uint64_t submitted = submissions(device);
  if (has_finished(device))
    end_service(device, submitted, true);
  else
    service_goes_on(device);
}

void service_waited_slow(uint64_t since_ns) {
  int saved = errno;
  CUdevice device;
  if (driver.cuCtxGetDevice(&device) == CUDA_SUCCESS && device < GS_GPUS_PER_CLIENT && is_wanted(device))
    waited(device, since_ns);
  errno = saved;
}

void service_copied_slow(uint64_t since_ns) {
  if (clock_now_ns() - since_ns >= BRIEF_NS)
    service_waited_slow(since_ns);
}

/* Which of several GPUs it asks for doesn't matter: whoever polls does so for all of them. */
void service_polled_slow(void) { atomic_fetch_or(&polled, atomic_load(&service_wanted)); }

void service_fork_child(void) {
  pthread_mutex_init(&lock, NULL);
  atomic_store(&service_wanted, 0);
  atomic_store(&resting, 0);
  atomic_store(&polled, 0);
  for (struct service *service = services; service < services + GS_GPUS_PER_CLIENT; service++)
    *service = (struct service){0};
}
