/* subject.h - a process that the driver takes off the card and brings back as a whole: cuCheckpointProcess*,
 * CUDA 12.8. */
#ifndef GS_PROBE_SUBJECT_H
#define GS_PROBE_SUBJECT_H

#include "pieces.h"

enum subject_step { SUBJECT_LOCK, SUBJECT_CHECKPOINT, SUBJECT_RESTORE, SUBJECT_UNLOCK, SUBJECT_STEPS };

struct subject {
  pid_t pid;
  int fd;
};

/* Starts one that fills that much memory and waits until it has. The driver must not be open here yet. */
bool subject_start(struct subject *s, size_t bytes);
/* Looks up the driver's calls (it must be open here by now); false: a line tells what it lacks. */
bool subject_calls_find(void);
CUresult subject_do(const struct subject *s, enum subject_step step);
const char *subject_step_name(enum subject_step step);
int subject_state(const struct subject *s); /* CUprocessState; -1: unknown */
/* Is its memory what it was? */
bool subject_is_right(const struct subject *s);
void subject_end(struct subject *s);

#endif
