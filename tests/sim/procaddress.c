/*
 * procaddress.c - cuGetProcAddress: base name, CUDA version and stream flag to the exported symbol; the same
 * addresses that dlsym gives.
 *
 * As documented, CUDA_SUCCESS with a NULL pointer for what is unknown or too new, CUDA_ERROR_INVALID_VALUE
 * for a version above the driver's. Functions newer than the card's driver_version are not found here (dlsym
 * still sees them).
 */
#include <stdlib.h>
#include <string.h>

#include "driver_version.h"
#include "process.h"

static const struct {
  const char *base;
  bool per_thread;
  int version;
  const char *symbol;
} versions[] = {
#define VERSION(base, per_thread, version, symbol) {#base, per_thread, version, #symbol},
#include "versions.def"
#undef VERSION
};

/* Sorted by the generator. */
static const char *const symbols[] = {
#define SYMBOL(name) #name,
#include "symbols.inc"
#undef SYMBOL
};

/* In the same order (doors.S). */
extern void *const door_exports[];

static int symbol_compare(const void *key, const void *element) {
  return strcmp(key, *(const char *const *)element);
}

static void *symbol_address(const char *name) {
  const char *const *found =
      bsearch(name, symbols, sizeof(symbols) / sizeof(symbols[0]), sizeof(symbols[0]), symbol_compare);
  return found ? door_exports[found - symbols] : NULL;
}

/* The newest version that is not too new; *exists: there is one at all. */
static void *version_find(const char *base, bool per_thread, int version, bool *exists) {
  void *best = NULL;
  for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
    if (versions[i].per_thread != per_thread || strcmp(versions[i].base, base) != 0)
      continue;
    void *address = versions[i].version <= (int)driver_version() ? symbol_address(versions[i].symbol) : NULL;
    *exists |= address != NULL;
    if (address && versions[i].version <= version)
      best = address;
  }
  return best;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbolStatus) {
  bool exists = false;
  void *found = NULL;
  if (symbol == NULL || pfn == NULL || cudaVersion > (int)driver_version() ||
      (flags &
       ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)))
    return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
    found = version_find(symbol, true, cudaVersion, &exists);
  if (found == NULL)
    found = version_find(symbol, false, cudaVersion, &exists);
  *pfn = found;
  if (symbolStatus)
    *symbolStatus = found    ? CU_GET_PROC_ADDRESS_SUCCESS
                    : exists ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                             : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, NULL);
}
