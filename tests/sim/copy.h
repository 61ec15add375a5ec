/* copy.h - copies as work: from the API's many descriptions to the one of work.h. */
#ifndef SIM_COPY_H
#define SIM_COPY_H

#include "objects.h"

struct work copy_line(uintptr_t to, uintptr_t from, size_t bytes);
CUresult copy_submit(CUstream handle, struct work *work, bool wait);
/* A 3D description, as of a call or of a graph node. */
CUresult copy_from_3d(struct work *work, const CUDA_MEMCPY3D *copy);

#endif
