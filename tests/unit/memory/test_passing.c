/*
 * test_passing.c - physical memory passes between processes: the library is one of the two, and the test
 * plays the other one; or both are.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../suite.h"
#include "common/descriptor.h"
#include "common/wire.h"
#include "driver/driver.h"
#include "memory/backend.h"
#include "memory/forked.h"
#include "memory/swap/passing.h"
#include "sim.h"
#include "swap_world.h"

#define OTHER_UID 65534

/* What goes with a descriptor, as passing.c has it. */
struct note {
  uint64_t magic, key, bytes;
};
#define NOTE_MAGIC UINT64_C(0x7373617065726168)

static void setup(void) {
  world_start("small,gpus=2,capacity=1 GiB,scale=0");
  passing_expect(0, true);
}

static unsigned count_descriptors(void) {
  unsigned count = 0;
  DIR *folder = opendir("/proc/self/fd");
  while (readdir(folder))
    count++;
  closedir(folder);
  return count;
}

static uint64_t counter(enum gs_sim_counter which) {
  struct gs_sim_process process;
  ck_assert_int_eq(gs_sim_process_read(NULL, getpid(), 0, &process), 0);
  return process.counters[which];
}

static uint64_t card_bytes(void) {
  struct gs_sim_card card;
  ck_assert_int_eq(gs_sim_card_read(NULL, 0, &card), 0);
  return card.pinned_bytes;
}

/* ---- the other one, played ---- */

static socklen_t set_address(struct sockaddr_un *address, uint64_t name) {
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  int length = snprintf(address->sun_path + 1, 64, "gpushare-pass-%016" PRIx64, name);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int try_to_reach(void) {
  struct sockaddr_un address;
  socklen_t size = set_address(&address, passing_own(0).name);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (connect(fd, (struct sockaddr *)&address, size) == 0)
    return fd;
  close(fd);
  return -1;
}

/* As the one that leaves. */
static int reach(void) {
  int fd = try_to_reach();
  ck_assert_int_ge(fd, 0);
  return fd;
}

static bool is_listened(void) {
  int fd = try_to_reach();
  if (fd >= 0)
    close(fd);
  return fd >= 0;
}

/* One byte per stride: pages that are written are most of the time of these tests. */
static void mark(char *memory, size_t bytes, size_t stride, int byte) {
  for (size_t i = 0; i < bytes; i += stride)
    memory[i] = (char)byte;
}

/* A descriptor of memory of a GPU, marked with a byte, which nothing else keeps. */
static int make_memory(CUdevice device, size_t bytes, int byte) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
  CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr at;
  int fd;
  ck_assert_int_eq(driver.cuMemCreate(&handle, bytes, &prop, 0), CUDA_SUCCESS);
  ck_assert_int_eq(driver.cuMemAddressReserve(&at, bytes, 0, 0, 0), CUDA_SUCCESS);
  ck_assert_int_eq(driver.cuMemMap(at, bytes, 0, handle, 0), CUDA_SUCCESS);
  ck_assert_int_eq(driver.cuMemSetAccess(at, bytes, &access, 1), CUDA_SUCCESS);
  mark((char *)(uintptr_t)at, bytes, 16 * 4096, byte);
  ck_assert_int_eq(
      driver.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      CUDA_SUCCESS);
  ck_assert_int_eq(driver.cuMemUnmap(at, bytes), CUDA_SUCCESS);
  ck_assert_int_eq(driver.cuMemRelease(handle), CUDA_SUCCESS);
  ck_assert_int_eq(driver.cuMemAddressFree(at, bytes), CUDA_SUCCESS);
  return fd;
}

static struct note right_note(void) {
  return (struct note){.magic = NOTE_MAGIC, .key = passing_own(0).key, .bytes = PIECE_BYTES};
}

static void pass(int to, int memory) {
  struct note note = right_note();
  ck_assert_int_eq(wire_send_passing(to, &note, sizeof note, memory), 0);
  close(memory);
}

static bool is_hung_up(int fd) {
  char byte;
  ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN);
}

static unsigned count_answers(int fd) {
  unsigned count = 0;
  while (recv(fd, &(char){0}, 1, MSG_DONTWAIT) == 1)
    count++;
  return count;
}

/* Memory of this process that has left; it waits for what may come. */
static char *leave(size_t bytes, uint64_t seed) {
  world_open();
  char *memory = world_get(bytes);
  world_fill(memory, bytes, seed);
  backend_swap.close(0, true);
  ck_assert_int_eq(world_settle(0, NULL), MEMORY_SETTLED);
  ck_assert_int_eq(world_settle(0, NULL), MEMORY_SETTLED); /* it waits */
  ck_assert_uint_eq(backend_swap.resident_bytes(0), 0);
  return memory;
}

