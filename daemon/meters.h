/* meters.h - the meter page of a client on a GPU (gpushare/meter.h): made here, shared with the client. What
 * the client writes there is not believed; the page can't become shorter under our hands. */
#ifndef GS_METERS_H
#define GS_METERS_H

#include "gpushare/meter.h"

struct meter {
  struct gs_meter *page; /* NULL: there is none, for want of memory or descriptors */
  int fd;                /* of the page, until the client has it; -1 */
};

void meter_make(struct meter *meter);

/* The client has got the descriptor, or never will. */
void meter_passed(struct meter *meter);

void meter_end(struct meter *meter);

#endif
