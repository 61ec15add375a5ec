/*
 * hash.h - contents in 128 bits, and whether they are all zero; computed on the card, by a kernel of ours in
 * one pass.
 *
 * The hash is NH (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC, 1999) with words of 64 bits: the sum of
 * (a + k) * (b + l) over all pairs of words (a, b). The keys k, l of a pair are made of the process' random
 * key and the pair's place. Were they random, two different contents would have the same hash with a
 * probability below 2^-62, whatever they are. A sum does not depend on how the kernel is launched.
 *
 * Threading: of one hasher, one thread at a time.
 */
#ifndef GS_HASH_H
#define GS_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/cuda_abi.h"

#define HASH_MOST 128                         /* contents hashed at the same time */
#define HASH_MOST_BYTES (UINT64_C(32) << 20)  /* of each */
#define HASH_GRAIN_BYTES (UINT64_C(64) << 10) /* they are multiples of it */

/* These mix the place of a pair into its keys. The kernel's text has them, too. */
#define HASH_STEP 0x9e3779b97f4a7c15
#define HASH_FACTOR_1 0xbf58476d1ce4e5b9
#define HASH_FACTOR_2 0x94d049bb133111eb
#define HASH_FACTOR_3 0xd6e8feb86659fd93

struct hash_key {
  uint64_t place, second;
};

struct hash {
  uint64_t low, high; /* sums of the low and of the high halves of the products, each for itself */
  uint64_t any;       /* all words, or-ed */
};

/* A part of some contents, which a block of threads hashes. */
struct hash_row {
  uint64_t at, bytes;
  uint64_t first; /* the place of its first pair */
  struct hash hash;
};

/* What the kernel computes. The simulated driver computes it so. */
static inline void hash_row(const struct hash_key *key, const uint64_t *words, struct hash_row *row) {
  row->hash = (struct hash){.low = 0};
  for (uint64_t i = 0; i < row->bytes / 16; i++) {
    uint64_t a = words[2 * i], b = words[2 * i + 1], k = key->place + (row->first + i) * HASH_STEP;
    k = (k ^ k >> 30) * HASH_FACTOR_1;
    k = (k ^ k >> 27) * HASH_FACTOR_2;
    k ^= k >> 31;
    uint64_t l = (k ^ key->second) * HASH_FACTOR_3;
    unsigned __int128 product = (unsigned __int128)(a + k) * (b + (l ^ l >> 32));
    row->hash.low += (uint64_t)product;
    row->hash.high += (uint64_t)(product >> 64);
    row->hash.any |= a | b;
  }
}

/* What hashes on a device. All 0: nothing is there yet. All but the key goes with the context. */
struct hasher {
  CUcontext context; /* the kernel is loaded there */
  CUfunction kernel;
  CUstream stream;
  CUevent done;
  struct hash_row *rows; /* and words for the trial */
  unsigned count;        /* contents that are being hashed, or are to be */
  struct hash_key key;
  bool fails; /* for good */
};

/* Load the kernel into the current context, and try it. Not while work of the process stands still: the
 * driver might wait for it. False: there will be no hashes, and the log says so. */
bool hasher_load(struct hasher *hasher, CUdevice device);

/* Contents that are to be hashed, one after the other; then begin with all of them; then wait, and take the
 * hashes, of as many as were added. The hasher's context is current. */
void hasher_add(struct hasher *hasher, CUdeviceptr at, uint64_t bytes);
CUresult hasher_begin(struct hasher *hasher);
CUresult hasher_finish(struct hasher *hasher, struct hash hashes[HASH_MOST]);

/* The context is gone, or is not used any more. */
void hasher_forget(struct hasher *hasher);

#endif
