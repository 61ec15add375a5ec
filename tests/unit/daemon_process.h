/* daemon_process.h - a real daemon on a socket of its own, and connections to it, for tests. */
#ifndef GS_TEST_DAEMON_PROCESS_H
#define GS_TEST_DAEMON_PROCESS_H

#include <sys/types.h>

#include "common/clock.h"
#include "gpushare/protocol.h"

struct daemon_process {
  pid_t pid;
  char folder[64];
  char socket[96];
  char config[96];
};

/* Start one with these arguments (up to NULL), and wait until it answers. Its folder is new, or that of a
 * daemon that ended. A test that fails here fails. */
void daemon_start(struct daemon_process *daemon, const char *const *arguments);

/* Its exit code, or 128 + the signal that ended it. Waits. */
int daemon_wait(struct daemon_process *daemon);

/* End it, orderly, and remove what is left. */
void daemon_clean_up(struct daemon_process *daemon);

/* This becomes its configuration: by SIGHUP, and once that has been read. */
void daemon_configure(const struct daemon_process *daemon, const char *text);

/* Connect. */
int connect_to(const struct daemon_process *daemon);

void tell(int fd, const struct gs_msg *msg);
/* The next message, whatever it is; but a ROOM is passed over. */
struct gs_msg hear(int fd);
/* The next message must be of this type. Unless it is ROOM, a ROOM is passed over. */
struct gs_msg expect(int fd, enum gs_msg_type type);
/* Nothing but ROOM has come, and nothing else comes after a round trip to the daemon. */
void expect_silence(const struct daemon_process *daemon, int fd);
/* The daemon ends the connection; messages before that are ignored. */
void expect_end(int fd);

/* REGISTER, REGISTERED. */
int register_client(const struct daemon_process *daemon);
/* The same of another process each time: what is set for a job is set for all that its process has. */
int register_elsewhere(const struct daemon_process *daemon);
/* ATTACH as index 0 to the card `card`, all its memory on it; hears ATTACHED, which it
 * returns, and SCHED_ON or SCHED_OFF. */
struct gs_msg attach_card(int fd, uint8_t card, uint64_t used_bytes, uint32_t flags);
/* With less of it on the card. */
struct gs_msg attach_card_with(int fd, uint8_t card, uint64_t used_bytes, uint64_t resident_bytes,
                               uint32_t flags);

/* Both, on card 1, with managed memory. */
int attach_client(const struct daemon_process *daemon, uint64_t used_bytes);

void tell_simple(int fd, enum gs_msg_type type);
void tell_active(int fd, uint64_t epoch);
void tell_resident(int fd, uint64_t resident_bytes, uint64_t room_seq);
void tell_moves(int fd, uint64_t resident_bytes, uint64_t room_seq, uint64_t evicted_bytes,
                uint64_t restored_bytes);
void tell_released(int fd, uint64_t epoch);

/* gpusharectl's way: the status of a REPLY to a change. */
int change_setting(const struct daemon_process *daemon, enum gs_msg_type type, uint64_t value);
/* The first STATUS_GPU, or, if daemon_status, STATUS_DAEMON. */
struct gs_msg get_status(const struct daemon_process *daemon, enum gs_msg_type type);

/* gpusharectl's way: the status of the REPLY. */
int set_terms(const struct daemon_process *daemon, uint32_t job, enum gs_term term, uint64_t value);
int evict(const struct daemon_process *daemon, uint32_t job);

#endif
