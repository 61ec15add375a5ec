/* played_status.h - a daemon that answers one question for its status, with what the test wants. */
#ifndef GS_TEST_PLAYED_STATUS_H
#define GS_TEST_PLAYED_STATUS_H

#include "gpushare/protocol.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* Fixtures of a test case. */
void played_set_up(void);
void played_tear_down(void);

/* Begin a new answer; add to it. The message is valid until the next one is added. */
void played_begin(void);
struct gs_msg *played_add(enum gs_msg_type type);

/* A GPU of 16 GiB on which turns are taken. */
struct gs_msg *played_add_gpu(uint64_t handovers);

/* On the last GPU. */
struct gs_msg *played_add_job(enum gs_job_state state, unsigned flags, uint64_t used_bytes,
                              uint64_t resident_bytes);

/* Have it answer the next question. Returns the path of its socket. */
const char *played_listen(void);

/* The question has been asked. */
void played_end(void);

#endif
