/* test_origin.c - where processes come from, by control groups as they are found on hosts. */
#include "server/process.h"
#include "suite.h"

#define ID "3f2a9c1b4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8"
#define OTHER_ID "aa2a9c1b4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8"
#define SHORT "3f2a9c1b4d5e"
#define POD "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
#define POD_UNIT "0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9"

struct example {
  const char *text;
  enum gs_origin kind;
  const char *name, *container;
};

static void expect_all(const struct example *examples, size_t count) {
  for (size_t i = 0; i < count; i++) {
    char text[2048];
    ck_assert_uint_lt(strlen(examples[i].text), sizeof text);
    struct origin origin = origin_parse(strcpy(text, examples[i].text));
    ck_assert_msg(origin.kind == examples[i].kind, "%u: %s", origin.kind, examples[i].text);
    ck_assert_msg(strcmp(origin.name, examples[i].name) == 0, "%s: %s", origin.name, examples[i].text);
    ck_assert_msg(strcmp(origin.container, examples[i].container) == 0, "%s: %s", origin.container,
                  examples[i].text);
  }
}
#define EXPECT_ALL(examples) expect_all(examples, sizeof examples / sizeof *examples)

TEST(containers_of_version_2) {
  static const struct example examples[] = {
      {"0::/system.slice/docker-" ID ".scope\n", GS_ORIGIN_DOCKER, SHORT, SHORT},
      {"0::/docker/" ID "\n", GS_ORIGIN_DOCKER, SHORT, SHORT},
      {"0::/docker/" ID "/system.slice/ssh.service\n", GS_ORIGIN_DOCKER, SHORT, SHORT},
      {"0::/docker/" OTHER_ID "/docker/" ID "\n", GS_ORIGIN_DOCKER, SHORT, SHORT},
      {"0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-" ID ".scope\n", GS_ORIGIN_DOCKER,
       SHORT, SHORT},
      {"0::/machine.slice/libpod-" ID ".scope/container\n", GS_ORIGIN_PODMAN, SHORT, SHORT},
      {"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID ".scope/container\n",
       GS_ORIGIN_PODMAN, SHORT, SHORT},
      {"0::/machine.slice/machine-libpod_pod_" OTHER_ID ".slice/libpod-" ID ".scope\n", GS_ORIGIN_PODMAN,
       SHORT, SHORT},
      {"0::/system.slice/web.service/libpod-payload-" ID "\n", GS_ORIGIN_PODMAN, SHORT, SHORT},
      {"0::/system.slice/nerdctl-" ID ".scope\n", GS_ORIGIN_CONTAINER, SHORT, SHORT},
      {"0::/../" ID "\n", GS_ORIGIN_CONTAINER, SHORT, SHORT}, /* seen from a container */
      {"0::/lxc.payload.web-1/system.slice/cron.service\n", GS_ORIGIN_LXC, "web-1", ""},
      {"0::/system.slice/apptainer-4711.scope\n", GS_ORIGIN_APPTAINER, "4711", ""},
      {"0::/user.slice/user-1000.slice/user@1000.service/user.slice/singularity-815.scope\n",
       GS_ORIGIN_APPTAINER, "815", ""},
  };
  EXPECT_ALL(examples);
}

TEST(pods) {
  static const struct example examples[] = {
      {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" POD_UNIT
       ".slice/cri-containerd-" ID ".scope\n",
       GS_ORIGIN_POD, POD, SHORT},
      {"0::/kubepods.slice/kubepods-pod" POD_UNIT ".slice/crio-" ID ".scope/container\n", GS_ORIGIN_POD, POD,
       SHORT},
      {"0::/kubepods/besteffort/pod" POD "/" ID "\n", GS_ORIGIN_POD, POD, SHORT},
      {"0::/kubepods/pod0123456789abcdef0123456789abcdef/" ID "\n", GS_ORIGIN_POD,
       "0123456789abcdef0123456789abcdef", SHORT},
      {"0::/docker/" OTHER_ID "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
       "kubelet-kubepods-besteffort-pod" POD_UNIT ".slice/cri-containerd-" ID ".scope\n",
       GS_ORIGIN_POD, POD, SHORT},
      {"0::/system.slice/containerd.service/kubepods-burstable-pod" POD_UNIT ".slice:cri-containerd:" ID "\n",
       GS_ORIGIN_POD, POD, SHORT},
      {"0::/../../kubepods-burstable-pod" POD_UNIT ".slice/cri-containerd-" ID ".scope\n", GS_ORIGIN_POD, POD,
       SHORT},
      {"0::/kubepods/pod" POD "\n", GS_ORIGIN_POD, POD, ""},
      {"0::/kubepods/pod" POD "/" OTHER_ID "/docker/" ID "\n", GS_ORIGIN_DOCKER, SHORT, SHORT},
      {"0::/kubepods/podium/pod-1\n", GS_ORIGIN_NONE, "", ""},
  };
  EXPECT_ALL(examples);
}