/* ---- in ---- */

START_TEST(passed_memory_is_mapped) {
  char *memory = leave(3 * PIECE_BYTES, 1);
  uint64_t created = counter(GS_SIM_created);
  int to = reach();
  pass(to, make_memory(0, PIECE_BYTES, 7));
  pass(to, make_memory(0, PIECE_BYTES, 8));
  uint64_t played = counter(GS_SIM_created) - created;
  world_open();
  ck_assert_uint_eq(counter(GS_SIM_created) - created - played, 1);
  ck_assert(world_intact(memory, 3 * PIECE_BYTES, 1));
  ck_assert_uint_eq(count_answers(to), 2);
  ck_assert(is_hung_up(to));
  world_check_books();
  close(to);
}
END_TEST

/* Of those that pass memory at the same time, each. */
START_TEST(several_may_pass) {
  char *memory = leave(6 * PIECE_BYTES, 1);
  int to[3];
  for (int i = 0; i < 3; i++)
    pass(to[i] = reach(), make_memory(0, PIECE_BYTES, i));
  for (int i = 2; i >= 0; i--)
    pass(to[i], make_memory(0, PIECE_BYTES, i));
  uint64_t created = counter(GS_SIM_created);
  world_open();
  ck_assert_uint_eq(counter(GS_SIM_created), created);
  ck_assert(world_intact(memory, 6 * PIECE_BYTES, 1));
}
END_TEST

enum fault {
  FAULT_MAGIC,
  FAULT_KEY,
  FAULT_BYTES,
  FAULT_SHORT,
  FAULT_LONG,
  FAULT_NO_DESCRIPTOR,
  FAULT_TWO,
  FAULT_NO_MEMORY,
  FAULT_SMALL,
  FAULT_LARGE,
  FAULT_OTHER_GPU,
  FAULTS
};

