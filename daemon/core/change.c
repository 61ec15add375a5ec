/* change.c - the change record: which jobs must be told what, in which order.
 *
 * A job may be told late. Of what it has not been told yet, each word is said once, with what is true by
 * then; one that has been overtaken is not said at all. A job whose own events wait until it has been told
 * all changes its state meanwhile by a grant, then an order to stop, then the end of the grace, and in no
 * other way: so the order of its words is always that of enum sched_action_type.
 */
#include "core/internal.h"

/* These carry the room, and this one the capacity. */
#define WITH_ROOM (1u << SCHED_TELL_LOCK_OK | 1u << SCHED_TELL_DROP_LOCK)
#define WITH_CAPACITY (1u << SCHED_TELL_ATTACHED)

void change_init(struct sched_change *change) { list_init(&change->jobs); }

void change_add(struct sched_change *change, struct sched_job *job, enum sched_action_type type) {
  if (job->todo == 0)
    list_append(&change->jobs, &job->todo_link);
  job->todo |= 1u << type;
  if (job->todo & WITH_ROOM)
    job->todo &= ~(1u << SCHED_TELL_ROOM);
  if (job->todo & WITH_CAPACITY)
    job->todo &= ~(1u << SCHED_TELL_CAPACITY);
}

void change_forget(struct sched_job *job) {
  list_remove(&job->todo_link);
  job->todo = 0;
}

static bool tells_room(enum sched_action_type type) {
  return type == SCHED_TELL_LOCK_OK || type == SCHED_TELL_DROP_LOCK || type == SCHED_TELL_ROOM;
}

bool change_next_of(struct sched_job *job, struct sched_action *action) {
  if (job->todo == 0)
    return false;
  *action = (struct sched_action){
      .type = (enum sched_action_type)__builtin_ctz(job->todo),
      .job = job,
      .epoch = job->epoch,
      .quantum_ns = job->quantum_ns,
      .wanted = job->wanted_told,
      .took_over = job->took_over,
      .steps = job->steps,
      .room_bytes = job->room_bytes,
      .room_seq = job->room_seq,
      .target_bytes = job->target_bytes,
      .granted_bytes = job->entry.granted_bytes,
  };
  if (tells_room(action->type)) {
    job->last_told_bytes = job->room_bytes;
    job->told_bytes = max_u64(job->told_bytes, job->room_bytes);
  }
  job->todo &= job->todo - 1;
  if (job->todo == 0)
    list_remove(&job->todo_link);
  return true;
}

void scheduler_tell_room(struct sched_job *job, struct sched_change *change) {
  change_add(change, job, SCHED_TELL_ROOM);
}

struct sched_job *change_first(const struct sched_change *change) {
  struct list *node = list_first(&change->jobs);
  return node ? list_entry(node, struct sched_job, todo_link) : NULL;
}

bool change_next(struct sched_change *change, struct sched_action *action) {
  struct sched_job *job = change_first(change);
  return job && change_next_of(job, action);
}
