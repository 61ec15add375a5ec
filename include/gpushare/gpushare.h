/*
 * gpushare.h - what a program may tell gpushare about itself while it runs.
 *
 * Optional: nothing needs to be linked. The functions are in libunified.so, which is preloaded; without it
 * they are not there, so ask first:
 *
 *     if (gpushare_set_expected_runtime)
 *       gpushare_set_expected_runtime(600 * 1000000000ull);
 *
 * (The declarations are weak. Code that is compiled to run at a fixed address, -fno-pie, must look the
 * functions up with dlsym(RTLD_DEFAULT, ...), as other languages do.)
 *
 * What is said here replaces what the environment says (GPUSHARE_EXPECTED_RUNTIME, GPUSHARE_WEIGHT,
 * GPUSHARE_PRIORITY, GPUSHARE_MEMORY_SOFT_LIMIT, GPUSHARE_EXPECTED_MEMORY, GPUSHARE_CLASS), and counts for
 * all GPUs of the process, now and later, whether it uses them already or not, and for children that it forks
 * from then on. What a person has set for the job with gpusharectl counts more. What follows from run time,
 * weight and priority depends on the policy of the GPU.
 *
 * Errors: 0, or -EINVAL for a value out of range, which changes nothing. Threading: any thread at any time,
 * but no signal handler. The calls return at once.
 */
#ifndef GPUSHARE_H
#define GPUSHARE_H

#include <stdint.h>

#ifndef GPUSHARE_API
#define GPUSHARE_API __attribute__((weak))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* How much time on the GPU this process will have had in the end, from its start: ns; 0: unknown. */
GPUSHARE_API int gpushare_set_expected_runtime(uint64_t ns);

/* How much memory it will have on each GPU, at once and at most: beside others it counts with that from its
 * first memory on, not with what it happens to have; else that is learnt while it runs. If it is said before
 * that memory, it waits for that until card and host have so much left. Bytes; 0: unknown. */
GPUSHARE_API int gpushare_set_expected_memory(uint64_t bytes);

/* Its share of GPU time, in proportion to those of the others: 1 to 10000, usually 100. */
GPUSHARE_API int gpushare_set_weight(uint32_t weight);

/* Its level: -20 to 20, the most urgent; usually 0. */
GPUSHARE_API int gpushare_set_priority(int32_t priority);

/* Its soft limit of memory on each GPU: it may use more, but while it does not have the GPU, what is beyond
 * leaves the card before the memory of others. For what it can spare, a cache for example. Bytes; 0: none. */
GPUSHARE_API int gpushare_set_memory_soft_limit(uint64_t bytes);

/* Its class: an opportunistic process has what production processes leave of the GPU, and they keep their
 * speed; usually standard. The daemon may allow production to some users only. */
enum { GPUSHARE_STANDARD, GPUSHARE_PRODUCTION, GPUSHARE_OPPORTUNISTIC };
GPUSHARE_API int gpushare_set_class(int gpushare_class);

#ifdef __cplusplus
}
#endif

#endif
