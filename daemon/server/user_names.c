/* user_names.c - see user_names.h. */
#include "server/user_names.h"

#include <pwd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "shared/printable.h"

#define NAMES_MAX 4096 /* the first ones of a longer file: nobody waits for the rest */

struct entry {
  uid_t uid;
  char name[33]; /* as long as useradd lets it be */
};

static struct {
  struct entry *entries;
  size_t count;
} names;

static bool add(const struct passwd *user) {
  if (names.count % 64 == 0) {
    struct entry *more = realloc(names.entries, (names.count + 64) * sizeof *more);
    if (!more)
      return false;
    names.entries = more;
  }
  struct entry *entry = &names.entries[names.count++];
  entry->uid = user->pw_uid;
  printable_copy(entry->name, user->pw_name, sizeof entry->name);
  return true;
}

void user_names_read(const char *path) {
  const struct passwd *user;
  free(names.entries);
  names.entries = NULL;
  names.count = 0;
  FILE *file = fopen(path, "re");
  if (!file)
    return;
  while (names.count < NAMES_MAX && (user = fgetpwent(file)) && add(user))
    ;
  fclose(file);
}

/* Of several names for a number, the first is what others show, too. */
const char *user_names_find(uid_t uid) {
  for (size_t i = 0; i < names.count; i++)
    if (names.entries[i].uid == uid)
      return names.entries[i].name;
  return NULL;
}
