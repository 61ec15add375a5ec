/* test_gang_name.c - which environments name a gang, and which one. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/gang_name.h"
#include "suite.h"

static const char *const *variables; /* NAME=VALUE, NULL at the end */
static char name[GS_GANG_SIZE];

static char *look_up(const char *variable) {
  size_t length = strlen(variable);
  for (const char *const *entry = variables; *entry; entry++)
    if (strncmp(*entry, variable, length) == 0 && (*entry)[length] == '=')
      return (char *)*entry + length + 1;
  return NULL;
}

static const char *find(const char *const *environment) {
  variables = environment;
  memset(name, 'x', sizeof name);
  gang_name_find(look_up, name);
  ck_assert_ptr_nonnull(memchr(name, '\0', sizeof name));
  return name;
}

#define ENVIRONMENT(...) ((const char *const[]){__VA_ARGS__, NULL})
#define TORCHRUN_AT(address)                                                                                 \
  "TORCHELASTIC_RUN_ID=none", "MASTER_ADDR=" address, "MASTER_PORT=29500", "WORLD_SIZE=2"
#define TORCHRUN TORCHRUN_AT("a")

START_TEST(launchers_name_their_jobs) {
  static const struct {
    const char *name, *environment[8];
  } cases[] = {
      {"torchrun:none:a:29500", {TORCHRUN_AT("a")}},
      {"slurm:123:0", {"SLURM_JOB_ID=123", "SLURM_STEP_ID=0", "SLURM_NTASKS=4"}},
      {"mpi:prterun-a@1", {"OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=prterun-a@1"}},
      {"mpi:77", {"OMPI_COMM_WORLD_SIZE=2", "OMPI_MCA_ess_base_jobid=77"}},
      {"mpi:77:5.0;tcp",
       {"OMPI_COMM_WORLD_SIZE=2", "OMPI_MCA_ess_base_jobid=77", "OMPI_MCA_orte_hnp_uri=5.0;tcp"}},
      {"mpi:5.0;tcp", {"OMPI_COMM_WORLD_SIZE=2", "OMPI_MCA_orte_hnp_uri=5.0;tcp"}},
      {"pmi:9.1", {"PMI_SIZE=2", "PMI_JOBID=9.1"}},
      {"pmi:abc", {"PMI_SIZE=2", "I_MPI_HYDRA_UUID=abc"}},
      {"torchrun:none:a:29500", {"SLURM_JOB_ID=1", "SLURM_STEP_ID=0", "SLURM_NTASKS=2", TORCHRUN_AT("a")}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    ck_assert_str_eq(find(cases[i].environment), cases[i].name);
}
END_TEST

START_TEST(who_is_alone_has_no_gang) {
  static const char *const cases[][8] = {
      {"HOME=/"},
      {"TORCHELASTIC_RUN_ID=none", "MASTER_ADDR=a", "MASTER_PORT=1", "WORLD_SIZE=1"},
      {"MASTER_ADDR=a", "MASTER_PORT=1", "WORLD_SIZE=2"},
      {"TORCHELASTIC_RUN_ID=", "MASTER_ADDR=a", "MASTER_PORT=1", "WORLD_SIZE=2"},
      {"TORCHELASTIC_RUN_ID=none", "MASTER_ADDR=a", "MASTER_PORT=1", "WORLD_SIZE=many"},
      {"SLURM_JOB_ID=123", "SLURM_NTASKS=4"}, /* a batch script, before srun */
      {"SLURM_JOB_ID=123", "SLURM_STEP_ID=0", "SLURM_NTASKS=4", "SLURM_STEP_NUM_TASKS=1"},
      {"OMPI_COMM_WORLD_SIZE=1", "PMIX_NAMESPACE=a"},
      {"PMI_SIZE=4", "PMI_FD=5"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    ck_assert_msg(*find(cases[i]) == '\0', "case %zu: %s", i, name);
}
END_TEST

START_TEST(a_name_that_is_given_counts_more) {
  ck_assert_str_eq(find(ENVIRONMENT(TORCHRUN, "GPUSHARE_GANG=my gang")), "my gang");
  ck_assert_str_eq(find(ENVIRONMENT(TORCHRUN, "GPUSHARE_GANG=none")), "");
  ck_assert_str_eq(find(ENVIRONMENT(TORCHRUN, "GPUSHARE_GANG=")), "torchrun:none:a:29500");
}
END_TEST

static void at_loopback(char wanted[64]) {
  struct stat network;
  ck_assert_int_eq(stat("/proc/self/ns/net", &network), 0);
  snprintf(wanted, 64, "torchrun:none:127.0.0.1@%lu:29500", (unsigned long)network.st_ino);
  ck_assert_str_eq(find(ENVIRONMENT(TORCHRUN_AT("127.0.0.1"))), wanted);
}

/* As launchers do that know of one machine only: in each container it is another gang. */
START_TEST(a_loopback_address_is_one_of_its_network) {
  char here[64], there[64];
  int status;
  at_loopback(here);
  ck_assert_ptr_nonnull(strchr(find(ENVIRONMENT(TORCHRUN_AT("localhost"))), '@'));
  pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
      _exit(77); /* not allowed here */
    at_loopback(there);
    _exit(strcmp(here, there) == 0);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
}
END_TEST

#define TEN "0123456789"
#define LONG TEN TEN TEN TEN TEN

START_TEST(long_names_differ_to_their_end) {
  char one[GS_GANG_SIZE];
  ck_assert_str_eq(find(ENVIRONMENT("GPUSHARE_GANG=" TEN TEN TEN TEN "0123456")), TEN TEN TEN TEN "0123456");
  strcpy(one, find(ENVIRONMENT("GPUSHARE_GANG=" LONG "a")));
  ck_assert_uint_eq(strlen(one), GS_GANG_SIZE - 1);
  ck_assert_int_eq(strncmp(one, TEN TEN TEN "~", 31), 0);
  ck_assert_str_ne(find(ENVIRONMENT("GPUSHARE_GANG=" LONG "b")), one);
  ck_assert_str_eq(find(ENVIRONMENT("GPUSHARE_GANG=" LONG "a")), one);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {launchers_name_their_jobs,        who_is_alone_has_no_gang,
                                a_name_that_is_given_counts_more, a_loopback_address_is_one_of_its_network,
                                long_names_differ_to_their_end,   NULL};
  return suite_main("gang_name", tests, NULL, NULL);
}
