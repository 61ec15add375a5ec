/* variables.h - the variables that gpushare's programs read, and what they take: for those who set them, and
 * who reads them. No allocation. */
#ifndef GS_VARIABLES_H
#define GS_VARIABLES_H

#include <stdbool.h>

/* NULL: text is a right value of the variable. Otherwise what the variable takes, for people. */
const char *variable_complaint(const char *name, const char *text);

/* Of "NAME=VALUE": the name is GPUSHARE_ and something that no program here reads. */
bool variable_is_unknown(const char *assignment);

/* The variable whose name is like that of the assignment; NULL: there is none. */
const char *variable_like(const char *assignment);

#endif
