/*
 * protocol.h - the wire format between libunified, gpushare-daemon and gpusharectl.
 *
 * Transport: a UNIX SOCK_SEQPACKET socket. One packet is one struct gs_msg of exactly
 * GS_MSG_SIZE bytes in host byte order (both ends are on one machine). A packet of another
 * size, magic or an unknown type costs the sender its connection.
 *
 * Threading: plain data, no state. All durations are nanoseconds (_ns), all sizes bytes
 * (_bytes). Text fields are NUL-terminated, at most their size less one long.
 *
 * The core messages (REGISTER, REQ_LOCK, LOCK_OK, DROP_LOCK, LOCK_RELEASED, SCHED_ON, SCHED_OFF,
 * change of the quantum) are those of the protocol in Alexopoulos' thesis, table 11.9 (nvshare).
 * New here: every grant carries an epoch, so that a late message can never be taken for a newer
 * one; permission to submit is given by LOCK_OK and taken by DROP_LOCK alone, while SCHED_ON/OFF
 * only tell whether turns are being taken.
 *
 * A client's life, per GPU:
 *
 *     client                          daemon
 *     REGISTER            ──►
 *                         ◄──  REGISTERED (job id) | REJECTED (why)
 *     COMMAND             ──►                    (its command line, for people)
 *     DECLARE             ──►                    (if the program asks for anything; again when that changes)
 *     ATTACH (uuid)       ──►
 *                         ◄──  ATTACHED (capacity), SCHED_ON | SCHED_OFF, ROOM
 *                         ◄──  LOCK_OK at once, unasked, while turns are off
 *     REQ_LOCK            ──►                    (a thread waits at the gate)
 *                         ◄──  LOCK_OK (epoch, quantum, room)
 *     RESIDENT            ──►                    (it restores)
 *                         ◄──  ROOM              as others leave
 *     LOCK_ACTIVE (epoch) ──►                    (all that it needs is there: it runs)
 *                         ◄──  LOCK_WANTED (epoch)      somebody waits: release when idle
 *                         ◄──  DROP_LOCK (epoch, room)  the quantum is over
 *     LOCK_RELEASED (epoch)  ──►                 (also unasked: idle, or the GPU is detached)
 *     RESIDENT            ──►                    (it evicts, down to its room)
 *     EXITING (status)    ──►                    (the program has called exit, or returned from main)
 *                         ◄──  EVICTED               the connection ends: stop, and come again later
 *
 * The members of a gang get DROP_LOCK at the same time. Each answers for itself.
 *
 * Before all that, at a program's cuInit, on a connection of its own that stays open, unread, as long as the
 * process lives and uses MPS (setting spatial = mps; if there is a socket of MPS below the daemon's):
 *
 *     ASK_SPATIAL         ──►
 *                         ◄──  SPATIAL (verdict)
 */
#ifndef GPUSHARE_PROTOCOL_H
#define GPUSHARE_PROTOCOL_H

#include <assert.h>
#include <stdint.h>

#define GS_MAGIC 0x52485347u /* "GSHR" */
#define GS_PROTOCOL_VERSION 4u
#define GS_MSG_SIZE 128
#define GS_DEFAULT_SOCKET "/run/gpushare/daemon.sock"
#define GS_UUID_SIZE 16
#define GS_NAME_SIZE 32
#define GS_GANG_SIZE 48
#define GS_ORIGIN_SIZE 64
#define GS_CONTAINER_SIZE 16
#define GS_POD_SIZE 40
#define GS_POD_TEXT_SIZE 64
#define GS_COMMAND_SIZE 72
#define GS_GPUS_PER_CLIENT 64 /* gpu indices a client may use: 0 .. 63 */
#define GS_GPU_ALL 0xffffffffu
/* What tells of a GPU to gpusharectl has its number: nvidia-smi's index of the card, and, of a MIG instance,
 * its place in the card, from 1 (0: the whole card). */
#define GS_GPU_CARD(number) ((number)&0xffffu)
#define GS_GPU_PART(number) ((number) >> 16)
#define GS_GPU_NUMBER(card, part) ((part) << 16 | (card))
#define GS_GPU_CARD_MAX 0xffff
#define GS_GPU_PART_MAX 0x7fff

/* X(name, value). Values are never reused for another meaning: 13 and 43 have had one. */
#define GS_MSG_TYPES(X)                                                                                      \
  /* client to daemon */                                                                                     \
  X(REGISTER, 1)                                                                                             \
  X(ATTACH, 2)                                                                                               \
  X(DETACH, 3)                                                                                               \
  X(REQ_LOCK, 4)                                                                                             \
  X(LOCK_RELEASED, 5)                                                                                        \
  X(LOCK_ACTIVE, 6)                                                                                          \
  X(MEM_REQUEST, 7)                                                                                          \
  X(MEM_REPORT, 8)                                                                                           \
  X(CLIENT_STATE, 9)                                                                                         \
  X(RESIDENT, 10)                                                                                            \
  X(MEM_SHORT, 11)                                                                                           \
  X(DECLARE, 12)                                                                                             \
  X(COMMAND, 14)                                                                                             \
  X(EXITING, 15)                                                                                             \
  X(ASK_SPATIAL, 16)                                                                                         \
  X(PROGRESS, 17)                                                                                            \
  /* daemon to client */                                                                                     \
  X(REGISTERED, 32)                                                                                          \
  X(REJECTED, 33)                                                                                            \
  X(ATTACHED, 34)                                                                                            \
  X(SCHED_ON, 35)                                                                                            \
  X(SCHED_OFF, 36)                                                                                           \
  X(LOCK_OK, 37)                                                                                             \
  X(LOCK_WANTED, 38)                                                                                         \
  X(DROP_LOCK, 39)                                                                                           \
  X(MEM_REPLY, 40)                                                                                           \
  X(CAPACITY, 41)                                                                                            \
  X(ROOM, 42)                                                                                                \
  X(SPATIAL, 44)                                                                                             \
  X(EVICTED, 45)                                                                                             \
  X(SHARE, 46)                                                                                               \
  /* gpusharectl to daemon */                                                                                \
  X(SET_TQ, 64)                                                                                              \
  X(SET_MODE, 65)                                                                                            \
  X(SET_CAPACITY, 66)                                                                                        \
  X(GET_STATUS, 67)                                                                                          \
  X(SET_POLICY, 68)                                                                                          \
  X(SET_TERMS, 69)                                                                                           \
  X(GET_EVENTS, 70)                                                                                          \
  X(EVICT, 71)                                                                                               \
  X(GET_PROCESS, 72)                                                                                         \
  X(ALLOT, 73)                                                                                               \
  X(RELOAD, 74)                                                                                              \
  X(POD_NAMESPACE, 75)                                                                                       \
  X(POD_NAME, 76)                                                                                            \
  /* daemon to gpusharectl */                                                                                \
  X(REPLY, 96)                                                                                               \
  X(STATUS_DAEMON, 97)                                                                                       \
  X(STATUS_GPU, 98)                                                                                          \
  X(STATUS_JOB, 99)                                                                                          \
  X(STATUS_END, 100)                                                                                         \
  X(STATUS_HANDOVER, 101)                                                                                    \
  X(STATUS_TERMS, 102)                                                                                       \
  X(STATUS_WAIT, 103)                                                                                        \
  X(EVENTS_BEGIN, 104)                                                                                       \
  X(EVENT, 105)                                                                                              \
  X(EVENTS_MISSED, 106)                                                                                      \
  X(EVENTS_END, 107)                                                                                         \
  X(STATUS_ORIGIN, 112)                                                                                      \
  X(STATUS_COMMAND, 113)                                                                                     \
  X(NOTE, 114)                                                                                               \
  X(STATUS_MEMORY, 115)                                                                                      \
  X(STATUS_CARD, 116)

