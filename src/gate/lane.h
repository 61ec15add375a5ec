/*
 * lane.h - how far the submissions to one stream run ahead of the GPU, from marks between them: when the next
 * mark is due, and whether the next submission has to wait. Rules only; pace.c knows the driver.
 *
 * A mark is an event that the GPU passes once it has finished what was submitted before. What one submission
 * takes is learnt from the time between two of them, so that submissions can be held back in good time also
 * when many of them are made at once.
 *
 * Threading: none; the caller serializes.
 */
#ifndef GS_LANE_H
#define GS_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/clock.h"

#define LANE_MARKS 8
#define LANE_MARK_NS (2 * NS_PER_MS)    /* of work between two marks */
#define LANE_LOOK_NS (NS_PER_MS / 5)    /* who waits looks so often */
#define LANE_AHEAD_NS (10 * NS_PER_MS)  /* of work that may be queued */
#define LANE_LIMITED_NS (4 * NS_PER_MS) /* likewise, where others must hardly ever wait for it */

struct lane {
  struct {
    uint64_t calls, since_ns; /* submissions since the mark before, and when the first of them was made */
    uint64_t marked_ns;
  } marks[LANE_MARKS]; /* a ring: those that are not known to have been passed */
  unsigned first, count;
  uint64_t calls, since_ns; /* since the last mark */
  uint64_t passed_ns;       /* when the last one was seen to have been passed */
  bool watched;             /* and it was at that moment */
  uint64_t call_ns;         /* what the GPU needs for one submission, as learnt */
};

/* From here on submissions are counted; what was submitted before is as old as the first mark. Keeps what has
 * been learnt. */
void lane_begin(struct lane *lane);

/* Whether there has to be a mark before the next submission. */
bool lane_mark_is_due(const struct lane *lane, uint64_t now_ns);

/* The place of the next mark in the ring; and that it has been made. */
unsigned lane_next(const struct lane *lane);
void lane_mark(struct lane *lane, uint64_t now_ns);

/* The GPU has passed the oldest marks, so many. watched: within the last LANE_LOOK_NS, not at some time since
 * the last submission. */
void lane_pass(struct lane *lane, unsigned marks, uint64_t now_ns, bool watched);

/* Whether the next submission has to wait until the oldest mark is passed: work of ahead_ns is queued. */
bool lane_is_ahead(const struct lane *lane, uint64_t ahead_ns, uint64_t now_ns);

/* A submission is made. */
void lane_submit(struct lane *lane, uint64_t now_ns);

#endif