static void send_many(int to, const struct note *note, int passed, int count) {
  union {
    char bytes[CMSG_SPACE(16 * sizeof(int))];
    struct cmsghdr align;
  } control = {.align = {.cmsg_len = CMSG_LEN((size_t)count * sizeof(int)),
                         .cmsg_level = SOL_SOCKET,
                         .cmsg_type = SCM_RIGHTS}};
  struct iovec part = {.iov_base = (void *)(uintptr_t)note, .iov_len = sizeof *note};
  struct msghdr header = {.msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
  for (int i = 0; i < count; i++)
    memcpy(CMSG_DATA(&control.align) + (size_t)i * sizeof passed, &passed, sizeof passed);
  ck_assert_int_eq(sendmsg(to, &header, 0), sizeof *note);
}

static void pass_wrong(int to, enum fault fault) {
  struct {
    struct note note;
    char more[100];
  } packet = {.note = right_note()};
  size_t size = fault == FAULT_SHORT ? 10 : fault == FAULT_LONG ? sizeof packet : sizeof packet.note;
  int memory = fault == FAULT_NO_MEMORY ? open("/dev/null", O_RDONLY)
               : fault == FAULT_SMALL   ? make_memory(0, PIECE_BYTES / 2, 1)
               : fault == FAULT_LARGE   ? make_memory(0, PIECE_BYTES * 2, 1)
                                        : make_memory(fault == FAULT_OTHER_GPU, PIECE_BYTES, 1);
  packet.note.magic ^= fault == FAULT_MAGIC;
  packet.note.key ^= fault == FAULT_KEY;
  packet.note.bytes -= fault == FAULT_BYTES ? MIB : 0;
  if (fault == FAULT_NO_DESCRIPTOR)
    ck_assert_int_eq(send(to, &packet, size, 0), size);
  else if (fault == FAULT_TWO) {
    send_many(to, &packet.note, memory, 2);
    send_many(to, &packet.note, memory, 3);
    send_many(to, &packet.note, memory, 16);
  } else
    ck_assert_int_eq(wire_send_passing(to, &packet, size, memory), 0);
  close(memory);
}

/* It is as if nothing had come, and the sender is not listened to any more. */
START_TEST(what_is_wrong_is_ignored) {
  char *memory = leave(2 * PIECE_BYTES, 1);
  int to = reach();
  pass_wrong(to, (enum fault)_i);
  uint64_t created = counter(GS_SIM_created);
  unsigned descriptors = count_descriptors();
  if (_i != FAULT_TWO)
    pass(to, make_memory(0, PIECE_BYTES, 1)); /* too late */
  created = counter(GS_SIM_created);
  ck_assert_int_eq(world_settle(UINT64_MAX, NULL), MEMORY_SETTLED);
  ck_assert(is_hung_up(to));
  ck_assert(backend_swap.open(0, true, true));
  ck_assert_uint_eq(counter(GS_SIM_created) - created, 2);
  ck_assert(world_intact(memory, 2 * PIECE_BYTES, 1));
  world_check_books();
  ck_assert_uint_eq(card_bytes(), 2 * PIECE_BYTES);
  ck_assert_uint_eq(count_descriptors(), descriptors + 1); /* the simulator has two more, we have none */
  close(to);
}
END_TEST

/* What is passed has another one's contents: new memory is new. What is left over is given back. */
START_TEST(fresh_pieces_are_not_passed_ones) {
  char *away = leave(PIECE_BYTES, 1), *fresh = world_get(2 * PIECE_BYTES);
  int to = reach();
  for (int i = 0; i < 3; i++)
    pass(to, make_memory(0, PIECE_BYTES, 0x5a));
  world_open();
  ck_assert(world_intact(away, PIECE_BYTES, 1));
  for (size_t i = 0; i < 2 * PIECE_BYTES; i += 4096)
    ck_assert_int_ne(fresh[i], 0x5a);
  ck_assert_uint_eq(count_answers(to), 1);
  ck_assert_uint_eq(card_bytes(), 3 * PIECE_BYTES);
}
END_TEST

/* A full card is not kept full by what can't be used. */
START_TEST(what_can_not_be_used_makes_way) {
  char *away = leave(PIECE_BYTES, 1), *fresh = world_get(GIB - PIECE_BYTES);
  int to = reach();
  for (int i = 0; i < 4; i++)
    pass(to, make_memory(0, PIECE_BYTES, 1));
  world_open();
  ck_assert(world_intact(away, PIECE_BYTES, 1));
  mark(fresh, GIB - PIECE_BYTES, GRAIN_BYTES, 2); /* all is mapped */
  ck_assert_uint_eq(count_answers(to), 4);
  ck_assert_uint_eq(card_bytes(), GIB);
}
END_TEST

/* Nor by what waits behind those that are listened to. */
START_TEST(many_that_have_passed_make_way) {
  char *away = leave(PIECE_BYTES, 1), *fresh = world_get(GIB - PIECE_BYTES);
  for (int i = 0; i < 5; i++)
    pass(reach(), make_memory(0, PIECE_BYTES, 1));
  world_open();
  ck_assert(world_intact(away, PIECE_BYTES, 1));
  mark(fresh, GIB - PIECE_BYTES, GRAIN_BYTES, 2); /* all is mapped */
  ck_assert_uint_eq(card_bytes(), GIB);
}
END_TEST

/* One after the other, each for good. */
START_TEST(many_may_pass_and_end) {
  char *memory = leave(8 * PIECE_BYTES, 1);
  uint64_t imported = counter(GS_SIM_imported);
  for (int i = 0; i < 8; i++) {
    int to = reach();
    pass(to, make_memory(0, PIECE_BYTES, 1));
    ck_assert_int_eq(shutdown(to, SHUT_WR), 0);
    world_settle((uint64_t)(i + 1) * PIECE_BYTES, NULL);
  }
  ck_assert_uint_eq(counter(GS_SIM_imported) - imported, 8);
  world_open();
  ck_assert(world_intact(memory, 8 * PIECE_BYTES, 1));
}
END_TEST

/* It runs as soon as all is there, and nobody need look again. */
START_TEST(nothing_comes_any_more_once_it_runs) {
  struct memory_moved moved = {0};
  leave(2 * PIECE_BYTES, 1);
  int to = reach();
  for (int i = 0; i < 3; i++)
    pass(to, make_memory(0, PIECE_BYTES, 1));
  while (!backend_swap.open(0, true, true))
    backend_swap.step(0, UINT64_MAX, &moved);
  ck_assert_uint_eq(count_answers(to), 2);
  ck_assert(is_hung_up(to));
  ck_assert_uint_eq(card_bytes(), 2 * PIECE_BYTES);
}
END_TEST

/* The turn ends before anything has come: nothing stays. */
START_TEST(nothing_is_left_after_a_turn) {
  char *memory = leave(4 * PIECE_BYTES, 1);
  int to = reach();
  for (int i = 0; i < 3; i++)
    pass(to, make_memory(0, PIECE_BYTES, 1));
  ck_assert_uint_eq(card_bytes(), 3 * PIECE_BYTES);
  passing_expect(0, false);
  backend_swap.close(0, true);
  ck_assert(is_hung_up(to));
  ck_assert_uint_eq(card_bytes(), 0);
  world_settle(0, NULL);
  ck_assert(!is_listened()); /* it waits for another turn */
  passing_expect(0, true);
  world_settle(0, NULL);
  ck_assert(is_listened());
  world_open();
  ck_assert(world_intact(memory, 4 * PIECE_BYTES, 1));
}
END_TEST

/* The simulator's are from 700 on. */
static int count_own(int from) {
  int own = 0;
  for (int fd = from; fd < 700; fd++)
    own += fcntl(fd, F_GETFD) >= 0;
  return own;
}

static pthread_t forking;
static _Atomic int forking_state; /* a descriptor of its stat file, from before the fork on */

/* The number of descriptors that a child has beside that one. */
static void *fork_once(void *unused) {
  int status, state = open("/proc/thread-self/stat", O_RDONLY | O_CLOEXEC);
  atomic_store(&forking_state, state);
  passing_fork_prepare();
  pid_t child = fork();
  if (child == 0) {
    close(state);
    forked_forget_all();
    _exit(count_own(3));
  }
  passing_fork_parent();
  return waitpid(child, &status, 0) == child ? (void *)(intptr_t)WEXITSTATUS(status) : unused;
}

/* Or has ended. */
static bool is_asleep(int state) {
  char text[128] = "";
  ssize_t size = pread(state, text, sizeof text - 1, 0);
  const char *name_end = strrchr(text, ')');
  return size <= 0 || !name_end || strncmp(name_end, ") S", 3) == 0;
}

/* It goes on once the fork waits for us, or for the child. */
static void begin_fork(void) {
  ck_assert_int_eq(pthread_create(&forking, NULL, fork_once, NULL), 0);
  while (!atomic_load(&forking_state) || !is_asleep(atomic_load(&forking_state)))
    suite_pause();
}

static int end_fork(void) {
  void *result;
  ck_assert_int_eq(pthread_join(forking, &result), 0);
  ck_assert_int_eq(close(atomic_exchange(&forking_state, 0)), 0);
  return (int)(intptr_t)result;
}

static CUresult (*real_import)(CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType);

static CUresult import_while_a_child_begins(CUmemGenericAllocationHandle *handle, void *fd,
                                            CUmemAllocationHandleType type) {
  begin_fork();
  return real_import(handle, fd, type);
}

/* Also of what has just come. */
START_TEST(a_child_has_nothing_that_comes) {
  leave(PIECE_BYTES, 1);
  int to = reach();
  pass(to, make_memory(0, PIECE_BYTES, 1));
  close(to);
  passing_end_in(space_of(0));
  int before = count_own(3);
  world_settle(0, NULL);
  pass(to = reach(), make_memory(0, PIECE_BYTES, 1));
  close(to);
  real_import = driver.cuMemImportFromShareableHandle;
  driver.cuMemImportFromShareableHandle = import_while_a_child_begins;
  world_open();
  ck_assert_int_eq(end_fork(), before);
}
END_TEST

/* A program that has closed one of ours gives its number to the next: that is another piece's memory. */
START_TEST(a_number_is_of_one_piece) {
  char *memory = leave(2 * PIECE_BYTES, 1);
  const struct block *block = space_of(0)->oldest;
  int to = reach();
  for (int i = 0; i < 2; i++) {
    pass(to, make_memory(0, PIECE_BYTES, 1));
    world_settle((uint64_t)(i + 1) * PIECE_BYTES, NULL);
    ck_assert_int_eq(block->piece[i].passed != 0, i == 0);
    close(block->piece[0].passed);
  }
  world_open();
  ck_assert(world_intact(memory, 2 * PIECE_BYTES, 1));
}
END_TEST

/* Of another user. Without root it can't be played. */
START_TEST(strangers_are_not_heard) {
  char *memory = leave(2 * PIECE_BYTES, 1);
  int passed = make_memory(0, PIECE_BYTES, 1), status;
  if (geteuid() != 0) {
    printf("skipped, as it needs root: strangers_are_not_heard\n");
    return;
  }
  struct note note = right_note();
  struct sockaddr_un address;
  socklen_t size = set_address(&address, passing_own(0).name);
  pid_t child = fork();
  if (child == 0) {
    if (setuid(OTHER_UID) < 0)
      _exit(1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    _exit(connect(fd, (struct sockaddr *)&address, size) < 0 ||
          wire_send_passing(fd, &note, sizeof note, passed) < 0);
  }
  close(passed);
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  uint64_t created = counter(GS_SIM_created);
  world_open();
  ck_assert_uint_eq(counter(GS_SIM_created) - created, 2);
  ck_assert(world_intact(memory, 2 * PIECE_BYTES, 1));
}
END_TEST

/* The program may close any number. */
START_TEST(closed_sockets_are_made_anew) {
  char *memory = leave(2 * PIECE_BYTES, 1);
  int to = reach();
  pass(to, make_memory(0, PIECE_BYTES, 1));
  for (int fd = DESCRIPTOR_LEAST; fd < DESCRIPTOR_LEAST + 64; fd++)
    close(fd);
  ck_assert_int_eq(open("/dev/null", O_RDONLY) < 0, 0);
  world_open();
  ck_assert(world_intact(memory, 2 * PIECE_BYTES, 1));
  ck_assert_uint_eq(backend_swap.resident_bytes(0), 2 * PIECE_BYTES);
}
END_TEST

/* A child of a fork that goes on would keep the memory on the card. */
START_TEST(a_child_has_none_of_it) {
  int ends[2], status;
  char *memory = leave(4 * PIECE_BYTES, 1);
  int to = reach();
  for (int i = 0; i < 4; i++)
    pass(to, make_memory(0, PIECE_BYTES, 1));
  close(to);
  unsigned before = count_descriptors();
  struct memory_moved moved = {0};
  backend_swap.step(0, 3 * PIECE_BYTES, &moved); /* some are mapped, one is not, and the sockets are there */
  ck_assert_uint_gt(count_descriptors(), before + 3);
  ck_assert_int_eq(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    forked_forget_all();
    _exit(count_own(DESCRIPTOR_LEAST));
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  world_open();
  ck_assert(world_intact(memory, 4 * PIECE_BYTES, 1));
}
END_TEST

/* A program that may have few descriptors keeps them. */
START_TEST(few_descriptors_are_kept) {
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = 1024;
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
  for (int i = 0; i < 253; i++) /* all but three of a quarter */
    ck_assert_int_ge(fcntl(0, F_DUPFD, DESCRIPTOR_LEAST), 0);
  char *memory = leave(6 * PIECE_BYTES, 1);
  int to = reach();
  unsigned before = count_descriptors();
  for (int i = 0; i < 6; i++)
    pass(to, make_memory(0, PIECE_BYTES, 1));
  world_open();
  ck_assert(world_intact(memory, 6 * PIECE_BYTES, 1));
  ck_assert_uint_eq(count_answers(to), 6);
  ck_assert_uint_eq(count_descriptors(), before); /* our sockets had two numbers: one is left for memory */
}
END_TEST

/* ---- out ---- */

static const struct gs_pass heirs = {.name = UINT64_C(0x1234567890abcdef), .key = 99};

/* As the heir. */
static int listen_as(uint64_t name) {
  struct sockaddr_un address;
  socklen_t size = set_address(&address, name ^ (uint64_t)getpid());
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, size), 0);
  ck_assert_int_eq(listen(fd, 4), 0);
  return fd;
}

static void name_heir(pid_t process, pid_t pid) {
  struct memory_heir heir = {.pass = heirs, .pid = pid};
  heir.pass.name ^= (uint64_t)process;
  passing_set_heir(0, &heir);
}

/* How many right ones have come; they are kept. */
static unsigned count_passed(int fd, int kept[], unsigned count) {
  struct note note;
  int passed;
  while (wire_recv_passed(fd, &note, sizeof note, &passed) == sizeof note) {
    ck_assert_uint_eq(note.magic, NOTE_MAGIC);
    ck_assert_uint_eq(note.key, heirs.key);
    ck_assert_uint_eq(note.bytes, PIECE_BYTES);
    ck_assert_int_ge(passed, 0);
    kept[count++] = passed;
  }
  return count;
}

/* So many are passed before one is answered; after that, one more for each answer. */
START_TEST(few_are_passed_unanswered) {
  int listening = listen_as(heirs.name), kept[32];
  struct memory_moved moved = {0};
  world_open();
  char *memory = world_get(20 * PIECE_BYTES);
  world_fill(memory, 20 * PIECE_BYTES, 1);
  backend_swap.close(0, true);
  name_heir(getpid(), getpid());
  while (backend_swap.resident_bytes(0) > 8 * PIECE_BYTES)
    ck_assert_int_eq(backend_swap.step(0, 0, &moved), MEMORY_MOVED);
  int fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  ck_assert_int_ge(fd, 0);
  unsigned count = count_passed(fd, kept, 0);
  ck_assert_uint_eq(count, PASSING_MOST);
  ck_assert_uint_eq(card_bytes(), (8 + 8) * PIECE_BYTES);
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(send(fd, "", 1, 0), 1);
  ck_assert_int_eq(world_settle(0, &moved), MEMORY_SETTLED);
  count = count_passed(fd, kept, count);
  ck_assert_uint_eq(count, PASSING_MOST + 3);
  ck_assert(is_hung_up(fd)); /* nor are there more by another connection, before they are answered */
  backend_swap.step(0, PIECE_BYTES, &moved);
  ck_assert_int_eq(world_settle(0, &moved), MEMORY_SETTLED);
  ck_assert_uint_eq(count_passed(fd, kept, count), count);
  ck_assert_int_lt(accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), 0);
  for (int i = 0; i < PASSING_MOST; i++)
    ck_assert_int_eq(send(fd, "", 1, 0), 1);
  ck_assert_int_eq(world_settle(0, &moved), MEMORY_SETTLED);
  ck_assert(is_hung_up(fd));
  while (count--)
    close(kept[count]);
  close(fd);
  close(listening);
  ck_assert_uint_eq(card_bytes(), 0);
  world_open();
  ck_assert(world_intact(memory, 20 * PIECE_BYTES, 1));
}
END_TEST

