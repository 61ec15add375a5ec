/* declaration.h - what this program asks for: by its environment, and by the functions of gpushare.h. */
#ifndef GS_CLIENT_DECLARATION_H
#define GS_CLIENT_DECLARATION_H

/* The daemon has registered us: tell it, unless there is nothing to tell. client.lock held. */
void declaration_send(void);

#endif
