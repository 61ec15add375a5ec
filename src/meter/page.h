/*
 * page.h - the meter page of each GPU (gpushare/meter.h), where the daemon gives one.
 *
 * It is at the same address all the time, so that threads may use it while it comes and goes: what comes
 * takes the place of what was there in one step. Where the daemon gives none, a page of our own is there,
 * which says that nothing is limited and nobody looks.
 *
 * Threading: page_map and page_unmap from any thread; page_attach, page_detach and page_fork_child from one
 * thread at a time; the rest from any thread.
 */
#ifndef GS_PAGE_H
#define GS_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "gpushare/meter.h"
#include "interpose/cuda_abi.h"

/* The page of this device; NULL until one has come. */
struct gs_meter *page_of(CUdevice device);

/* Whether this may be a page of the daemon's. */
bool page_is_fit(int fd);

/* Map the daemon's page, whose descriptor stays the caller's. 0, or -errno: it is not fit for it. */
int page_map(int fd, struct gs_meter **page);
void page_unmap(struct gs_meter *page); /* NULL: nothing */

/* Use a page that was mapped, and now is ours. 0 or -errno. */
int page_attach(CUdevice device, struct gs_meter *page);

/* The daemon is gone. */
void page_detach(CUdevice device);

/* The state of the page; wait until it is another one, for timeout_ns at most (UINT64_MAX: for ever). Each
 * change that the daemon makes is another state, as is another page. */
uint32_t page_state(struct gs_meter *page);
void page_wait(struct gs_meter *page, uint32_t state, uint64_t timeout_ns);

/* It is another state; all who wait look again. */
void page_touch(struct gs_meter *page);

/* The parent's pages are none of the child's business. */
void page_fork_child(void);

#endif
