/* hooks.h - the hand-written bodies that the exported wrappers call: hook_<exported name>, one per CUSTOM
 * row. */
#ifndef GS_HOOKS_H
#define GS_HOOKS_H

#include "driver/cuda_abi.h"

#define CUSTOM(group, name, params, args) CUresult hook_##name params;
#include "driver/hooks.def"

#endif
