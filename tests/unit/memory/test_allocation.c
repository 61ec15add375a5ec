/* test_allocation.c - plain allocations, physical memory, arrays, and what the program is told of them. */
#include <check.h>
#include <limits.h>
#include <stdlib.h>

#include "../suite.h"
#include "driver/hooks.h"
#include "fake.h"
#include "memory/memory.h"
#include "memory/pinned.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static CUdeviceptr get(size_t bytes) {
  CUdeviceptr address = 0;
  ck_assert_int_eq(hook_cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
  return address;
}

static void expect_usage(uint64_t total, uint64_t pinned) {
  struct memory_usage usage = memory_usage(0);
  ck_assert_uint_eq(usage.total_bytes, total);
  ck_assert_uint_eq(usage.pinned_bytes, pinned);
}

START_TEST(plain_memory_becomes_unified_memory_on_the_card) {
  CUdeviceptr address = get(8 * MIB);
  ck_assert_int_eq(fake_kind(address), FAKE_MANAGED);
  ck_assert_uint_eq(fake.advices, 1);
  ck_assert_uint_eq(fake.bytes_in, 8 * MIB);
  expect_usage(8 * MIB, 0);
  ck_assert_int_eq(hook_cuMemFree_v2(address + 1), CUDA_ERROR_INVALID_VALUE);
  expect_usage(8 * MIB, 0);
  ck_assert_int_eq(hook_cuMemFree_v2(address), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(hook_cuMemFree_v2(0), CUDA_SUCCESS);
  expect_usage(0, 0);
  ck_assert_uint_eq(fake.strict_calls, 0);
}
END_TEST

START_TEST(switched_off_or_unable_it_stays_what_it_is) {
  fake_set_memory(_i == 0 ? GS_MEMORY_OFF : GS_MEMORY_MANAGED);
  fake.no_concurrent_access = _i == 1;
  CUdeviceptr address = get(8 * MIB);
  ck_assert_int_eq(fake_kind(address), FAKE_DEVICE);
  ck_assert_uint_eq(fake.advices + fake.prefetches_in, 0);
  expect_usage(8 * MIB, 8 * MIB);
  size_t left, total;
  ck_assert_int_eq(hook_cuMemGetInfo_v2(&left, &total), CUDA_SUCCESS);
  ck_assert_uint_eq(left, FAKE_CARD_BYTES / 2); /* what is not there cannot be had */
  ck_assert_int_eq(hook_cuMemFree_v2(address), CUDA_SUCCESS);
  expect_usage(0, 0);
}
END_TEST

START_TEST(bad_arguments_get_the_drivers_answer) {
  CUdeviceptr address;
  size_t pitch;
  ck_assert_int_eq(hook_cuMemAlloc_v2(&address, 0), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(hook_cuMemAlloc_v2(NULL, 1), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(hook_cuMemAllocPitch_v2(&address, NULL, 1, 1, 4), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(hook_cuMemAllocPitch_v2(&address, &pitch, 0, 1, 4), CUDA_ERROR_INVALID_VALUE);
  fake.no_context = true;
  hook_cuMemAlloc_v2(&address, 1);
  ck_assert_uint_eq(fake.managed_allocs, 0);
}
END_TEST

START_TEST(free_plus_own_use_is_the_card) {
  size_t left, total;
  unsigned left32, total32;
  get(3 * GIB);
  ck_assert_int_eq(hook_cuMemGetInfo_v2(&left, &total), CUDA_SUCCESS);
  ck_assert_uint_eq(total, FAKE_CARD_BYTES);
  ck_assert_uint_eq(left, 13 * GIB);
  ck_assert_int_eq(hook_cuDeviceTotalMem_v2(&total, 0), CUDA_SUCCESS);
  ck_assert_uint_eq(total, FAKE_CARD_BYTES);
  ck_assert_int_eq(hook_cuMemGetInfo(&left32, &total32), CUDA_SUCCESS);
  ck_assert_uint_eq(left32, UINT_MAX);
  CUdeviceptr address;
  ck_assert_int_eq(hook_cuMemAlloc_v2(&address, 13 * GIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
  get(13 * GIB);
  ck_assert_int_eq(hook_cuMemGetInfo_v2(&left, &total), CUDA_SUCCESS);
  ck_assert_uint_eq(left, 0);
}
END_TEST

START_TEST(a_pitched_allocation_has_the_drivers_pitch) {
  static const size_t widths[][2] = {{1, 512}, {512, 512}, {513, 1024}, {5000, 5120}};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
    CUdeviceptr address;
    size_t pitch = 0;
    ck_assert_int_eq(hook_cuMemAllocPitch_v2(&address, &pitch, widths[i][0], 10, 4), CUDA_SUCCESS);
    ck_assert_uint_eq(pitch, widths[i][1]);
    expect_usage(10 * pitch, 0);
    ck_assert_int_eq(hook_cuMemFree_v2(address), CUDA_SUCCESS);
  }
  CUdeviceptr address;
  size_t pitch;
  ck_assert_int_ne(hook_cuMemAllocPitch_v2(&address, &pitch, SIZE_MAX / 2, 4, 4), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemAllocPitch_v2(&address, &pitch, 100, 100, 3), CUDA_ERROR_INVALID_VALUE);
  expect_usage(0, 0);
}
END_TEST

START_TEST(converted_memory_looks_plain_and_the_programs_own_does_not) {
  CUdeviceptr plain = get(MIB), own, inside = plain + 100;
  ck_assert_int_eq(hook_cuMemAllocManaged(&own, MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  unsigned managed = 7;
  CUdeviceptr pointer = 7;
  ck_assert_int_eq(hook_cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, inside),
                   CUDA_SUCCESS);
  ck_assert_uint_eq(managed, 0);
  ck_assert_int_eq(hook_cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside),
                   CUDA_ERROR_INVALID_VALUE);
  ck_assert_uint_eq(pointer, 7);
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
  CUdeviceptr host = 7, device = 7;
  void *data[] = {&host, &managed, &device};
  managed = 7;
  ck_assert_int_eq(hook_cuPointerGetAttributes(3, names, data, inside), CUDA_SUCCESS);
  ck_assert_uint_eq(host, 0);
  ck_assert_uint_eq(managed, 0);
  ck_assert_uint_eq(device, inside);
  ck_assert_int_eq(hook_cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, own), CUDA_SUCCESS);
  ck_assert_uint_eq(managed, 1);
  ck_assert_int_eq(hook_cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, own),
                   CUDA_SUCCESS);
  ck_assert_uint_eq(pointer, own);
}
END_TEST

static unsigned sync_memops(CUdeviceptr address) {
  unsigned single = 0, together = 0;
  CUpointer_attribute name = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
  void *data = &together;
  ck_assert_int_eq(hook_cuPointerGetAttribute(&single, name, address), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuPointerGetAttributes(1, &name, &data, address), CUDA_SUCCESS);
  ck_assert_uint_eq(single, together);
  return single;
}

START_TEST(plain_memory_synchronizes_only_when_told_to) {
  const unsigned no = 0, yes = 0x100;
  CUdeviceptr plain = get(MIB), next = get(MIB), own;
  ck_assert_int_eq(hook_cuMemAllocManaged(&own, MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  ck_assert_uint_eq(sync_memops(plain), 0);
  ck_assert_uint_eq(sync_memops(own), 1);
  ck_assert_int_eq(hook_cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain + 100),
                   CUDA_SUCCESS);
  ck_assert_uint_eq(sync_memops(plain), 1);
  ck_assert_uint_eq(sync_memops(next), 0);
  ck_assert_int_eq(hook_cuPointerSetAttribute(&no, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain), CUDA_SUCCESS);
  ck_assert_uint_eq(sync_memops(plain), 0);
  ck_assert_int_eq(hook_cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_IS_MANAGED, plain),
                   CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(hook_cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain),
                   CUDA_ERROR_INVALID_VALUE);
  ck_assert_uint_eq(sync_memops(plain), 0);
}
END_TEST

START_TEST(a_bool_is_not_written_beyond_its_byte) {
  CUdeviceptr plain = get(MIB);
  unsigned managed = 0x01020301; /* the driver writes 4 bytes, we must not change more than it takes */
  ck_assert_int_eq(hook_cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, plain),
                   CUDA_SUCCESS);
  ck_assert_uint_eq(managed, 0);
}
END_TEST

START_TEST(memory_that_can_leave_the_card_is_not_shared) {
  static const int modes[] = {GS_MEMORY_MANAGED, GS_MEMORY_SWAP, GS_MEMORY_OFF};
  CUipcMemHandle handle;
  CUmemPoolPtrExportData data;
  int file;
  fake_set_memory(modes[_i]);
  CUdeviceptr address = get(2 * MIB);
  CUresult expected = modes[_i] == GS_MEMORY_OFF ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
  ck_assert_int_eq(hook_cuIpcGetMemHandle(&handle, address), expected);
  ck_assert_int_eq(
      hook_cuMemGetHandleForAddressRange(&file, address + MIB, MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
      expected);
  if (modes[_i] != GS_MEMORY_OFF)
    ck_assert_int_eq(hook_cuMemPoolExportPointer(&data, address), CUDA_ERROR_NOT_SUPPORTED);
}
END_TEST

/* Of the kinds that stay the driver's own. */
START_TEST(physical_memory_counts_until_its_last_reference) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .allocFlags = {.usage = CU_MEM_CREATE_USAGE_TILE_POOL},
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
  CUmemGenericAllocationHandle handle, again, other;
  CUdeviceptr place;
  ck_assert_int_eq(hook_cuMemCreate(&handle, 4 * MIB, &prop, 0), CUDA_SUCCESS);
  expect_usage(4 * MIB, 4 * MIB);
  place = (CUdeviceptr)handle << 32;
  ck_assert_int_eq(hook_cuMemMap(place, 2 * MIB, 0, handle, 0), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemMap(place + 2 * MIB, 2 * MIB, 2 * MIB, handle, 0), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemRelease(handle), CUDA_SUCCESS);
  expect_usage(4 * MIB, 4 * MIB); /* still mapped */
  ck_assert_int_eq(hook_cuMemCreate(&other, MIB, &prop, 0), CUDA_SUCCESS);
  ck_assert_uint_eq(other, handle); /* the number is used again for other memory */
  expect_usage(5 * MIB, 5 * MIB);
  ck_assert_int_eq(hook_cuMemRelease(other), CUDA_SUCCESS);
  expect_usage(4 * MIB, 4 * MIB);
  ck_assert_int_eq(hook_cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)place), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemUnmap(place, 4 * MIB), CUDA_SUCCESS);
  expect_usage(4 * MIB, 4 * MIB); /* a handle again */
  ck_assert_int_eq(hook_cuMemRelease(again), CUDA_SUCCESS);
  expect_usage(0, 0);
  ck_assert_int_eq(hook_cuMemRelease(again), CUDA_ERROR_INVALID_VALUE);
  expect_usage(0, 0);
}
END_TEST

