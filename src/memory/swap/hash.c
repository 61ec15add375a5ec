/*
 * hash.c - the kernel: a block of threads for each row, so that no two blocks write the same row, and 4 MiB a
 * row, so that a few pieces keep the whole card busy. The rows are in host memory, which the kernel reaches
 * over the bus: there is nothing to copy.
 */
#include "memory/swap/hash.h"

#include <assert.h>
#include <linux/random.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/log.h"
#include "driver/driver.h"

#define ROWS_EACH 8 /* of some contents; those that are not needed have no bytes */
#define ROW_BYTES (HASH_MOST_BYTES / ROWS_EACH)
#define TRIAL_BYTES (ROW_BYTES + HASH_GRAIN_BYTES)

/* For the kernel's text, of numbers that are defined elsewhere. */
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define STEP TEXT(HASH_STEP)
#define FACTOR_1 TEXT(HASH_FACTOR_1)
#define FACTOR_2 TEXT(HASH_FACTOR_2)
#define FACTOR_3 TEXT(HASH_FACTOR_3)

#define THREADS 1024 /* each takes 64 bytes in a round */
static_assert(THREADS * 64 == HASH_GRAIN_BYTES, "no round ends in the middle");
static_assert(sizeof(struct hash_row) == 48, "as the kernel's text has it");

/* Of the words %a and %b of this number, whose place is in %q. */
#define ADD_PRODUCT(n)                                                                                       \
  "shr.u64 %t, %q, 30;\n"                                                                                    \
  "xor.b64 %k, %q, %t;\n"                                                                                    \
  "mul.lo.u64 %k, %k, " FACTOR_1 ";\n"                                                                       \
  "shr.u64 %t, %k, 27;\n"                                                                                    \
  "xor.b64 %k, %k, %t;\n"                                                                                    \
  "mul.lo.u64 %k, %k, " FACTOR_2 ";\n"                                                                       \
  "shr.u64 %t, %k, 31;\n"                                                                                    \
  "xor.b64 %k, %k, %t;\n"                                                                                    \
  "xor.b64 %l, %k, %second;\n"                                                                               \
  "mul.lo.u64 %l, %l, " FACTOR_3 ";\n"                                                                       \
  "shr.u64 %t, %l, 32;\n"                                                                                    \
  "xor.b64 %l, %l, %t;\n"                                                                                    \
  "or.b64 %any, %any, %a" #n ";\n"                                                                           \
  "or.b64 %any, %any, %b" #n ";\n"                                                                           \
  "add.u64 %k, %k, %a" #n ";\n"                                                                              \
  "add.u64 %l, %l, %b" #n ";\n"                                                                              \
  "mul.lo.u64 %t, %k, %l;\n"                                                                                 \
  "add.u64 %low, %low, %t;\n"                                                                                \
  "mul.hi.u64 %t, %k, %l;\n"                                                                                 \
  "add.u64 %high, %high, %t;\n"                                                                              \
  "add.u64 %q, %q, %step;\n"

/* The sum of the thread %half further on, to that of this thread. */
#define ADD_SUM(add, at)                                                                                     \
  "ld.shared.u64 %t, [%other + " #at "];\n"                                                                  \
  "ld.shared.u64 %k, [%own + " #at "];\n" #add " %k, %k, %t;\n"                                              \
  "st.shared.u64 [%own + " #at "], %k;\n"

