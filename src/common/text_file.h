/* text_file.h - small files that the kernel or an administrator writes, as text. No allocation; keeps errno.
 * Any thread, also in someone else's process. */
#ifndef GS_TEXT_FILE_H
#define GS_TEXT_FILE_H

#include <stddef.h>
#include <sys/types.h>

/* The start of the file at this path below the folder (AT_FDCWD: as open has it), and a '\0'. Returns how
 * many bytes it has, `size` where there is more than `text` holds, or -errno: the text is empty then. */
ssize_t text_file_read(int folder, const char *path, char *text, size_t size);

/* The same of a file that is open, from its beginning. pread does no harm to a file that has taken the number
 * of this one: it moves no offset, and takes nothing from a pipe or a socket. */
ssize_t text_file_read_open(int fd, char *text, size_t size);

#endif
