/* padding.c - moves all functions that follow: a driver of another version is laid out otherwise. */
__asm__(".text\n.skip 4096, 0x90\n");
