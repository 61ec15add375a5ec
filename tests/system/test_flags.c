/* test_flags.c - stream memory operations where the driver refuses them, and what the program's user is told.
 */
#include "runner.h"
#include "scene.h"

#define WHY "the driver refuses stream memory operations"

static struct scene scene;

static void run(const char *memory, const char *large, int lines) {
  const char *const environment[] = {memory, NULL};
  scene_begin(&scene, "small");
  scene_start_daemon(&scene, NULL);
  struct process *flagger = scene_start(&scene, environment, "flagger", NULL);
  process_expect(flagger, "small 0 0", NULL, 0);
  process_expect(flagger, large, NULL, 0);
  process_expect(flagger, "ok", NULL, 0);
  process_wait_exit(flagger, 0);
  CHECK(process_log_count(flagger, WHY) == lines, "it has been said %d times",
        process_log_count(flagger, WHY));
  scene_end(&scene);
}

TEST(small_ones_work_and_large_ones_are_explained_once) { run("GPUSHARE_MEMORY=managed", "large 1 1", 1); }
TEST(all_work_under_swap) { run("GPUSHARE_MEMORY=swap", "large 0 0", 0); }
