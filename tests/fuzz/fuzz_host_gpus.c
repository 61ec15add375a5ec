/*
 * fuzz_host_gpus.c - bytes as what the NVIDIA kernel module says of GPUs, with NUL bytes between them. See
 * fuzz_text.h.
 */
#include "server/cards.h"

#include <stdbool.h>
#include <stdlib.h>

#include "common/parse.h"
#include "fuzz_folder.h"

#define GPUS 4
#define GUARD 0x5a

static const char *const words[] = {
    "Model: \t\t NVIDIA H200\n",
    "IRQ:   \t\t 255\n",
    "GPU UUID:",
    " \t ",
    "GPU-0a000000-0000-0000-0000-000000000001",
    "GPU-\?\?\?\?\?\?\?\?-\?\?\?\?-\?\?\?\?-\?\?\?\?-\?\?\?\?\?\?\?\?\?\?\?\?",
    "\n",
    "Bus Location: \t 0000:65:00.0\n",
    "Device Minor: \t 0\n",
    "Video BIOS: \t ??.??\n",
    "GPU-",
    "x"};

static const char *path_of(int gpu, const char *file) {
  static char path[96];
  snprintf(path, sizeof path, "%s/0000:%02x:00.0%s", fuzz_folder, gpu, file);
  return path;
}

static void set_up(void) {
  bool fresh = fuzz_provide_folder();
  for (int i = 0; fresh && i < GPUS; i++)
    fuzz_make_folder(path_of(i, ""));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t uuids[GPUS][GS_UUID_SIZE];
  set_up();
  for (int i = 0; i < GPUS; i++)
    fuzz_cut_file(path_of(i, "/information"), i == GPUS - 1, &data, &size);
  for (int most = 0; most <= GPUS; most++) {
    memset(uuids, GUARD, sizeof uuids);
    int count = host_gpus_read(fuzz_folder, uuids, most);
    fuzz_require(count < 0 || count == GPUS, "another number of GPUs than there are");
    for (int i = most; i < GPUS; i++)
      for (int byte = 0; byte < GS_UUID_SIZE; byte++)
        fuzz_require(uuids[i][byte] == GUARD, "more is written than there is room for");
  }
  static struct cards cards;
  if (host_gpus_cards(fuzz_folder, &cards) < 0)
    return 0;
  fuzz_require(cards.count > 0 && cards.count <= GPUS, "another number of cards than there are");
  fuzz_require(cards.partial == (cards.count < GPUS),
               "some are left out, and it is not told, or the reverse");
  for (uint32_t i = 0; i < cards.count; i++) {
    fuzz_require(!uuid_is_zero(cards.list[i].uuid), "a card without a UUID");
    fuzz_require(cards.list[i].number == strtoul(cards.list[i].bus + 5, NULL, 16),
                 "another place on the bus");
  }
  return 0;
}

#include "fuzz_text.h"
