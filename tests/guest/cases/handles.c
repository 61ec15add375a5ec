/*
 * handles.c - random histories of what a program may do with memory of cuMemCreate: handles, retained,
 * released before their mappings; ranges of addresses; mappings of all of a handle or of a part of it,
 * several of one, side by side; rights; exports; and calls that the driver refuses. The contents are checked
 * against a model, at each mapping. All results, in order, are what a history says: so it must see the same
 * as natively.
 *
 * GS_TEST_SEED: another seed. GS_TEST_HISTORIES: how many; 20 is usual. GS_TEST_SAY: each call is said.
 */
#include "guest.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GRAIN (UINT64_C(2) << 20)
#define STEPS 400
#define HANDLES 12
#define RANGES 4
#define GRAINS_MOST 20   /* of a handle */
#define GRAINS_IN_ALL 22 /* live, so that the driver has room for all of them */
#define EXPORTED_MOST 6
#define WORDS 8 /* at the start of each grain: what is written and read */

/* What stands behind handles. */
struct memory {
  CUmemGenericAllocationHandle handle;
  unsigned handles, mappings, grains;
  int posix, exported;
  uint64_t seeds[GRAINS_MOST]; /* of the contents; 0: undefined */
};

/* What is mapped at a grain of a range. */
struct place {
  int memory;                    /* -1: nothing */
  unsigned grain, first, grains; /* of the memory; of the mapping: its first place, and how many */
  unsigned rights;
};

struct range {
  CUdeviceptr at;
  unsigned grains;
  struct place places[64];
};

static struct gpu gpu;
static struct memory memories[HANDLES];
static struct range ranges[RANGES];
static uint64_t seed, hash, next_seed;
static int trace;

static uint64_t draw(uint64_t below) {
  seed ^= seed >> 12;
  seed ^= seed << 25;
  seed ^= seed >> 27;
  return (seed * UINT64_C(2685821657736338717) >> 33) % below;
}

static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *format, ...) {
  char line[256];
  va_list values;
  va_start(values, format);
  vsnprintf(line, sizeof line, format, values);
  va_end(values);
  for (const char *c = line; *c; c++)
    hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
  if (trace)
    say("%s", line);
}

static int live(const struct memory *memory) { return memory->handles || memory->mappings; }

static unsigned live_grains(void) {
  unsigned grains = 0;
  for (int i = 0; i < HANDLES; i++)
    grains += live(&memories[i]) ? memories[i].grains : 0;
  return grains;
}

/* ---- handles ---- */

static void do_create(void) {
  struct memory *memory = &memories[draw(HANDLES)];
  unsigned grains = draw(5) ? 1 + (unsigned)draw(4) : 1 + (unsigned)draw(GRAINS_MOST);
  CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
  int posix = draw(3) == 0, wrong = draw(12) == 0 ? 1 + (int)draw(4) : 0;
  CUmemGenericAllocationHandle handle;
  kind.requestedHandleTypes = posix ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
  if (live(memory) || live_grains() + grains > GRAINS_IN_ALL)
    return;
  kind.location.id = wrong == 1 ? 99 : 0;
  CUresult result = cuMemCreate(&handle,
                                wrong == 2   ? 0
                                : wrong == 3 ? 4096
                                             : grains * GRAIN,
                                &kind, wrong == 4);
  note("create %u%s wrong %d: %s", grains, posix ? " to export" : "", wrong, result_name(result));
  if (result == CUDA_SUCCESS)
    *memory = (struct memory){.handle = handle, .handles = 1, .grains = grains, .posix = posix};
}

static struct memory *with_handle(void) {
  uint64_t first = draw(HANDLES);
  for (uint64_t i = 0; i < HANDLES; i++)
    if (memories[(first + i) % HANDLES].handles)
      return &memories[(first + i) % HANDLES];
  return NULL;
}

static void do_release(void) {
  struct memory *memory = with_handle();
  if (!memory)
    return;
  CUresult result = cuMemRelease(memory->handle);
  note("release: %s", result_name(result));
  memory->handles--;
}

static void do_properties(void) {
  struct memory *memory = with_handle();
  CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_INVALID};
  if (!memory)
    return; /* what is no handle crashes the driver */
  CUresult result = cuMemGetAllocationPropertiesFromHandle(&kind, memory->handle);
  note("properties: %s, %d, %d, %d, %d", result_name(result), (int)kind.type, (int)kind.requestedHandleTypes,
       (int)kind.location.type, kind.location.id);
}

/* What is exported stays on the card: more of it would keep the job beside this one from running, and be
 * refused. */
static unsigned exported_grains(void) {
  unsigned grains = 0;
  for (int i = 0; i < HANDLES; i++)
    grains += live(&memories[i]) && memories[i].exported ? memories[i].grains : 0;
  return grains;
}

