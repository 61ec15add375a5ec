/* event.h - an event of the daemon, in words and as JSON. */
#ifndef GS_CTL_EVENT_H
#define GS_CTL_EVENT_H

#include "ctl/ctl.h"
#include "ctl/output.h"

/* When the event was, on the clock on the wall, since 1970. begin: EVENTS_BEGIN. */
uint64_t event_realtime_ns(const struct gs_msg *begin, uint64_t at_ns);

/* "2026-01-31 12:00:00.123", local time; or "2026-01-31T12:00:00.123456Z". */
#define EVENT_TIME_SIZE 40
void event_local_time(uint64_t realtime_ns, char text[EVENT_TIME_SIZE]);
void event_utc_time(uint64_t realtime_ns, char text[EVENT_TIME_SIZE]);

/* "granted", ...; and of an ENDED: "exit", "abrupt", "closed". */
const char *event_kind_name(unsigned kind);
const char *event_end_name(unsigned end);

/* Its name, and what it is set to. */
void event_put_change(json_t *object, unsigned kind, unsigned detail, uint64_t value);

/* A line, without its end. */
void event_tell(FILE *out, const struct gs_msg *begin, const struct gs_msg *event);

/* The keys are promised in docs/schema. NULL: no memory. */
json_t *event_json(const struct gs_msg *begin, const struct gs_msg *event);

#endif
