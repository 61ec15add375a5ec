/* mode_deepbind.c - linking mode 10: a program without CUDA that opens a plugin with RTLD_DEEPBIND; the
 * plugin is linked to libcuda. */
#include <dlfcn.h>
#include <stdio.h>

#include "device.h"

int main(int argc, char **argv) {
  void *plugin = dlopen(MODE_PLUGIN_PATH, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (!plugin) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  return workload_main(dlsym(plugin, "plugin_device"), argc, argv);
}