static void do_export(void) {
  struct memory *memory = with_handle();
  int fd = -1;
  if (!memory || memory->exported || (memory->posix && exported_grains() + memory->grains > EXPORTED_MOST))
    return;
  CUresult result =
      cuMemExportToShareableHandle(&fd, memory->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  note("export%s: %s", memory->posix ? "" : " of what is not made for it", result_name(result));
  memory->exported = result == CUDA_SUCCESS;
  if (result == CUDA_SUCCESS)
    close(fd);
}

/* ---- ranges ---- */

static void do_reserve(void) {
  struct range *range = &ranges[draw(RANGES)];
  unsigned grains = 1 + (unsigned)draw(64);
  if (range->at)
    return;
  CUresult result = cuMemAddressReserve(&range->at, grains * GRAIN, 0, 0, 0);
  note("reserve %u: %s", grains, result_name(result));
  range->grains = grains;
  for (unsigned i = 0; i < grains; i++)
    range->places[i].memory = -1;
}

static struct range *any_range(void) {
  uint64_t first = draw(RANGES);
  for (uint64_t i = 0; i < RANGES; i++)
    if (ranges[(first + i) % RANGES].at)
      return &ranges[(first + i) % RANGES];
  return NULL;
}

/* Mostly one where something is mapped. */
static unsigned any_place(const struct range *range) {
  unsigned first = (unsigned)draw(range->grains), exact = draw(8) == 0;
  for (unsigned i = 0; i < range->grains && !exact; i++)
    if (range->places[(first + i) % range->grains].memory >= 0)
      return (first + i) % range->grains;
  return first;
}

static void do_free_range(void) {
  struct range *range = any_range();
  if (!range)
    return;
  CUresult result = cuMemAddressFree(range->at, range->grains * GRAIN);
  note("free a range: %s", result_name(result));
  if (result == CUDA_SUCCESS)
    range->at = 0;
}

/* ---- mappings ---- */

static int all_free(const struct range *range, unsigned first, unsigned grains) {
  for (unsigned i = first; i < first + grains; i++)
    if (i >= range->grains || range->places[i].memory >= 0)
      return 0;
  return 1;
}

/* The driver (580) maps only all of a handle. */
static void do_map(void) {
  struct range *range = any_range();
  struct memory *memory = with_handle();
  if (!range || !memory)
    return;
  unsigned first = (unsigned)draw(range->grains), grains = memory->grains;
  if (draw(4) == 0)
    grains = 1 + (unsigned)draw(grains);
  if (draw(15) == 0)
    grains = memory->grains + 1;
  for (unsigned i = 0; i < range->grains && !all_free(range, first, grains) && draw(8); i++)
    first = (first + 1) % range->grains;
  if (first + grains > range->grains)
    return; /* where it ends is not ours */
  uint64_t odd = draw(20) == 0 && grains == memory->grains && first + grains < range->grains ? 4096 : 0;
  CUresult result = cuMemMap(range->at + first * GRAIN + odd, grains * GRAIN, 0, memory->handle, 0);
  note("map %u of %u grains%s: %s", grains, memory->grains, odd ? " at an odd place" : "",
       result_name(result));
  if (result != CUDA_SUCCESS)
    return;
  memory->mappings++;
  for (unsigned i = 0; i < grains; i++)
    range->places[first + i] =
        (struct place){.memory = (int)(memory - memories), .grain = i, .first = first, .grains = grains};
}

/* Some places from a mapping on: whole mappings, or not. */
static int some_places(const struct range *range, unsigned *first, unsigned *grains) {
  *first = any_place(range);
  const struct place *place = &range->places[*first];
  if (place->memory < 0)
    return draw(6) == 0 ? (*grains = 1) : 0;
  *first = place->first;
  *grains = place->grains;
  unsigned next = *first + *grains;
  if (draw(3) == 0 && next < range->grains && range->places[next].memory >= 0)
    *grains += range->places[next].grains;
  if (draw(8) == 0 && *grains > 1)
    --*grains;
  if (draw(12) == 0 && *grains > 1)
    ++*first, --*grains;
  return 1;
}

static void do_unmap(void) {
  struct range *range = any_range();
  unsigned first, grains;
  if (!range || !some_places(range, &first, &grains))
    return;
  CUresult result = cuMemUnmap(range->at + first * GRAIN, grains * GRAIN);
  note("unmap %u: %s", grains, result_name(result));
  for (unsigned i = first; result == CUDA_SUCCESS && i < first + grains; i++) {
    struct place *place = &range->places[i];
    if (place->memory >= 0 && place->first == i)
      memories[place->memory].mappings--;
    place->memory = -1;
  }
}

static void do_set_access(void) {
  static const unsigned char flags[] = {
      CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
      CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  struct range *range = any_range();
  unsigned first, grains, rights = flags[draw(5)];
  if (!range || !some_places(range, &first, &grains))
    return;
  CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = draw(15) ? 0 : 77},
                            .flags = (CUmemAccess_flags)rights};
  CUresult result = cuMemSetAccess(range->at + first * GRAIN, grains * GRAIN, &access, 1);
  note("rights %u of %u: %s", rights, grains, result_name(result));
  for (unsigned i = first; result == CUDA_SUCCESS && i < first + grains; i++)
    range->places[i].rights = rights;
}

