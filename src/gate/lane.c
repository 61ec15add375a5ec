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

/* Too much is queued when too little is believed: so what takes longer counts at once. What nobody has
 * watched may have been over for long, and tells the most that it can have taken. */
static void learn(struct lane *lane, uint64_t call_ns, bool watched) {
  if (call_ns < lane->call_ns)
    lane->call_ns -= (lane->call_ns - call_ns) / 2;
  else if (watched)
    lane->call_ns = call_ns;
}

void lane_pass(struct lane *lane, unsigned marks, uint64_t now_ns, bool watched) {
  uint64_t since_ns = lane->marks[lane->first].since_ns, calls = 0;
  bool counted = lane->marks[lane->first].calls > 0; /* else work that was not counted comes before */
  if (since_ns < lane->passed_ns) /* the GPU began with it when it had finished what was before */
    since_ns = lane->passed_ns;
  for (unsigned i = 0; i < marks; i++)
    calls += lane->marks[(lane->first + i) % LANE_MARKS].calls;
  if (calls > 0)
    learn(lane, (now_ns - since_ns) / calls, watched && counted);
  lane->first = (lane->first + marks) % LANE_MARKS;
  lane->count -= marks;
  lane->passed_ns = now_ns;
}

static uint64_t queued_calls(const struct lane *lane) {
  uint64_t calls = lane->calls;
  for (unsigned i = 0; i < lane->count; i++)
    calls += lane->marks[(lane->first + i) % LANE_MARKS].calls;
  return calls;
}

bool lane_is_ahead(const struct lane *lane, uint64_t now_ns) {
  if (!lane->count)
    return false;
  uint64_t calls = queued_calls(lane);
  bool old = now_ns - lane->marks[lane->first].marked_ns >= LANE_AHEAD_NS;
  return calls >= CALLS_MIN && (old || calls * lane->call_ns >= LANE_AHEAD_NS);
}

void lane_submit(struct lane *lane, uint64_t now_ns) {
  if (lane->calls++ == 0)
    lane->since_ns = now_ns;
}
