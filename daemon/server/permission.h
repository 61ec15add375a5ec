/* permission.h - who may change settings. */
#ifndef GS_PERMISSION_H
#define GS_PERMISSION_H

#include <stdbool.h>
#include <sys/types.h>

#define PERMISSION_NO_GROUP ((gid_t)-1)

/* The id of a group given by name or number; PERMISSION_NO_GROUP if there is none. */
gid_t permission_find_group(const char *name);

/* The process of this number is in our own pid namespace, so in no container. False also if there is none.
 * Caller must: look afterwards that the process that is meant has not ended. Its number may be another's
 * then. */
bool permission_is_near(pid_t pid);

/* The process at the other end of the socket, which is near: root, of our own user, or in the group. */
bool permission_granted(int fd, gid_t group);

#endif
