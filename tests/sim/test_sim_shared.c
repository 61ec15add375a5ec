/*
 * test_sim_shared.c - physical memory that goes from one process to another by its descriptor: the bytes are
 * the same, the card counts them once, and they end with the last mapping, handle or descriptor, however its
 * process ends.
 */
#include <sys/socket.h>

#include "test_sim.h"

#define BYTES (4 * MIB)

static const CUmemAccessDesc open_to_card = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                             .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static CUmemGenericAllocationHandle make(CUmemAllocationHandleType type) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .requestedHandleTypes = type,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
  CUmemGenericAllocationHandle handle;
  OK(cuMemCreate(&handle, BYTES, &prop, 0));
  return handle;
}

/* The mapping alone keeps it. */
static CUdeviceptr map(CUmemGenericAllocationHandle handle) {
  CUdeviceptr at;
  OK(cuMemAddressReserve(&at, BYTES, 0, 0, 0));
  OK(cuMemMap(at, BYTES, 0, handle, 0));
  OK(cuMemSetAccess(at, BYTES, &open_to_card, 1));
  OK(cuMemRelease(handle));
  return at;
}

static void unmap(CUdeviceptr at) {
  OK(cuMemUnmap(at, BYTES));
  OK(cuMemAddressFree(at, BYTES));
}

static CUresult export(int *fd, CUmemGenericAllocationHandle handle) {
  return cuMemExportToShareableHandle(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static CUresult import(CUmemGenericAllocationHandle *handle, int fd) {
  return cuMemImportFromShareableHandle(handle, (void *)(uintptr_t)fd,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

static void send_descriptor(int to, int fd) {
  union {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } control = {
      .align = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
  struct iovec part = {.iov_base = "x", .iov_len = 1};
  struct msghdr header = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
  memcpy(CMSG_DATA(&control.align), &fd, sizeof(fd));
  CHECK_EQ(sendmsg(to, &header, 0), 1);
  close(fd);
}

static int receive_descriptor(int from) {
  union {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } control;
  char byte;
  struct iovec part = {.iov_base = &byte, .iov_len = 1};
  struct msghdr header = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
  int fd;
  CHECK_EQ(recvmsg(from, &header, 0), 1);
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(fd));
  return fd;
}

static uint64_t card_bytes(void) {
  struct gs_sim_card card;
  CHECK_EQ(gs_sim_card_read(NULL, 0, &card), 0);
  return card.pinned_bytes;
}

static uint64_t own_bytes(void) {
  struct gs_sim_process process;
  CHECK_EQ(gs_sim_process_read(NULL, getpid(), 0, &process), 0);
  return process.pinned_bytes;
}

/* ---- the other process: has what comes, and passes it back ---- */

static void be_other(int line) {
  CUmemGenericAllocationHandle handle;
  struct gpu gpu;
  int again;
  gpu_open(&gpu);
  int fd = receive_descriptor(line);
  OK(import(&handle, fd));
  CHECK_EQ(export(&again, handle), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr half;
  OK(cuMemAddressReserve(&half, BYTES / 2, 0, 0, 0));
  CHECK_EQ(cuMemMap(half, BYTES / 2, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
  CUdeviceptr at = map(handle);
  CHECK_EQ(own_bytes(), BYTES);
  CHECK_EQ(*(const char *)(uintptr_t)at, 1);
  memset((void *)(uintptr_t)at, 2, BYTES);
  token_send(line);
  token_receive(line);
  unmap(at);
  CHECK_EQ(own_bytes(), 0);
  CHECK_EQ(card_bytes(), BYTES); /* by its descriptor alone */
  send_descriptor(line, fd);
  token_send(line);              /* it has none any more */
  fd = receive_descriptor(line); /* another one, that dies with this process */
  OK(import(&handle, fd));
  close(fd);
  map(handle);
  token_send(line);
  for (;;)
    pause();
}

static void test_descriptors(void) {
  CUmemGenericAllocationHandle handle = make(CU_MEM_HANDLE_TYPE_NONE);
  int fd, ends[2];
  CHECK_EQ(export(&fd, handle), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemRelease(handle));
  CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  CHECK_EQ(import(&handle, ends[0]), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(import(&handle, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(import(&handle, 12345), CUDA_ERROR_INVALID_VALUE);
  close(ends[0]);
  close(ends[1]);
  CHECK_EQ(card_bytes(), 0);
}

static void test_sharing(pid_t child, int line) {
  CUmemGenericAllocationHandle handle = make(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  int fd, second;
  OK(export(&fd, handle));
  OK(export(&second, handle));
  CUdeviceptr at = map(handle);
  memset((void *)(uintptr_t)at, 1, BYTES);
  close(fd);
  send_descriptor(line, second);
  token_receive(line);
  CHECK_EQ(*(const char *)(uintptr_t)at, 2);
  CHECK_EQ(card_bytes(), BYTES);
  CHECK_EQ(own_bytes(), 0); /* it counts as the other one's */
  unmap(at);
  CHECK_EQ(card_bytes(), BYTES);
  token_send(line);
  fd = receive_descriptor(line);
  token_receive(line);
  OK(import(&handle, fd)); /* its own, once more */
  at = map(handle);
  CHECK_EQ(*(const char *)(uintptr_t)at, 2);
  CHECK_EQ(own_bytes(), BYTES);
  close(fd);
  unmap(at);
  CHECK_EQ(card_bytes(), 0);
  handle = make(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  OK(export(&fd, handle));
  at = map(handle);
  send_descriptor(line, fd);
  token_receive(line);
  CHECK_EQ(own_bytes(), 0);
  CHECK_EQ(kill(child, SIGKILL), 0);
  child_status(child);
  CHECK_EQ(card_bytes(), BYTES);
  CHECK_EQ(own_bytes(), BYTES);
  unmap(at);
  CHECK_EQ(card_bytes(), 0);
}

/* Nobody has the memory; a descriptor of it lies in a socket, whose end is another process'. */
static void test_flight(void) {
  int ends[2], fd;
  CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  pid_t other = fork();
  if (other == 0)
    for (;;)
      pause();
  close(ends[1]);
  CUmemGenericAllocationHandle handle = make(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  OK(export(&fd, handle));
  send_descriptor(ends[0], fd);
  OK(cuMemRelease(handle));
  CHECK_EQ(own_bytes(), 0);
  CHECK_EQ(card_bytes(), BYTES);
  close(ends[0]);
  CHECK_EQ(card_bytes(), BYTES);
  CHECK_EQ(kill(other, SIGKILL), 0);
  child_status(other);
  CHECK_EQ(card_bytes(), 0);
}

int main(void) {
  struct gpu gpu;
  int ends[2];
  use_card("small,capacity=64MiB");
  CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  pid_t child = child_start(be_other, ends[1]);
  close(ends[1]);
  gpu_open(&gpu);
  test_descriptors();
  test_sharing(child, ends[0]);
  test_flight();
  gpu_close(&gpu);
  return 0;
}
