/*
 * forked.h - what each file of this room forgets in the child of a fork: no driver state has survived there,
 * and a lock may be held by a thread that is none of the child's.
 *
 * Why a section that the linker gathers, and no list: a list would name all files of the room, and so stand
 * above those that it is asked by; and calls may come before any constructor has run.
 */
#ifndef GS_FORKED_H
#define GS_FORKED_H

typedef void forked_function(void);

/* A linker that drops what nothing names must not drop these: not every compiler can say so, nor every linker
 * does so. */
#if defined __has_attribute
#if __has_attribute(retain)
#define FORKED_STAYS __attribute__((used, retain))
#endif
#endif
#ifndef FORKED_STAYS
#define FORKED_STAYS __attribute__((used))
#endif

/* `function` is called in the child of a fork; in which order is not known. */
#define IN_FORKED_CHILD(function)                                                                            \
  FORKED_STAYS static forked_function *const forked_call_##function                                          \
      __attribute__((section("gs_memory_forked"))) = function

#define FORKED_EDGE __attribute__((visibility("hidden")))
extern forked_function *const __start_gs_memory_forked[] FORKED_EDGE; /* the linker's names */
extern forked_function *const __stop_gs_memory_forked[] FORKED_EDGE;

/* Caller must: be the child of a fork. */
static inline void forked_forget_all(void) {
  for (forked_function *const *forget = __start_gs_memory_forked; forget < __stop_gs_memory_forked; forget++)
    (*forget)();
}

#endif
