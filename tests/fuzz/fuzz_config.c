/*
 * fuzz_config.c - bytes as the configuration file and its drop-ins, with NUL bytes between them. See
 * fuzz_text.h. What can't be understood changes nothing and says which file is wrong; what can is in bounds.
 */
#include "server/config.h"

#include "fuzz_folder.h"

#define FILES 3

static const char *const words[] = {"[gpushare]\n",
                                    "[gpu GPU-00000000-0000-0000-0000-000000000001]\n",
                                    "[gpu ",
                                    "]",
                                    "[",
                                    "[user alice]\n",
                                    "\n",
                                    "\n\t",
                                    "=",
                                    " = ",
                                    ";",
                                    "#",
                                    "socket = /run/x\n",
                                    "tq = 20\n",
                                    "tq = auto\n",
                                    "tq=",
                                    "loss = 5%\n",
                                    "mode = on\n",
                                    "policy = srtf\n",
                                    "grace = 500ms\n",
                                    "capacity = 16G\n",
                                    "memory = swap\n",
                                    "spatial = mps\n",
                                    "host_memory = 80%\n",
                                    "learn = no\n",
                                    "max_clients_per_user = 7\n",
                                    "max_weight = 100\n",
                                    "max_priority = 0\n",
                                    "production = privileged\n",
                                    "group = 0\n",
                                    "metrics = [::1]:9465\n",
                                    "metrics = unix:/x\n",
                                    "metrics = ",
                                    "log = debug\n",
                                    "18446744073709551615",
                                    "99999999999999999999",
                                    "x",
                                    "é"};

static char paths[FILES][64];

static void set_up(void) {
  char drop_ins[64];
  if (!fuzz_provide_folder())
    return;
  snprintf(drop_ins, sizeof drop_ins, "%s/conf.d", fuzz_folder);
  fuzz_make_folder(drop_ins);
  snprintf(paths[0], sizeof paths[0], "%s/conf", fuzz_folder);
  for (int i = 1; i < FILES; i++)
    snprintf(paths[i], sizeof paths[i], "%s/conf.d/%d.conf", fuzz_folder, i);
}

static void check_settings(const struct sched_settings *settings) {
  fuzz_require(settings->tq_ns == 0 || (settings->tq_ns >= GS_TQ_MIN_NS && settings->tq_ns <= GS_TQ_MAX_NS),
               "an impossible quantum");
  fuzz_require(settings->loss_permille >= 10 && settings->loss_permille <= 500, "an impossible loss");
  fuzz_require(settings->mode <= GS_MODE_OFF && settings->policy <= GS_POLICY_PACK, "an impossible policy");
  fuzz_require(settings->capacity_bytes <= SCHED_BYTES_MAX, "an impossible capacity");
}

static void check(const struct config *config) {
  check_settings(&config->general);
  fuzz_require(*config->socket && *config->group && *config->metrics, "an empty text");
  fuzz_require(config->max_clients_per_user >= 1 && config->max_clients_per_user <= 1000000 &&
                   config->bounds.max_weight >= GS_WEIGHT_DEFAULT &&
                   config->bounds.max_weight <= GS_WEIGHT_MAX && config->bounds.max_priority >= 0 &&
                   config->bounds.max_priority <= GS_PRIORITY_MAX,
               "an impossible bound");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char error[256] = "";
  set_up();
  for (int i = 0; i < FILES; i++)
    fuzz_cut_file(paths[i], i == FILES - 1, &data, &size);
  struct config config = config_default(), before = config;
  int err = config_files_read(&config, paths[0], true, error, sizeof error);
  fuzz_require(err == 0 || memcmp(&config, &before, sizeof config) == 0, "an error has changed something");
  fuzz_require(err == 0 || strstr(error, fuzz_folder), "an error that does not name its file");
  check(&config);
  return 0;
}

#include "fuzz_text.h"
