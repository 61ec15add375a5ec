/* page.c - page.html, as it is. */
#include "web/page.h"

__asm__(".section .rodata\n"
        ".global page_begin, page_end\n"
        "page_begin:\n"
        ".incbin \"page.html\"\n"
        "page_end:\n"
        ".previous\n");