/* hash_row, by four pairs of words at a time. */
static const char image[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry gpushare_hash(.param .u64 rows, .param .u64 place, .param .u64 second)\n"
    ".maxntid 1024, 1, 1\n"
    "{\n"
    ".reg .pred %p;\n"
    ".reg .b32 %thread, %threads, %block, %half, %own, %other;\n"
    ".reg .b64 %row, %at, %end, %stride, %step, %q, %second, %low, %high, %any, %k, %l, %t;\n"
    ".reg .b64 %a<4>, %b<4>;\n"
    ".shared .align 8 .b8 sums[24576];\n"
    "ld.param.u64 %row, [rows];\n"
    "ld.param.u64 %q, [place];\n"
    "ld.param.u64 %second, [second];\n"
    "mov.u32 %thread, %tid.x;\n"
    "mov.u32 %threads, %ntid.x;\n"
    "mov.u32 %block, %ctaid.x;\n"
    "mad.wide.u32 %row, %block, 48, %row;\n"
    "cvta.to.global.u64 %row, %row;\n"
    "ld.global.u64 %at, [%row];\n"
    "ld.global.u64 %end, [%row + 8];\n"
    "ld.global.u64 %k, [%row + 16];\n"
    "cvta.to.global.u64 %at, %at;\n"
    "add.u64 %end, %end, %at;\n"
    "cvt.u64.u32 %t, %thread;\n"
    "mad.lo.u64 %at, %t, 16, %at;\n"
    "add.u64 %t, %t, %k;\n"
    "mad.lo.u64 %q, %t, " STEP ", %q;\n"
    "cvt.u64.u32 %t, %threads;\n"
    "mul.lo.u64 %step, %t, " STEP ";\n"
    "shl.b64 %stride, %t, 4;\n"
    "mov.u64 %low, 0;\n"
    "mov.u64 %high, 0;\n"
    "mov.u64 %any, 0;\n"
    "ROUND:\n"
    "setp.ge.u64 %p, %at, %end;\n"
    "@%p bra SUMS;\n"
    "ld.global.v2.u64 {%a0, %b0}, [%at];\n"
    "add.u64 %at, %at, %stride;\n"
    "ld.global.v2.u64 {%a1, %b1}, [%at];\n"
    "add.u64 %at, %at, %stride;\n"
    "ld.global.v2.u64 {%a2, %b2}, [%at];\n"
    "add.u64 %at, %at, %stride;\n"
    "ld.global.v2.u64 {%a3, %b3}, [%at];\n"
    "add.u64 %at, %at, %stride;\n" /* then the products */
    ADD_PRODUCT(0) ADD_PRODUCT(1) ADD_PRODUCT(2)
        ADD_PRODUCT(3) "bra ROUND;\n"
                       "SUMS:\n"
                       "mov.u32 %own, sums;\n"
                       "mad.lo.u32 %own, %thread, 24, %own;\n"
                       "st.shared.u64 [%own], %low;\n"
                       "st.shared.u64 [%own + 8], %high;\n"
                       "st.shared.u64 [%own + 16], %any;\n"
                       "mov.u32 %half, %threads;\n"
                       "HALVE:\n"
                       "bar.sync 0;\n"
                       "shr.u32 %half, %half, 1;\n"
                       "setp.eq.u32 %p, %half, 0;\n"
                       "@%p bra LAST;\n"
                       "setp.ge.u32 %p, %thread, %half;\n"
                       "@%p bra HALVE;\n"
                       "mad.lo.u32 %other, %half, 24, %own;\n" /* then the sums */
    ADD_SUM(add.u64, 0) ADD_SUM(add.u64, 8) ADD_SUM(or.b64, 16) "bra HALVE;\n"
                                                                "LAST:\n"
                                                                "setp.ne.u32 %p, %thread, 0;\n"
                                                                "@%p bra END;\n"
                                                                "ld.shared.u64 %low, [%own];\n"
                                                                "ld.shared.u64 %high, [%own + 8];\n"
                                                                "ld.shared.u64 %any, [%own + 16];\n"
                                                                "st.global.u64 [%row + 24], %low;\n"
                                                                "st.global.u64 [%row + 32], %high;\n"
                                                                "st.global.u64 [%row + 40], %any;\n"
                                                                "END:\n"
                                                                "ret;\n"
                                                                "}\n";

void hasher_add(struct hasher *hasher, CUdeviceptr at, uint64_t bytes) {
  struct hash_row *row = &hasher->rows[hasher->count++ * ROWS_EACH];
  for (uint64_t from = 0; from < HASH_MOST_BYTES; from += ROW_BYTES, row++) {
    uint64_t rest = from < bytes ? bytes - from : 0;
    *row =
        (struct hash_row){.at = at + from, .bytes = rest < ROW_BYTES ? rest : ROW_BYTES, .first = from / 16};
  }
}

CUresult hasher_begin(struct hasher *hasher) {
  CUdeviceptr rows;
  CUresult result = driver.cuMemHostGetDevicePointer_v2(&rows, hasher->rows, 0);
  void *arguments[] = {&rows, &hasher->key.place, &hasher->key.second};
  if (result == CUDA_SUCCESS)
    result = driver.cuLaunchKernel(hasher->kernel, hasher->count * ROWS_EACH, 1, 1, THREADS, 1, 1, 0,
                                   hasher->stream, arguments, NULL);
  return result == CUDA_SUCCESS ? driver.cuEventRecord(hasher->done, hasher->stream) : result;
}

CUresult hasher_finish(struct hasher *hasher, struct hash hashes[HASH_MOST]) {
  CUresult result = driver.cuEventSynchronize(hasher->done);
  const struct hash_row *row = hasher->rows;
  for (unsigned i = 0; i < hasher->count && result == CUDA_SUCCESS; i++) {
    hashes[i] = (struct hash){.low = 0};
    for (int k = 0; k < ROWS_EACH; k++, row++) {
      hashes[i].low += row->hash.low;
      hashes[i].high += row->hash.high;
      hashes[i].any |= row->hash.any;
    }
  }
  hasher->count = 0;
  return result;
}

void hasher_forget(struct hasher *hasher) {
  *hasher = (struct hasher){.key = hasher->key, .fails = hasher->fails};
}

/* ---- loading ---- */

static CUresult load(struct hasher *hasher) {
  CUmodule module;
  void *rows = NULL;
  CUresult result = driver.cuModuleLoadData(&module, image);
  if (result == CUDA_SUCCESS)
    result = driver.cuModuleGetFunction(&hasher->kernel, module, "gpushare_hash");
  if (result == CUDA_SUCCESS)
    result = driver.cuStreamCreate(&hasher->stream, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS)
    result = driver.cuEventCreate(&hasher->done, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
  if (result == CUDA_SUCCESS)
    result = driver.cuMemHostAlloc(&rows, HASH_MOST * ROWS_EACH * sizeof *hasher->rows + TRIAL_BYTES,
                                   CU_MEMHOSTALLOC_DEVICEMAP);
  hasher->rows = rows;
  return result;
}

/* More words than a row has, in the hasher's own host memory. The last time they are all zero. */
static CUresult try_it(struct hasher *hasher) {
  uint64_t *words = (uint64_t *)(hasher->rows + HASH_MOST * ROWS_EACH);
  struct hash_row expected = {.bytes = TRIAL_BYTES};
  struct hash found[HASH_MOST];
  CUdeviceptr at;
  CUresult result = driver.cuMemHostGetDevicePointer_v2(&at, words, 0);
  for (uint64_t factor = 2; factor-- > 0 && result == CUDA_SUCCESS;) {
    for (uint64_t i = 0; i < TRIAL_BYTES / sizeof *words; i++)
      words[i] = factor * (i + 1) * HASH_STEP;
    hash_row(&hasher->key, words, &expected);
    hasher_add(hasher, at, TRIAL_BYTES);
    result = hasher_begin(hasher);
    if (result == CUDA_SUCCESS)
      result = hasher_finish(hasher, found);
    if (result == CUDA_SUCCESS && memcmp(&found[0], &expected.hash, sizeof found[0]) != 0)
      result = CUDA_ERROR_UNKNOWN;
  }
  return result;
}

/* False: there are no random numbers yet. */
static bool draw_key(struct hash_key *key) {
  return key->place || key->second || syscall(SYS_getrandom, key, sizeof *key, GRND_NONBLOCK) == sizeof *key;
}

bool hasher_load(struct hasher *hasher, CUdevice device) {
  CUcontext current = NULL;
  if (hasher->fails || driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS || !current)
    return false;
  if (hasher->context == current)
    return true;
  hasher_forget(hasher);
  CUresult result = draw_key(&hasher->key) ? load(hasher) : CUDA_ERROR_NOT_READY;
  if (result == CUDA_SUCCESS)
    result = try_it(hasher);
  if (result == CUDA_SUCCESS) {
    hasher->context = current;
    return true;
  }
  log_info("GPU %d: memory is moved whether it has changed or not (CUDA error %d)", device, result);
  hasher_forget(hasher);
  hasher->fails = true;
  return false;
}
