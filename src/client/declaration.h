/* declaration.h - what this program asks for: by its environment, and by the functions of gpushare.h. */
#ifndef GS_CLIENT_DECLARATION_H
#define GS_CLIENT_DECLARATION_H

#include <stdint.h>

/* The daemon has registered us: tell it, unless there is nothing to tell. client.lock held. */
void declaration_send(void);

/* enum gs_class, as asked for so far. */
uint32_t declaration_class(void);

#endif
