/* leases.c - the leases of each space. What the other side has closed goes when the next one comes. */
#include "memory/swap/leases.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "memory/forked.h"

struct lease {
  struct lease *next;
  const struct block *block;
  struct descriptor other;
};

static struct lease *leases[SPACES]; /* as space_at has them */

static struct lease **list_of(const struct block *block) { return &leases[space_number(block->space)]; }

static bool is_of(const struct lease *lease, const struct block *block) { return lease->block == block; }

/* Closed by the other side, or by the program. */
static bool is_closed(const struct lease *lease, const struct block *unused) {
  (void)unused;
  return !descriptor_is_ours(&lease->other) || recv(lease->other.fd, &(char){0}, 1, MSG_DONTWAIT) >= 0 ||
         errno != EAGAIN;
}

static void end_those(struct lease **link, bool (*ends)(const struct lease *, const struct block *),
                      const struct block *block) {
  for (struct lease *lease; (lease = *link);)
    if (ends(lease, block)) {
      *link = lease->next;
      descriptor_hang_up(&lease->other);
      free(lease);
    } else {
      link = &lease->next;
    }
}

bool lease_begin(const struct block *block, const struct descriptor *other) {
  struct lease **list = list_of(block), *new;
  end_those(list, is_closed, NULL);
  if (!descriptor_may_stay(other) || !(new = malloc(sizeof *new)))
    return false;
  *new = (struct lease){.next = *list, .block = block, .other = *other};
  *list = new;
  return true;
}

void leases_end(const struct block *block) { end_those(list_of(block), is_of, block); }

/* They are the parent's, which goes on without this child. */
static void forget(void) {
  for (size_t i = 0; i < SPACES; i++) {
    for (struct lease *lease = leases[i]; lease; lease = lease->next)
      descriptor_close(&lease->other);
    leases[i] = NULL;
  }
}
IN_FORKED_CHILD(forget);
