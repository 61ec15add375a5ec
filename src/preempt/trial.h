/* trial.h - whether a stop and a go do what they shall, tried on ourselves. */
#ifndef GS_TRIAL_H
#define GS_TRIAL_H

enum trial {
  TRIAL_UNCLEAR, /* the GPU does not come to our work, the driver refuses it, or the stop is refused */
  TRIAL_STOOD,   /* it stood still while stopped, and went on */
  TRIAL_MOVED,   /* it ended while stopped */
  TRIAL_STUCK,   /* it did not go on */
};

/* In the current context, on a stream of our own: the stream waits for a flag in pinned memory, and then sets
 * another. While the GPU is stopped the flag is set: what follows must not happen before the go. All of that
 * is submitted before the stop: no call of the driver is made while anything is stopped, as it might wait
 * then. How long a standstill must last to be told from slowness is measured first, without a stop. stop, go:
 * of the GPU; 0 or -errno; after a trial the GPU goes on in any case. */
enum trial trial_run(int (*stop)(unsigned gpu), int (*go)(unsigned gpu), unsigned gpu);

#endif
