/* ipc.c - asks twice for an IPC handle of its memory, and prints both results. */
#include <stdio.h>

#include "driver_table.h"

int main(void) {
  static struct driver_table table;
  CUipcMemHandle handle;
  uint64_t address;
#define X(field, function) table.field = function;
  DRIVER_FUNCTIONS(X)
#undef X
  if (table_start(&table) || table_alloc(&address, 1 << 20))
    return 1;
  CUresult first = cuIpcGetMemHandle(&handle, address);
  CUresult second = cuIpcGetMemHandle(&handle, address);
  printf("%d %d\n", (int)first, (int)second);
  return 0;
}
