/* page.h - the page's text: page.html, where each NONCE_MARK stands for the nonce of an answer. */
#ifndef GS_WEB_PAGE_H
#define GS_WEB_PAGE_H

#define NONCE_MARK "@NONCE@"

extern const char page_begin[], page_end[];

#endif
