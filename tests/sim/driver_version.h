/* driver_version.h - the version that the simulated driver claims, before cuInit too. */
#ifndef SIM_DRIVER_VERSION_H
#define SIM_DRIVER_VERSION_H

#include <stdint.h>

/* The card's driver_version, but no newer than the headers that the simulator was built with. */
uint64_t driver_version(void);

#endif
