/* cache.c - see cache.h. */
#include "client/cache.h"

#include <dlfcn.h>
#include <stdbool.h>

#include "client/client_state.h"
#include "common/clock.h"
#include "common/lock.h"
#include "common/log.h"
#include "driver/linker.h"
#include "gate/capture.h"
#include "settings.h"

#define WINDOW_PART 4               /* of a turn, the last such part, */
#define WINDOW_MOST_NS NS_PER_S     /* and no more */
#define LAST_PART 10                /* of the window: then what has not risen is emptied */
#define LOOK_NS (2 * NS_PER_MS)     /* from look to look */
#define FORGET_NS (500 * NS_PER_MS) /* a look that has not come by then will not (a child of fork) */
#define RISE_PART 8                 /* of what there is least: so much more, and it has risen */

/* The interpreter's own. All NULL: there is none. An object is a PyObject. */
static struct {
  int (*Py_IsInitialized)(void);
  int (*Py_AddPendingCall)(int (*function)(void *), void *argument);
  void *(*PyImport_GetModuleDict)(void);
  void *(*PyDict_GetItemString)(void *dictionary, const char *key);
  void *(*PyObject_GetAttrString)(void *object, const char *name);
  void *(*PyObject_CallMethod)(void *object, const char *name, const char *format, ...);
  unsigned long long (*PyLong_AsUnsignedLongLong)(void *object);
  int (*PyObject_IsTrue)(void *object);
  void *(*PyErr_Occurred)(void);
  void (*PyErr_Clear)(void);
  void (*Py_DecRef)(void *object);
} python;

/* In the last part of a turn. The client's lock protects it. */
static struct look {
  const struct gpu *gpu; /* of the turn; NULL: there was none yet */
  uint64_t epoch;        /* likewise */
  uint64_t asked_ns;     /* a look is due since; 0: it is not */
  uint64_t last_ns;
  uint64_t least_bytes, most_bytes; /* seen so far */
  bool done;
} look;

static bool find_python(void) {
  void *(*find)(void *, const char *) = linker_functions()->dlsym;
#define FIND(name) ((python.name = (__typeof__(python.name))find(RTLD_DEFAULT, #name)) != NULL)
  return FIND(Py_IsInitialized) && FIND(PyImport_GetModuleDict) && FIND(PyDict_GetItemString) &&
         FIND(PyObject_GetAttrString) && FIND(PyObject_CallMethod) && FIND(PyLong_AsUnsignedLongLong) &&
         FIND(PyObject_IsTrue) && FIND(PyErr_Occurred) && FIND(PyErr_Clear) && FIND(Py_DecRef) &&
         FIND(Py_AddPendingCall);
}

static bool has_python(void) {
  static enum { UNKNOWN, NONE, THERE } state;
  if (state == UNKNOWN)
    state = find_python() ? THERE : NONE;
  return state == THERE && python.Py_IsInitialized();
}

/* ---- in the interpreter ---- */

static void drop(void *object) {
  if (object)
    python.Py_DecRef(object);
}

/* torch.cuda, where it is in use; a new reference. */
static void *torch_cuda(void) {
  void *modules = python.PyImport_GetModuleDict();
  void *torch = modules ? python.PyDict_GetItemString(modules, "torch") : NULL;
  void *cuda = torch ? python.PyObject_GetAttrString(torch, "cuda") : NULL;
  void *used = cuda ? python.PyObject_CallMethod(cuda, "is_initialized", NULL) : NULL;
  bool is_used = used && python.PyObject_IsTrue(used) == 1;
  drop(used);
  if (is_used)
    return cuda;
  drop(cuda);
  return NULL;
}

static bool ask_allocated(void *cuda, int device, uint64_t *bytes) {
  void *number = python.PyObject_CallMethod(cuda, "memory_allocated", "i", device);
  if (!number)
    return false;
  *bytes = python.PyLong_AsUnsignedLongLong(number);
  drop(number);
  return !python.PyErr_Occurred();
}

