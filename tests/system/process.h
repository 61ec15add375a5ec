/*
 * process.h - the processes of a test: started with their own stdin, stdout (pipes) and stderr (a file),
 * watched with deadlines, and dumped when the test fails. A process that stops talking fails the test;
 * nothing here waits without a bound.
 */
#ifndef TEST_PROCESS_H
#define TEST_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PROCESS_LIMIT_S 120 /* for one line, one end; times the scale */
#define PROCESS_MAX 128

struct process {
  char name[32];
  char log[256]; /* where its stderr goes */
  pid_t pid;
  int pidfd; /* readable: has ended */
  int in;    /* its stdin; -1: closed */
  int out;   /* its stdout */
  bool alive;
  size_t filled; /* of `text`: what has been read and not yet been asked for */
  char text[16384];
};

/* Start argv[0] with exactly this environment, its stderr going to the file `log`. Never returns NULL. */
struct process *process_start(const char *name, char *const argv[], char *const environment[],
                              const char *log);

/* The next line of its stdout, without the line's end. False: its stdout has ended. */
bool process_line(struct process *process, char *line, size_t size);

/* Likewise, but only what has been said: false if that is no whole line. Does not wait. */
bool process_next_line(struct process *process, char *line, size_t size);

/* Read lines until one starts with `text`; its stdout's end before that fails the test. */
void process_expect(struct process *process, const char *text, char *line, size_t size);

/* Drop what it has said so far. */
void process_drain(struct process *process);

/* One line to its stdin. A process that is no longer there is no error. */
void process_say(struct process *process, const char *text);
void process_close_input(struct process *process);

/* SIGKILL, SIGSTOP, ... */
void process_signal(struct process *process, int signal_number);

/* Wait for its end (the rest of its stdout is read and dropped): its wait status. */
int process_wait(struct process *process);

/* It has been waited for, and no other one was started since: it does not count as one of PROCESS_MAX. */
void process_forget(const struct process *process);

/* Wait, and fail the test unless it exits with this. */
void process_wait_exit(struct process *process, int code);

/* Its input ends: so it says "ok", and exits with 0. */
void process_finish(struct process *process);

/* SIGKILL and wait. */
void process_kill(struct process *process);

/* True if it has ended. Does not wait. */
bool process_ended(const struct process *process);

/* How often the text occurs in what it wrote to stderr. */
int process_log_count(const struct process *process, const char *text);
/* Lines that it wrote to stderr. */
int process_log_lines(const struct process *process);

/* Wait until the text is in its log. */
void process_await_log(const struct process *process, const char *text);
/* Wait until this process, which need not be our child, has ended. */
void process_await_gone(pid_t pid);

/* Print the logs of all processes of the test. */
void process_dump_all(void);
void process_check_none_left(void);

#endif
