/* libcuda.c - a library that calls ioctl as libcuda does: by its slot. */
#include <sys/ioctl.h>

int libcuda_call(int fd, unsigned long request, void *argument);

int libcuda_call(int fd, unsigned long request, void *argument) { return ioctl(fd, request, argument); }
