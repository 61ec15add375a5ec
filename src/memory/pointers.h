/*
 * pointers.h - what there is to know about a pointer to swap memory, said by us: the driver knows only the
 * pieces, and nothing at all while they are away from the card. Any thread.
 */
#ifndef GS_POINTERS_H
#define GS_POINTERS_H

#include "memory/ledger.h"

/* As cuPointerGetAttribute(s) answers for plain device memory that can't be shared with other processes or
 * devices. The two differ in what they say where there is nothing to say. */
CUresult pointers_attribute(const struct allocation *allocation, CUdeviceptr address,
                            CUpointer_attribute attribute, void *data);
CUresult pointers_attributes(const struct allocation *allocation, CUdeviceptr address, unsigned int count,
                             const CUpointer_attribute *attributes, void *const *data);

#endif
