/* test_beside.c - placeholder */
#include "runner.h"
TEST(nothing) {}