enum gs_msg_type {
#define X(name, value) GS_##name = value,
  GS_MSG_TYPES(X)
#undef X
};

/* LOCK_WANTED: somebody waits; and nobody does any more. */
#define GS_LEFT_UNKNOWN 0
#define GS_LEFT_NOBODY UINT64_MAX

/* Whether the jobs of a GPU take turns. */
enum gs_mode {
  GS_MODE_AUTO = 0, /* only while their memory does not fit together */
  GS_MODE_ON = 1,   /* always */
  GS_MODE_OFF = 2,  /* never, but for memory without page faults that does not fit together with the rest */
};

/* Whose turn is next (daemon/core/policy.c). */
enum gs_policy {
  GS_POLICY_RR = 0,       /* round robin */
  GS_POLICY_FAIR = 1,     /* equal GPU time, by weight */
  GS_POLICY_FIFO = 2,     /* in order of arrival, to completion */
  GS_POLICY_SRTF = 3,     /* shortest remaining time first */
  GS_POLICY_PRIORITY = 4, /* by level */
  GS_POLICY_PACK = 5,     /* as many as fit, to completion */
};

/* What a job asks for and is given: gpusharectl's word counts more than the program's. */
enum gs_term {
  GS_TERM_WEIGHT = 0,     /* 1 to GS_WEIGHT_MAX: share of GPU time (policy fair) */
  GS_TERM_PRIORITY = 1,   /* -GS_PRIORITY_MAX to GS_PRIORITY_MAX, the most urgent (policy priority) */
  GS_TERM_EXPECTED = 2,   /* ns of GPU time from its first turn to its last; 0: unknown (policy srtf) */
  GS_TERM_LIMIT = 3,      /* bytes on each GPU, beyond which it may not grow; 0: none */
  GS_TERM_SOFT_LIMIT = 4, /* likewise, but it may: what is beyond leaves before others' memory; 0: none */
  GS_TERM_CLASS = 5,      /* enum gs_class */
  GS_TERM_RATE = 6,       /* 1 to 100: percent of a GPU, of an opportunistic job; 0: found by itself */
  GS_TERM_PAUSED = 7,     /* not 0: it gets no GPU */
  GS_TERM_EXPECTED_MEMORY = 8, /* bytes that it will have at once, at most; 0: unknown */
};
#define GS_TERM_COUNT 9
#define GS_TQ_MIN_NS UINT64_C(1000000)
#define GS_TQ_MAX_NS (UINT64_C(24) * 3600 * 1000000000) /* longer ones: GS_POLICY_FIFO, or GS_MODE_OFF */
#define GS_WEIGHT_DEFAULT 100
#define GS_WEIGHT_MAX 10000
#define GS_PRIORITY_MAX 20

enum gs_class {
  GS_CLASS_STANDARD = 0,
  GS_CLASS_PRODUCTION = 1,    /* keeps its speed whatever opportunistic jobs do */
  GS_CLASS_OPPORTUNISTIC = 2, /* has what production jobs leave over */
};
#define GS_CLASS_UNSAID 3u /* ALLOT: as the program says */

/* What a job shall tell by PROGRESS. */
enum gs_watch {
  GS_WATCH_NOT = 0,
  GS_WATCH_PROGRESS = 1, /* when it becomes active or idle, and every 20 ms while it is active */
  GS_WATCH_WORK = 2,     /* when it becomes active or idle */
};

/* Why an opportunistic job may use so much of a GPU (gpusharectl why). */
enum gs_limited {
  GS_LIMITED_NOT = 0,   /* nothing limits it: it is of another class, or no production job is there */
  GS_LIMITED_IDLE = 1,  /* production is idle: all of it */
  GS_LIMITED_LOOK = 2,  /* nothing, while it is seen what production does undisturbed */
  GS_LIMITED_GROWS = 5, /* more and more, until production loses */
  GS_LIMITED_FOUND = 6, /* what production does not lose by */
  GS_LIMITED_SET = 7,   /* what has been set for it (GS_TERM_RATE) */
  GS_LIMITED_CROWD = 8, /* nothing: there are more production jobs than can be watched */
  GS_LIMITED_BACK = 9,  /* nothing: production has just begun to work */
};
#define GS_LIMITED_WHOLE UINT64_C(1000000000) /* the whole GPU: ns per s */

