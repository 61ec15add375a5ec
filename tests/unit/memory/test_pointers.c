/* test_pointers.c - what a program is told about swap memory: the same whether it is on the card or not. */
#include <check.h>
#include <string.h>

#include "../suite.h"
#include "driver/hooks.h"
#include "fake.h"
#include "memory/memory.h"

#define MIB (UINT64_C(1) << 20)
#define HW_DECOMPRESS ((CUpointer_attribute)21)

/* Where the memory is while it is asked about. */
enum where { ON_THE_CARD, FRESH, AWAY, WHERES };

static CUdeviceptr plain, next; /* of 3 MiB and of 1000 bytes */

static void evict(void) {
  struct memory_moved moved = {0};
  enum memory_progress progress;
  memory_close(0, true);
  while ((progress = memory_step(0, 0, &moved)) == MEMORY_MOVED)
    ;
  ck_assert_int_eq(progress, MEMORY_SETTLED);
  ck_assert_uint_eq(moved.out_bytes, 6 * MIB);
}

static void make(enum where where) {
  fake_set_memory(GS_MEMORY_SWAP);
  if (where != FRESH)
    ck_assert(memory_open(0, 0));
  ck_assert_int_eq(hook_cuMemAlloc_v2(&plain, 3 * MIB), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemAlloc_v2(&next, 1000), CUDA_SUCCESS);
  if (where == AWAY)
    evict();
  ck_assert_uint_eq(fake.mapped_bytes, where == ON_THE_CARD ? 6 * MIB : 0);
}

/* The answer, which is to be `bytes` wide and the same when it is asked for together with another. */
static uint64_t ask(CUpointer_attribute attribute, CUdeviceptr at, size_t bytes) {
  unsigned char single[16], together[16], other[8];
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_DEVICE_POINTER, attribute};
  void *data[] = {other, together};
  uint64_t value = 0;
  memset(single, 0xee, sizeof single);
  memset(together, 0xee, sizeof together);
  ck_assert_int_eq(hook_cuPointerGetAttribute(single, attribute, at), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuPointerGetAttributes(2, names, data, at), CUDA_SUCCESS);
  ck_assert_mem_eq(single, together, sizeof single);
  ck_assert_uint_eq(single[bytes], 0xee);
  ck_assert_uint_eq(single[bytes - 1] == 0xee, 0);
  memcpy(&value, single, bytes);
  return value;
}

#define WORD(name, at) ask(CU_POINTER_ATTRIBUTE_##name, at, 4)
#define WHOLE(name, at) ask(CU_POINTER_ATTRIBUTE_##name, at, 8)

START_TEST(it_looks_like_plain_memory) {
  make(_i);
  ck_assert_uint_eq(WHOLE(CONTEXT, plain + 100), (uintptr_t)FAKE_CONTEXT);
  ck_assert_uint_eq(WORD(MEMORY_TYPE, plain + 100), CU_MEMORYTYPE_DEVICE);
  ck_assert_uint_eq(WHOLE(DEVICE_POINTER, plain + 100), plain + 100);
  ck_assert_uint_eq(WORD(IS_MANAGED, plain + 100), 0);
  ck_assert_uint_eq(WORD(DEVICE_ORDINAL, plain + 100), 0);
  ck_assert_uint_eq(WHOLE(RANGE_START_ADDR, plain + 100), plain);
  ck_assert_uint_eq(WHOLE(RANGE_SIZE, plain + 100), 3 * MIB);
  ck_assert_uint_eq(WHOLE(RANGE_SIZE, next), 1000);
  ck_assert_uint_eq(WORD(MAPPED, plain + 3 * MIB - 1), 1);
  ck_assert_uint_eq(WHOLE(ALLOWED_HANDLE_TYPES, plain), 0);
  ck_assert_uint_eq(WORD(ACCESS_FLAGS, plain), CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
  ck_assert_uint_eq(WHOLE(MEMPOOL_HANDLE, plain), 0);
  ck_assert_uint_eq(WHOLE(MAPPING_SIZE, plain), 4 * MIB);
  ck_assert_uint_eq(WHOLE(MAPPING_BASE_ADDR, plain + 100), plain);
  ck_assert_uint_eq(fake.pointer_questions, 0);
}
END_TEST

START_TEST(it_is_not_fit_to_be_shared) {
  CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
  make(_i);
  ck_assert_uint_eq(WORD(IS_LEGACY_CUDA_IPC_CAPABLE, plain), 0);
  ck_assert_uint_eq(WORD(IS_GPU_DIRECT_RDMA_CAPABLE, plain), 0);
  ck_assert_uint_eq(ask(HW_DECOMPRESS, plain, 4), 0);
  ck_assert_int_eq(hook_cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, plain),
                   CUDA_ERROR_INVALID_VALUE);
  ck_assert_uint_eq(fake.pointer_questions, 0);
}
END_TEST

START_TEST(its_ids_are_its_own) {
  make(_i);
  ck_assert_uint_eq(WHOLE(BUFFER_ID, plain), WHOLE(BUFFER_ID, plain + 2 * MIB));
  ck_assert_uint_ne(WHOLE(BUFFER_ID, plain), WHOLE(BUFFER_ID, next));
  ck_assert_uint_ne(WHOLE(MEMORY_BLOCK_ID, plain), WHOLE(MEMORY_BLOCK_ID, next));
  ck_assert_uint_gt(WHOLE(BUFFER_ID, plain), UINT32_MAX); /* the driver's count up from 1 */
}
END_TEST