static CUresult (*real_export)(void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                               unsigned long long);
static CUresult (*real_unmap)(CUdeviceptr, size_t);

static CUresult export_while_a_child_begins(void *fd, CUmemGenericAllocationHandle handle,
                                            CUmemAllocationHandleType type, unsigned long long flags) {
  CUresult result = real_export(fd, handle, type, flags);
  begin_fork();
  return result;
}

static CUresult unmap_while_a_child_begins(CUdeviceptr at, size_t bytes) {
  begin_fork();
  return real_unmap(at, bytes);
}

/* From the moment it has been exported until it has been sent. */
START_TEST(a_child_has_nothing_that_goes) {
  int listening = listen_as(heirs.name), kept[1];
  world_open();
  world_get(PIECE_BYTES);
  backend_swap.close(0, true);
  name_heir(getpid(), getpid());
  int before = count_own(3);
  real_export = driver.cuMemExportToShareableHandle;
  real_unmap = driver.cuMemUnmap;
  if (_i)
    driver.cuMemUnmap = unmap_while_a_child_begins;
  else
    driver.cuMemExportToShareableHandle = export_while_a_child_begins;
  ck_assert_int_eq(world_settle(0, NULL), MEMORY_SETTLED);
  ck_assert_int_eq(end_fork(), before);
  int fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  ck_assert_uint_eq(count_passed(fd, kept, 0), 1);
}
END_TEST

