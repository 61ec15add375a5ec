/*
 * rm.h - what we rely on of NVIDIA's resource manager, which is no documented interface: the calls by which
 * libcuda makes and steers its channels, with names of our own. Layouts and numbers are those of the open
 * kernel modules (MIT) and of driver 580; each size is checked by the driver, and each answer by us.
 *
 * A process has clients; a client has devices, each of which is a GPU by its instance, and subdevices beneath
 * these; a device has channel groups, a group has channels. Handles are a client's own.
 *
 * What does not do, as tried on driver 580: the subdevice's stop with only_scheduling, and a group's schedule
 * with 0, are accepted and stop nothing. A channel's schedule with 0 stops it, and can't be undone: never
 * send it.
 */
#ifndef GS_RM_H
#define GS_RM_H

#include <assert.h>
#include <linux/ioctl.h>
#include <stdbool.h>
#include <stdint.h>

enum { RM_TYPE = 'F', RM_FREE = 0x29, RM_CONTROL = 0x2A, RM_ALLOC = 0x2B };
#define RM_REQUEST(call, size) _IOC(_IOC_READ | _IOC_WRITE, RM_TYPE, call, size)

/* Statuses. */
enum {
  RM_OK = 0,
  RM_BUSY = 0x03,           /* a stop that could not be done: after 4 s */
  RM_BAD_CHANNEL = 0x21,    /* it has been freed */
  RM_BAD_CLIENT = 0x23,     /* the subdevice is another client's */
  RM_BAD_PARAMETERS = 0x3A, /* of another size; also from clients of MPS */
  RM_NOT_SUPPORTED = 0x56,
  RM_NOT_FOUND = 0x57, /* it has been freed */
};

/* Classes. */
enum { RM_DEVICE = 0x0080, RM_SUBDEVICE = 0x2080, RM_GROUP = 0xA06C };

/* Every generation of GPUs has a class of channels of its own: 0xA06F, 0xB06F, ... 0xC86F (Hopper). */
static inline bool rm_is_channel(uint32_t class) { return (class & 0xff) == 0x6f && class >= 0xA06F; }

/* RM_ALLOC, in two sizes. */
struct rm_alloc {
  uint32_t client, parent, handle, class;
  uint64_t parameters; /* a pointer, as all 64-bit fields here that have no unit */
  uint64_t rights;
  uint32_t parameters_size, flags, status, unused;
};
struct rm_alloc_short {
  uint32_t client, parent, handle, class;
  uint64_t parameters;
  uint32_t parameters_size, status;
};

struct rm_free {
  uint32_t client, parent, handle, status;
};

struct rm_control {
  uint32_t client, object, command, flags;
  uint64_t parameters;
  uint32_t parameters_size, status;
};

/* What allocs of a device and of a group begin with. */
struct rm_device_parameters {
  uint32_t instance; /* of the GPU, on this host */
};
struct rm_group_parameters {
  uint32_t error, ecc_error, address_space;
  uint32_t engine;
};
enum { RM_ENGINE_COMPUTE = 1 }; /* copy engines have numbers from 9 on */

/* Of a subdevice: stop channels, or let them on. Running work stands still, what is queued stays. Not for
 * channels that are stopped already: then what is just being submitted may be lost. */
#define RM_STOP_CHANNELS UINT32_C(0x2080110B)
enum { RM_CHANNELS_MAX = 64 };
struct rm_stop_channels {
  uint8_t stop;
  uint32_t count;
  uint8_t only_scheduling, rewind;
  uint64_t event;
  uint32_t clients[RM_CHANNELS_MAX], channels[RM_CHANNELS_MAX];
};

/* Of a subdevice: which GPU it is. */
#define RM_GET_UUID UINT32_C(0x2080014A)
enum { RM_UUID_BINARY = 2, RM_UUID_BYTES = 16 };
struct rm_get_uuid {
  uint32_t index, format, length;
  uint8_t bytes[256];
};

/* Of a group: its channels may be scheduled from now on; and for how long it runs before others do. */
#define RM_SCHEDULE_GROUP UINT32_C(0xA06C0101)
#define RM_SET_SLICE UINT32_C(0xA06C0103)
struct rm_set_slice {
  uint64_t slice_us;
};

/* Of a channel: it may be scheduled. */
#define RM_SCHEDULE_CHANNEL UINT32_C(0xA06F0103)

static_assert(sizeof(struct rm_alloc) == 48 && sizeof(struct rm_alloc_short) == 32, "as the driver has it");
static_assert(sizeof(struct rm_free) == 16 && sizeof(struct rm_control) == 32, "likewise");
static_assert(sizeof(struct rm_stop_channels) == 536 && sizeof(struct rm_get_uuid) == 268, "likewise");

#endif
