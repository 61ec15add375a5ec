/* internal.h - what the files of the core share: each calls those before it, in this order. */
#ifndef GS_SCHEDULER_INTERNAL_H
#define GS_SCHEDULER_INTERNAL_H

#include "core/scheduler.h"

static inline uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }
static inline uint64_t less_u64(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }
static inline uint64_t add_u64(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

/* Of gpu->jobs. */
static inline struct sched_job *job_of(const struct list *node) {
  return list_entry(node, struct sched_job, link);
}

/* Of idle, holders, next, later, dropping or overdue. */
static inline struct sched_job *job_of_turn(struct list *node) {
  return node ? list_entry(node, struct sched_job, turn) : NULL;
}

/* Of the queue. */
static inline struct sched_job *job_of_queue(const struct list *node) {
  return list_entry(node, struct sched_job, waiting);
}

/* Of gang->members. */
static inline struct sched_job *member_of(struct list *node) {
  return list_entry(node, struct sched_job, gang_link);
}

/* A plan is due. */
static inline void gpu_make_dirty(struct sched_gpu *gpu) { gpu->dirty = gpu->scheduler->dirty = true; }

/* Something has changed that decides when the GPU has something to do. */
static inline void turns_touch(struct sched_gpu *gpu) {
  gpu->deadline_known = false;
  gpu->changes++;
}

/* ---- facts.c ---- */

void change_add(struct sched_change *change, struct sched_job *job, enum sched_action_type type);
void change_add_all(struct sched_gpu *gpu, enum sched_action_type type, struct sched_change *change);
void change_forget(struct sched_job *job);

/* Somebody is told to stop; or nobody runs, and somebody could. */
void handover_begin(struct sched_gpu *gpu, uint64_t now_ns);

/* It has stopped. */
void handover_drained(struct sched_gpu *gpu, uint64_t drain_ns, uint64_t now_ns);

void handover_moved(struct sched_gpu *gpu, uint64_t evicted_bytes, uint64_t restored_bytes);

/* How fast memory comes back, behind turns and in hand-overs. Too small a restore is ignored. */
void handover_measure(struct sched_gpu *gpu, uint64_t restore_ns, uint64_t restore_bytes);

/* The next one runs. */
void handover_end(struct sched_gpu *gpu, const struct sched_active *active, uint64_t now_ns);

/* How long the GPU would stand idle for so many bytes. */
uint64_t handover_cost_ns(const struct sched_gpu *gpu, uint64_t bytes);

/* When the quantum of those that hold is over; what is left of it, all of it while nobody runs; whether it is
 * over. */
uint64_t turns_quantum_end_ns(const struct sched_gpu *gpu);
uint64_t turns_quantum_left_ns(const struct sched_gpu *gpu, uint64_t now_ns);
bool turns_quantum_over(const struct sched_gpu *gpu, uint64_t now_ns);

/* The first holder; NULL: nobody holds. */
struct sched_job *turns_holder(const struct sched_gpu *gpu);

/* A holder runs, besides this one (NULL: any). */
bool turns_runs(const struct sched_gpu *gpu, const struct sched_job *beside);

/* A victim has not left, or one that had not left can be asked again: if a holder waits for memory without
 * page faults, others are asked now. */
void turns_wait_anew(struct sched_gpu *gpu, uint64_t now_ns);

/* The job leaves; its class will be another one. */
void tally_close(struct sched_job *job, uint64_t now_ns);
void tally_change_class(struct sched_job *job, uint64_t now_ns);

/* The job has no turn now, for what others of its user have done. */
bool silence_bars(const struct sched_job *job);

/* The job, which was silent, has answered, or leaves, or others go on without it. */
void silence_end(struct sched_job *job, uint64_t now_ns);
uint64_t silence_deadline_ns(const struct sched_gpu *gpu);
void silence_expire(struct sched_gpu *gpu, uint64_t now_ns);

static inline bool gang_has_one(const struct sched_gang *gang) {
  return gang->members.next == gang->members.previous;
}

/* The job has no gang, or is the only one in it. */
bool gang_is_alone(const struct sched_job *job);

bool gang_waits(const struct sched_gang *gang);

/* A member that is paused: without it the others are not granted either. NULL: there is none, or no gang. */
const struct sched_job *gang_paused(const struct sched_gang *gang);

/* The job's gang does. */
bool gang_claims(const struct sched_job *job);

/* The job, which waits, may take the place of whoever holds: its gang claims that; or one of its gang holds
 * already, and may wait on its GPU for what this one cannot submit. */
bool gang_goes_first(const struct sched_job *job);

/* A member has not stopped within the grace, and others wait for it. */
bool gang_is_awaited(const struct sched_gang *gang);

/* A member's GPU has changed what the others' can do. NULL: nothing happens. */
void gang_look(const struct sched_gang *gang);

/* ---- accounting.c: what there is ---- */

/* Whether the memory of all jobs fits the GPU together, with what they are expected to allocate again. */
bool books_fit(const struct sched_gpu *gpu);

/* What is on the card decides, it is known, and it has not been too much for these jobs. */
bool books_fit_by_touch(const struct sched_gpu *gpu);

/* It needs more than the capacity, whatever the driver has refused. */
bool books_exceeds_capacity(const struct sched_job *job);

/* What the job must have on the card to run: what it uses, and all that it may allocate unasked if it does
 * allocate. Or as much of it as fits. */
uint64_t books_need_bytes(const struct sched_job *job);

/* What it must have there to begin. */
uint64_t books_target_bytes(const struct sched_job *job);

/* It does not answer, but what it has on the card makes way by itself. */
bool books_gives_way(const struct sched_job *job);

/* It cannot run before those that stay on the card give something back. */
bool books_blocked(const struct sched_job *job);

/* Count the job's claim again. */
void books_claim(struct sched_job *job);

void books_set_resident(struct sched_job *job, uint64_t resident_bytes);
void books_move_to_share(struct sched_job *job, struct sched_share *share);

/* The driver has refused what is beyond so much: that is not there, even if it is what can't leave. */
void books_note_refused(struct sched_job *job, uint64_t room_bytes);

/* Who runs uses all of its room, as far as its memory goes. */
void books_assume_resident(struct sched_job *job);

void books_set_paging(struct sched_job *job, uint64_t paging_bytes);
void books_set_managed(struct sched_job *job, bool managed);
/* What is due (`fixed_due`), unless the job runs through its grace as managed. */
void books_settle_fixed(struct sched_job *job);
void books_set_used(struct sched_job *job, uint64_t used_bytes, uint64_t pinned_bytes, uint64_t reach_bytes,
                    uint64_t now_ns);

/* The job has that as it comes, by its word alone. */
void books_allege(struct sched_job *job, uint64_t used_bytes, uint64_t now_ns);

/* All that it has has been granted. */
void books_vouch(struct sched_job *job);

/* What it has has been granted: it may pin a little more without asking, where that keeps nobody from
 * running. */
void books_grant_pinned(struct sched_job *job);

/* What it reports to be pinned, as far as that is believed. */
uint64_t books_cut_pinned(const struct sched_job *job, uint64_t pinned_bytes);

/* 0, and how far the job may grow; or -ENOMEM. */
int books_admit(const struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes,
                uint64_t *granted_bytes);

/* If nobody else had anything, the job could have that; card and host have that left, beside what others have
 * and will have. */
bool books_could_admit(const struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes);
bool books_has_room(const struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes);

/* True if host_tight has changed. */
bool books_update_tight(struct scheduler *scheduler);

/* ---- accounting.c: memory that comes and goes ---- */

/* Its terms have changed. */
void ephemeral_count(struct sched_job *job);

/* Its used_bytes have changed. */
void ephemeral_forget(struct sched_job *job);
uint64_t ephemeral_deadline_ns(const struct sched_gpu *gpu);
void ephemeral_expire(struct sched_gpu *gpu, uint64_t now_ns);

/* ---- accounting.c: what the driver refuses ---- */

void overhead_add(struct sched_gpu *gpu, uint64_t bytes, uint64_t now_ns);

/* By the job's word. */
void overhead_add_short(struct sched_job *job, uint64_t bytes, uint64_t now_ns);

/* A job has come that had so much on the card already: that may be what was refused. */
void overhead_explain(struct sched_gpu *gpu, uint64_t resident_bytes, struct sched_change *change);

/* One has come: it may be another user's. */
void overhead_on_arrival(struct sched_gpu *gpu, struct sched_change *change);

/* A job has left. */
void overhead_begin_anew(struct sched_gpu *gpu, struct sched_change *change);

uint64_t overhead_deadline_ns(const struct sched_gpu *gpu);
void overhead_expire(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change);

/* ---- accounting.c: what is on the card ---- */

/* What jobs have, or what is on the card, has changed: are turns needed, or not any more? */
void occupancy_judge(struct sched_gpu *gpu);

/* So many bytes of the card were in use then. */
void occupancy_note(struct sched_gpu *gpu, uint64_t bytes, uint64_t at_ns);
uint64_t occupancy_deadline_ns(const struct sched_gpu *gpu);
void occupancy_expire(struct sched_gpu *gpu, uint64_t now_ns);

/* ---- accounting.c: what there is for those that hold ---- */

/* What a set of holders may have, and has. Who is alone in it may hold in any case. */
struct seats {
  uint64_t bytes, taken_bytes;
  uint32_t places, taken;
};

struct seats seats_all(const struct sched_gpu *gpu);
bool seats_fit(const struct seats *seats, const struct sched_job *job);
void seats_take(struct seats *seats, const struct sched_job *job);
void seats_give(struct seats *seats, const struct sched_job *job);
void seats_take_all(struct seats *seats, const struct sched_gpu *gpu, enum sched_seat which);

/* What the job has, or is expected to, has changed, or whether it grows: count again what it needs. */
void books_count_need(struct sched_job *job);

/* It takes part of what there is for holders, or not any more. */
void books_seat(struct sched_job *job, enum sched_seat seat);

/* The job fits beside those that hold or have not stopped yet. */
bool books_may_join(const struct sched_job *job);

/* It could hold if those alone were left that do not answer: nobody knows when they will. */
bool books_may_hold(const struct sched_job *job);

/* ---- policy.c ---- */

/* The job is put into its GPU's queue with this key. Before all others come jobs whose gangs claim; then one
 * account's jobs after the other's; equal ones in the order in which they were put there. */
void queue_insert(struct sched_job *job, uint64_t key);

/* Those that wait, in order: whoever looks at them all takes this. */
const struct list *queue_of(const struct sched_gpu *gpu);

/* Of two that wait on a GPU. */
bool queue_precedes(const struct sched_job *a, const struct sched_job *b);

/* The rank that the job has if it begins to wait at now_ns. */
uint64_t policy_rank(const struct sched_job *job, uint64_t now_ns);

/* By what it is sorted if it begins to wait at now_ns: its rank; with `fair`, that of the last one that is
 * level with it, so that equals keep their order. */
uint64_t policy_place(const struct sched_job *job, uint64_t now_ns);

/* The waiter goes before the holder, now that the quantum is over. */
bool policy_precedes(const struct sched_job *waiter, const struct sched_job *holder, uint64_t now_ns);

/* Only ranks count for that: who precedes nobody has nobody behind it in the queue that does. */
bool policy_goes_by_rank(const struct sched_gpu *gpu);

/* When it does even though the quantum is not over, if all stays as it is. */
uint64_t policy_preempts_ns(const struct sched_job *waiter, const struct sched_job *holder, uint64_t now_ns);

/* When its rank will be the better one, so that it goes before the holder at the next quantum's end. */
uint64_t policy_outranks_ns(const struct sched_job *waiter, const struct sched_job *holder, uint64_t now_ns);

bool policy_is_preemptive(const struct sched_gpu *gpu);

/* The job runs no longer: what it has had is charged. */
void policy_charge(struct sched_job *job, uint64_t now_ns);

/* What it has had is charged, and it runs on if it does. */
void policy_charge_so_far(struct sched_job *job, uint64_t now_ns);

/* The job counts in the account that its class and the policy choose; and is taken out of it, before these
 * change, or when it leaves. */
void policy_enter(struct sched_job *job, uint64_t now_ns);
void policy_leave(struct sched_job *job, uint64_t now_ns);

/* Its state has changed, from that one. */
void policy_note_state(struct sched_job *job, enum gs_job_state before, uint64_t now_ns);

/* Turns begin or end: what seats have had so far is charged. */
void policy_charge_seats(struct sched_gpu *gpu, uint64_t now_ns);

/* Put the users that wait, and have had something since, in their order as of that moment. */
void policy_sort_users(struct sched_gpu *gpu, uint64_t now_ns);

/* By that its user's jobs come before those of others: opportunistic ones after all others. */
uint64_t policy_user_rank(const struct sched_job *job, uint64_t now_ns);

void account_init(struct sched_share *share, struct sched_gpu *gpu);

/* The holder is put out of its place. */
void policy_make_way(struct sched_job *holder, uint64_t now_ns);

/* What it has had counts from now on as no more, and, if it has rested, as no less than `fair` lets it: when
 * it begins to wait, is granted, gives up its turn, or gets other terms. */
void policy_level(struct sched_job *job, bool rested, uint64_t now_ns);

/* Where a job stands that waits, whose terms or gang have changed. */
void policy_rerank(struct sched_job *job);

/* The ranks of those who wait follow another policy. */
void policy_set(struct sched_gpu *gpu, enum gs_policy policy, uint64_t now_ns);

/* ---- memory_plan.c ---- */

/* Make everybody's room follow from the present state. The very last step of every event. */
void residency_update(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change);

/* While there is room for all, only the job whose memory has changed gets another room. */
void residency_update_job(struct sched_job *job, uint64_t now_ns, struct sched_change *change);

uint64_t residency_deadline_ns(const struct sched_gpu *gpu);

/* So much of the job's memory has left the card: with a copy, and without one. */
void residency_note_leaving(struct sched_job *job, uint64_t copied_bytes, uint64_t spared_bytes);

/* ---- memory_plan.c: rooms ---- */

/* The job says what it has on the card, and which room it knows of. */
void rooms_acknowledge(struct sched_job *job, const struct sched_residence *residence, uint64_t now_ns);

/* The driver has refused it so many bytes of its room. */
void rooms_refuse(struct sched_job *job, uint64_t short_bytes, uint64_t now_ns, struct sched_change *change);

/* The job's room, claim or state has changed: does it have to give back room, and since when? */
void rooms_watch(struct sched_job *job, uint64_t now_ns);

uint64_t rooms_deadline_ns(const struct sched_gpu *gpu);

/* Those that give nothing back for longer than the grace are not counted on any more. */
void rooms_expire_grace(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change);

/* Those that were not to be asked again for some time can be. */
void rooms_expire_stays(struct sched_gpu *gpu, uint64_t now_ns);

/* ---- memory_plan.c: who begins ---- */

/* The job asks for its first memory. True: it has to wait for that, the last of its kind, whatever it has
 * waited for before. */
bool admission_await(struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes);

/* The job need not wait for memory any more. */
void admission_forget(struct sched_job *job);

/* The capacity is another: of what they wait for, no more than that. */
void admission_count_needs(const struct sched_gpu *gpu);

/* Those begin who can. Of every event, the first of what follows. */
void admission_look(struct scheduler *scheduler, uint64_t now_ns, struct sched_change *change);

/* ---- seats.c: states ---- */

/* Move the job to another state, its clocks and the GPU's lists with it. */
void turns_set_state(struct sched_job *job, enum gs_job_state state, uint64_t now_ns);

/* The job, which holds and does not run yet, runs. */
void turns_set_active(struct sched_job *job, uint64_t now_ns);

/* The job, which neither holds nor owes an answer, holds now. */
void turns_grant(struct sched_gpu *gpu, struct sched_job *job, uint64_t now_ns, struct sched_change *change);

/* The job, which holds, is told to stop. */
void turns_drop(struct sched_job *job, uint64_t now_ns, struct sched_change *change);

/* Turns are being taken, and the newcomer runs already: it is the holder, or must stop if there is one. */
void turns_admit_running(struct sched_gpu *gpu, struct sched_job *job, uint64_t now_ns,
                         struct sched_change *change);

/* ---- seats.c: who makes way for whom ---- */

/* What preemptions may cost in a row. */
#define SCHED_PREEMPT_SAVED_NS INT64_C(1000000000)

/* A choice under way. */
struct choice {
  struct sched_gpu *gpu;
  struct seats seats;
  bool over;
  bool some_may_go; /* holders may be displaced for those that come next */
  bool foreseen;    /* of what may happen later */
  bool trial;       /* nobody is really displaced */
  bool ranked;      /* the holders are */
  uint32_t looks;   /* at holders, so far */
  uint64_t now_ns;
};

struct choice choice_begin(struct sched_gpu *gpu, bool over, uint64_t now_ns);

/* The job, which waits, has a seat, and holders are displaced for it. */
bool choice_seat(struct choice *choice, const struct sched_job *job);

/* No more are looked for: a displaced holder that fits beside all that have seats keeps its own. */
void choice_end(struct choice *choice);

/* Those displaced on trial are not. */
void choice_end_trial(const struct sched_gpu *gpu);

void seats_displace(struct sched_job *holder, bool displaced);

/* There may be less for all than before: those keep their seats who cannot stop, and the best ranks. */
void seats_displace_surplus(struct sched_gpu *gpu, uint64_t now_ns);

/* The holder, displaced, is told to stop; if it is before its quantum is over, that is not for nothing. */
void holders_charge_preemption(struct sched_job *holder, uint64_t now_ns);

/* Jobs without a gang that wait on the GPU and could hold. */
const struct sched_singles *holders_singles(struct sched_gpu *gpu);

/* The job, which waits, could have a place now, or as soon as others have stopped. over: the quantum is. */
bool holders_would_make_way(const struct sched_job *job, bool over, uint64_t now_ns);

/* ---- gangs.c ---- */

/* False: it has another member on this GPU. */
bool gang_join(struct sched_gang *gang, struct sched_job *job);
void gang_leave(struct sched_job *job);

/* The places that it claims are others'. NULL: nothing happens. */
void gang_disclaim(struct sched_gang *gang);

/* One member waits: all do. One must stop: all must. NULL: nothing happens. */
void gang_ask(struct sched_gang *gang, uint64_t now_ns);
void gang_stop(const struct sched_gang *gang);

/* All members could have places if the quanta of all their GPUs were over. */
bool gang_is_near(const struct sched_gang *gang, uint64_t now_ns);

/* All members could have places now: they claim them, or another gang does that goes before. False: they have
 * none. */
bool gang_claim(struct sched_gang *gang, uint64_t now_ns);

/* They can still use them. */
bool gang_keeps_claim(struct sched_gang *gang);

/* One of those that wait cannot run, whoever stops, or one is paused; and it claims nothing. Such gangs come
 * before others for as long as that lasts, and must not be all that is looked at. */
bool gang_is_held_up(struct sched_gang *gang);

/* All places are free: grant them. */
bool gang_is_ready(const struct sched_gang *gang);
void gang_grant(struct sched_gang *gang, uint64_t now_ns, struct sched_change *change);

/* ---- turns.c ---- */

/* Who holds: what follows from the present state of the GPU. */
void turns_update(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change);

/* By the mode, and by what its jobs have. */
bool turns_are_needed(const struct sched_gpu *gpu);

/* Turns begin, if the GPU's jobs need them. (They end with the next plan that finds that they need not be.)
 */
void turns_begin_if_needed(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change);

/* Holders that run hear whether somebody waits, if that has changed: after all else. */
void turns_tell_wanted(struct sched_gpu *gpu, struct sched_change *change);

uint64_t turns_deadline_ns(const struct sched_gpu *gpu);

/* Judge those that have not answered within the grace. */
void turns_expire_grace(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change);

#endif