/* Another one comes meanwhile: from then on it goes there. */
START_TEST(heirs_may_change) {
  int kept[32], listening[2] = {listen_as(heirs.name), listen_as(heirs.name + 1)};
  struct memory_heir other = {.pass = {.name = (heirs.name + 1) ^ (uint64_t)getpid(), .key = heirs.key},
                              .pid = getpid()};
  world_open();
  world_get(6 * PIECE_BYTES);
  backend_swap.close(0, true);
  name_heir(getpid(), getpid());
  struct memory_moved moved = {0};
  while (backend_swap.resident_bytes(0) > 4 * PIECE_BYTES)
    backend_swap.step(0, 0, &moved);
  passing_set_heir(0, &other);
  ck_assert_int_eq(world_settle(0, NULL), MEMORY_SETTLED);
  unsigned count = 0;
  for (int i = 0; i < 2; i++) {
    int fd = accept4(listening[i], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    unsigned before = count;
    count = count_passed(fd, kept, count);
    ck_assert_uint_eq(count - before, i ? 4 : 2);
    ck_assert(i || is_hung_up(fd));
  }
}
END_TEST

/* What has come goes on, in the same way, again and again; what it came by is not left open. */
START_TEST(passed_memory_is_passed_on) {
  char *memory = leave(4 * PIECE_BYTES, 1);
  int kept[8], from = reach(), listening = listen_as(heirs.name);
  for (int i = 0; i < 4; i++)
    kept[i] = make_memory(0, PIECE_BYTES, 1);
  unsigned descriptors = count_descriptors();
  uint64_t created = counter(GS_SIM_created);
  for (int round = 0; round < 5; round++) {
    for (int i = 0; i < 4; i++)
      pass(from, kept[i]);
    world_open();
    close(from);
    ck_assert(world_intact(memory, 4 * PIECE_BYTES, 1));
    backend_swap.close(0, true);
    name_heir(getpid(), getpid());
    ck_assert_int_eq(world_settle(0, NULL), MEMORY_SETTLED);
    ck_assert_int_eq(world_settle(0, NULL), MEMORY_SETTLED);
    int fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    ck_assert_uint_eq(count_passed(fd, kept, 0), 4);
    close(fd);
    ck_assert_int_eq(world_settle(0, NULL), MEMORY_SETTLED);
    from = reach();
    ck_assert_uint_eq(card_bytes(), 4 * PIECE_BYTES);
    ck_assert_uint_eq(backend_swap.resident_bytes(0), 0);
    ck_assert_uint_eq(count_descriptors(), descriptors);
  }
  ck_assert_uint_eq(counter(GS_SIM_created), created);
}
END_TEST

/* Nothing goes to a socket that another process has, or another user, or that nobody has. */
START_TEST(only_the_heir_is_passed_memory) {
  int ready[2], status;
  if (_i == 1 && geteuid() != 0) {
    printf("skipped, as it needs root: only_the_heir_is_passed_memory\n");
    return;
  }
  ck_assert_int_eq(pipe(ready), 0);
  pid_t parent = getpid(), child = _i < 2 ? fork() : 0;
  if (_i < 2 && child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (_i == 1 && setuid(OTHER_UID) < 0)
      _exit(99);
    struct sockaddr_un address;
    socklen_t size = set_address(&address, heirs.name ^ (uint64_t)parent);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), got = 0;
    if (bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, 4) < 0)
      _exit(98);
    if (write(ready[1], "", 1) < 0)
      _exit(97);
    for (;;) { /* 98: it was reached at least once */
      int from = accept(fd, NULL, NULL);
      got += recv(from, &(char){0}, 1, 0) > 0;
      close(from);
      if (got)
        _exit(1);
    }
  }
  if (_i < 2)
    ck_assert_int_eq(read(ready[0], &(char){0}, 1), 1);
  world_open();
  char *memory = world_get(3 * PIECE_BYTES);
  world_fill(memory, 3 * PIECE_BYTES, 1);
  backend_swap.close(0, true);
  name_heir(parent, _i == 1 ? child : getpid());
  unsigned descriptors = count_descriptors();
  ck_assert_int_eq(world_settle(0, NULL), MEMORY_SETTLED);
  ck_assert_uint_eq(card_bytes(), 0);
  ck_assert_uint_le(count_descriptors(), descriptors);
  if (_i < 2) {
    kill(child, SIGKILL);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status));
  }
  world_open();
  ck_assert(world_intact(memory, 3 * PIECE_BYTES, 1));
}
END_TEST

