/*
 * user_names.h - what the users of this machine are called, for the log: by /etc/passwd, read at the start
 * and with the configuration.
 *
 * Why not getpwuid: it may ask a network service, and the event loop would wait. Users of such a service have
 * a number.
 */
#ifndef GS_USER_NAMES_H
#define GS_USER_NAMES_H

#include <sys/types.h>

#define USER_NAMES_PATH "/etc/passwd"

/* Those of this file replace those that were known; if it can't be read, there are none. */
void user_names_read(const char *path);

/* NULL: not known. */
const char *user_names_find(uid_t uid);

#endif
