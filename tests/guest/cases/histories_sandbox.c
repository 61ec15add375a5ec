/* histories_sandbox.c - the same in a sandbox without close_range. */
#define SANDBOX
#include "histories.c"