/* ---- both ---- */

/* The two take turns; what the one says the other waits for. */
static int line;
static void say(void) { ck_assert_int_eq(write(line, "", 1), 1); }
static void wait_for_other(void) { ck_assert_int_eq(read(line, &(char){0}, 1), 1); }

static void say_heir(void) {
  struct memory_heir own = {.pass = passing_own(0), .pid = getpid()};
  ck_assert_int_eq(write(line, &own, sizeof own), sizeof own);
}

static void hear_heir(void) {
  struct memory_heir heir;
  ck_assert_int_eq(read(line, &heir, sizeof heir), sizeof heir);
  passing_set_heir(0, &heir);
}

#define PIECES 12
#define ROUNDS 6

/* It has the card, and leaves it to the other one, which follows step by step. */
static void have_turn_and_leave(char *memory, uint64_t seed) {
  struct memory_moved moved = {0};
  ck_assert(backend_swap.open(0, true, true));
  ck_assert(world_intact(memory, PIECES * PIECE_BYTES, seed));
  backend_swap.close(0, true);
  hear_heir();
  for (uint64_t left = PIECES; left > 0;) {
    backend_swap.step(0, 0, &moved);
    for (; backend_swap.resident_bytes(0) / PIECE_BYTES < left; left--) {
      say();
      wait_for_other();
    }
  }
  ck_assert_int_eq(world_settle(0, &moved), MEMORY_SETTLED);
}

