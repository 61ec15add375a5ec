/*
 * policy.h - who goes before whom.
 *
 * Each waiting job has a rank, or a place by the ranks of others (policy_place), which does not change while
 * it waits; the lowest goes first. A holder has, at any moment, the rank that it would have if it began to
 * wait now. When the quantum of a set of holders is over, those stay whose rank is better than that of the
 * jobs that would take their place.
 *
 *   rr        by the time of asking: who has held goes behind all who wait.
 *   fair      by GPU time had so far, over the weight (start-time fair queueing; the Linux CFS): who comes
 *             starts level with those that are there, which is where the one is that has had least; that
 *             never goes back; or with the one that has had least of those that have had a turn, a
 *             quantum further at most: so a stream of newcomers, each gone within its first turn, passes
 *             nobody for ever. Who comes back is no further behind than a quantum of its own, and who waits
 *             no further ahead than three, however much room it has had that others could not use. So while
 *             one of weight v waits, each job of weight w has the GPU for 2 + 3 w/v quanta at most.
 *             First users share, by the weights of users, then each user's jobs what the user has: a user is
 *             charged, from a job's grant to the end of its answer, its part of the card's time, one of as
 *             many as hold or stop. Between users the same rules hold as between jobs: who comes starts
 *             level, who rests falls a quantum behind at most, who waits is three ahead at most, who is a
 *             quantum behind preempts.
 *             Who has had a turn does not make up with another one for less than half a quantum: it stays,
 *             or goes before one that waits, only if it is further behind. So equals keep their order.
 *   fifo      by arrival, to completion: who came earlier goes first whenever it wants to.
 *   srtf      by remaining GPU time: as declared or learnt; for a job about which nothing is known, or which
 *             has had more than was expected, as much again as it has had (Lindy's law). A second more of
 *             waiting weighs as much as 1/32 s less of remaining time, also in the first quantum of the
 *             turn that it leads to, so the longest job has its turn.
 *   priority  by level; a minute more of waiting weighs as much as one level, also in the first quantum of
 *             the turn that it leads to.
 *   pack      by arrival, to completion, as many beside each other as fit. Nobody is interrupted before it
 *             has held for a quantum and somebody has waited for 32, and 32 after the last time. Who has had
 *             to make way comes behind all others.
 *
 * Whatever the policy, opportunistic jobs come after all others: so they run only when no other job wants to,
 * and are interrupted as soon as one does.
 *
 * With fifo, srtf and priority, and with fair if it is behind by a quantum, a waiting job takes the place of
 * a holder even before the quantum is over: so who rests for a moment does not lose a turn by it. Such
 * hand-overs may take one part in 20 of the time, of which a second can be saved up (holders.c); but
 * production jobs interrupt opportunistic ones whatever that takes.
 */
#ifndef GS_POLICY_H
#define GS_POLICY_H

#include "core/scheduler.h"

/* The job is put into its GPU's queue with this key. Before all others come jobs whose gangs claim; then one
 * account's jobs after the other's; equal ones in the order in which they were put there. */
void queue_insert(struct sched_job *job, uint64_t key);

/* For many at a time: the key of one that is in the queue; and afterwards, that it is out of order. */
void queue_number(struct sched_job *job, uint64_t key);
void queue_unsort(struct sched_gpu *gpu);

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

/* What it has had counts from now on as no more and no less than `fair` lets it: when it begins to wait, is
 * granted, or gets other terms. */
void policy_level(struct sched_job *job, uint64_t now_ns);

#endif
