/* test_origins.c - programs in containers: status tells which one, and both of their pids. The container is a
 * control group and a pid namespace made here, with the names that Docker would give. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "runner.h"
#include "scene.h"

static struct scene scene;
static char group[256], id[65];

/* Where there are control groups, version 2 (alone, or beside version 1), that we may add to. */
static void make_group(void) {
  static const char *const roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
  char parent[64], procs[96];
  snprintf(id, sizeof id, "%08x%056x", (unsigned)getpid(), 0xabc);
  for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
    snprintf(procs, sizeof procs, "%s/cgroup.procs", roots[i]);
    if (access(procs, W_OK) < 0)
      continue;
    snprintf(parent, sizeof parent, "%s/docker", roots[i]);
    snprintf(group, sizeof group, "%s/%s", parent, id);
    mkdir(parent, 0755);
    if (mkdir(group, 0755) == 0)
      return;
  }
  test_skip("no control group of version 2 can be made here");
}

static void remove_group(void) {
  CHECK(rmdir(group) == 0);
  *strrchr(group, '/') = '\0';
  rmdir(group); /* unless another one is in it */
}

/* A leak sanitizer does not find its own threads in there. */
static struct process *start_contained(void) {
  char script[512];
  snprintf(script, sizeof script,
           "echo $$ >%s/cgroup.procs && export ASAN_OPTIONS=detect_leaks=0 && "
           "exec unshare --pid --fork --kill-child %s/idler",
           group, GS_PROGRAMS);
  char *const argv[] = {"/bin/sh", "-c", script, NULL};
  struct process *process = scene_start_argv(&scene, NULL, argv);
  process_expect(process, "idle", NULL, 0);
  return process;
}

static void check_json(void) {
  char output[16384], path[64], name[32] = "";
  json_error_t error;
  CHECK(scene_ctl(&scene, output, sizeof output, "status", "--json", NULL) == 0);
  json_t *root = json_loads(output, 0, &error);
  const json_t *job =
      json_array_get(json_object_get(json_array_get(json_object_get(root, "gpus"), 0), "jobs"), 0);
  CHECK(strcmp(json_string_value(json_object_get(job, "origin")), "docker") == 0, "%s", output);
  const char *container = json_string_value(json_object_get(job, "container"));
  CHECK(strlen(container) == 12 && strncmp(container, id, 12) == 0, "%s", output);
  CHECK(strcmp(json_string_value(json_object_get(job, "origin_name")), container) == 0);
  CHECK(json_integer_value(json_object_get(job, "own_pid")) == 1, "%s", output);
  snprintf(path, sizeof path, "/proc/%d/comm", (int)json_integer_value(json_object_get(job, "pid")));
  FILE *file = fopen(path, "r");
  CHECK(file && fgets(name, sizeof name, file) && strcmp(name, "idler\n") == 0, "%s: %s", path, name);
  fclose(file);
  json_decref(root);
}

static void check_table(void) {
  char output[16384], from[32];
  CHECK(scene_ctl(&scene, output, sizeof output, "status", NULL) == 0);
  snprintf(from, sizeof from, " 1 docker:%.12s ", id);
  CHECK(strstr(output, " OWN PID FROM") && strstr(output, from), "%s is not in:\n%s", from, output);
}

TEST(a_container_has_a_name_and_pids_of_its_own) {
  if (geteuid() != 0)
    test_skip("needs root");
  make_group();
  scene_begin(&scene, "small");
  scene_start_daemon(&scene, NULL);
  struct process *process = start_contained();
  check_json();
  check_table();
  process_close_input(process);
  process_wait_exit(process, 0);
  scene_end(&scene);
  remove_group();
}