START_TEST(the_host_has_no_pointer_to_it) {
  void *single = &single, *together = &together;
  CUpointer_attribute name = CU_POINTER_ATTRIBUTE_HOST_POINTER;
  void *data = &together;
  make(_i);
  ck_assert_int_eq(hook_cuPointerGetAttribute(&single, name, plain), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(hook_cuPointerGetAttributes(1, &name, &data, plain), CUDA_SUCCESS);
  ck_assert_ptr_null(together);
}
END_TEST

START_TEST(bad_questions_are_refused) {
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUpointer_attribute)9999};
  uint64_t value;
  void *data[] = {&value, &value}, *none = NULL;
  make(_i);
  ck_assert_int_eq(hook_cuPointerGetAttribute(NULL, names[0], plain), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(hook_cuPointerGetAttributes(0, names, data, plain), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(hook_cuPointerGetAttributes(1, NULL, data, plain), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(hook_cuPointerGetAttributes(1, names, NULL, plain), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(hook_cuPointerGetAttributes(1, names, &none, plain), CUDA_ERROR_INVALID_VALUE);
  ck_assert_uint_eq(fake.pointer_questions, 0);
  ck_assert_int_eq(hook_cuPointerGetAttribute(&value, names[1], plain), CUDA_ERROR_INVALID_VALUE);
  ck_assert_uint_eq(fake.pointer_questions, 1); /* an attribute that only the driver knows */
  hook_cuPointerGetAttributes(2, names, data, plain);
  ck_assert_uint_eq(fake.pointer_questions, 2);
}
END_TEST

START_TEST(its_operations_synchronize_when_told_to) {
  const unsigned no = 0, yes = 1;
  make(_i);
  ck_assert_uint_eq(WORD(SYNC_MEMOPS, plain), 0);
  ck_assert_int_eq(hook_cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain + MIB),
                   CUDA_SUCCESS);
  ck_assert_uint_eq(WORD(SYNC_MEMOPS, plain), 1);
  ck_assert_uint_eq(WORD(SYNC_MEMOPS, next), 0);
  ck_assert_int_eq(hook_cuPointerSetAttribute(&no, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain), CUDA_SUCCESS);
  ck_assert_uint_eq(WORD(SYNC_MEMOPS, plain), 0);
  ck_assert_int_eq(hook_cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain),
                   CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(hook_cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_IS_MANAGED, plain),
                   CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(its_range_is_the_allocation) {
  CUdeviceptr base;
  size_t bytes;
  make(_i);
  ck_assert_int_eq(hook_cuMemGetAddressRange_v2(&base, &bytes, plain + MIB), CUDA_SUCCESS);
  ck_assert_uint_eq(base, plain);
  ck_assert_uint_eq(bytes, 3 * MIB);
  ck_assert_int_eq(hook_cuMemGetAddressRange_v2(NULL, &bytes, next + 999), CUDA_SUCCESS);
  ck_assert_uint_eq(bytes, 1000);
  ck_assert_int_eq(hook_cuMemGetAddressRange_v2(&base, NULL, next + 999), CUDA_SUCCESS);
  ck_assert_uint_eq(base, next);
  ck_assert_int_eq(hook_cuMemGetAddressRange_v2(&base, &bytes, next + 1000), CUDA_ERROR_NOT_FOUND);
  ck_assert_int_eq(hook_cuMemFree_v2(plain + MIB), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(its_pieces_are_a_secret) {
  CUmemGenericAllocationHandle handle;
  CUmemLocation card = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
  unsigned long long flags = 77;
  make(_i);
  ck_assert_int_eq(hook_cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)(plain + MIB)),
                   CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(hook_cuMemGetAccess(&flags, &card, plain + MIB), CUDA_SUCCESS);
  ck_assert_uint_eq(flags, 0);
  ck_assert_int_eq(hook_cuMemGetAccess(NULL, &card, plain), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(what_is_freed_is_not_known_any_more) {
  unsigned value;
  make(_i);
  ck_assert_int_eq(hook_cuMemFree_v2(plain), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, plain),
                   CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(hook_cuMemFree_v2(plain), CUDA_ERROR_INVALID_VALUE);
  ck_assert_uint_eq(WORD(MEMORY_TYPE, next), CU_MEMORYTYPE_DEVICE);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("pointers");
  TCase *cases = tcase_create("pointers");
  tcase_add_checked_fixture(cases, fake_install, NULL);
  tcase_add_loop_test(cases, it_looks_like_plain_memory, 0, WHERES);
  tcase_add_loop_test(cases, it_is_not_fit_to_be_shared, 0, WHERES);
  tcase_add_loop_test(cases, its_ids_are_its_own, 0, WHERES);
  tcase_add_loop_test(cases, the_host_has_no_pointer_to_it, 0, WHERES);
  tcase_add_loop_test(cases, bad_questions_are_refused, 0, WHERES);
  tcase_add_loop_test(cases, its_operations_synchronize_when_told_to, 0, WHERES);
  tcase_add_loop_test(cases, its_range_is_the_allocation, 0, WHERES);
  tcase_add_loop_test(cases, its_pieces_are_a_secret, 0, WHERES);
  tcase_add_loop_test(cases, what_is_freed_is_not_known_any_more, 0, WHERES);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}
