/*
 * mps_environment.h - the variables by which the driver uses MPS, as set by us. Programs that this one starts
 * inherit them, and are to decide for themselves: so it is noted what is ours.
 *
 * Not thread-safe, as the environment is not.
 */
#ifndef GS_MPS_ENVIRONMENT_H
#define GS_MPS_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

/* The user says himself which MPS to use. */
bool mps_environment_is_given(void);

/* What of it is not given. priority, percent: 0: as usual. False: memory is out, and nothing is set. */
bool mps_environment_set(const char *pipes, uint32_t priority, uint32_t percent);

/* What is ours, or was that of the program that has started this one, goes. */
void mps_environment_forget(void);

#endif
