/* simstat.c - simstat STATE [--reset]: the simulated driver's counters as `name value` lines. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sim.h"

enum { PIDS = 256 };

static void print_counters(const char *prefix, const uint64_t *counters) {
  for (int c = 0; c < GS_SIM_COUNTER_COUNT; c++)
    printf("%s.%s %llu\n", prefix, gs_sim_counter_name((enum gs_sim_counter)c),
           (unsigned long long)counters[c]);
}

static void print_value(const char *prefix, const char *name, uint64_t value) {
  printf("%s.%s %llu\n", prefix, name, (unsigned long long)value);
}

static int print_card(const char *state, unsigned gpu) {
  struct gs_sim_card card;
  char prefix[32];
  int result = gs_sim_card_read(state, gpu, &card);
  if (result != 0)
    return result;
  snprintf(prefix, sizeof(prefix), "gpu%u", gpu);
  print_value(prefix, "capacity_bytes", card.capacity_bytes);
  print_value(prefix, "pinned_bytes", card.pinned_bytes);
  print_value(prefix, "resident_bytes", card.resident_bytes);
  print_value(prefix, "processes_in_flight", card.processes_in_flight);
  print_value(prefix, "overlap_pid", (uint64_t)card.overlap_pid);
  print_value(prefix, "overlap_other_pid", (uint64_t)card.overlap_other_pid);
  print_counters(prefix, card.counters);
  return 0;
}

static int print_process(const char *state, pid_t pid, unsigned gpu) {
  struct gs_sim_process process;
  char prefix[48];
  int result = gs_sim_process_read(state, pid, gpu, &process);
  if (result != 0)
    return result;
  snprintf(prefix, sizeof(prefix), "pid%d.gpu%u", (int)pid, gpu);
  print_value(prefix, "alive", process.alive);
  print_value(prefix, "mps", process.mps);
  print_value(prefix, "mps_priority", process.mps_priority);
  print_value(prefix, "mps_percent", process.mps_percent);
  print_value(prefix, "pinned_bytes", process.pinned_bytes);
  print_value(prefix, "resident_bytes", process.resident_bytes);
  print_value(prefix, "in_flight", process.in_flight);
  print_counters(prefix, process.counters);
  return 0;
}

int main(int argc, char **argv) {
  pid_t pids[PIDS];
  if (argc < 2 || argc > 3 || (argc == 3 && strcmp(argv[2], "--reset") != 0)) {
    fprintf(stderr, "usage: simstat STATE [--reset]\n");
    return 2;
  }
  int found = gs_sim_processes(argv[1], pids, PIDS);
  if (found < 0) {
    fprintf(stderr, "simstat: %s: %s\n", argv[1], strerror(-found));
    return 1;
  }
  for (unsigned gpu = 0; print_card(argv[1], gpu) == 0; gpu++)
    for (int i = 0; i < found && i < PIDS; i++)
      print_process(argv[1], pids[i], gpu);
  return argc == 3 && gs_sim_reset(argv[1]) != 0;
}
