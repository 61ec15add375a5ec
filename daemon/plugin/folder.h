/* folder.h - the kubelet's folder for device plugins: what comes and goes in it. */
#ifndef GS_PLUGIN_FOLDER_H
#define GS_PLUGIN_FOLDER_H

#include "plugin/loop.h"

struct folder {
  struct source source;
  struct loop *loop;
  /* A file has come, or gone. NULL: anything may have happened, look at everything. */
  void (*on_entry)(struct folder *folder, const char *name);
  /* The folder itself has gone, and with it all that could be heard. */
  void (*on_gone)(struct folder *folder);
};

/* Both functions are set. 0 or -errno. */
int folder_open(struct folder *folder, struct loop *loop, const char *path);
void folder_close(struct folder *folder);

#endif