/* What a job does, or waits for (gpusharectl why). */
enum gs_reason {
  GS_REASON_IDLE = 0,    /* has not asked for the GPU */
  GS_REASON_RUNS = 1,    /* may submit */
  GS_REASON_STOPS = 2,   /* its turn is over: its work is to stand still (or finish) */
  GS_REASON_SILENT = 3,  /* its turn is over, and it does not answer */
  GS_REASON_RESTORE = 4, /* has its turn: its memory comes to the card */
  GS_REASON_ROOM = 5,    /* has its turn: others' memory leaves the card first */
  GS_REASON_STOP = 6,    /* is next: others' work is to stand still (or finish) first */
  GS_REASON_TURN = 7,    /* waits for its turn */
  GS_REASON_TOO_BIG = 8, /* uses more memory than the GPU has for it */
  GS_REASON_STAYING = 9, /* others' memory does not leave the card, for want of host memory */
  GS_REASON_PAUSED = 10, /* it is paused, or a member of its gang is */
  GS_REASON_MEMORY = 11, /* card and host have not yet the memory left that it needs to begin */
};

/* The rule of the daemon's plan that gives a job a seat among those that run, or denies it one (gpusharectl
 * plan). X(name, value, word for people and programs). Values are never reused. */
#define GS_RULES(X)                                                                                          \
  X(IDLE, 0, "idle")           /* the job has not asked */                                                   \
  X(SEATED, 1, "seated")       /* it has a seat: its memory fits beside the others', or it is alone */       \
  X(MAKES_WAY, 2, "makes_way") /* it has a seat until the quantum is over */                                 \
  X(STOPS, 3, "stops")         /* it has lost its seat, and is to stop */                                    \
  X(NEXT, 4, "next")           /* it has a seat as soon as those that must stop have */                      \
  X(LATER, 5, "later")         /* it will have a seat when the quantum is over */                            \
  X(ONE_AT_A_TIME, 6, "one_at_a_time") /* mode on: the seat is another job's */                              \
  X(DOES_NOT_FIT, 7, "does_not_fit")   /* its memory does not fit beside that of those that have seats */    \
  X(TOO_BIG, 8, "too_big")             /* its memory is more than the GPU has for it */                      \
  X(STAYING, 9, "staying")             /* others' memory does not leave the card */                          \
  X(SILENT_USER, 10, "silent_user")    /* another job of its user has kept the GPU without an answer */      \
  X(GANG, 11, "gang")                  /* its gang can't have seats on all of its GPUs yet */                \
  X(GANG_HELD_UP, 12, "gang_held_up")  /* a member of its gang is paused, or can't run */                    \
  X(FAR_BEHIND, 13, "far_behind") /* so many jobs that could run are before it that it was not looked at */  \
  X(PAUSED, 14, "paused")         /* by a person */                                                          \
  X(ENTERS, 15, "enters")         /* card and host have not yet the memory left that it needs to begin */
enum gs_rule {
#define X(name, value, word) GS_RULE_##name = (value),
  GS_RULES(X)
#undef X
};

/* What has happened (gpusharectl events). X(name, value, word for people and programs). Values are never
 * reused. Of a program: */
#define GS_EVENT_KINDS(X)                                                                                    \
  X(STARTED, 1, "started") /* it has registered */                                                           \
  X(COMMAND, 2, "command") /* text: its command line; before ENDED in the list of runs */                    \
  X(ENDED, 3, "ended")     /* end; detail: enum gs_end */                                                    \
  /* of a job on a GPU, with turn; epoch: of the grant */                                                    \
  X(ATTACHED, 4, "attached")                                                                                 \
  X(DETACHED, 5, "detached")                                                                                 \
  X(ASKED, 6, "asked")        /* it waits from now on */                                                     \
  X(GRANTED, 7, "granted")    /* bytes: lacking on the card, ns: quantum, 0: none; detail: a hand-over */    \
  X(RUNS, 8, "runs")          /* bytes: restored since, ns: it took */                                       \
  X(DROP, 9, "drop")          /* it is told to stop. bytes: its room */                                      \
  X(RELEASED, 10, "released") /* ns: drain */                                                                \
  X(EVICTED, 11, "evicted")   /* bytes; ns: it took; until_ns */                                             \
  X(RESTORED, 12, "restored") /* likewise */                                                                 \
  X(MEMORY, 13, "memory")     /* it has grown or shrunk much since the last event of this job */             \
  X(REFUSED, 14, "refused")   /* bytes: the total that it wanted to grow to; detail: enum gs_refusal */      \
  X(SILENT, 15, "silent")     /* no answer to DROP within the grace. detail: others wait for it */           \
  X(STAYS, 16, "stays")       /* it does not leave the card */                                               \
  X(TOO_BIG, 17, "too_big")   /* it needs more than the GPU has for it */                                    \
  X(LIMIT, 18, "limit")       /* detail: enum gs_limited; bytes: ns per s that it may use */                 \
  X(TERM, 19, "term")         /* change; detail: enum gs_term */                                             \
  /* of a GPU */                                                                                             \
  X(HANDOVER, 20, "handover") /* handover, which ends now; job: who runs */                                  \
  X(TURNS, 21, "turns")       /* detail: they begin, or (0) end */                                           \
  X(SETTING, 22, "setting")   /* change; detail: message type, SET_TQ and so on. gpu GS_GPU_ALL: of all */   \
  /* of the daemon */                                                                                        \
  X(RELOADED, 23, "reloaded") /* its configuration */                                                        \
  /* of a job on a GPU */                                                                                    \
  X(EXPELLED, 24, "expelled") /* change: value: bytes that stay on the card. It is sent EVICTED */

enum gs_event_kind {
#define X(name, value, word) GS_EVENT_##name = value,
  GS_EVENT_KINDS(X)
#undef X
      GS_EVENT_USAGE = 25, /* in the record of usage alone: what a job has had of a GPU; detail: enum
                              gs_class. seq 0: up to now, and the span goes on */
};

/* How a program has ended. */
enum gs_end {
  GS_END_EXIT = 0,    /* exit, with a status */
  GS_END_ABRUPT = 1,  /* without a word: killed, or _exit */
  GS_END_CLOSED = 2,  /* the daemon has closed the connection */
  GS_END_EVICTED = 3, /* likewise, and the program may go on as another job */
};

/* What is read with GET_EVENTS. */
enum gs_record {
  GS_RECORD_EVENTS = 0,
  GS_RECORD_RUNS = 1,  /* of programs that have ended: COMMAND and ENDED */
  GS_RECORD_USAGE = 2, /* USAGE: of one's own jobs, and of all for those who may change settings */
};

