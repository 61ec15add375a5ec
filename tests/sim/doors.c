/*
 * doors.c - whether a call of an exported function goes in. Two things keep one out:
 *
 * GPUSHARE_SIM_FAIL=NAME:N:RESULT,...   the N-th call of a function returns this result; N+: all from that
 * one on
 *
 * GPUSHARE_SIM_CALLS=PATH                  at the process' end: "NAME COUNT", a line for each function called
 *
 * A kernel that has faulted, or as if one had: GPUSHARE_SIM_FAULT=PATH, once there is such a file. As on
 * driver 580 (H200), every function then returns the same error, in every context of the process, but for
 * those that only concern which context is current, devices, addresses and physical memory, and the ends of
 * contexts, which succeed. No new context can be made. With the card's fault_ends=1 the fault is over when a
 * context ends.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "process.h"

CUresult door_enter(unsigned index);

static const char *const names[] = {
#define SYMBOL(name) #name,
#include "symbols.inc"
#undef SYMBOL
};
enum { COUNT = sizeof names / sizeof *names, RULES_MAX = 128 };

/* Ends of patterns: "*" for any. */
static const char *const work_after_fault[] = {
    "cuInit",           "cuDriverGetVersion", "cuGetProcAddress*",
    "cuGetError*",      "cuGetExportTable",   "cuDevice*",
    "cuCtxGetCurrent",  "cuCtxGetDevice*",    "cuCtxPushCurrent*",
    "cuCtxPopCurrent*", "cuCtxSetCurrent",    "cuCtxDestroy*",
    "cuCtxDetach",      "cuCtxGetApiVersion", "cuMemAddress*",
    "cuMemCreate",      "cuMemRelease",       "cuMemMap",
    "cuMemUnmap",       "cuMemSetAccess",     "cuMemGetAllocationGranularity"};

struct rule {
  unsigned index;
  unsigned long nth;
  bool from_then_on;
  CUresult result;
};

static bool works[COUNT];
static struct rule rules[RULES_MAX];
static size_t rule_count;
static const char *fault_path, *calls_path;
static _Atomic unsigned long calls[COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool matches(const char *name, const char *pattern) {
  size_t length = strcspn(pattern, "*");
  return strncmp(name, pattern, length) == 0 && (pattern[length] == '*' || !name[length]);
}

static void add_rule(const char *text) {
  char name[64];
  char *end;
  struct rule rule = {.index = COUNT};
  const char *colon = strchr(text, ':');
  if (colon == NULL || rule_count == RULES_MAX)
    return;
  snprintf(name, sizeof name, "%.*s", (int)(colon - text), text);
  for (unsigned i = 0; i < COUNT; i++)
    if (strcmp(names[i], name) == 0)
      rule.index = i;
  rule.nth = strtoul(colon + 1, &end, 10);
  rule.from_then_on = *end == '+';
  end += rule.from_then_on;
  rule.result = *end == ':' ? (CUresult)strtoul(end + 1, NULL, 10) : CUDA_ERROR_UNKNOWN;
  rules[rule_count++] = rule;
}

static void read_rules(void) {
  fault_path = getenv("GPUSHARE_SIM_FAULT");
  calls_path = getenv("GPUSHARE_SIM_CALLS");
  for (unsigned i = 0; i < COUNT; i++)
    for (size_t p = 0; p < sizeof work_after_fault / sizeof *work_after_fault; p++)
      works[i] |= matches(names[i], work_after_fault[p]);
  for (const char *text = getenv("GPUSHARE_SIM_FAIL"); text && *text;) {
    add_rule(text);
    text = strchr(text, ',');
    text = text ? text + 1 : NULL;
  }
}

static void look_for_fault(void) {
  if (fault_path && process_fault() == CUDA_SUCCESS && access(fault_path, F_OK) == 0)
    process_set_fault(CUDA_ERROR_LAUNCH_FAILED, 0, fault_path);
}

static CUresult ask(unsigned index) {
  look_for_fault();
  unsigned long nth = rule_count || calls_path ? atomic_fetch_add(&calls[index], 1) + 1 : 0;
  for (size_t i = 0; i < rule_count; i++)
    if (rules[i].index == index && (rules[i].from_then_on ? nth >= rules[i].nth : nth == rules[i].nth))
      return rules[i].result;
  return works[index] ? CUDA_SUCCESS : process_fault();
}

__attribute__((destructor)) static void write_calls(void) {
  FILE *file = calls_path ? fopen(calls_path, "w") : NULL;
  for (unsigned i = 0; file && i < COUNT; i++)
    if (atomic_load(&calls[i]))
      fprintf(file, "%s %lu\n", names[i], atomic_load(&calls[i]));
  if (file)
    fclose(file);
}

CUresult door_enter(unsigned index) {
  int saved = errno;
  pthread_once(&once, read_rules);
  CUresult result = ask(index);
  errno = saved;
  return result;
}
