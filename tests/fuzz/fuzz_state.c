/*
 * fuzz_state.c - bytes as the file of what outlives the daemon. See fuzz_text.h. Lines that begin with '!'
 * are given the checksum that they need, so that what they say is looked at. What is taken is in bounds, and
 * is the same once it has been written and read again.
 */
#include <string.h>

#include "fuzz_files.h"
#include "server/kept.h"

#define BOOT "11111111-2222"
#define FILE_SIZE (1u << 20)

static const char *const words[] = {"!gpushare-state\t1\n",
                                    "!gpushare-state\t2\n",
                                    "!boot\t" BOOT "\n",
                                    "!boot\t3\n",
                                    "!last\t7\n",
                                    "!last\t",
                                    "!job\t4711\t987654\t1000\t3\t12345\n",
                                    "!job\t",
                                    "!gang\t4711\t3\t99\n",
                                    "!gang\t",
                                    "!term\t4711\t3\t7\t1\t1\n",
                                    "!term\t4711\t3\t1\t18446744073709551609\t0\n",
                                    "!term\t4711\t3\t0\t250\t0\n",
                                    "!term\t4711\t3\t",
                                    "!term\t4711\t3\t0\t18446744073709551615\t0\n",
                                    "!term\t4711\t3\t5\t9\t0\n",
                                    "!set\tall\ttq\t1\t20000000000\n",
                                    "!gone\t4711\t3\n",
                                    "!set\tall\ttq\t3000000000\t20000000000\n",
                                    "!set\tGPU-05000000-0000-0000-0000-000000000000\tmode\t1\t0\n",
                                    "!set\tall\tcapacity\t",
                                    "!set\t",
                                    "!unset\tall\ttq\n",
                                    "!learnt\t1000\t12345\t5000000000\n",
                                    "!learnt\t",
                                    "!command\t1000\t3\t4711\t1000\tpython train.py\n",
                                    "!ended\t1000\t3\t4711\t1000\t0\t0\t1\t2\t3\t4\tpython\n",
                                    "!ended\t",
                                    "\n",
                                    "\t",
                                    "\t1",
                                    "\t-1",
                                    "18446744073709551615",
                                    "99999999999999999999",
                                    "!",
                                    "x",
                                    "\xc3\xa9"};

static char file[FILE_SIZE];

static size_t put_lines(const char *data, size_t size) {
  char text[KEPT_LINE_SIZE - 32], line[KEPT_LINE_SIZE];
  size_t written = 0;
  for (const char *at = data, *end = data + size, *next; at < end; at = next) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    size_t length = stop ? (size_t)(stop - at) : (size_t)(end - at);
    next = stop ? stop + 1 : end;
    if (written + KEPT_LINE_SIZE + length + 1 > FILE_SIZE)
      break;
    if (*at == '!' && length - 1 < sizeof text && !memchr(at, '\0', length)) {
      memcpy(text, at + 1, length - 1);
      text[length - 1] = '\0';
      size_t made = kept_line_text(line, text);
      memcpy(file + written, line, made);
      written += made;
    } else {
      memcpy(file + written, at, (size_t)(next - at));
      written += (size_t)(next - at);
    }
  }
  return written;
}

static void check(const struct kept *kept) {
  static const enum gs_term terms[] = {GS_TERM_WEIGHT, GS_TERM_PRIORITY, GS_TERM_CLASS, GS_TERM_RATE,
                                       GS_TERM_PAUSED};
  for (size_t i = 0; i < kept->decisions.count; i++)
    fuzz_require(!decisions_wrong(kept->decisions.list[i].field, kept->decisions.list[i].value),
                 "a decision that nobody could have made");
  for (size_t i = 0; i < KEPT_BUCKETS; i++)
    list_each(node, &kept->processes[i]) {
      const struct kept_process *process = list_entry(node, struct kept_process, link);
      fuzz_require(process->job_id <= kept->last_job_id, "a number that may be given away again");
      fuzz_require(list_empty(&process->gang_link) == !process->gang, "a gang that is not found");
      for (size_t j = 0; j < sizeof terms / sizeof *terms; j++) {
        struct gs_msg msg = {
            .set_terms = {.term = terms[j], .value = terms_value(&process->terms.set, terms[j])}};
        fuzz_require(!(process->terms.set_fields >> terms[j] & 1) || !terms_wrong(&msg),
                     "a term that nobody could have set");
      }
    }
}

static size_t again_size;

static int put(struct kept_output *output, const char *line, size_t length) {
  (void)output;
  if (again_size + length > FILE_SIZE)
    return -1;
  memcpy(file + again_size, line, length);
  again_size += length;
  return 0;
}

/* Static, as new ones of more than a megabyte would have to be cleared by the kernel each time. */
static struct kept kept, again;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  size_t length = put_lines((const char *)data, size);
  char *copy = malloc(length + 1);
  if (!copy)
    return 0;
  memcpy(copy, file, length);
  kept_init(&kept);
  kept_init(&again);
  if (kept_read(&kept, copy, length, BOOT) == 0) {
    struct kept_output output = {.put = put};
    check(&kept);
    again_size = 0;
    if (kept_write(&kept, BOOT, &output) == 0) {
      fuzz_require(kept_read(&again, file, again_size, BOOT) == 0 && again.wrong_lines == 0,
                   "what is written can't be read");
      fuzz_require(again.process_count == kept.process_count &&
                       again.decisions.count == kept.decisions.count && again.last_job_id == kept.last_job_id,
                   "what is written is something else");
    }
  }
  kept_end(&kept);
  kept_end(&again);
  free(copy);
  return 0;
}

#include "fuzz_text.h"