/* Where a process comes from, by its control groups. Later ones say more than earlier ones. */
enum gs_origin {
  GS_ORIGIN_NONE = 0,      /* nothing that has a name */
  GS_ORIGIN_UNIT = 1,      /* name: of the service or scope of systemd */
  GS_ORIGIN_CONTAINER = 2, /* of a runtime that is not known; name: the id's beginning, as in all but pods */
  GS_ORIGIN_DOCKER = 3,
  GS_ORIGIN_PODMAN = 4,
  GS_ORIGIN_LXC = 5,       /* name: its own */
  GS_ORIGIN_APPTAINER = 6, /* name: the pid of what has made it */
  GS_ORIGIN_SLURM = 7,     /* name: JOB.STEP */
  GS_ORIGIN_POD = 8,       /* of Kubernetes; name: its uid */
};

/* How a job's device memory leaves the card and comes back (GPUSHARE_MEMORY). */
enum gs_memory {
  GS_MEMORY_MANAGED = 0, /* unified memory, moved by prefetch; page faults keep it right */
  GS_MEMORY_SWAP = 1,    /* mapped while on the card, in pinned host memory while away */
  GS_MEMORY_OFF = 2,     /* it does not: allocations stay as they are */
};

/* Whether what is on the card keeps its copy in host memory, so that it leaves without being copied again if
 * it has not changed; and whether what is to leave is looked at for that. */
enum gs_host_copies {
  GS_HOST_COPIES_OFF = 0,
  GS_HOST_COPIES_AUTO = 1, /* while host memory is plentiful */
  GS_HOST_COPIES_ON = 2,   /* until the process itself needs the host memory */
};

/* How programs that run at the same time share a GPU. */
enum gs_spatial {
  GS_SPATIAL_NONE = 0, /* as the driver does it by itself: by time */
  GS_SPATIAL_MPS = 1,  /* NVIDIA's MPS, which the daemon starts */
};

/* MPS is found beside the daemon's socket, whatever that is called for a process: its path, then this; and in
 * there, the folder for CUDA_MPS_PIPE_DIRECTORY. */
#define GS_MPS_FOLDER ".mps"
#define GS_MPS_PIPES "pipe"
#define GS_SPATIAL_UUIDS 6

/* Whether a program uses it, or why not. */
enum gs_spatial_verdict {
  GS_SPATIAL_OFF = 0, /* there is none */
  GS_SPATIAL_ON = 1,
  GS_SPATIAL_DOWN = 2,       /* it does not run */
  GS_SPATIAL_OTHER_GPUS = 3, /* the program sees GPUs without it */
  GS_SPATIAL_OTHER_USER = 4, /* it serves one user at a time, and that is another one */
  GS_SPATIAL_FULL = 5,       /* it serves as many programs as it can */
  GS_SPATIAL_APART = 6,      /* the program is in other namespaces of the kernel than the daemon */
};

/* Whether only processes that have a GPU's device file open may attach to it. */
enum gs_require {
  GS_REQUIRE_AUTO = 0, /* where that can be told */
  GS_REQUIRE_YES = 1,
  GS_REQUIRE_NO = 2,
};

/* What STATUS_DAEMON says of it. */
enum gs_presence {
  GS_PRESENCE_OFF = 0, /* nobody looks: the setting says so, or the host has no such files */
  GS_PRESENCE_ON = 1,
  GS_PRESENCE_BLIND = 2, /* of some process it could not be told: the daemon's log says why */
};

/* What STATUS_DAEMON says of it. */
enum gs_mps_state {
  GS_MPS_OFF = 0, /* no GPU has the setting */
  GS_MPS_RUNS = 1,
  GS_MPS_DOWN = 2, /* it does not run: programs share by time */
};

/* What STATUS_CARD tells. */
enum gs_card_fact {
  GS_CARD_ANSWERS = 1 << 0, /* NVML's questions. Otherwise it is lost: programs can't use it either */
  GS_CARD_TEMPERATURE = 1 << 1,
  GS_CARD_POWER = 1 << 2,
  GS_CARD_UTILIZATION = 1 << 3,
  GS_CARD_ENERGY = 1 << 4,
  GS_CARD_PROCESSES = 1 << 5,
};

/* What GET_STATUS asks for: each includes those before it. */
enum gs_details {
  GS_DETAILS_NONE = 0,
  GS_DETAILS_JOBS = 1,  /* STATUS_MEMORY and STATUS_COMMAND */
  GS_DETAILS_CARDS = 2, /* STATUS_CARD */
};

/* Where a job stands on a GPU, as told in STATUS_JOB. */
enum gs_job_state {
  GS_JOB_IDLE = 0,     /* attached, neither holds nor waits */
  GS_JOB_WAITING = 1,  /* in the queue */
  GS_JOB_HOLDING = 2,  /* may submit */
  GS_JOB_DROPPING = 3, /* told to stop: its work does not stand still yet (nor has finished) */
  GS_JOB_BYPASSED = 4, /* did not answer DROP_LOCK within the grace: others run meanwhile */
};

/* What pinned memory is: memory that can't leave the card. X(NAME, value, word for programs). Values are
 * never reused. */
#define GS_PINNED_KINDS(X)                                                                                   \
  X(OTHER, 0, "other")   /* none of these, or what an older library does not tell */                         \
  X(PLAIN, 1, "plain")   /* the program's allocations, as the driver made them */                            \
  X(SMALL, 2, "small")   /* allocations of up to 2 MiB */                                                    \
  X(ARRAYS, 3, "arrays") /* arrays, also mipmapped ones */                                                   \
  X(GRAPHS, 4, "graphs") /* what graphs allocate, and keep from launch to launch */                          \
  X(POOLS, 5, "pools")   /* stream-ordered memory, and what its pools keep in use */                         \
  X(SHARED, 6, "shared") /* exported, or bound to what the driver must know: multicast, arrays */

enum gs_pinned {
#define X(name, value, word) GS_PINNED_##name = value,
  GS_PINNED_KINDS(X)
#undef X
};
#define GS_PINNED_COUNT 7

/* Why an allocation is refused (MEM_REPLY; X(NAME, value, word for programs)). */
#define GS_REFUSALS(X)                                                                                       \
  X(UNKNOWN, 0, "unknown")                                                                                   \
  X(LIMIT, 1, "limit")       /* the job's memory limit */                                                    \
  X(CAPACITY, 2, "capacity") /* without page faults it could never have all that on the card */              \
  X(PINNED, 3, "pinned")     /* it can't leave the card, and nor can what others have there */               \
  X(SPENT, 4, "spent")       /* card and host have no more */                                                \
  X(OTHERS, 5, "others")     /* it can't leave the card, and a job that has memory there could not run */

