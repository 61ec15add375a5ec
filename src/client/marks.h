/*
 * marks.h - whether a pause lies between two iterations of the program: then the moment after it is a mark.
 * Any two marks with no break between them lie a whole number of iterations apart, as far as can be known.
 *
 * Most programs submit as often in each iteration. So the place of a pause, which is the number of
 * submissions before it, tells more than its length: where some pauses lie at equal distances, these are
 * iterations, and marks are pauses at that phase only. In other programs a mark is a pause among the longest.
 *
 * Threading: none; the caller serializes.
 */
#ifndef GS_MARKS_H
#define GS_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#define MARKS_PLACES 128

enum marks_sign {
  MARKS_NONE,
  MARKS_MARK,
  MARKS_BREAK, /* later marks lie in another way than earlier ones: void are those */
};

/* All zero: nothing has been seen. Places are counted modulo 2^32. */
struct marks {
  uint64_t longest_ns;           /* as the longest pauses usually are */
  uint32_t places[MARKS_PLACES]; /* of the last pauses that may lie between iterations: a ring */
  uint32_t count;                /* of those so far */
  uint32_t period;               /* submissions of an iteration, or of some; 0: not known */
  uint32_t last;                 /* the place of the last mark at this period */
  uint32_t hits;                 /* such marks */
  uint32_t errors;               /* periods in a row that did not hold */
};

/* A pause after so many submissions has ended. idle: it was long enough to be believed. */
enum marks_sign marks_pause(struct marks *marks, uint64_t submissions, uint64_t pause_ns, bool idle);

#endif
