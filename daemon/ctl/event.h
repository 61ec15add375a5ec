/* event.h - an event of the daemon, in words and as JSON. */
#ifndef GS_CTL_EVENT_H
#define GS_CTL_EVENT_H

#include "ctl/ctl.h"
#include "ctl/output.h"

/* When the event was, on the clock on the wall, since 1970. begin: EVENTS_BEGIN. */
uint64_t event_realtime_ns(const struct gs_msg *begin, uint64_t at_ns);

/* "2026-01-31T12:00:00.123456Z" */
#define EVENT_TIME_SIZE 40
void event_utc_time(uint64_t realtime_ns, char text[EVENT_TIME_SIZE]);

/* "granted", ... */
const char *event_kind_name(unsigned kind);

/* As gpusharectl events --json shows it. */
json_t *event_json(const struct gs_msg *begin, const struct gs_msg *event);

/* Its name, and what it is set to. */
void event_put_change(json_t *object, unsigned kind, unsigned detail, uint64_t value);

/* A line, without its end. */
void event_tell(FILE *out, const struct gs_msg *begin, const struct gs_msg *event);

/* Ask the daemon that the request is for, for what is not older than the request says (`since`), and, if it
 * follows, for what comes: that begins now unless it says since when. A line on stderr unless CTL_OK. */
int event_read(const struct request *request, enum gs_record record,
               int (*take)(void *reader, const struct gs_msg *msg), void *reader);

#endif