enum gs_refusal {
#define X(name, value, word) GS_REFUSAL_##name = value,
  GS_REFUSALS(X)
#undef X
};

enum gs_reject_reason {
  GS_REJECT_VERSION = 1, /* value: the daemon's protocol version */
  GS_REJECT_LIMIT = 2,   /* too many clients of this user; value: the limit */
  /* Of an ATTACH, with its gpu; value: ns until it may be asked for again. The connection goes on without it
     (to an older library it is over) */
  GS_REJECT_GPU = 3,    /* the host has no such GPU */
  GS_REJECT_DEVICE = 4, /* the process does not have the GPU's device file open */
};

/* What a NOTE says. */
enum gs_note {
  GS_NOTE_CHANGED = 0, /* a setting is another one; in the file, if it was only looked at */
  GS_NOTE_RESTART = 1, /* it is another one in the file, and stays as it was until the daemon is restarted */
  GS_NOTE_WRONG = 2,   /* the configuration is wrong: nothing has changed */
};

/* flags of ATTACH */
#define GS_ATTACH_RUNNING 0x1u /* the gate is open (ran without a daemon): counts as a holder, epoch 0 */
#define GS_ATTACH_MANAGED 0x2u /* memory is managed: a grant to others while it runs is slow but safe */
#define GS_ATTACH_DEFAULT 0x4u /* memory will be as ATTACHED says: the program has not chosen */

/* flags of MEM_REQUEST and MEM_REPORT: the memory is not managed any more, whatever ATTACH said */
#define GS_MEM_FIXED 0x1u
/* ... of MEM_REQUEST: it is within the grants, and asks only what could be had */
#define GS_MEM_ASKS 0x2u

/* flags of REGISTER */
#define GS_REGISTER_MPS 0x1u /* it uses MPS */

/* flags of CLIENT_STATE: why a DROP_LOCK is not answered yet; and, in each of them, PREEMPTS, OWN_CONTEXT and
 * SLICES, as they are now */
#define GS_STATE_CAPTURING 0x1u /* a stream capture is open */
#define GS_STATE_DRAINING 0x2u  /* submitted work has not finished within the drain bound */
#define GS_STATE_OVERDUE 0x4u   /* STATUS_JOB only: DROP_LOCK has not been answered within the grace */
#define GS_STATE_TOO_BIG 0x8u   /* STATUS_JOB only: uses more than the capacity, so it cannot run */
#define GS_STATE_MPS 0x10u /* STATUS_JOB only: it uses MPS: a fatal fault of another one ends it as well */
#define GS_STATE_STOPPED 0x20u     /* STATUS_JOB only: its process is stopped (SIGSTOP, Ctrl-Z, a debugger) */
#define GS_STATE_PREEMPTS 0x40u    /* its work can be stopped in its middle */
#define GS_STATE_OWN_CONTEXT 0x80u /* the library has a context beside the program's, to move memory in */
#define GS_STATE_SLICES 0x100u     /* CLIENT_STATE only: the time slices that SHARE tells hold */

/* flags of PROGRESS */
#define GS_PROGRESS_ACTIVE 0x1u /* the job has work on the GPU, or submits some */

#define GS_SHARE_ALL 1000000u /* SHARE: the job may run all of the time */

/* flags of STATUS_GPU */
#define GS_GPU_SERIALIZED 0x1u /* turns are being taken now */
#define GS_GPU_TQ_AUTO 0x2u    /* the quantum finds itself */
#define GS_GPU_MPS 0x4u        /* spatial = mps */
#define GS_GPU_TOGETHER 0x8u   /* jobs have more than the capacity, and run: little is on the card */

/* How the memory of a job that leaves is passed to a job that comes (src/memory/swap/passing.h). The name is
 * that of a socket, which others may see; the key is told only to jobs of the same user and origin. All 0:
 * nothing can be passed. */
struct gs_pass {
  uint64_t name, key;
};

