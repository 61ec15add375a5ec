/* words.h - what settings of GPUs, terms of jobs and kinds of memory are called, and their values, for
 * people: the same in logs and in what gpusharectl says. No allocation. */
#ifndef GS_WORDS_H
#define GS_WORDS_H

#include <stdint.h>

#include "common/clock.h"
#include "gpushare/protocol.h"

#define WORDS_SIZE 24
#define WORDS_DAY_NS (24 * 3600 * NS_PER_S)

/* "1.5 GiB"; "1.5 s" */
const char *words_bytes(uint64_t bytes, char buffer[WORDS_SIZE]);
const char *words_duration(uint64_t ns, char buffer[WORDS_SIZE]);

/* As programs read it: "soft_limit", by enum gs_term; "tq", by the type of the message that sets it. */
const char *words_term(unsigned term);
const char *words_setting(unsigned type);

/* What it is set to, if that is a word: "production", "auto". NULL: it is a number. */
const char *words_of_term(unsigned term, uint64_t value);
const char *words_of_setting(unsigned type, uint64_t value);

/* As people read it: "soft limit", "quantum"; and what it is set to: "1.5 GiB", "none". */
const char *words_term_title(unsigned term);
const char *words_setting_title(unsigned type);
const char *words_term_value(unsigned term, uint64_t value, char buffer[WORDS_SIZE]);
const char *words_setting_value(unsigned type, uint64_t value, char buffer[WORDS_SIZE]);

/* How a program has ended, by enum gs_end: "exit". */
const char *words_end(unsigned end);
/* A kind of pinned memory, as programs read it; for people; and what lets it leave. */
const char *words_pinned_name(enum gs_pinned kind);
struct words_pinned {
  const char *title, *help;
};
struct words_pinned words_pinned(enum gs_pinned kind);

/* Why memory is refused, by enum gs_refusal; empty: it is not known. */
const char *words_refusal(unsigned why);

#endif
