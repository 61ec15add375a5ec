/* fnv.h - FNV-1a (Fowler, Noll, Vo), 64 bits: a number for bytes, against accidents and not against anybody.
 */
#ifndef GS_FNV_H
#define GS_FNV_H

#include <stddef.h>
#include <stdint.h>

#define FNV_BASIS UINT64_C(0xcbf29ce484222325) /* of no bytes */

/* That of what `sum` is of, followed by these. */
static inline uint64_t fnv_add(uint64_t sum, const void *bytes, size_t count) {
  for (size_t i = 0; i < count; i++)
    sum = (sum ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
  return sum;
}

#endif
