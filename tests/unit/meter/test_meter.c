/* test_meter.c - the long way of what is counted: for which GPU, whether at all, measured or not, charged or
 * not. */
#include <check.h>
#include <stddef.h>
#include <string.h>

#include "../suite.h"
#include "gate/gate.h"
#include "gate/limit.h"
#include "gate/streams.h"
#include "interpose/driver.h"
#include "meter/meter.h"
#include "meter/samples.h"
#include "meter/service.h"
#include "meter/watch.h"

#define STREAM_0 ((CUstream)100)
#define STREAM_1 ((CUstream)101) /* of device 1 */
#define RECORDED ((CUstream)102)

/* ---- the rest of the library ---- */

struct driver driver;
static union {
  struct gate_slot slot;
  unsigned char bytes[sizeof(struct gate_slot)];
} room;
__thread struct gate_slot *gate_slot;
_Atomic uint32_t gate_look, gate_several;
_Atomic int32_t gate_only_device;

static struct {
  unsigned asked; /* which device a stream is of */
  uint64_t generation;
  CUdevice current, woken, served;
  bool limited, lack;
  unsigned begun, ended, submitted; /* samples */
  uint64_t charged_ns;
} play;

CUdevice gate_device_of(CUstream stream) {
  play.asked++;
  return stream == STREAM_0 ? 0 : stream == STREAM_1 ? 1 : play.current;
}
void gate_set_look(enum gate_look reason, bool look) {
  gate_look = look ? gate_look | reason : gate_look & ~(uint32_t)reason;
}
bool gate_is_recorded(CUstream stream) { return stream == RECORDED; }
bool gate_is_limited(CUdevice device) { return device == 0 && play.limited; }
uint64_t streams_generation(void) { return play.generation; }
void watch_wake(CUdevice device) { play.woken = device; }
void service_begin(CUdevice device) { play.served = device; }
void limit_charge(CUdevice device, uint64_t cost_ns, uint64_t next_ns) {
  ck_assert_int_eq(device, 0);
  ck_assert_uint_eq(next_ns, 2 * cost_ns);
  play.charged_ns += cost_ns;
}
bool samples_lack(CUdevice device, const struct meter_work *work) { return device == 0 && work && play.lack; }
struct samples_charge samples_charge(CUdevice device, const struct meter_work *work) {
  uint64_t ns = (uint64_t)device + work->amount.blocks;
  return (struct samples_charge){ns, 2 * ns};
}
struct sample *sample_begin(CUdevice device, CUstream stream, const struct meter_work *work) {
  (void)device, (void)stream, (void)work;
  play.begun++;
  return (struct sample *)&play;
}
void sample_end(struct sample *sample, bool submitted) {
  ck_assert_ptr_eq(sample, &play);
  play.ended++;
  play.submitted += submitted;
}

static void set_up(void) {
  memset(&play, 0, sizeof play);
  memset(&room, 0, sizeof room);
  play.woken = play.served = -1;
  gate_slot = &room.slot;
  gate_look = 0;
  gate_only_device = 3;
}
static void tear_down(void) {}

/* ---- the tests ---- */

static void submit(CUstream stream, struct meter_work work, CUresult result) {
  bool look = meter_begin(stream, &work);
  ck_assert_int_eq(meter_end(look, &work, result), result);
}

static void launch(CUstream stream) { submit(stream, meter_kernel(&room.slot, 7), CUDA_SUCCESS); }
static uint64_t kernels(CUdevice device) { return room.slot.counts[device][GATE_KERNELS]; }

START_TEST(there_is_one_device) {
  launch(STREAM_0);
  gate_look = GATE_LOOK_CAPTURES;
  launch(STREAM_1);
  ck_assert_uint_eq(kernels(3), 2);
  ck_assert_uint_eq(room.slot.counts[3][GATE_BLOCKS], 14);
  ck_assert_uint_eq(room.slot.counts[3][GATE_SUBMISSIONS], 2);
  ck_assert_uint_eq(play.asked, 0);
}
END_TEST

START_TEST(what_is_recorded_or_refused_or_nothing_does_not_count) {
  for (int look = 0; look < 2; look++) {
    gate_look = look ? GATE_LOOK_CAPTURES : 0;
    submit(STREAM_0, meter_kernel(&room.slot, 7), CUDA_ERROR_INVALID_VALUE);
    submit(STREAM_0, meter_copy(&room.slot, 0), CUDA_SUCCESS);
  }
  launch(RECORDED);
  ck_assert_uint_eq(room.slot.counts[3][GATE_SUBMISSIONS], 0);
  submit(STREAM_0, meter_copy(&room.slot, 5), CUDA_SUCCESS);
  ck_assert_uint_eq(room.slot.counts[3][GATE_SUBMISSIONS], 1);
  ck_assert_uint_eq(room.slot.counts[3][GATE_BYTES], 5);
  ck_assert_uint_eq(kernels(3), 0);
}
END_TEST

