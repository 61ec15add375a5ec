/*
 * claims.h - what programs say of a GPU that the host tells nothing of: its size and its name. What most
 * users say counts. A user has one vote however many programs he runs: what the first of them has
 * said, as long as any is there: who says something else each time changes nothing. Between equals, what
 * counts already goes on to count.
 */
#ifndef GS_CLAIMS_H
#define GS_CLAIMS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpushare/protocol.h"

/* Users with a vote at a time: those who came first. It bounds what counting costs. */
#define CLAIMS_MAX 64

struct claim {
  uid_t uid;
  uint32_t jobs;
  uint64_t total_bytes;
  char name[GS_NAME_SIZE];
};

struct claims {
  uint32_t jobs; /* also of users without a vote */
  uint32_t count;
  struct claim list[CLAIMS_MAX];
  uint64_t total_bytes; /* what counts; 0 and "" once the last job has gone */
  char name[GS_NAME_SIZE];
};

/* A program of the user has come, and says this; one that has come has gone. */
void claims_enter(struct claims *claims, uid_t uid, uint64_t total_bytes, const char *name);
void claims_leave(struct claims *claims, uid_t uid);

#endif
