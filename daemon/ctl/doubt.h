/* doubt.h - why a program that gpusharectl starts would not get the library: known before it starts. */
#ifndef GS_CTL_DOUBT_H
#define GS_CTL_DOUBT_H

#include <stdbool.h>

#define DOUBT_SIZE 600

/* The command (words, NULL at the end), which may begin with NAME=VALUE. False: nothing is known against it.
 */
bool doubt_about(char *const *words, char why[DOUBT_SIZE]);

#endif
