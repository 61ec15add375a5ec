/* played_devices.h - what tells devices apart. */
#ifndef PLAYED_DEVICES_H
#define PLAYED_DEVICES_H

#include <stdio.h>
#include <string.h>

#include "driver/driver.h"

static CUresult get_uuid(CUuuid *uuid, CUdevice device) {
  memset(uuid, device, sizeof *uuid);
  return CUDA_SUCCESS;
}

static CUresult get_name(char *name, int size, CUdevice device) {
  snprintf(name, (size_t)size, "GPU %d", device);
  return CUDA_SUCCESS;
}

#endif
