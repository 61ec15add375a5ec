/* config_files.h - the configuration file and the drop-ins beside it. */
#ifndef GS_CONFIG_FILES_H
#define GS_CONFIG_FILES_H

#include "server/config.h"

/* Read the file at path, then each NAME.conf of the folder "PATH.d", in the order of the names: what comes
 * later counts more. Either may be absent, but for the file if it is needed. 0; or -errno with a line in
 * error that names the file, and config as it was. */
int config_files_read(struct config *config, const char *path, bool needed, char *error, size_t error_size);

#endif
