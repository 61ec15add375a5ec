/* looked_up.h - how many look-ups give a function that is not ours, of so many. */
#ifndef GS_TEST_LOOKED_UP_H
#define GS_TEST_LOOKED_UP_H

unsigned looked_up_wrongly(unsigned *all);

#endif
