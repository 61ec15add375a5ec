/* variables.h - what the variables take that tell a program's terms: for those who set them, and who reads
 * them. */
#ifndef GS_VARIABLES_H
#define GS_VARIABLES_H

/* NULL: text is a right value of the variable. Otherwise what the variable takes, for people. */
const char *variable_complaint(const char *name, const char *text);

#endif
