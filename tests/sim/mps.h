/* mps.h - a process that finds MPS by its environment becomes its client. */
#ifndef SIM_MPS_H
#define SIM_MPS_H

#include "cuda_all.h"
#include "state.h"

/* cuInit's part; noted in the slot. Without MPS: CUDA_SUCCESS. */
CUresult mps_join(struct slot *slot);

#endif
