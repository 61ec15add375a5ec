/* leases.c - the leases of each space, protected by its lock. */
#include "memory/swap/leases.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "memory/forked.h"

struct lease {
  struct lease *next;
  uint64_t age;   /* of the block, which no other one of the space ever has */
  uint64_t bytes; /* the block has ended: its bytes; else 0 */
  bool held;      /* likewise */
  struct descriptor other;
};

static struct lease *leases[SPACES]; /* as space_at has them */

static struct lease *find(struct lease *lease, uint64_t age) {
  while (lease && lease->age != age)
    lease = lease->next;
  return lease;
}

bool lease_begin(const struct block *block, const struct descriptor *other) {
  struct lease **list = &leases[space_number(block->space)];
  struct lease *new = descriptor_may_stay(other) ? malloc(sizeof *new) : NULL;
  if (!new)
    return false;
  *new = (struct lease){.next = *list, .age = block->age, .other = *other};
  *list = new;
  return true;
}

bool leases_keep_bytes(const struct block *block) {
  struct lease *first = find(leases[space_number(block->space)], block->age);
  for (struct lease *lease = first; lease; lease = find(lease->next, block->age)) {
    lease->bytes = block->bytes;
    lease->held = block->held;
  }
  return first;
}

nfds_t leases_list(struct pollfd *awaited, nfds_t most) {
  nfds_t count = 0;
  for (size_t i = 0; i < SPACES; i++) {
    struct space *space = space_at(i);
    space_lock(space);
    for (const struct lease *lease = leases[i]; lease && count < most; lease = lease->next)
      awaited[count++] = (struct pollfd){.fd = lease->other.fd, .events = POLLIN};
    space_unlock(space);
  }
  return count;
}

/* By the other side, which sends nothing; or by the program. */
static bool is_closed(const struct lease *lease) {
  return !descriptor_is_ours(&lease->other) || recv(lease->other.fd, &(char){0}, 1, MSG_DONTWAIT) >= 0 ||
         errno != EAGAIN;
}

static void end(struct space *space, size_t i, struct lease *lease) {
  if (lease->bytes && !find(leases[i], lease->age))
    *(lease->held ? &space->refund_held_bytes : &space->refund_bytes) += lease->bytes;
  descriptor_hang_up(&lease->other);
  free(lease);
}

static void look(struct space *space, size_t i) {
  space_lock(space);
  for (struct lease **link = &leases[i], *lease; (lease = *link);)
    if (is_closed(lease)) {
      *link = lease->next;
      end(space, i, lease);
    } else {
      link = &lease->next;
    }
  space_unlock(space);
}

void leases_look(void) {
  for (size_t i = 0; i < SPACES; i++)
    look(space_at(i), i);
}

/* They are the parent's, which goes on without this child. */
static void forget(void) {
  for (size_t i = 0; i < SPACES; i++) {
    for (struct lease *lease = leases[i]; lease; lease = lease->next)
      descriptor_close(&lease->other);
    leases[i] = NULL;
  }
}
IN_FORKED_CHILD(forget);