struct gs_msg {
  uint32_t magic;   /* GS_MAGIC */
  uint16_t version; /* GS_PROTOCOL_VERSION */
  uint16_t type;    /* enum gs_msg_type */
  uint32_t gpu;     /* the client's own index of the GPU (from ATTACH); ctl: GS_GPU_NUMBER,
                       or GS_GPU_ALL */
  int32_t status;   /* replies: 0 or -errno */
  union {
    uint64_t epoch; /* LOCK_*, DROP_LOCK: number of the grant */
    uint64_t
        energy_mj; /* EVENT, kind USAGE: of the GPU while the job held it; 0: none, or NVML has not told */
  };
  union {
    struct {                   /* REGISTER */
      int32_t pid;             /* in the client's own pid namespace; 0: unknown */
      char name[GS_NAME_SIZE]; /* of the program, or what a person calls the job (GPUSHARE_NAME) */
      uint32_t flags;          /* GS_REGISTER_* */
      uint64_t command_hash;   /* of the command line: the same for each run of it; 0: unknown */
    } reg;
    struct { /* COMMAND: the arguments, with spaces between them, as far as there is room. If there is none
                for all of them, folders are left out */
      char text[GS_COMMAND_SIZE];
    } command;
    struct { /* EXITING */
      int32_t status;
    } exiting;
    struct {        /* REGISTERED, REJECTED */
      uint32_t job; /* id of the job, unique in the daemon's life */
      uint32_t reason;
      uint64_t value;
    } registered;
    struct { /* EVICTED: the daemon ends the connection. The program shall submit nothing, and come again as a
                job like any other, once it has waited */
      uint64_t wait_ns;
      uint32_t by_uid;
      int32_t by_pid; /* 0: nobody; it has been silent for too long */
    } evicted;
    struct { /* EVICT */
      uint32_t job;
    } evict;
    struct { /* GET_PROCESS: answered by a REPLY with a descriptor (pidfd) of the job's process beside it;
                only to a process in the daemon's pid namespace or the job's */
      uint32_t job;
    } get_process;
    struct {          /* ASK_SPATIAL */
      uint32_t class; /* enum gs_class: as it will declare */
      uint32_t count; /* of the GPUs that it sees; 0: it can't tell */
      uint8_t uuids[GS_SPATIAL_UUIDS][GS_UUID_SIZE];
    } ask_spatial;
    struct {             /* SPATIAL */
      uint32_t verdict;  /* enum gs_spatial_verdict */
      uint32_t priority; /* for CUDA_MPS_CLIENT_PRIORITY: 1: lower than usual; 0: usual */
      uint32_t percent;  /* for CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; 0: all */
    } spatial;
    struct {           /* DECLARE: on all GPUs of the client, now and later. Values out of range are cut */
      uint32_t weight; /* 0: the default */
      int32_t priority;
      uint64_t expected_ns, limit_bytes;
      char gang[GS_GANG_SIZE]; /* what is attached from then on runs together with all attachments of the
                                  user's programs that name the same gang; empty: with none */
      uint64_t soft_limit_bytes;
      uint32_t class; /* enum gs_class */
      uint32_t pad;
      uint64_t expected_bytes; /* of memory, at once and at most; 0: unknown */
    } declare;
    struct { /* ATTACH */
      uint8_t uuid[GS_UUID_SIZE];
      uint64_t total_bytes; /* of the card */
      uint64_t used_bytes;  /* already allocated by this client there */
      uint32_t flags;       /* GS_ATTACH_* */
      uint32_t pad;
      char name[GS_NAME_SIZE]; /* of the card, for people */
      uint64_t resident_bytes; /* of used_bytes: on the card */
      struct gs_pass pass;     /* of this process on this GPU */
    } attach;
    struct {                   /* ATTACHED, CAPACITY */
      uint64_t capacity_bytes; /* of the GPU for all jobs together */
      uint32_t mode;           /* enum gs_mode */
      uint32_t memory;         /* enum gs_memory: for programs that do not choose themselves */
      uint32_t host_tight;     /* not 0: host memory is scarce; keep no more of it pinned than is in use */
      uint32_t limited;        /* not 0: capacity_bytes is the job's memory limit, less than the GPU has */
      uint32_t in_the_way;     /* CAPACITY, not 0: what the job has pinned keeps another one from running */
      uint32_t host_copies;    /* enum gs_host_copies */
      uint32_t pad;
    } attached;
    struct { /* ROOM, LOCK_OK, DROP_LOCK: what the job may have on the card from now on. More than
                that leaves, as soon as the job does not hold the GPU; what is away comes back as far
                as there is room, also while others run. Until the first one: nothing more than is there.
                Each replaces the one before, whatever the epoch that it comes with. */
      uint64_t room_bytes;
      uint64_t room_seq;     /* counts the rooms told to this job on this GPU, from 1 */
      uint64_t quantum_ns;   /* LOCK_OK; 0: until told otherwise */
      uint64_t target_bytes; /* what the room of a job that holds will become as others leave */
      struct gs_pass pass;   /* of the job that what leaves may be passed to; all 0: none */
      int32_t pass_pid;      /* of its process, in its own pid namespace */
      uint32_t steps;        /* LOCK_OK, not 0: one call at a time, each once earlier work is done */
    } room;
    struct { /* SHARE: how a job runs beside others that run at the same time. Until the first one: as it
              * likes
              */
      uint32_t share_ppm; /* of its time it may run; 0: none, its work stands still; GS_SHARE_ALL */
      uint32_t slice_us;  /* the time slice of its work on the GPU; 0: the driver's own */
      uint32_t watch;     /* enum gs_watch */
      uint32_t pad;
    } share;
    struct {                /* PROGRESS of a watched job */
      uint64_t submissions; /* calls let through the gate so far, on all GPUs of the process */
      uint64_t active_ns;   /* time in which it has been active on this GPU, so far */
      /* Both, as they were at its last mark, where it began to submit after a pause: two marks lie a whole
         number of iterations apart. 0 and 0: there was none yet, or none that does so from earlier ones. */
      uint64_t mark_submissions, mark_active_ns;
      uint32_t flags; /* GS_PROGRESS_* */
      uint32_t pad;
    } progress;
    struct {            /* LOCK_WANTED */
      uint64_t left_ns; /* GS_LEFT_UNKNOWN, or GS_LEFT_NOBODY */
    } wanted;
    struct { /* RESIDENT: progress of moves; sent every 64 MiB or so and when the room is reached. Also when
                a room is less than the one before, though nothing has to move for it, whoever holds: others
                may have what is no longer promised only when this says so. Before LOCK_ACTIVE. */
      uint64_t resident_bytes; /* on the card now, pinned bytes included */
      uint64_t room_seq;       /* of the last room seen */
      uint64_t evicted_bytes;  /* moved out and in since the last RESIDENT of this connection */
      uint64_t restored_bytes;
      uint64_t spared_bytes; /* likewise, that have left without a copy: clean, or zero */
      uint64_t copies_bytes; /* in host memory: copies of what is on the card */
    } resident;
    struct { /* MEM_SHORT: the driver has refused so many bytes that are within the room. ROOM answers; until
                that comes the client may try again. CAPACITY tells what is left for all: no allocation beyond
                that will ever get its room. */
      uint64_t short_bytes;
    } mem_short;
    struct { /* LOCK_RELEASED: stopped; what must leave leaves from now on */
      uint64_t drain_ns;
    } released;
    struct { /* LOCK_ACTIVE: all that is needed is on the card; submitting again. Answers every LOCK_OK. */
      uint64_t restore_ns; /* since the LOCK_OK */
      uint64_t restore_bytes;
    } active;
    struct { /* MEM_REQUEST: the client's total on this GPU may grow to total_bytes, answered by MEM_REPLY.
                MEM_REPORT: it has shrunk to total_bytes, not answered. */
      uint64_t total_bytes;  /* all of the client's device memory on this GPU */
      uint64_t pinned_bytes; /* of these, bytes that can never leave the card */
      uint64_t paging_bytes; /* of these, bytes that page faults fetch: where memory is not managed, the rest
                                must be on the card for the client to run, but these need not */
      uint32_t flags;        /* GS_MEM_* */
      uint32_t pad;
      uint64_t kind_bytes[GS_PINNED_COUNT]; /* of pinned_bytes, by enum gs_pinned; all 0: not told */
    } mem;
    struct {                  /* MEM_REPLY; status 0 or -ENOMEM; or -EAGAIN: wait for another MEM_REPLY */
      uint64_t granted_bytes; /* total that the client may reach without asking again */
      uint32_t why;           /* status -ENOMEM: enum gs_refusal */
      uint32_t knows_most;    /* not 0: the fields after pinned_bytes are told */
      uint64_t pinned_bytes;  /* of granted_bytes, what may never leave the card without asking again */
      uint64_t most_bytes, most_pinned_bytes; /* what the client could have now, if it asked: in all; and of
                                                 that, what can never leave the card */
      uint64_t making_way_bytes;              /* of others: on the card, and able to leave it */
    } mem_reply;
    struct {          /* CLIENT_STATE */
      uint32_t flags; /* GS_STATE_* */
      uint32_t pad;
      uint64_t submissions; /* calls let through the gate so far */
    } state;
    struct { /* SET_TQ, SET_MODE, SET_CAPACITY, SET_POLICY. All zero uuid: every GPU, and the default for
                new ones */
      uint8_t uuid[GS_UUID_SIZE];
      uint64_t value; /* TQ: ns, 0: auto; mode: enum gs_mode; capacity: bytes, 0: the whole card; policy: enum
                         gs_policy */
    } set;
    struct { /* SET_TERMS: on all GPUs of the job's client */
      uint32_t job;
      uint32_t term;  /* enum gs_term */
      uint64_t value; /* priority: as int64_t */
    } set_terms;
    struct { /* ALLOT: what the jobs of a pod have of a GPU together, whatever they ask for and whosoever they
                are. Answered by REPLY */
      uint8_t uuid[GS_UUID_SIZE];
      uint64_t share;        /* pods with the same number have it together */
      uint64_t limit_bytes;  /* of memory; 0: none */
      uint32_t weight;       /* of the share, as of a user's; 0: jobs that come are their users' again */
      uint32_t class;        /* enum gs_class, of all jobs of the pod; GS_CLASS_UNSAID */
      char pod[GS_POD_SIZE]; /* its uid, as in the names of its control groups */
    } allot;
    struct { /* POD_NAMESPACE, POD_NAME: of a pod that has been allotted something, what people call it. It is
                forgotten with that. Answered by REPLY */
      char pod[GS_POD_SIZE];       /* its uid */
      char text[GS_POD_TEXT_SIZE]; /* a longer one is cut */
    } pod;
    struct {               /* RELOAD: read the configuration anew. Answered by NOTEs, then a REPLY */
      uint32_t only_looks; /* not 0: nothing changes */
    } reload;
    struct {         /* NOTE */
      uint32_t kind; /* enum gs_note */
      uint32_t more; /* not 0: the text goes on in the next one */
      char text[GS_MSG_SIZE - 32];
    } note;
    struct {                       /* REPLY; status 0 or -errno */
      char text[GS_MSG_SIZE - 24]; /* one clear line when status is not 0 */
    } reply;
    struct { /* STATUS_DAEMON */
      uint64_t uptime_ns;
      uint64_t default_tq_ns;     /* 0: auto */
      uint64_t host_memory_bytes; /* bound for evicted memory, all GPUs together */
      uint64_t grace_ns;
      uint32_t gpus;
      uint32_t jobs; /* registered connections */
      int32_t pid;
      char release[28];      /* the daemon's version */
      uint32_t mps;          /* enum gs_mps_state */
      uint32_t mps_programs; /* that use it */
      uint32_t mps_uid;      /* theirs, if there are any */
      uint32_t presence;     /* enum gs_presence */
      uint32_t last_job;     /* jobs have had numbers up to this one; 0: none, or an older daemon */
    } daemon;
    struct { /* STATUS_GPU; gpu: its number. In this order */
      uint8_t uuid[GS_UUID_SIZE];
      uint64_t total_bytes;
      uint64_t capacity_bytes;
      uint64_t used_bytes; /* of all jobs */
      uint64_t tq_ns;      /* the present one */
      uint64_t handovers;
      uint64_t moved_bytes; /* evicted and restored in bulk, since start */
      uint32_t jobs;
      uint32_t waiting;
      uint16_t holders;
      uint8_t mode;
      uint8_t flags; /* GS_GPU_* */
      char name[20];
      uint8_t policy; /* enum gs_policy */
      uint8_t pad[7];
    } gpu_status;
    struct { /* STATUS_JOB; gpu: its number. One per job and GPU */
      uint32_t job;
      int32_t pid; /* as the daemon sees it; 0: it is in a pid namespace that the daemon can't see */
      uint32_t uid;
      uint8_t state;  /* enum gs_job_state */
      uint8_t flags;  /* GS_STATE_* */
      uint16_t queue; /* place in the queue, from 1; 0: not waiting */
      uint64_t used_bytes;
      uint64_t held_ns;   /* time as a holder */
      uint64_t waited_ns; /* time in the queue */
      uint64_t turns;     /* grants */
      uint64_t moved_bytes;
      uint64_t drain_max_ns;
      char name[GS_NAME_SIZE];
      uint64_t resident_bytes; /* on the card */
    } job_status;
    struct { /* STATUS_TERMS; gpu: its number. Follows each STATUS_JOB */
      uint32_t job;
      uint32_t weight;
      int32_t priority;
      uint32_t class;            /* enum gs_class */
      uint64_t gpu_ns;           /* GPU time had: while it ran, and all that it needs was on the card */
      uint64_t remaining_ns;     /* of what is expected; 0: unknown */
      uint64_t limit_bytes;      /* 0: none */
      char gang[GS_GANG_SIZE];   /* empty: none */
      uint64_t soft_limit_bytes; /* 0: none */
      uint32_t rate;             /* percent of a GPU; 0: found by itself */
      uint32_t paused;           /* not 0: it is */
    } terms_status;
    struct { /* STATUS_WAIT; gpu: its number. Follows each STATUS_TERMS */
      uint32_t job;
      uint32_t reason;        /* enum gs_reason */
      uint32_t awaited;       /* the job that it waits for; 0: nobody in particular */
      uint32_t limited;       /* enum gs_limited */
      uint64_t expected_ns;   /* until it runs, about; UINT64_MAX: not unless something changes, or unknown */
      uint64_t lacking_bytes; /* of what it needs on the card to run */
      uint64_t limit;         /* if limited: GPU time that it may use, ns per s, up to GS_LIMITED_WHOLE */
      uint32_t limited_for;   /* likewise: a production job; 0: none */
      uint32_t rule;          /* enum gs_rule */
      uint64_t expected_bytes; /* of memory: with so much it counts beside others, as it has said so, or frees
                                  and allocates that again; not less than it has */
      uint64_t room_bytes;     /* what it may have on the card now, as it was told */
      uint64_t planned_bytes;  /* and what the plan has for it */
      uint64_t need_bytes;     /* what it needs of what those have that run beside each other */
      uint64_t pinned_bytes;   /* of its memory: what can't leave the card */
    } wait_status;
    struct { /* STATUS_HANDOVER; gpu: its number. Hand-overs since start; the last one in *_last */
      uint64_t drain_ns, move_ns; /* GPU idle: until the release, and from then until the next one runs */
      uint64_t evicted_bytes, restored_bytes; /* moved in hand-overs */
      uint64_t hidden_bytes;                  /* moved behind turns, both directions */
      uint64_t drain_last_ns, move_last_ns;
      uint64_t evicted_last_bytes, restored_last_bytes;
      uint64_t overhead_bytes; /* what the driver has refused: the card has that much less than it says */
      uint64_t left_ns;        /* until holders must stop; UINT64_MAX: nobody need */
      uint64_t occupied_bytes; /* in use on the card, but what is known to be no job's; 0: unknown, or none */
    } handover_status;
    struct { /* STATUS_ORIGIN; gpu: its number. Follows each STATUS_WAIT */
      uint32_t job;
      int32_t own_pid; /* in the process's own pid namespace; 0: unknown */
      uint32_t kind;   /* enum gs_origin */
      uint32_t pad;
      char name[GS_ORIGIN_SIZE];
      char container[GS_CONTAINER_SIZE]; /* the beginning of the container's id; empty: unknown */
    } origin_status;
    struct { /* STATUS_COMMAND; gpu: its number. Follows the STATUS_ORIGIN of a job whose command the reader
                may see: its owner, and who may change settings */
      uint32_t job;
      uint32_t uid; /* its owner */
      char text[GS_COMMAND_SIZE];
    } command_status;
    struct { /* STATUS_MEMORY; gpu: its number. Follows each STATUS_ORIGIN, for those who know it */
      uint32_t job;
      uint32_t pad;
      uint64_t copies_bytes;                /* in host memory: copies of what is on the card */
      uint64_t clean_bytes;                 /* of what is on the card, as far as its last leaving has shown */
      uint64_t left_copied_bytes;           /* of that leaving: copied, */
      uint64_t left_spared_bytes;           /* and not, as they were clean or zero */
      uint64_t kind_bytes[GS_PINNED_COUNT]; /* of pinned_bytes, by enum gs_pinned: their sum */
    } memory_status;
    struct { /* STATUS_CARD; gpu: its number. Follows the STATUS_HANDOVER of a GPU of which NVML has told
                within the last minutes */
      uint32_t facts; /* GS_CARD_*: whether it answers, and which of the others count */
      uint32_t temperature_c;
      uint32_t power_mw;
      uint32_t gpu_percent;    /* of the time, lately: some kernel ran; */
      uint32_t memory_percent; /* the card's memory was read or written */
      uint32_t unshared;       /* processes with a compute context that are no jobs */
      uint64_t unshared_bytes; /* of the card's memory, that they have */
      uint64_t energy_mj;      /* used since the driver was loaded */
    } card_status;
    struct {            /* GET_STATUS */
      uint32_t details; /* enum gs_details, or more */
    } get_status;
    struct { /* GET_EVENTS: answered by EVENTS_BEGIN, the events in their order, EVENTS_END. With follow,
                there is no end, and what happens from then on comes as well; the reader may ask for nothing
                else */
      uint64_t from_seq; /* 0: the oldest that there is */
      uint64_t age_ns;   /* none that is older; 0: any */
      uint32_t record;   /* enum gs_record */
      uint32_t follow;
    } get_events;
    struct {                /* EVENTS_BEGIN */
      uint64_t now_ns;      /* on the clock of the events (CLOCK_MONOTONIC) */
      uint64_t realtime_ns; /* at the same moment, since 1970 */
      uint64_t next_seq;    /* of what happens next */
      uint32_t record;      /* enum gs_record; an older daemon knows fewer, and tells of EVENTS instead */
    } events;
    struct { /* EVENTS_MISSED: events that are kept no more, since the reader was too slow, or came too late
              */
      uint64_t count;
    } missed;
    struct { /* EVENT; gpu: its number, or GS_GPU_ALL */
      uint64_t seq, at_ns;
      uint32_t job;  /* 0: none */
      int32_t pid;   /* of the job */
      uint32_t uid;  /* likewise */
      uint16_t kind; /* enum gs_event_kind */
      uint16_t detail;
      union {
        char text[GS_COMMAND_SIZE];
        struct {
          char name[GS_NAME_SIZE]; /* of the job */
          union {
            struct {
              uint64_t used_bytes, resident_bytes; /* of the job on the GPU, at that time */
              uint64_t bytes, ns;                  /* by kind */
              uint64_t until_ns; /* EVICTED, RESTORED: when that ended, on the clock of at_ns */
            } turn;
            struct {
              uint64_t drain_ns, move_ns; /* the GPU was idle: until the release, and from then until now */
              uint64_t evicted_bytes, restored_bytes; /* meanwhile */
            } handover;
            struct {
              uint64_t value, before;
              uint32_t by_uid;
              int32_t by_pid; /* the job's own: declared. 0: the configuration, or a signal */
            } change;
            struct { /* USAGE: from then until at_ns */
              uint64_t since_ns;
              uint64_t held_ns, gpu_ns; /* as in STATUS_JOB and STATUS_TERMS */
              uint64_t waited_ns, moved_bytes;
            } usage;
            struct {
              uint64_t started_ns, gpu_ns, waited_ns; /* of several GPUs the most */
              uint64_t turns;
              int32_t status; /* of exit */
            } end;
          };
        };
      };
    } event;
    uint8_t raw[GS_MSG_SIZE - 24];
  };
};

static_assert(sizeof(struct gs_msg) == GS_MSG_SIZE, "one message is GS_MSG_SIZE bytes");

#endif