START_TEST(each_stream_is_of_a_device) {
  gate_look = GATE_LOOK_SEVERAL;
  for (int i = 0; i < 10; i++)
    launch(STREAM_0);
  ck_assert_uint_eq(play.asked, 1);
  for (int i = 0; i < 10; i++)
    launch(STREAM_1);
  ck_assert_uint_eq(play.asked, 2);
  ck_assert_uint_eq(kernels(0), 10);
  ck_assert_uint_eq(kernels(1), 10);
  play.generation++; /* another stream may be at the same place */
  launch(STREAM_1);
  ck_assert_uint_eq(play.asked, 3);
}
END_TEST

START_TEST(default_streams_are_the_current_contexts) {
  CUstream streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
  gate_look = GATE_LOOK_SEVERAL;
  for (int i = 0; i < 3; i++)
    for (CUdevice device = 0; device < 3; device++) {
      play.current = device;
      launch(streams[i]);
      ck_assert_uint_eq(kernels(device), (uint64_t)i + 1);
    }
  play.current = -1; /* the driver refuses that, or should */
  launch(NULL);
  play.current = GS_GPUS_PER_CLIENT;
  launch(NULL);
  size_t past = offsetof(struct gate_slot, counts) + sizeof room.slot.counts;
  for (size_t i = past; i < sizeof room; i++)
    ck_assert_uint_eq(room.bytes[i], 0);
}
END_TEST

START_TEST(one_kernel_is_measured_where_one_is_asked_for) {
  gate_look = GATE_LOOK_SAMPLE;
  submit(STREAM_0, meter_copy(&room.slot, 5), CUDA_SUCCESS);
  ck_assert_uint_eq(play.begun, 0);
  launch(STREAM_0);
  launch(STREAM_0);
  ck_assert_uint_eq(play.begun, 1);
  ck_assert_uint_eq(play.submitted, 1);
  gate_look = GATE_LOOK_SAMPLE | GATE_LOOK_CAPTURES;
  launch(RECORDED);
  ck_assert_uint_eq(play.begun, 1);
  submit(STREAM_0, meter_kernel(&room.slot, 7), CUDA_ERROR_INVALID_VALUE);
  ck_assert_uint_eq(play.ended, 2);
  ck_assert_uint_eq(play.submitted, 1);
}
END_TEST

START_TEST(others_may_come_first) {
  meter_ask(3);
  for (int i = 0; i < 3; i++) {
    launch(STREAM_0);
    submit(STREAM_0, meter_copy(&room.slot, 5), CUDA_SUCCESS);
    ck_assert_uint_eq(play.begun, 0);
    meter_ask(100); /* one is waited for */
  }
  launch(STREAM_0);
  ck_assert_uint_eq(play.begun, 1);
  launch(STREAM_0);
  ck_assert_uint_eq(play.begun, 1);
}
END_TEST

START_TEST(what_is_limited_costs) {
  gate_look = GATE_LOOK_LIMITED;
  gate_only_device = 0;
  launch(STREAM_0);
  ck_assert_uint_eq(play.charged_ns, 0);
  play.limited = true;
  launch(STREAM_0);
  submit(STREAM_0, meter_kernel(&room.slot, 7), CUDA_ERROR_INVALID_VALUE);
  ck_assert_uint_eq(play.charged_ns, 7);
  ck_assert_uint_eq(play.begun, 0);
  play.lack = true;
  launch(STREAM_0);
  submit(STREAM_0, meter_copy(&room.slot, 0), CUDA_SUCCESS);
  ck_assert_uint_eq(play.begun, 1);
}
END_TEST

START_TEST(an_idle_process_wakes) {
  gate_look = GATE_LOOK_ASLEEP;
  launch(STREAM_0);
  ck_assert_int_eq(play.woken, 3);
  ck_assert_int_eq(play.served, -1);
  gate_look = GATE_LOOK_RESTING;
  launch(STREAM_0);
  ck_assert_int_eq(play.served, 3);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {there_is_one_device,
                                what_is_recorded_or_refused_or_nothing_does_not_count,
                                each_stream_is_of_a_device,
                                default_streams_are_the_current_contexts,
                                one_kernel_is_measured_where_one_is_asked_for,
                                others_may_come_first,
                                what_is_limited_costs,
                                an_idle_process_wakes,
                                NULL};
  return suite_main("meter", tests, set_up, tear_down);
}
