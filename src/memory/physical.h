/* physical.h - physical memory of the program, whose calls are all hooks. */
#ifndef GS_PHYSICAL_H
#define GS_PHYSICAL_H

/* Caller must: be the child of a fork. */
void physical_fork_child(void);

#endif
