/* store.h - the files of prepared claims: what the API server said of each, from which the driver knows it
 * again, and its CDI spec, which the container runtime reads. Each is there as a whole or not at all. */
#ifndef GS_DRA_STORE_H
#define GS_DRA_STORE_H

#include "dra/claim.h"

struct store {
  const char *state_folder, *cdi_folder;
  const struct container_terms *container;
};

/* Makes the folders. 0, or -errno after a line in the log. */
int store_open(const struct store *store);

/* The claims that are kept become members of the list, and their CDI specs are written anew; specs of no
 * claim that is kept go. 0 or -errno. */
int store_load(const struct store *store, const char *pool, const struct gpus *gpus, struct list *claims);

/* Keeps the claim, then writes its spec. 0 or -errno. */
int store_put(const struct store *store, const struct claim *claim);

/* Removes its spec, then forgets the claim, if there is one. Caller must: see that the uid is right. 0 or
 * -errno. */
int store_remove(const struct store *store, const char *uid);

#endif