START_TEST(arrays_count_by_their_shape) {
  CUDA_ARRAY_DESCRIPTOR shape = {
      .Width = 1024, .Height = 512, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
  CUarray array;
  ck_assert_int_eq(hook_cuArrayCreate_v2(&array, &shape), CUDA_SUCCESS);
  expect_usage(8 * MIB, 8 * MIB);
  ck_assert_int_eq(hook_cuArrayDestroy(array), CUDA_SUCCESS);
  expect_usage(0, 0);
  CUDA_ARRAY3D_DESCRIPTOR cube = {
      .Width = 64, .Height = 64, .Depth = 64, .Format = CU_AD_FORMAT_HALF, .NumChannels = 1};
  ck_assert_uint_eq(array_bytes(&cube, 1), 512 << 10);
  ck_assert_uint_eq(array_bytes(&cube, 2), (512 + 64) << 10);
  cube.Flags = CUDA_ARRAY3D_LAYERED;
  ck_assert_uint_eq(array_bytes(&cube, 2), (512 + 128) << 10);
  cube.Flags = CUDA_ARRAY3D_SPARSE;
  ck_assert_uint_eq(array_bytes(&cube, 1), 0);
  cube = (CUDA_ARRAY3D_DESCRIPTOR){
      .Width = SIZE_MAX, .Height = SIZE_MAX, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
  ck_assert_uint_eq(array_bytes(&cube, 3), UINT64_MAX);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("allocation");
  TCase *cases = tcase_create("allocation");
  tcase_add_checked_fixture(cases, fake_install, NULL);
  tcase_add_test(cases, plain_memory_becomes_unified_memory_on_the_card);
  tcase_add_loop_test(cases, switched_off_or_unable_it_stays_what_it_is, 0, 2);
  tcase_add_test(cases, bad_arguments_get_the_drivers_answer);
  tcase_add_test(cases, free_plus_own_use_is_the_card);
  tcase_add_test(cases, a_pitched_allocation_has_the_drivers_pitch);
  tcase_add_test(cases, converted_memory_looks_plain_and_the_programs_own_does_not);
  tcase_add_test(cases, plain_memory_synchronizes_only_when_told_to);
  tcase_add_test(cases, a_bool_is_not_written_beyond_its_byte);
  tcase_add_loop_test(cases, memory_that_can_leave_the_card_is_not_shared, 0, 3);
  tcase_add_test(cases, physical_memory_counts_until_its_last_reference);
  tcase_add_test(cases, arrays_count_by_their_shape);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}
