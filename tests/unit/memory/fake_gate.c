/* fake_gate.c - of the gate, what the room needs and no test of it plays in its own way. */
#include "gate/gate.h"

static struct gate_slot slot;
__thread struct gate_slot *gate_slot = &slot;
_Atomic uint32_t gate_all_open = GATE_ALL_FREE;
_Atomic bool gate_has_membarrier = true;
_Atomic uint32_t gate_several;

void gate_leave_slow(void) {}
void gate_await_work(CUdevice device) { (void)device; }
bool gate_alone(uint64_t devices, uint64_t timeout_ns) {
  (void)devices, (void)timeout_ns;
  return true;
}
void gate_together(uint64_t devices) { (void)devices; }
struct gate_call gate_call_mine(void) {
  return (struct gate_call){gate_slot, 1};
}
bool gate_call_goes_on(const struct gate_call *call) { return call->slot != NULL; }
void gate_call_await(const struct gate_call *call, struct condition *ended, struct lock *lock) {
  while (gate_call_goes_on(call))
    condition_wait(ended, lock, UINT64_MAX);
}
