/*
 * wrappers.c - the exported wrappers, expanded from hooks.def. cuda.h declares the same names, so the
 * compiler checks every prototype. A gated call is: gate, the real function, gate; its result is passed on
 * untouched.
 */
#include "interpose/wrappers.h"

#include "common/log.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "gate/gate.h"
#include "memory/memory.h"
#include "memory/placement.h"
#include "memory/reach.h"

#define EXPORTED __attribute__((visibility("default")))
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* Newer functions than the header's are exported too, without a declaration of their own. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#ifdef __clang__
#pragma GCC diagnostic ignored "-Wmissing-variable-declarations"
#endif

/* The table doesn't have the function: the driver is not settled, or lacks it. Before the driver is
 * initialized, what it answers is all that there is to the call: `early` is to be called instead. */
static __attribute__((noinline, cold)) CUresult unavailable(void *const *real, const char *name,
                                                            void **early) {
  *early = NULL;
  if (!driver_prepare())
    return CUDA_ERROR_NOT_INITIALIZED;
  void *function = driver_find(name);
  if (function) {
    *early = *real ? NULL : function;
    return CUDA_SUCCESS;
  }
  log_warn("%s: this driver does not have it", name);
  return CUDA_ERROR_NOT_SUPPORTED;
}

#define REQUIRE(name, args)                                                                                  \
  if (UNLIKELY(!driver.name)) {                                                                              \
    __typeof__(driver.name) early;                                                                           \
    CUresult missing = unavailable((void *const *)&driver.name, #name, (void **)&early);                     \
    if (missing != CUDA_SUCCESS)                                                                             \
      return missing;                                                                                        \
    if (early)                                                                                               \
      return early args;                                                                                     \
  }

/* The call, and once more if memory has been taken away from it. */
#define CALL_AGAIN(result, name, args, stream, gates)                                                        \
  CUresult result = driver.name args;                                                                        \
  for (uint64_t takes = 0;                                                                                   \
       UNLIKELY(result == CUDA_ERROR_INVALID_VALUE) && gate_enter_again(stream, gates, &takes);)             \
  result = driver.name args

#define PASSING(name, params, args, stream, note)                                                            \
  EXPORTED CUresult name params {                                                                            \
    REQUIRE(name, args)                                                                                      \
    gate_enter(stream);                                                                                      \
    CALL_AGAIN(result, name, args, stream, 0);                                                               \
    gate_leave();                                                                                            \
    note;                                                                                                    \
    return result;                                                                                           \
  }
#define GATED(group, name, params, args, stream) PASSING(name, params, args, stream, (void)0)
#define PLACING(group, name, params, args, stream, note)                                                     \
  PASSING(name, params, args, stream, result == CUDA_SUCCESS ? (note) : (void)0)
#define SPANNING(group, name, params, args, stream, touched)                                                 \
  EXPORTED CUresult name params {                                                                            \
    REQUIRE(name, args)                                                                                      \
    struct reach reach = touched;                                                                            \
    if (UNLIKELY(reach.beyond))                                                                              \
      return CUDA_ERROR_INVALID_VALUE;                                                                       \
    gate_enter_reaching(stream, reach_gates(reach));                                                         \
    CALL_AGAIN(result, name, args, stream, reach_gates(reach));                                              \
    gate_leave();                                                                                            \
    return result;                                                                                           \
  }
#define VALUES(group, name, params, args, stream, refused)                                                   \
  PASSING(name, params, args, stream, result == CUDA_ERROR_INVALID_VALUE ? refused : (void)0)
#define CUSTOM(group, name, params, args)                                                                    \
  EXPORTED CUresult name params {                                                                            \
    REQUIRE(name, args)                                                                                      \
    return hook_##name args;                                                                                 \
  }
#define FIRST(group, name, params, args)                                                                     \
  EXPORTED CUresult name params {                                                                            \
    if (!driver_prepare())                                                                                   \
      return CUDA_ERROR_NOT_INITIALIZED;                                                                     \
    return driver.name ? hook_##name args : CUDA_ERROR_NOT_SUPPORTED;                                        \
  }
#include "driver/hooks.def"

const struct wrapper wrappers[] = {
#define GATED(group, name, params, args, stream) {#name, (void *)(name), (void **)&driver.name},
#define CUSTOM(group, name, params, args) {#name, (void *)(name), (void **)&driver.name},
#include "driver/hooks.def"
};
const size_t wrapper_count = sizeof wrappers / sizeof *wrappers;
