/* declaration.c - what this program asks for: by its environment, and by the functions of gpushare.h. */
#define GPUSHARE_API __attribute__((visibility("default")))
#include "client/declaration.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "client/client_state.h"
#include "common/lock.h"
#include "gpushare/gpushare.h"
#include "settings.h"

/* Of type DECLARE once it has been filled in. Under client.lock. */
static struct gs_msg declaration;

static struct gs_msg *provide(void) {
  if (declaration.type == GS_DECLARE)
    return &declaration;
  declaration = wire_msg(GS_DECLARE, 0);
  declaration.declare.weight = settings()->weight;
  declaration.declare.priority = settings()->priority;
  declaration.declare.expected_ns = settings()->expected_ns;
  declaration.declare.limit_bytes = settings()->limit_bytes;
  declaration.declare.soft_limit_bytes = settings()->soft_limit_bytes;
  declaration.declare.class = settings()->class;
  declaration.declare.expected_bytes = settings()->expected_bytes;
  memcpy(declaration.declare.gang, settings()->gang, sizeof declaration.declare.gang);
  return &declaration;
}

static bool says_something(const struct gs_msg *msg) {
  return msg->declare.weight || msg->declare.priority || msg->declare.expected_ns ||
         msg->declare.limit_bytes || msg->declare.soft_limit_bytes || msg->declare.class ||
         msg->declare.expected_bytes || *msg->declare.gang;
}

void declaration_send(void) {
  const struct gs_msg *msg = provide();
  if (says_something(msg))
    client_send(msg);
}

uint32_t declaration_class(void) {
  lock_take(&client.lock);
  uint32_t class = provide()->declare.class;
  lock_release(&client.lock);
  return class;
}

static struct gs_msg *begin_change(void) {
  lock_take(&client.lock);
  return provide();
}

/* Who is not registered yet tells it then. */
static int end_change(void) {
  if (client.registered)
    client_send(&declaration);
  lock_release(&client.lock);
  return 0;
}

int gpushare_set_expected_runtime(uint64_t ns) {
  begin_change()->declare.expected_ns = ns;
  return end_change();
}

int gpushare_set_expected_memory(uint64_t bytes) {
  begin_change()->declare.expected_bytes = bytes;
  return end_change();
}

int gpushare_set_weight(uint32_t weight) {
  if (weight < 1 || weight > GS_WEIGHT_MAX)
    return -EINVAL;
  begin_change()->declare.weight = weight;
  return end_change();
}

int gpushare_set_priority(int32_t priority) {
  if (priority < -GS_PRIORITY_MAX || priority > GS_PRIORITY_MAX)
    return -EINVAL;
  begin_change()->declare.priority = priority;
  return end_change();
}

int gpushare_set_memory_soft_limit(uint64_t bytes) {
  begin_change()->declare.soft_limit_bytes = bytes;
  return end_change();
}

int gpushare_set_class(int gpushare_class) {
  if (gpushare_class < GPUSHARE_STANDARD || gpushare_class > GPUSHARE_OPPORTUNISTIC)
    return -EINVAL;
  begin_change()->declare.class = (uint32_t)gpushare_class;
  return end_change();
}

static_assert((int)GPUSHARE_STANDARD == GS_CLASS_STANDARD &&
                  (int)GPUSHARE_PRODUCTION == GS_CLASS_PRODUCTION &&
                  (int)GPUSHARE_OPPORTUNISTIC == GS_CLASS_OPPORTUNISTIC,
              "what programs say goes to the daemon as it is");
