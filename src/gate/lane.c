/* lane.c - see lane.h. */
#include "gate/lane.h"

/* Of a stream that nothing is known of. */
#define FIRST_CALL_NS NS_PER_MS

/* So many may be queued whatever they take, or the GPU would have nothing to go on with. */
#define CALLS_MIN 2

void lane_begin(struct lane *lane) {
  *lane = (struct lane){.call_ns = lane->call_ns ? lane->call_ns : FIRST_CALL_NS};
}

bool lane_mark_is_due(const struct lane *lane, uint64_t now_ns) {
  bool first = !lane->count && !lane->passed_ns;
  if (first || lane->count == LANE_MARKS || !lane->calls)
    return first;
  return lane->calls * lane->call_ns >= LANE_MARK_NS || now_ns - lane->since_ns >= LANE_MARK_NS;
}

unsigned lane_next(const struct lane *lane) { return (lane->first + lane->count) % LANE_MARKS; }

void lane_mark(struct lane *lane, uint64_t now_ns) {
  unsigned next = lane_next(lane);
  lane->marks[next].calls = lane->calls;
  lane->marks[next].since_ns = lane->calls ? lane->since_ns : now_ns;
  lane->marks[next].marked_ns = now_ns;
  lane->count++;
  lane->calls = 0;
}

/* Too much is queued when too little is believed: so what takes longer counts at once. */
static void learn(struct lane *lane, uint64_t least_ns, uint64_t most_ns) {
  if (most_ns < lane->call_ns)
    lane->call_ns -= (lane->call_ns - most_ns) / 2;
  else if (least_ns > lane->call_ns)
    lane->call_ns = least_ns;
}

/* When the GPU passes a mark is known to within a look, if it was watched. Otherwise it is only known that it
 * did not begin with what is after a mark before that was submitted. */
static void learn_from(struct lane *lane, uint64_t calls, uint64_t since_ns, uint64_t now_ns, bool watched) {
  bool waited_for_turn = since_ns < lane->passed_ns; /* behind what was before the last mark */
  uint64_t begun_ns = waited_for_turn && lane->watched ? lane->passed_ns : since_ns;
  bool known = watched && (lane->watched || !waited_for_turn);
  uint64_t took_ns = now_ns - begun_ns;
  uint64_t least_ns = known && took_ns > LANE_LOOK_NS ? took_ns - LANE_LOOK_NS : 0;
  learn(lane, least_ns / calls, (took_ns + LANE_LOOK_NS) / calls);
}

void lane_pass(struct lane *lane, unsigned marks, uint64_t now_ns, bool watched) {
  uint64_t since_ns = lane->marks[lane->first].since_ns, calls = 0;
  bool counted = lane->marks[lane->first].calls > 0; /* else it was behind work that was not counted */
  for (unsigned i = 0; i < marks; i++)
    calls += lane->marks[(lane->first + i) % LANE_MARKS].calls;
  if (calls > 0)
    learn_from(lane, calls, since_ns, now_ns, watched && counted);
  lane->first = (lane->first + marks) % LANE_MARKS;
  lane->count -= marks;
  lane->passed_ns = now_ns;
  lane->watched = watched;
}

static uint64_t queued_calls(const struct lane *lane) {
  uint64_t calls = lane->calls;
  for (unsigned i = 0; i < lane->count; i++)
    calls += lane->marks[(lane->first + i) % LANE_MARKS].calls;
  return calls;
}

bool lane_is_ahead(const struct lane *lane, uint64_t ahead_ns, uint64_t now_ns) {
  if (!lane->count)
    return false;
  uint64_t calls = queued_calls(lane);
  bool old = now_ns - lane->marks[lane->first].marked_ns >= ahead_ns;
  bool many = calls * lane->call_ns + lane->call_ns / 2 >= ahead_ns; /* to the nearest */
  return calls >= CALLS_MIN && (old || many);
}

void lane_submit(struct lane *lane, uint64_t now_ns) {
  if (lane->calls++ == 0)
    lane->since_ns = now_ns;
}
