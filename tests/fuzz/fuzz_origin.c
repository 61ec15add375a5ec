/* fuzz_origin.c - bytes as /proc/PID/cgroup, whose names any user may choose. See fuzz_text.h. */
#include "fuzz_files.h"
#include "server/process.h"

static const char *const words[] = {"0::/",
                                    "7:memory:/",
                                    "\n",
                                    "/",
                                    ":",
                                    "-",
                                    "_",
                                    ".",
                                    "a",
                                    "\\x2d",
                                    "\\x",
                                    "\\",
                                    "é",
                                    "kubepods.slice/",
                                    "kubepods-burstable-pod",
                                    "pod",
                                    "4fa6b3a0_1111_2222_3333_444444444444",
                                    ".slice:",
                                    "cri-containerd:",
                                    "4fa6b3a0-1111-2222-3333-444444444444",
                                    "0123456789abcdef0123456789abcdef",
                                    "docker-",
                                    "libpod-",
                                    ".scope",
                                    ".service",
                                    ".slice",
                                    "slurmstepd",
                                    "job_123",
                                    "step_0",
                                    "step_",
                                    "lxc.payload.",
                                    "lxc/",
                                    "apptainer-",
                                    "singularity/",
                                    "4711",
                                    "user@1000.service",
                                    "session-1.scope",
                                    "system.slice",
                                    "init.scope"};

static int is_printable(const char *text, size_t size) {
  size_t length = strnlen(text, size);
  for (size_t i = 0; i < length; i++)
    if (text[i] < ' ' || text[i] > '~')
      return 0;
  return length < size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *copy = fuzz_text_of(data, size);
  struct origin origin = origin_parse(copy);
  free(copy);
  fuzz_require(origin.kind <= GS_ORIGIN_POD, "an origin that there is not");
  fuzz_require(is_printable(origin.name, sizeof origin.name), "a name that is none");
  fuzz_require(is_printable(origin.container, sizeof origin.container), "a container's id that is none");
  fuzz_require(origin.kind == GS_ORIGIN_NONE || *origin.name, "an origin without a name");
  return 0;
}

#include "fuzz_text.h"
