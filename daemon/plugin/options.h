/* options.h - the command line of gpushare-device-plugin. */
#ifndef GS_PLUGIN_OPTIONS_H
#define GS_PLUGIN_OPTIONS_H

#include "common/log.h"
#include "plugin/resource.h"

struct options {
  const char *kubelet_folder;
  unsigned shares, opportunistic_shares; /* of each GPU; 0: there is no such resource */
  const char *class;                     /* of gpushare.io/gpu; NULL: nothing is said */
  struct gpus gpus;                      /* none: NVML tells */
  struct terms_of_use terms;
  uint64_t interval_ns;
  enum log_level log;
};

/* Returns, or exits after --help, --version or an error: the process has nothing to lose yet. */
struct options options_read(int argc, char **argv);

#endif
