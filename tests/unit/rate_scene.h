/* rate_scene.h - one GPU's controller, and jobs whose counters a test writes by hand. */
#ifndef GS_TEST_RATE_SCENE_H
#define GS_TEST_RATE_SCENE_H

#include "core/rate.h"

#define SCENE_PRODUCERS 3
#define SCENE_GUESTS 4

/* What a production job does: submissions per s, sampled kernels that take so many times what they should. */
struct scene_producer {
  struct rate_job job;
  struct rate_counters counters;
  double per_s, sampled_part, slowdown;
  double irregular; /* 0: as clockwork; 1: some ticks have all of the submissions, others none */
  bool idle;
  double served; /* it has something to do for so much of the time, more or less as it is irregular, and
                    submits as much; 0: that is not told */
  double wander; /* its speed by itself: a wave of that height and 2.5 s */
  double jitter; /* each tick's submissions differ from others' by so much at most */
  double waits;  /* that it waits for the GPU, for so much of its time, and for longer beside guests, is told;
                    the rest is its host's; 0: that is not told */
  double host;   /* which takes so many times what it did */
  double kernels_leftover;             /* as leftover, for its kernels alone; 0: the same */
  double kernels_slowdown_with_guests; /* whatever they use; 0: none */
  double leftover; /* of the GPU that guests may use for nothing; beyond it they slow it down; 1: never */
  double cost;     /* of its speed, for each part of the GPU that guests use beyond that */
};

/* An opportunistic job: uses what it may, at most its demand (of the GPU). */
struct scene_guest {
  struct rate_job job;
  struct rate_counters counters;
  double demand;
};

struct scene {
  struct rate_gpu gpu;
  struct scene_producer producers[SCENE_PRODUCERS];
  struct scene_guest guests[SCENE_GUESTS];
  unsigned producer_count, guest_count;
  uint64_t now_ns, random;
};

void scene_init(struct scene *scene, uint64_t seed);

/* A training: 10,000 submissions per s, a tenth of the GPU's time sampled, four tenths of the GPU left over.
 */
struct scene_producer *scene_add_producer(struct scene *scene);
struct scene_guest *scene_add_guest(struct scene *scene, double demand);

/* Time goes on to the next tick; for so long. */
void scene_tick(struct scene *scene);
void scene_run(struct scene *scene, double seconds);

/* Until the controller is in the state, 20 s at most. False: it never is. */
bool scene_run_until(struct scene *scene, enum rate_state state);

/* Of all guests, of the whole GPU. */
double scene_limit(const struct scene *scene);

#endif
