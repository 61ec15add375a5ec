/* mode_looked_up.c - every way to look a function up; see looked_up.c. */
#include <stdio.h>

#include "looked_up.h"

int main(void) {
  unsigned all, wrong = looked_up_wrongly(&all);
  printf("%u of %u look-ups are wrong\n", wrong, all);
  puts(wrong == 0 && all > 1000 ? "ok" : "failed");
  return wrong != 0;
}