static void do_get_access(void) {
  struct range *range = any_range();
  CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
  unsigned long long flags = 9;
  if (!range)
    return;
  unsigned at = any_place(range);
  if (range->places[at].memory < 0)
    return;
  CUresult result = cuMemGetAccess(&flags, &here, range->at + at * GRAIN + draw(GRAIN));
  note("which rights: %s, %llu", result_name(result), flags);
}

static void do_retain(void) {
  struct range *range = any_range();
  CUmemGenericAllocationHandle handle = 0;
  if (!range)
    return;
  unsigned at = any_place(range);
  struct memory *memory = range->places[at].memory >= 0 ? &memories[range->places[at].memory] : NULL;
  CUresult result =
      cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)(range->at + at * GRAIN + draw(GRAIN)));
  note("retain: %s, %s", result_name(result),
       !memory || !memory->handles ? "new"
       : memory->handle == handle  ? "the same"
                                   : "another");
  if (result != CUDA_SUCCESS)
    return;
  memory->handle = handle;
  memory->handles++;
}

/* It is no allocation. */
static void do_free(void) {
  struct range *range = any_range();
  if (!range || range->places[0].memory < 0)
    return;
  CUresult result = draw(2) ? cuMemFree(range->at) : cuMemFreeAsync(range->at, NULL);
  note("free a mapping: %s", result_name(result));
}

/* ---- contents ---- */

static void do_write(void) {
  struct range *range = any_range();
  if (!range)
    return;
  for (unsigned i = (unsigned)draw(range->grains); i < range->grains; i += 1 + (unsigned)draw(4)) {
    const struct place *place = &range->places[i];
    if (place->memory < 0 || place->rights != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      continue;
    gpu_fill(&gpu, NULL, range->at + i * GRAIN, WORDS, ++next_seed);
    memories[place->memory].seeds[place->grain] = next_seed;
  }
  MUST(cuCtxSynchronize()); /* what is unmapped next must not be in use */
}

static void check(const struct range *range) {
  for (unsigned i = 0; i < range->grains; i++) {
    const struct place *place = &range->places[i];
    uint64_t expected = place->memory >= 0 && place->rights ? memories[place->memory].seeds[place->grain] : 0;
    if (expected)
      gpu_verify(range->at + i * GRAIN, WORDS, expected, 0);
  }
}

/* One copy across mappings that are side by side. */
static void do_copy_across(void) {
  static char there[16 * GRAIN];
  struct range *range = any_range();
  if (!range)
    return;
  unsigned first = any_place(range), grains = 0;
  while (grains < 16 && first + grains < range->grains && range->places[first + grains].memory >= 0 &&
         range->places[first + grains].rights)
    grains++;
  if (!grains)
    return;
  CUresult result = cuMemcpy((CUdeviceptr)(uintptr_t)there, range->at + first * GRAIN, grains * GRAIN);
  note("copy %u grains: %s", grains, result_name(result));
}

/* ---- a history ---- */

static const struct {
  void (*make)(void);
  unsigned weight;
} steps[] = {{do_create, 18},    {do_release, 5}, {do_properties, 3}, {do_export, 2},      {do_reserve, 8},
             {do_free_range, 2}, {do_map, 22},    {do_unmap, 10},     {do_set_access, 18}, {do_get_access, 3},
             {do_retain, 4},     {do_free, 1},    {do_write, 20},     {do_copy_across, 2}};

static void step(void) {
  unsigned all = 0;
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
    all += steps[i].weight;
  unsigned drawn = (unsigned)draw(all);
  size_t i = 0;
  while (drawn >= steps[i].weight)
    drawn -= steps[i++].weight;
  steps[i].make();
}

/* All of it goes. */
static void end(void) {
  for (struct range *range = ranges; range < ranges + RANGES; range++) {
    if (!range->at)
      continue;
    check(range);
    for (unsigned i = 0; i < range->grains; i++)
      if (range->places[i].memory >= 0 && range->places[i].first == i) {
        MUST(cuMemUnmap(range->at + i * GRAIN, range->places[i].grains * GRAIN));
        memories[range->places[i].memory].mappings--;
      }
    MUST(cuMemAddressFree(range->at, range->grains * GRAIN));
    range->at = 0;
  }
  for (struct memory *memory = memories; memory < memories + HANDLES; memory++)
    for (; memory->handles; memory->handles--)
      MUST(cuMemRelease(memory->handle));
}

static uint64_t number_of(const char *name, uint64_t usual) {
  const char *text = getenv(name);
  return text ? strtoull(text, NULL, 0) : usual;
}

int main(void) {
  uint64_t start = number_of("GS_TEST_SEED", 20261126), wanted = number_of("GS_TEST_HISTORIES", 20);
  trace = getenv("GS_TEST_SAY") != NULL;
  gpu_start(&gpu, 0);
  for (uint64_t history = 0; history < wanted; history++) {
    seed = (start + history) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    hash = UINT64_C(0xcbf29ce484222325);
    for (uint64_t left = 1 + draw(STEPS); left > 0; left--) {
      step();
      struct range *range = draw(4) ? NULL : any_range();
      if (range)
        check(range);
    }
    end();
    say("history %llu: %016llx", (unsigned long long)history, (unsigned long long)hash);
  }
  say("ok");
  return 0;
}
