/* help.c - gpusharectl --help. */
#include <stdio.h>

#include "ctl/ctl.h"

void help_show(void) {
  printf(
      "usage: gpusharectl [OPTION]... COMMAND\n\n"
      "  status                 GPUs and jobs: who holds, who waits, memory, shares, what hand-overs cost\n"
      "  set-tq DURATION        how long a job keeps a GPU while others wait: 20, 0.5, 250ms, 2m (from 1ms)\n"
      "  auto | on | off        jobs take turns: only if their memory does not fit together, always, never\n"
      "                         (memory of kind swap that does not fit together makes turns with off, too)\n"
      "  set-capacity BYTES     memory of the GPU for all jobs together: 16G; 0: the whole card\n"
      "  run [OPTION]... [--] PROGRAM [ARGUMENT]...\n"
      "                         start a program that shares the GPU: with libunified.so preloaded;\n"
      "                         many programs with -n or --jobs, see below\n\n"
      "  --gpu UUID|all         which GPU a change is for (default all; all is also for GPUs yet to come)\n"
      "  --json                 status as JSON\n"
      "  --socket PATH          of the daemon (default $GPUSHARE_SOCKET, or " GS_DEFAULT_SOCKET ")\n"
      "  --memory HOW           run: how the program's memory leaves the card (default $GPUSHARE_MEMORY, or "
      "what the\n"
      "                         daemon says for the GPU)\n"
      "  --lib PATH             run: the library (default $GPUSHARE_LIB, or the one that belongs to "
      "gpusharectl)\n"
      "  --help, --version\n\n");
  printf(
      "run, many jobs:\n"
      "  -n N                   N copies of the program; with --jobs: at most N at once (default: all)\n"
      "  --jobs FILE            a job per line, -: of stdin. Its words are appended to the PROGRAM and its\n"
      "                         ARGUMENTs, of which there may be none; NAME=VALUE in front is for the job's\n"
      "                         environment. Quotes and \\ as in a shell, # begins a comment, nothing is\n"
      "                         expanded; \"NAME=VALUE\" is an ordinary word\n"
      "  --output DIR           for INDEX.out, INDEX.err and results.tsv (default gpushare-run-DATE-TIME)\n"
      "  --prefix               no files: each line that a job writes, with [INDEX] in front\n"
      "  --retry K              try a job that fails again, at most K times\n"
      "  --fail-fast            once a job has failed, start no more, and end the others by SIGTERM\n"
      "  --grace DURATION       and those that are there so long after it by SIGKILL (default 10s)\n"
      "  Jobs find their INDEX, from 0, in GPUSHARE_JOB_INDEX, how many there are in GPUSHARE_JOB_COUNT, "
      "and\n"
      "  nothing on stdin. Each is a process group, and over when its program ends: the rest of the group "
      "is\n"
      "  killed. SIGINT, SIGTERM and SIGHUP go to all that run, and no more are started; a second SIGINT "
      "kills.\n\n");
  printf(
      "Keys of the JSON (times in ns, sizes in bytes; more may be added, none will change its meaning):\n"
      "  daemon: release pid uptime_ns default_tq_ns grace_ns host_memory_bytes jobs\n"
      "  gpus[]: index uuid name mode serialized tq_ns total_bytes capacity_bytes used_bytes holders "
      "waiting\n"
      "          handovers moved_bytes handover jobs[]\n"
      "  gpus[].handover: count, drain_ns move_ns (sums; the GPU is idle until the old holder is done, and "
      "from then\n"
      "          until the new one runs), evicted_bytes restored_bytes (moved meanwhile); drain_mean_ns "
      "move_mean_ns;\n"
      "          of the last one: drain_last_ns move_last_ns evicted_last_bytes restored_last_bytes; "
      "evicted_bytes_per_s\n"
      "          restored_bytes_per_s evicted_last_bytes_per_s restored_last_bytes_per_s (bytes / (drain + "
      "move));\n"
      "          hidden_bytes (moved behind turns), overhead_bytes (of the capacity, that the driver has "
      "refused)\n");
  printf(
      "  gpus[].jobs[]: job pid uid user name state (idle waiting holding dropping bypassed) queue "
      "(place, 0:\n"
      "          not waiting) capturing draining overdue too_big (for the capacity: waits until it is more)\n"
      "          waits_for_room (holds, until others have left the card) used_bytes resident_bytes (on the "
      "card)\n"
      "          held_ns held_share (of all jobs' held_ns) waited_ns turns moved_bytes drain_max_ns\n\n"
      "exit codes: %d done; %d the daemon refused; %d usage; %d no daemon, or it does not answer; of run: "
      "the program's,\n"
      "or %d it can't be run; %d it is not there; of many jobs: 0 all have succeeded, 1 not all.\n",
      CTL_OK, CTL_REFUSED, CTL_USAGE, CTL_NO_DAEMON, CTL_NOT_RUN, CTL_NOT_FOUND);
}
