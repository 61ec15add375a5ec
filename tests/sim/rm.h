/*
 * rm.h - the resource manager's end of the simulated driver: what the kernel module is to the real one. It is
 * reached as that is, by ioctl on a descriptor (which here is a mere number), and knows clients, devices,
 * subdevices, channel groups and channels of this process.
 *
 * Work that runs in a channel asks here, again and again, whether it may go on. A stop returns when all that
 * the channels are doing stands still.
 */
#ifndef SIM_RM_H
#define SIM_RM_H

#include <stdbool.h>
#include <stdint.h>

enum { RM_FD = 0x51D }; /* no such file is open */

int rm_ioctl(int fd, unsigned long request, ...);

/* A channel for those who run in it; it may have been freed: then nothing holds them up. */
struct rm_channel {
  uint32_t index;
  uint64_t number; /* 0: none */
};
struct rm_channel rm_find(uint32_t client, uint32_t handle);

/* Wait until the channel may run, and be one that runs in it; and no more. Not nested. */
void rm_enter(struct rm_channel channel);
void rm_leave(struct rm_channel channel);

/* For one that runs in it: sleep until the clock shows due_ns, or until the channel is to stop. True: it is.
 */
bool rm_sleep(struct rm_channel channel, uint64_t due_ns);

/* For how long it keeps an engine while others wait; 0: as the card says. */
uint64_t rm_slice_ns(struct rm_channel channel);

#endif
