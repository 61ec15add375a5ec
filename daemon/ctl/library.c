/* library.c - which libunified.so is to be preloaded. */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/ctl.h"

#define LIBRARY "libunified.so"

/* Where it is installed, and where it is built, from the folder of this program on. */
static const char *const neighbours[] = {GPUSHARE_LIBRARY_FOLDER "/" LIBRARY, "../lib/" LIBRARY,
                                         "../src/" LIBRARY};

/* From the folder of this program. */
static bool find_neighbour(const char *name, char path[PATH_MAX]) {
  char wanted[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", wanted, sizeof wanted - 1);
  if (length < 0)
    return false;
  wanted[length] = '\0';
  char *end = strrchr(wanted, '/') + 1;
  size_t room = sizeof wanted - (size_t)(end - wanted);
  return snprintf(end, room, "%s", name) < (int)room && realpath(wanted, path);
}

/* A path that the command finds wherever it goes; or, for the loader to look for, the plain name. */
int find_library(const char *named, char path[PATH_MAX]) {
  const char *environment = getenv("GPUSHARE_LIB");
  if (!named && environment && *environment)
    named = environment;
  if (named)
    return realpath(named, path)
               ? CTL_OK
               : command_error(CTL_USAGE, "can't find the library %s: %s", named, strerror(errno));
  for (size_t i = 0; i < sizeof neighbours / sizeof *neighbours; i++)
    if (find_neighbour(neighbours[i], path))
      return CTL_OK;
  strcpy(path, LIBRARY);
  return CTL_OK;
}