static void follow(void) {
  struct memory_moved moved = {0};
  ck_assert_int_eq(world_settle(0, NULL), MEMORY_SETTLED); /* it listens */
  say_heir();
  for (uint64_t room = 1; room <= PIECES; room++) {
    wait_for_other();
    ck_assert_int_eq(world_settle(room * PIECE_BYTES, &moved), MEMORY_SETTLED);
    say();
  }
}

static void check_made(void) {
  ck_assert_uint_eq(counter(GS_SIM_created), PIECES);
  ck_assert_uint_eq(counter(GS_SIM_imported), PIECES * ROUNDS / 2);
}

static int run_second(void) {
  world_start("small,capacity=512 MiB,scale=0");
  passing_expect(0, true);
  char *memory = leave(PIECES * PIECE_BYTES, 2);
  say();
  for (int round = 0; round < ROUNDS; round += 2) {
    follow();
    have_turn_and_leave(memory, 2);
  }
  check_made();
  say();
  wait_for_other();
  return 0;
}

static pid_t start_other(int (*run)(void)) {
  int ends[2];
  ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  world_owner = getpid();
  pid_t child = fork();
  line = ends[child == 0];
  close(ends[child != 0]);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(run());
  }
  return child;
}

/* The same memory is one process', then the other's, and so on: it is made once. */
START_TEST(memory_goes_to_and_fro) {
  int status;
  pid_t child = start_other(run_second);
  world_start("small,capacity=512 MiB,scale=0");
  passing_expect(0, true);
  wait_for_other();
  unsigned descriptors = count_descriptors();
  world_open();
  char *memory = world_get(PIECES * PIECE_BYTES);
  world_fill(memory, PIECES * PIECE_BYTES, 1);
  for (int round = 0; round < ROUNDS; round += 2) {
    have_turn_and_leave(memory, 1);
    follow();
  }
  ck_assert(backend_swap.open(0, true, true));
  ck_assert(world_intact(memory, PIECES * PIECE_BYTES, 1));
  check_made();
  wait_for_other();
  ck_assert_uint_eq(card_bytes(), PIECES * PIECE_BYTES);
  world_check_books();
  world_free(memory);
  ck_assert_uint_eq(card_bytes(), 0);
  ck_assert_uint_le(count_descriptors(), descriptors);
  say();
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  world_end();
}
END_TEST

