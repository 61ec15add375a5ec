/* values.c - why a stream memory operation was refused. */
#include "memory/values.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "common/log.h"
#include "memory/account.h"

static bool is_converted(CUdeviceptr address) {
  struct allocation found;
  return ledger_find(&account_addresses, address, &found) && found.backing == BACKING_CONVERTED;
}

static void say_once(void) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&said))
    log_warn("the driver refuses stream memory operations (cuStreamWriteValue, cuStreamWaitValue) on unified "
             "memory, which large allocations are here: set GPUSHARE_MEMORY=swap for this program");
}

void values_refused(CUdeviceptr address) {
  if (is_converted(address))
    say_once();
}

void values_refused_batch(const CUstreamBatchMemOpParams *operations, unsigned int count) {
  for (unsigned int i = 0; operations && i < count; i++)
    switch (operations[i].operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      values_refused(operations[i].waitValue.address);
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      values_refused(operations[i].writeValue.address);
      break;
    default:
      break;
    }
}
