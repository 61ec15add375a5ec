/* store.c - writes, reads and removes the files of claims. */
#include "dra/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"

#define PATH_SIZE 512
#define SPEC_PREFIX DRIVER_NAME "-claim_"
#define SUFFIX ".json"
#define DRAFT_SUFFIX ".new" /* no reader of either folder takes such a file */

static void claim_path(const struct store *store, const char *uid, char path[PATH_SIZE]) {
  snprintf(path, PATH_SIZE, "%s/%s" SUFFIX, store->state_folder, uid);
}

static void spec_path(const struct store *store, const char *uid, char path[PATH_SIZE]) {
  snprintf(path, PATH_SIZE, "%s/" SPEC_PREFIX "%s" SUFFIX, store->cdi_folder, uid);
}

/* ---- a file ---- */

/* What has been renamed or removed there is so after a crash, too. */
static int sync_folder_of(const char *path) {
  char folder[PATH_SIZE];
  snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return -errno;
  int err = fsync(fd) < 0 ? -errno : 0;
  close(fd);
  return err;
}

static int write_draft(const char *path, const json_t *object, mode_t mode) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0)
    return -errno;
  int err = json_dumpfd(object, fd, JSON_INDENT(2)) < 0 ? -EIO : 0;
  if (err == 0 && (fchmod(fd, mode) < 0 || fsync(fd) < 0))
    err = -errno;
  if (close(fd) < 0 && err == 0)
    err = -errno;
  return err;
}

static int replace(const char *path, const json_t *object, mode_t mode) {
  char draft[PATH_SIZE + sizeof DRAFT_SUFFIX];
  snprintf(draft, sizeof draft, "%s" DRAFT_SUFFIX, path);
  int err = object ? write_draft(draft, object, mode) : -ENOMEM;
  if (err == 0 && rename(draft, path) < 0)
    err = -errno;
  if (err == 0)
    err = sync_folder_of(path);
  if (err < 0)
    unlink(draft);
  return err;
}

static int remove_file(const char *path) {
  if (unlink(path) < 0)
    return errno == ENOENT ? 0 : -errno;
  return sync_folder_of(path);
}

/* ---- claims ---- */

static int write_spec(const struct store *store, const struct claim *claim) {
  char path[PATH_SIZE];
  json_t *spec = claim_cdi_spec(claim, store->container);
  spec_path(store, claim->uid, path);
  int err = replace(path, spec, 0644);
  json_decref(spec);
  return err;
}

int store_put(const struct store *store, const struct claim *claim) {
  char path[PATH_SIZE];
  claim_path(store, claim->uid, path);
  int err = replace(path, claim->object, 0600);
  return err == 0 ? write_spec(store, claim) : err;
}

int store_remove(const struct store *store, const char *uid) {
  char path[PATH_SIZE];
  spec_path(store, uid, path);
  int err = remove_file(path);
  claim_path(store, uid, path);
  return err == 0 ? remove_file(path) : err;
}

/* ---- a driver that is started ---- */

static int make_folder(const char *path, mode_t mode) {
  char part[PATH_SIZE];
  for (const char *end = strchr(path + 1, '/'); end; end = strchr(end + 1, '/')) {
    snprintf(part, sizeof part, "%.*s", (int)(end - path), path);
    if (mkdir(part, 0755) < 0 && errno != EEXIST)
      return -errno;
  }
  return mkdir(path, mode) < 0 && errno != EEXIST ? -errno : 0;
}

int store_open(const struct store *store) {
  const char *const folders[] = {store->state_folder, store->cdi_folder};
  const mode_t modes[] = {0700, 0755};
  for (size_t i = 0; i < 2; i++) {
    int err = make_folder(folders[i], modes[i]);
    if (err == 0 && access(folders[i], R_OK | W_OK | X_OK) < 0)
      err = -errno;
    if (err < 0) {
      log_error("can't use the folder %s: %s", folders[i], strerror(-err));
      return err;
    }
  }
  return 0;
}

/* The uid in a file's name, "PREFIX UID SUFFIX"; false: it is no such file. */
static bool take_uid(const char *name, const char *prefix, const char *suffix, char uid[CLAIM_UID_SIZE]) {
  size_t size = strlen(name), before = strlen(prefix), after = strlen(suffix);
  if (size <= before + after || size - before - after >= CLAIM_UID_SIZE ||
      strncmp(name, prefix, before) != 0 || strcmp(name + size - after, suffix) != 0)
    return false;
  snprintf(uid, CLAIM_UID_SIZE, "%.*s", (int)(size - before - after), name + before);
  return claim_uid_is_right(uid);
}

/* What can't be read stays: its containers may run, and the kubelet will have it unprepared. */
static void load_claim(const struct store *store, const char *uid, const char *pool, const struct gpus *gpus,
                       struct list *claims) {
  char path[PATH_SIZE], why[CLAIM_WHY_SIZE] = "it is damaged";
  claim_path(store, uid, path);
  json_t *object = json_load_file(path, 0, NULL);
  struct claim *claim = object ? claim_read(object, pool, gpus, why) : NULL;
  json_decref(object);
  if (!claim || strcmp(claim->uid, uid) != 0) {
    log_warn("the claim in %s is not known again: %s", path, claim ? "it is another one's" : why);
    if (claim)
      claim_free(claim);
    return;
  }
  list_append(claims, &claim->link);
  int err = write_spec(store, claim);
  if (err < 0)
    log_error("can't write the CDI spec of claim %s/%s: %s", claim->namespace, claim->name, strerror(-err));
}

static bool is_kept(const struct store *store, const char *uid) {
  char path[PATH_SIZE];
  claim_path(store, uid, path);
  return access(path, F_OK) == 0;
}

static int each_file(const char *folder, void (*visit)(void *context, const char *name), void *context) {
  DIR *files = opendir(folder);
  if (!files)
    return -errno;
  for (const struct dirent *entry; (entry = readdir(files));)
    visit(context, entry->d_name);
  closedir(files);
  return 0;
}

struct loading {
  const struct store *store;
  const char *pool;
  const struct gpus *gpus;
  struct list *claims;
};

static void visit_claim(void *context, const char *name) {
  const struct loading *loading = context;
  char uid[CLAIM_UID_SIZE], path[PATH_SIZE];
  if (take_uid(name, "", SUFFIX, uid)) {
    load_claim(loading->store, uid, loading->pool, loading->gpus, loading->claims);
  } else if (take_uid(name, "", SUFFIX DRAFT_SUFFIX, uid)) {
    snprintf(path, sizeof path, "%s/%s", loading->store->state_folder, name);
    unlink(path);
  }
}

static void visit_spec(void *context, const char *name) {
  const struct loading *loading = context;
  char uid[CLAIM_UID_SIZE], path[PATH_SIZE];
  bool is_draft = take_uid(name, SPEC_PREFIX, SUFFIX DRAFT_SUFFIX, uid);
  if (!is_draft && (!take_uid(name, SPEC_PREFIX, SUFFIX, uid) || is_kept(loading->store, uid)))
    return;
  snprintf(path, sizeof path, "%s/%s", loading->store->cdi_folder, name);
  unlink(path);
}

int store_load(const struct store *store, const char *pool, const struct gpus *gpus, struct list *claims) {
  struct loading loading = {store, pool, gpus, claims};
  int err = each_file(store->state_folder, visit_claim, &loading);
  return err == 0 ? each_file(store->cdi_folder, visit_spec, &loading) : err;
}