TEST(batch_jobs) {
  static const struct example examples[] = {
      {"0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0\n", GS_ORIGIN_SLURM, "1234.0", ""},
      {"0::/system.slice/node7_slurmstepd.scope/job_1234/step_batch/user/task_0\n", GS_ORIGIN_SLURM,
       "1234.batch", ""},
      {"11:freezer:/slurm/uid_1000/job_77/step_extern\n1:name=systemd:/system.slice/slurmd.service\n",
       GS_ORIGIN_SLURM, "77.extern", ""},
      {"9:memory:/slurm_n1/uid_1000/job_77\n", GS_ORIGIN_SLURM, "77", ""},
      {"0::/batch/job_77/step_0\n", GS_ORIGIN_NONE, "", ""},
  };
  EXPECT_ALL(examples);
}

TEST(units) {
  static const struct example examples[] = {
      {"0::/system.slice/train.service\n", GS_ORIGIN_UNIT, "train.service", ""},
      {"0::/system.slice/system-jupyter\\x2dlab.slice/jupyter\\x2dlab@alice.service\n", GS_ORIGIN_UNIT,
       "jupyter-lab@alice.service", ""},
      {"0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-r12ab.scope\n", GS_ORIGIN_UNIT,
       "run-r12ab.scope", ""},
      {"0::/user.slice/user-1000.slice/session-3.scope\n", GS_ORIGIN_NONE, "", ""},
      {"0::/system.slice/an\033[2J.service\n", GS_ORIGIN_UNIT, "an?[2J.service", ""},
      {"0::/system.slice/odd\\x.service\n", GS_ORIGIN_UNIT, "odd\\x.service", ""},
  };
  EXPECT_ALL(examples);
}

TEST(version_1_has_many_lines) {
  static const struct example examples[] = {
      {"12:devices:/docker/" ID "\n11:cpuset:/docker/" ID "\n1:name=systemd:/docker/" ID
       "\n0::/system.slice/containerd.service\n",
       GS_ORIGIN_DOCKER, SHORT, SHORT},
      {"4:cpu,cpuacct:/system.slice/docker.service\n1:name=systemd:/lxc/db/init.scope\n", GS_ORIGIN_LXC, "db",
       ""},
      {"3:devices:/singularity/99\n1:name=systemd:/user.slice/user-5.slice/session-1.scope\n",
       GS_ORIGIN_APPTAINER, "99", ""},
      {"3:devices:/kubepods/burstable/pod" POD "/" ID "\n1:name=systemd:/kubepods/burstable/pod" POD "/" ID
       "\n",
       GS_ORIGIN_POD, POD, SHORT},
  };
  EXPECT_ALL(examples);
}

TEST(nothing_that_has_a_name) {
  static const struct example examples[] = {
      {"", GS_ORIGIN_NONE, "", ""},
      {"0::/\n", GS_ORIGIN_NONE, "", ""},
      {"nonsense", GS_ORIGIN_NONE, "", ""},
      {"0:\n::\n", GS_ORIGIN_NONE, "", ""},
      {"0::/.slice:/pod/docker-/lxc/\n", GS_ORIGIN_NONE, "", ""},
      {"0::/docker/3f2a\n", GS_ORIGIN_NONE, "", ""},
  };
  EXPECT_ALL(examples);
}

TEST(names_have_an_end) {
  char text[2048] = "0::/slurm/job_1";
  for (size_t i = strlen(text); i < 1000; i++)
    text[i] = '2';
  strcpy(text + 1000, "/step_1");
  struct origin origin = origin_parse(text);
  ck_assert_uint_eq(strlen(origin.name), GS_ORIGIN_SIZE - 1);
}

static uint64_t state;

static unsigned next_below(unsigned end) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (unsigned)(state >> 33) % end;
}

/* Of what names are made of, in any order. */
static void make_text(char text[2048]) {
  static const char *const parts[] = {"/",        "\n",      ":",
                                      "0::/",     "-",       ID,
                                      "docker",   "libpod-", ".scope",
                                      ".service", "pod",     POD,
                                      "-pod",     POD_UNIT,  "slurm",
                                      "/job_",    "12",      "step_",
                                      "lxc",      ".slice:", "lxc.payload.",
                                      "\\x2d",    "\\x",     "apptainer",
                                      "-",        "\033",    "singularity",
                                      ".slice",   "user@",   "3f"};
  *text = '\0';
  for (unsigned left = next_below(24); left > 0; left--)
    strcat(text, parts[next_below(sizeof parts / sizeof *parts)]);
}

static void check_printable(const char *text, size_t size) {
  ck_assert_uint_lt(strnlen(text, size), size);
  for (; *text; text++)
    ck_assert(*text >= ' ' && *text <= '~');
}

TEST(whatever_is_said_gives_a_name_that_can_be_shown) {
  for (unsigned run = 0; run < 20000; run++) {
    char text[2048];
    make_text(text);
    struct origin origin = origin_parse(text);
    ck_assert_uint_le(origin.kind, GS_ORIGIN_POD);
    check_printable(origin.name, sizeof origin.name);
    check_printable(origin.container, sizeof origin.container);
    ck_assert_msg((origin.kind == GS_ORIGIN_NONE) == (*origin.name == '\0'), "%s", text);
  }
}

int main(void) { return suite_run_all("origin", NULL, NULL); }
