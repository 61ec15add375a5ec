/* played_status.h - a daemon that answers one question for its status, with what the test wants. */
#ifndef GS_TEST_PLAYED_STATUS_H
#define GS_TEST_PLAYED_STATUS_H

#include <jansson.h>
#include <stdbool.h>

#include "gpushare/protocol.h"
#include "shell.h"

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

/* gpusharectl asks it by a command with its arguments; what that says is `output`, as shell.h has it. */
#define ask(arguments, code)                                                                                 \
  do {                                                                                                       \
    ck_assert_int_eq(run_shell("%s --socket %s %s 2>&1", GS_CTL, played_listen(), arguments), code);         \
    played_end();                                                                                            \
  } while (0)

/* Whether all that is wanted is there: keys of objects, each element of an array, values. */
bool json_has(const json_t *found, const json_t *wanted);

/* The output has what is wanted, which is JSON with ' for ". */
void check_json(const char *text, const char *wanted);
#define output_has_json(wanted) check_json(output, wanted)

#endif
