/* doubt.c - see doubt.h. The loader preloads nothing into programs that get other rights, that are linked
 * statically or are for another machine; and an environment without LD_PRELOAD has nothing to preload. */
#include "ctl/doubt.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define HEAD_SIZE (1 << 16) /* of a file that is looked at */
#define WORDS_MOST 64
#define DEPTH_MOST 5 /* a script's interpreter may be a script, and env starts another program */

struct head {
  size_t size;
  char bytes[HEAD_SIZE + 1];
};

static bool read_head(const char *path, struct head *head) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  ssize_t n = fd < 0 ? -1 : read(fd, head->bytes, HEAD_SIZE);
  if (fd >= 0)
    close(fd);
  head->size = n > 0 ? (size_t)n : 0;
  head->bytes[head->size] = '\0';
  return n > 0;
}

static const char *last_part(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* As execvp finds it. */
static bool find_program(const char *name, char path[PATH_MAX]) {
  const char *folders = getenv("PATH");
  struct stat there;
  if (strchr(name, '/'))
    return snprintf(path, PATH_MAX, "%s", name) < PATH_MAX;
  for (const char *folder = folders ? folders : "/bin:/usr/bin"; folder; folder = strchr(folder, ':')) {
    folder += *folder == ':';
    int length = (int)strcspn(folder, ":");
    if (snprintf(path, PATH_MAX, "%.*s/%s", length ? length : 1, length ? folder : ".", name) < PATH_MAX &&
        access(path, X_OK) == 0 && stat(path, &there) == 0 && S_ISREG(there.st_mode))
      return true;
  }
  return false;
}

/* ---- the environment ---- */

static bool sets_preload(const char *word) { return strncmp(word, "LD_PRELOAD=", 11) == 0; }

static bool is_assignment(const char *word) {
  size_t name = strcspn(word, "=");
  return word[name] == '=' && name > 0 && strcspn(word, "/") > name;
}

/* An option of env that drops variables: "-i", "-iv", "-", "--ignore-environment", "-uLD_PRELOAD". */
static bool drops_preload(const char *option, const char *next) {
  static const char all[] = "--ignore-environment", one[] = "--unset";
  if (strcmp(option, "-") == 0 || strcmp(option, all) == 0 || strcmp(option, "--unset=LD_PRELOAD") == 0 ||
      strcmp(option, "-uLD_PRELOAD") == 0)
    return true;
  if (strcmp(option, "-u") == 0 || strcmp(option, one) == 0)
    return next && strcmp(next, "LD_PRELOAD") == 0;
  return option[0] == '-' && option[1] != '-' && strchr("iv0", option[1]) && strchr(option, 'i');
}

/* The words behind env's options and variables; NULL: it drops ours. */
static char *const *pass_env(char *const *word) {
  static const char *const with_value[] = {"-u", "--unset", "-C", "--chdir"};
  while (*word && (**word == '-' || is_assignment(*word))) {
    bool has_value = false;
    if (sets_preload(*word) || (**word == '-' && drops_preload(*word, word[1])))
      return NULL;
    if (strcmp(*word, "--") == 0)
      return word + 1;
    for (size_t i = 0; i < sizeof with_value / sizeof *with_value; i++)
      has_value |= strcmp(*word, with_value[i]) == 0;
    word += 1 + (has_value && word[1]);
  }
  return word;
}

/* ---- the file ---- */

/* The kernel tells the loader that the program has more rights than its caller. */
static bool gets_rights(const char *path) {
  struct stat status;
  struct statvfs system;
  if (stat(path, &status) < 0 || (statvfs(path, &system) == 0 && system.f_flag & ST_NOSUID))
    return false;
  return (status.st_mode & S_ISUID && status.st_uid != getuid()) ||
         (status.st_mode & S_ISGID && status.st_mode & S_IXGRP && status.st_gid != getgid()) ||
         (getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0);
}

static bool is_elf(const struct head *head) {
  return head->size >= sizeof(Elf64_Ehdr) && memcmp(head->bytes, ELFMAG, SELFMAG) == 0;
}

/* Both kinds of header have the machine at the same place. */
static bool is_for_other_machine(const struct head *head) {
  static struct head own;
  const Elf64_Ehdr *program = (const void *)head->bytes, *ours = (const void *)own.bytes;
  return read_head("/proc/self/exe", &own) &&
         (memcmp(program->e_ident, ours->e_ident, EI_VERSION) != 0 || program->e_machine != ours->e_machine);
}

/* No loader is named, so none preloads. Caller must: know that it is for this machine, whose words have 64
 * bits. */
static bool is_static(const struct head *head) {
  Elf64_Ehdr file;
  memcpy(&file, head->bytes, sizeof file);
  if (file.e_phentsize != sizeof(Elf64_Phdr) ||
      file.e_phoff + (uint64_t)file.e_phnum * sizeof(Elf64_Phdr) > head->size)
    return false;
  for (unsigned i = 0; i < file.e_phnum; i++) {
    Elf64_Phdr part;
    memcpy(&part, head->bytes + file.e_phoff + i * sizeof part, sizeof part);
    if (part.p_type == PT_INTERP)
      return false;
  }
  return true;
}

/* ---- scripts ---- */

/* The words of the first line, and the script. */
static void read_first_line(const struct head *head, char line[256], const char *script,
                            char *words[WORDS_MOST]) {
  size_t count = 0;
  char *rest;
  snprintf(line, 256, "%.*s", (int)strcspn(head->bytes + 2, "\n"), head->bytes + 2);
  for (char *word = strtok_r(line, " \t", &rest); word && count < WORDS_MOST - 2;
       word = strtok_r(NULL, " \t", &rest))
    if (strcmp(word, "-S") != 0) /* env: the rest is words */
      words[count++] = word;
  words[count++] = (char *)(uintptr_t)script;
  words[count] = NULL;
}

/* The line of a shell script that drops the environment for what it starts; 0: none is known. */
static unsigned find_line(const struct head *head) {
  unsigned number = 0;
  for (const char *line = head->bytes; line; line = strchr(line, '\n')) {
    char copy[256], *words[WORDS_MOST], *rest, **word = words;
    size_t count = 0;
    line += *line == '\n';
    number++;
    snprintf(copy, sizeof copy, "%.*s", (int)strcspn(line, "\n#"), line);
    for (char *next = strtok_r(copy, " \t;", &rest); next && count < WORDS_MOST - 1;
         next = strtok_r(NULL, " \t;", &rest))
      words[count++] = next;
    words[count] = NULL;
    if (count > 0 && strcmp(*word, "exec") == 0)
      word++;
    if (*word && strcmp(last_part(*word), "env") == 0 && !pass_env(word + 1))
      return number;
    if (*word && strcmp(*word, "unset") == 0 && word[1] && strcmp(word[1], "LD_PRELOAD") == 0)
      return number;
  }
  return 0;
}

static bool is_env(const char *program) { return strcmp(last_part(program), "env") == 0; }

/* What the words of a first line start, maybe by env, is a shell. */
static bool start_shell(char *const *words) {
  char *const *program = is_env(*words) ? pass_env(words + 1) : words;
  const char *name = program && *program ? last_part(*program) : "";
  size_t length = strlen(name);
  return length >= 2 && strcmp(name + length - 2, "sh") == 0;
}

/* ---- a command ---- */

static bool look(char *const *words, int depth, char why[DOUBT_SIZE]);

static bool look_at_script(const struct head *head, const char *path, int depth, char why[DOUBT_SIZE]) {
  char line[256], *words[WORDS_MOST];
  read_first_line(head, line, path, words);
  if (look(words, depth + 1, why))
    return true;
  unsigned number = start_shell(words) ? find_line(head) : 0;
  if (number)
    snprintf(why, DOUBT_SIZE,
             "line %u of %.300s drops LD_PRELOAD for what it starts: put gpusharectl run in front of that",
             number, path);
  return number;
}

static bool look(char *const *words, int depth, char why[DOUBT_SIZE]) {
  char path[PATH_MAX];
  struct head *head = depth < DEPTH_MOST && *words ? malloc(sizeof *head) : NULL;
  bool doubtful = false;
  *why = '\0';
  if (!head)
    return false;
  if (!find_program(*words, path) || !read_head(path, head)) { /* it can't be run, or not be looked at */
  } else if (memcmp(head->bytes, "#!", 2) == 0) {
    doubtful = look_at_script(head, path, depth, why);
  } else if (gets_rights(path)) {
    snprintf(
        why, DOUBT_SIZE,
        "%.300s gets other rights than its caller's (set-user-ID or the like), so nothing is preloaded into "
        "it: put gpusharectl run behind it",
        path);
  } else if (is_elf(head) && is_for_other_machine(head)) {
    snprintf(why, DOUBT_SIZE, "%.300s is a program for another kind of machine than libunified.so", path);
  } else if (is_elf(head) && sizeof(void *) == 8 && is_static(head)) {
    snprintf(
        why, DOUBT_SIZE,
        "%.300s is linked statically, so nothing can be preloaded into it: link it to the shared C library",
        path);
  } else if (is_env(*words)) {
    char *const *rest = pass_env(words + 1);
    if (!rest)
      snprintf(why, DOUBT_SIZE, "env drops LD_PRELOAD for what it starts: put gpusharectl run behind it");
    doubtful = rest && look(rest, depth + 1, why);
  }
  free(head);
  return doubtful || *why;
}

bool doubt_about(char *const *words, char why[DOUBT_SIZE]) {
  for (; *words && is_assignment(*words); words++)
    if (sets_preload(*words)) {
      snprintf(why, DOUBT_SIZE, "%.200s replaces what gpusharectl preloads: leave it out", *words);
      return true;
    }
  return look(words, 0, why);
}