/* Is this between two iterations, as far as can be seen? What does not rise and fall has none: the end of the
 * window is as good as any moment. Lock held. */
static bool is_time(uint64_t bytes, uint64_t now_ns) {
  look.least_bytes = bytes < look.least_bytes ? bytes : look.least_bytes;
  look.most_bytes = bytes > look.most_bytes ? bytes : look.most_bytes;
  uint64_t rise = look.most_bytes - look.least_bytes;
  if (rise <= look.least_bytes / RISE_PART)
    return now_ns >= look.last_ns;
  return bytes - look.least_bytes <= rise / RISE_PART;
}

/* The turn that is looked at goes on. Lock held. */
static bool is_on(const struct gpu *gpu) {
  const struct machine *machine = &gpu->machine;
  return machine->open && machine->wanted && !machine->drop_pending && machine->ends_ns && look.gpu == gpu &&
         machine->epoch == look.epoch && !look.done;
}

static bool is_due(const struct gpu *gpu, uint64_t bytes) {
  lock_take(&client.lock);
  bool due = is_on(gpu) && is_time(bytes, clock_now_ns());
  look.done |= due;
  lock_release(&client.lock);
  return due;
}

static void end_turn(struct gpu *gpu) {
  struct orders orders = {0};
  lock_take(&client.lock);
  machine_end_turn(&gpu->machine, look.epoch, gpu->machine.generation, &orders);
  client_obey(gpu, &orders);
  lock_release(&client.lock);
}

/* What the allocator frees would make a capture void. */
static void look_at(void *cuda, struct gpu *gpu) {
  uint64_t bytes;
  if (capture_count() || !ask_allocated(cuda, gpu->device, &bytes) || !is_due(gpu, bytes))
    return;
  drop(python.PyObject_CallMethod(cuda, "empty_cache", NULL));
  log_debug("GPU %d: the cache is emptied at %llu bytes", gpu->device, (unsigned long long)bytes);
  end_turn(gpu);
}

/* A pending call: in the interpreter's main thread, which has the interpreter. */
static int look_once(void *argument) {
  struct gpu *gpu = argument;
  lock_take(&client.lock);
  bool on = is_on(gpu);
  lock_release(&client.lock);
  void *cuda = on ? torch_cuda() : NULL;
  if (cuda)
    look_at(cuda, gpu);
  drop(cuda);
  if (python.PyErr_Occurred())
    python.PyErr_Clear();
  lock_take(&client.lock);
  look.asked_ns = 0;
  lock_release(&client.lock);
  return 0;
}

/* ---- before that ---- */

static uint64_t window_ns(uint64_t quantum_ns) {
  uint64_t part_ns = quantum_ns / WINDOW_PART;
  return part_ns < WINDOW_MOST_NS ? part_ns : WINDOW_MOST_NS;
}

uint64_t cache_check(struct gpu *gpu, uint64_t now_ns) {
  const struct machine *machine = &gpu->machine;
  if (!settings()->empty_cache || !machine->open || !machine->wanted || !machine->ends_ns ||
      machine->drop_pending || !has_python())
    return UINT64_MAX;
  uint64_t window = window_ns(machine->quantum_ns), from_ns = machine->ends_ns - window;
  if (now_ns < from_ns)
    return from_ns;
  if (look.gpu != gpu || look.epoch != machine->epoch)
    look = (struct look){.gpu = gpu,
                         .epoch = machine->epoch,
                         .last_ns = machine->ends_ns - window / LAST_PART,
                         .least_bytes = UINT64_MAX,
                         .asked_ns = look.asked_ns};
  if (look.done || now_ns >= machine->ends_ns)
    return UINT64_MAX;
  if (!look.asked_ns || now_ns - look.asked_ns >= FORGET_NS)
    look.asked_ns = python.Py_AddPendingCall(look_once, gpu) == 0 ? now_ns : 0;
  return now_ns + LOOK_NS;
}
