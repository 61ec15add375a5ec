/* config.h - the daemon's settings: defaults, configuration file, command line. */
#ifndef GS_CONFIG_H
#define GS_CONFIG_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/log.h"
#include "core/scheduler.h"
#include "gpushare/protocol.h"
#include "server/hook.h"
#include "server/overrides.h"
#include "server/terms.h"

/*
 * ---- addresses ----
 *
 * Where the daemon shows its metrics, and its page, as the configuration says it.
 */

#define ADDRESS_TEXT_SIZE 128
#define ADDRESS_OFF "off"

struct address {
  union {
    struct sockaddr any;
    struct sockaddr_in ip4;
    struct sockaddr_in6 ip6;
    struct sockaddr_un file;
  };
  socklen_t size;
};

/* "127.0.0.1:9465", "[::1]:9465" (port 0: any free one), "unix:/absolute/path". 0 or -EINVAL. No names: who
 * looks them up may wait for a network. */
int address_parse(const char *text, struct address *address);

/* The same the other way. */
void address_format(const struct address *address, char text[ADDRESS_TEXT_SIZE]);

/* ---- config ---- */

#define CONFIG_KEYS_MAX 32
#define STATE_AUTO "auto"
#define STATE_OFF "off"
#define STATE_DEFAULT_PATH "/var/lib/gpushare"

struct config {
  char socket[108];              /* as long as a UNIX socket's address can be */
  struct sched_settings general; /* of every GPU, but for the overrides */
  struct overrides overrides;
  uint64_t grace_ns;
  uint64_t host_memory_bytes;
  enum gs_host_copies host_copies;
  bool count_touched;
  uint64_t max_clients_per_user;
  uint64_t evict_after; /* graces; 0: never */
  enum gs_require require_device;
  struct terms_bounds bounds;
  struct user_limits users;
  bool learn;      /* from earlier runs */
  char state[256]; /* STATE_AUTO, STATE_OFF or a folder */
  char metrics[ADDRESS_TEXT_SIZE];
  char web[ADDRESS_TEXT_SIZE];
  char on_job_end[sizeof((struct hook *)0)->command]; /* for the shell; empty: none */
  char group[64];
  enum log_level log;
  char texts[CONFIG_KEYS_MAX][256]; /* what each key was set to, as long as any may be; empty: its default */
  uint64_t sections;                /* a sum over the settings of single GPUs and the like: for comparison */
};

/* NULL, or what is wrong with the text. */
typedef const char *config_set_f(void *field, const char *text);

struct config_key {
  const char *name;     /* in the file; on the command line with '-' for '_' */
  const char *argument; /* for people */
  const char *help;
  config_set_f *set;
  size_t at;      /* in struct config */
  unsigned field; /* OVERRIDE_*: also in [gpu UUID]; 0: not there */
  bool single;    /* there only */
};

extern const struct config_key config_keys[];
extern const size_t config_key_count;

/* The defaults. Looks at the machine's memory the first time. */
struct config config_default(void);

/* Set it for every GPU without a section of its own. NULL, or what is wrong. */
const char *config_set(struct config *config, const struct config_key *key, const char *text);

/* Tells of each key that differs, for people: "tq = 4 instead of 3"; and, under an empty name, that other
 * sections do. A long value is cut, and ends with "...". */
void config_each_change(const struct config *before, const struct config *after,
                        void (*tell)(void *argument, const char *key, const char *change), void *argument);

/* What differs, for people: "tq = 4 instead of 3; mode = on instead of its default". Returns false, and "",
 * if nothing does. */
bool config_changes(const struct config *before, const struct config *after, char *text, size_t size);

/* Read a file into config. 0, or -errno, or -EINVAL with a line "FILE:LINE: reason" in error. */
int config_read(struct config *config, const char *path, char *error, size_t error_size);

/*
 * ---- the file, and drop-ins ----
 *
 * The configuration file and the drop-ins beside it.
 */

/* Read the file at path, then each NAME.conf of the folder "PATH.d", in the order of the names: what comes
 * later counts more. Either may be absent, but for the file if it is needed. 0; or -errno with a line in
 * error that names the file, and config as it was. */
int config_files_read(struct config *config, const char *path, bool needed, char *error, size_t error_size);

#endif
