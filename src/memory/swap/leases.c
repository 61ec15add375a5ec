/* leases.c - the leases of each space, protected by its lock. */
#include "memory/swap/leases.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/abstract_socket.h"
#include "common/clock.h"
#include "memory/forked.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* The sockets of a process that ends are closed some time before its end can be seen. */
#define END_NS (2 * NS_PER_S)

struct lease {
  struct lease *next;
  uint64_t name;           /* of the block: struct lent */
  uint64_t bytes;          /* the block has ended: its bytes; else 0 */
  bool held;               /* likewise */
  struct descriptor other; /* fd is -1: the connection has ended, and the process has not said that it has
                              closed the memory */
  pid_t pid;               /* 0: of another pid namespace */
  uint64_t lost_ns;        /* when the connection was found to have ended so */
  bool user;
  bool parted; /* it waits for the end of the connection */
};

static struct lease *leases[SPACES]; /* as space_at has them */

static struct lease *find(struct lease *lease, uint64_t name) {
  while (lease && lease->name != name)
    lease = lease->next;
  return lease;
}

static struct block *find_in(struct block *newest, uint64_t name) {
  struct block *block = newest;
  while (block && block->lent.name != name)
    block = block->older;
  return block;
}

struct block *lent_find(const struct space *space, uint64_t name) {
  struct block *held = find_in(space->held, name);
  return held ? held : find_in(space->newest, name);
}

bool lease_begin(struct block *block, const struct descriptor *other, bool user) {
  struct lease **list = &leases[space_number(block->space)];
  pid_t pid = abstract_other(other);
  bool keeps = descriptor_may_stay(other, DESCRIPTOR_LEASE) && (pid || !user);
  struct lease *new = keeps ? malloc(sizeof *new) : NULL;
  if (!new)
    return false;
  *new = (struct lease){.next = *list, .name = block->lent.name, .other = *other, .pid = pid, .user = user};
  *list = new;
  return true;
}

bool leases_pin(const struct block *block) {
  struct lease *lease = find(leases[space_number(block->space)], block->lent.name);
  while (lease && lease->user)
    lease = find(lease->next, block->lent.name);
  return lease;
}

bool leases_pin_lost(struct space *space, struct block *block, uint64_t now_ns) {
  bool any = false;
  for (struct lease *lease = leases[space_number(space)]; lease; lease = lease->next) {
    if (lease->name != block->lent.name || !lease->user || lease->parted || lease->other.fd >= 0)
      continue;
    if (now_ns < lease->lost_ns + END_NS) {
      space->pins_due = true;
      continue;
    }
    lease->user = false;
    lease_drop_user(space, block);
    block->lent.was_opened = any = true;
  }
  return any;
}

bool leases_keep_bytes(const struct block *block) {
  bool any = false;
  for (struct lease **link = &leases[space_number(block->space)], *lease; (lease = *link);)
    if (lease->name == block->lent.name && lease->user) {
      *link = lease->next;
      descriptor_hang_up(&lease->other);
      free(lease);
    } else {
      if (lease->name == block->lent.name) {
        lease->bytes = block->bytes;
        lease->held = block->held && !block->aside;
        any = true;
      }
      link = &lease->next;
    }
  return any;
}

