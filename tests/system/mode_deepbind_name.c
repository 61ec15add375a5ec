/* mode_deepbind_name.c - linking mode 10 once more: the plugin is opened with RTLD_DEEPBIND by its plain
 * name, by a library that alone has it on its run path. */
#include <dlfcn.h>
#include <stdio.h>

#include "device.h"
#include "opener.h"

int main(int argc, char **argv) {
  __typeof__(&opener_open) open_by_name = NULL;
  void *opener = dlopen(MODE_OPENER_PATH, RTLD_NOW | RTLD_LOCAL);
  if (opener)
    *(void **)&open_by_name = dlsym(opener, "opener_open");
  void *plugin = open_by_name ? open_by_name("libnamed_plugin.so") : NULL;
  if (!plugin) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  return workload_main(dlsym(plugin, "plugin_device"), argc, argv);
}
