/* marks.c - see marks.h. */
#include "client/marks.h"

#include "common/clock.h"

#define PAUSE_NS (NS_PER_MS / 2) /* three looks have seen it, so its place is exact */
#define MARK_NS NS_PER_MS        /* where places tell nothing, it must be so long */
#define FORGET_PART 16

#define CHAIN 5       /* pauses that make a period: fewer lie so by chance */
#define LOST 8        /* periods without a mark: another one is looked for; */
#define GIVEN_UP 16   /* there is none */
#define SHIFTED 3     /* so many pauses in a row show that calls which are made now and then */
#define SHIFT_PART 64 /* have shifted them, by such a part of a period at most */
#define PROVEN 256    /* marks: it was no error, whatever has come then */

/* Submissions from that pause, so many before the last one, to the last one. */
static uint32_t distance(const struct marks *marks, uint32_t back) {
  uint32_t last = marks->count - 1;
  return marks->places[last % MARKS_PLACES] - marks->places[(last - back) % MARKS_PLACES];
}

static uint32_t known(const struct marks *marks) {
  return marks->count < MARKS_PLACES ? marks->count : MARKS_PLACES;
}

/* So many pauses, the last one among them, lie one period apart each. */
static bool is_chain(const struct marks *marks, uint32_t period, uint32_t length) {
  uint64_t next = period;
  uint32_t links = 1;
  for (uint32_t back = 1; back < known(marks) && links < length && distance(marks, back) <= next; back++)
    if (distance(marks, back) == next) {
      next += period;
      links++;
    }
  return links >= length;
}

/* Of the last pause. A pattern within iterations ends with them: each error asks for a longer chain. */
static uint32_t find_period(const struct marks *marks) {
  for (uint32_t back = 1; back < known(marks); back++)
    if (is_chain(marks, distance(marks, back), (uint32_t)CHAIN << marks->errors))
      return distance(marks, back);
  return 0;
}

static enum marks_sign change(struct marks *marks, uint32_t period, uint32_t place) {
  if (marks->period)
    marks->errors = marks->hits >= PROVEN ? 0 : marks->errors + 1;
  marks->period = period;
  marks->last = place;
  marks->hits = 0;
  return MARKS_BREAK;
}

/* A multiple may have been found first. */
static enum marks_sign hit(struct marks *marks, uint32_t place) {
  uint32_t found = find_period(marks);
  if (found && marks->period % found <= marks->period / SHIFT_PART)
    marks->period = found;
  marks->last = place;
  marks->hits++;
  return MARKS_MARK;
}

/* Shorter ones are within iterations. */
static bool is_long(struct marks *marks, uint64_t pause_ns) {
  if (pause_ns > marks->longest_ns)
    marks->longest_ns = pause_ns;
  if (pause_ns >= marks->longest_ns / 2)
    return true;
  marks->longest_ns -= marks->longest_ns / FORGET_PART;
  return false;
}

enum marks_sign marks_pause(struct marks *marks, uint64_t submissions, uint64_t pause_ns, bool idle) {
  uint32_t place = (uint32_t)submissions, ahead = place - marks->last, period = marks->period;
  bool again = marks->count && place == marks->places[(marks->count - 1) % MARKS_PLACES];
  if (again || (!idle && pause_ns < PAUSE_NS))
    return MARKS_NONE;
  bool hits = period && ahead / period < LOST && ahead % period == 0;
  if (!idle && !is_long(marks, pause_ns) && !hits)
    return MARKS_NONE;
  marks->places[marks->count++ % MARKS_PLACES] = place;
  bool shifted = period && ahead / period >= SHIFTED && ahead % period <= period / SHIFT_PART &&
                 is_chain(marks, period, SHIFTED);
  if (hits || shifted)
    return hit(marks, place);
  if (period && ahead / period < LOST)
    return MARKS_NONE;
  uint32_t found = find_period(marks);
  if (found || (period && ahead / period >= GIVEN_UP))
    return change(marks, found, place);
  return !period && (idle || pause_ns >= MARK_NS) ? MARKS_MARK : MARKS_NONE;
}