void lease_say(const struct descriptor *maker, enum lease_byte byte) {
  char said = (char)byte;
  if (descriptor_is_ours(maker))
    send(maker->fd, &said, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void lease_close(struct descriptor *maker) {
  lease_say(maker, LEASE_CLOSED);
  descriptor_hang_up(maker);
}

/* What is in the memory is not known any more. */
void lease_drop_user(struct space *space, struct block *block) {
  space->users--;
  block->lent.users--;
  for (size_t i = 0; i < block->pieces; i++)
    block->piece[i].known = 0;
}

bool leases_have_parted(const struct space *space) {
  const struct lease *lease = leases[space_number(space)];
  while (lease && !lease->parted)
    lease = lease->next;
  return lease;
}

void leases_end_parted(struct space *space) {
  for (struct lease **link = &leases[space_number(space)], *lease; (lease = *link);)
    if (lease->parted) {
      *link = lease->next;
      descriptor_hang_up(&lease->other);
      free(lease);
    } else {
      link = &lease->next;
    }
}

nfds_t leases_list(struct pollfd *awaited, nfds_t most) {
  nfds_t count = 0;
  for (size_t i = 0; i < SPACES; i++) {
    struct space *space = space_at(i);
    space_lock(space);
    for (const struct lease *lease = leases[i]; lease && count < most; lease = lease->next)
      if (lease->other.fd >= 0 && !lease->parted)
        awaited[count++] = (struct pollfd){.fd = lease->other.fd, .events = POLLIN};
    space_unlock(space);
  }
  return count;
}

/* A user's, whose block is there. */
static void part(struct space *space, struct lease *lease, enum lease_byte byte) {
  if (byte == LEASE_MAY_PART)
    lease_say(&lease->other, byte);
  if (byte != LEASE_HAS_PARTED || lease->parted)
    return;
  lease->parted = true;
  lease_drop_user(space, lent_find(space, lease->name));
}

/* By its word; or of a process that can't be seen, by the end of the connection. */
static bool is_over(struct space *space, struct lease *lease) {
  char byte = LEASE_CLOSED;
  if (lease->other.fd < 0)
    return false;
  bool ours = descriptor_is_ours(&lease->other);
  ssize_t n = ours ? recv(lease->other.fd, &byte, 1, MSG_DONTWAIT) : 0;
  if (n > 0 && (!lease->user || byte == LEASE_CLOSED))
    return true;
  if (n > 0)
    part(space, lease, (enum lease_byte)byte);
  if (n > 0 || (n < 0 && errno == EAGAIN))
    return false;
  descriptor_hang_up(&lease->other);
  lease->lost_ns = clock_now_ns();
  space->pins_due |= lease->user;
  return lease->parted || !lease->pid;
}

/* A process of which no end can be seen may have the memory open for as long as that is there. */
static void note_end(struct space *space, const struct lease *lease) {
  struct block *block = lent_find(space, lease->name);
  if (block && block->held) {
    block->lent.used_ns = clock_now_ns();
    block->lent.stays |= lease->other.fd < 0 && !lease->pid;
  }
}

static void end(struct space *space, size_t i, struct lease *lease) {
  if (lease->bytes && !find(leases[i], lease->name))
    *(lease->held ? &space->refund_held_bytes : &space->refund_bytes) += lease->bytes;
  note_end(space, lease);
  if (lease->user && !lease->parted)
    lease_drop_user(space, lent_find(space, lease->name));
  descriptor_hang_up(&lease->other);
  free(lease);
}

static bool is_lost(const struct lease *lease, pid_t pid) { return lease->other.fd < 0 && lease->pid == pid; }

/* Those that are over; and those of this process whose connection is lost. */
static void end_all(pid_t ended) {
  for (size_t i = 0; i < SPACES; i++) {
    struct space *space = space_at(i);
    space_lock(space);
    for (struct lease **link = &leases[i], *lease; (lease = *link);)
      if (is_over(space, lease) || is_lost(lease, ended)) {
        *link = lease->next;
        end(space, i, lease);
      } else {
        link = &lease->next;
      }
    space_unlock(space);
  }
}

/* Of the processes whose connections are lost, the one with the next number. 0: there is none. */
static pid_t next_lost(pid_t after) {
  pid_t next = INT_MAX;
  for (size_t i = 0; i < SPACES; i++) {
    struct space *space = space_at(i);
    space_lock(space);
    for (const struct lease *lease = leases[i]; lease; lease = lease->next)
      if (lease->other.fd < 0 && lease->pid > after && lease->pid < next)
        next = lease->pid;
    space_unlock(space);
  }
  return next == INT_MAX ? 0 : next;
}

struct process {
  pid_t pid;
  bool ended;
};

/* All of its threads, and it has closed all that it had. In doubt, it has not ended. An old kernel has no
 * pidfd_open, and a sandbox may forbid it: then it has ended once its number is free. */
static void look_at_process(void *argument) {
  struct process *process = argument;
  struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, process->pid, 0), .events = POLLIN};
  process->ended = end.fd < 0 ? kill(process->pid, 0) < 0 && errno == ESRCH : poll(&end, 1, 0) > 0;
  if (end.fd >= 0)
    syscall(SYS_close, end.fd);
}

bool leases_look(void) {
  bool some_lost = false;
  end_all(0);
  for (struct process process = {.pid = 0}; (process.pid = next_lost(process.pid));) {
    descriptor_apart(look_at_process, &process);
    if (process.ended)
      end_all(process.pid);
    else
      some_lost = true;
  }
  return some_lost;
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
