/* gang_name.c - which processes this one computes together with, as its environment tells. */
#include "common/gang_name.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/fnv.h"
#include "common/parse.h"

/* What identifies a job: all of `parts` must be there, and, in the first of `sizes` that is, a number of
 * processes above one. */
static const struct launcher {
  const char *name, *sizes[3], *parts[4];
} launchers[] = {
    {"torchrun", {"WORLD_SIZE"}, {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"}},
    {"slurm", {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
    {"mpi", {"OMPI_COMM_WORLD_SIZE"}, {"PMIX_NAMESPACE"}},
    {"mpi", {"OMPI_COMM_WORLD_SIZE"}, {"OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"}},
    {"mpi", {"OMPI_COMM_WORLD_SIZE"}, {"OMPI_MCA_ess_base_jobid"}},
    {"mpi", {"OMPI_COMM_WORLD_SIZE"}, {"OMPI_MCA_orte_hnp_uri"}},
    {"pmi", {"PMI_SIZE"}, {"PMI_JOBID"}},
    {"pmi", {"PMI_SIZE"}, {"I_MPI_HYDRA_UUID"}},
};

/* A text under way: what fits of it, and a number made of all of it (fnv.h). */
struct text {
  char start[GS_GANG_SIZE];
  size_t length;
  uint64_t hash;
};

static void add(struct text *text, const char *more) {
  for (; *more; more++) {
    if (text->length < sizeof text->start - 1)
      text->start[text->length] = *more;
    text->length++;
    text->hash = fnv_add(text->hash, more, 1);
  }
}

static void finish(const struct text *text, char name[GS_GANG_SIZE]) {
  memcpy(name, text->start, GS_GANG_SIZE);
  if (text->length >= GS_GANG_SIZE)
    snprintf(name + GS_GANG_SIZE - 18, 18, "~%016" PRIx64, text->hash);
}

static bool has_several(const struct launcher *launcher, char *(*environment)(const char *)) {
  for (const char *const *size = launcher->sizes; *size; size++) {
    const char *value = environment(*size);
    int64_t count;
    if (value)
      return parse_integer(value, 2, INT64_MAX, &count) == 0;
  }
  return false;
}

static bool is_loopback(const char *address) {
  return strcmp(address, "localhost") == 0 || strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

/* Where a loopback address is. Containers, and pods, have networks of their own. */
static void add_network(struct text *text) {
  char number[24];
  struct stat network;
  if (stat("/proc/self/ns/net", &network) != 0)
    return;
  snprintf(number, sizeof number, "@%" PRIu64, (uint64_t)network.st_ino);
  add(text, number);
}

/* False: it has not started this process. */
static bool add_job(struct text *text, const struct launcher *launcher, char *(*environment)(const char *)) {
  add(text, launcher->name);
  for (const char *const *part = launcher->parts; *part; part++) {
    const char *value = environment(*part);
    if (!value || !*value)
      return false;
    add(text, ":");
    add(text, value);
    if (is_loopback(value))
      add_network(text);
  }
  return true;
}

void gang_name_find(char *(*environment)(const char *), char name[GS_GANG_SIZE]) {
  static const struct text empty = {.hash = FNV_BASIS};
  const char *given = environment("GPUSHARE_GANG");
  struct text text = empty;
  memset(name, 0, GS_GANG_SIZE);
  if (given && *given) {
    add(&text, strcmp(given, "none") == 0 ? "" : given);
    finish(&text, name);
    return;
  }
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    text = empty;
    if (has_several(&launchers[i], environment) && add_job(&text, &launchers[i], environment)) {
      finish(&text, name);
      return;
    }
  }
}