static int taken_before;

_Noreturn static int wait_to_be_killed(void) {
  struct memory_moved moved = {0};
  world_start("small,capacity=512 MiB,scale=0");
  passing_expect(0, true);
  leave(PIECES * PIECE_BYTES, 2);
  say();
  say_heir();
  for (int i = 0; i < taken_before; i++) {
    wait_for_other();
    world_settle((uint64_t)(i + 1) * PIECE_BYTES, &moved);
  }
  say();
  for (;;)
    pause();
}

/* Before it has taken anything, or in the middle: what was passed to it is gone with it. */
START_TEST(an_heir_may_die) {
  struct memory_moved moved = {0};
  int status;
  taken_before = _i;
  pid_t child = start_other(wait_to_be_killed);
  world_start("small,capacity=512 MiB,scale=0");
  passing_expect(0, true);
  wait_for_other();
  world_open();
  char *memory = world_get(PIECES * PIECE_BYTES);
  world_fill(memory, PIECES * PIECE_BYTES, 1);
  unsigned descriptors = count_descriptors();
  backend_swap.close(0, true);
  hear_heir();
  for (int i = 0; i < _i; i++) {
    world_settle((uint64_t)(PIECES - 1 - i) * PIECE_BYTES, &moved);
    say();
  }
  wait_for_other();
  world_settle((uint64_t)(PIECES - 3 - _i) * PIECE_BYTES, &moved);
  ck_assert_uint_eq(card_bytes(), PIECES * PIECE_BYTES);
  kill(child, SIGKILL);
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(world_settle(0, &moved), MEMORY_SETTLED);
  ck_assert_uint_eq(card_bytes(), 0);
  ck_assert_uint_le(count_descriptors(), descriptors);
  world_open();
  ck_assert(world_intact(memory, PIECES * PIECE_BYTES, 1));
  world_check_books();
  world_end();
}
END_TEST

int main(void) {
  Suite *suite = suite_create("passing");
  TCase *one = tcase_create("one"), *two = tcase_create("two");
  tcase_set_timeout(one, SUITE_LIMIT_S);
  tcase_set_timeout(two, SUITE_LIMIT_S);
  tcase_add_checked_fixture(one, setup, world_end);
  tcase_add_test(one, passed_memory_is_mapped);
  tcase_add_test(one, several_may_pass);
  tcase_add_loop_test(one, what_is_wrong_is_ignored, 0, FAULTS);
  tcase_add_test(one, fresh_pieces_are_not_passed_ones);
  tcase_add_test(one, what_can_not_be_used_makes_way);
  tcase_add_test(one, nothing_is_left_after_a_turn);
  tcase_add_test(one, many_that_have_passed_make_way);
  tcase_add_test(one, many_may_pass_and_end);
  tcase_add_test(one, a_child_has_nothing_that_comes);
  tcase_add_loop_test(one, a_child_has_nothing_that_goes, 0, 2);
  tcase_add_test(one, a_number_is_of_one_piece);
  tcase_add_test(one, nothing_comes_any_more_once_it_runs);
  tcase_add_test(one, heirs_may_change);
  tcase_add_test(one, strangers_are_not_heard);
  tcase_add_test(one, closed_sockets_are_made_anew);
  tcase_add_test(one, a_child_has_none_of_it);
  tcase_add_test(one, few_descriptors_are_kept);
  tcase_add_test(one, few_are_passed_unanswered);
  tcase_add_test(one, passed_memory_is_passed_on);
  tcase_add_loop_test(one, only_the_heir_is_passed_memory, 0, 3);
  tcase_add_test(two, memory_goes_to_and_fro);
  tcase_add_loop_test(two, an_heir_may_die, 0, 3);
  suite_add_tcase(suite, one);
  suite_add_tcase(suite, two);
  return suite_run(suite);
}
