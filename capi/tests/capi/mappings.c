// Maps a directory, rightly and wrongly. Run it with the name of a part and a directory; it exits
// with 0, or names the line that is wrong.

#define _POSIX_C_SOURCE 200809L
#include <perdura.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEN = 16 << 20, BUDGET = 1 << 20, PAGE = 4096 };

static void expect(bool holds, const char *what, int line) {
  if (!holds) {
    fprintf(stderr, "mappings.c:%d: %s; last error %d: %s\n", line, what, perdura_error_code(),
            perdura_error());
    exit(1);
  }
}

#define EXPECT(holds) expect((holds), #holds, __LINE__)
#define FAILED(code, word)                                                                         \
  EXPECT(perdura_error_code() == (code) && strstr(perdura_error(), (word)) != NULL)

static const perdura_mapping *map(const char *directory) {
  perdura_options options;
  memset(&options, 0, sizeof options);
  options.size_bytes = sizeof options;
  options.len_bytes = LEN;
  options.budget_bytes = BUDGET;
  const perdura_mapping *mapping = perdura_map(directory, &options);
  EXPECT(mapping != NULL && mapping->len_bytes == LEN && (uintptr_t)mapping->address % PAGE == 0);
  return mapping;
}

static perdura_figures figures(const perdura_mapping *mapping) {
  perdura_figures now;
  EXPECT(perdura_stats(mapping, &now) == PERDURA_OK);
  EXPECT(now.dirty_bytes <= now.budget_bytes && now.dirty_bytes <= now.dirty_bytes_max);
  return now;
}

// Stores a number to each page, more than the budget.
static void store(const perdura_mapping *mapping, uint64_t number) {
  char *bytes = mapping->address;
  for (uint64_t at = 0; at < mapping->len_bytes; at += PAGE) *(uint64_t *)(bytes + at) = number + at;
}

static bool has(const perdura_mapping *mapping, uint64_t number) {
  const char *bytes = mapping->address;
  for (uint64_t at = 0; at < mapping->len_bytes; at += PAGE)
    if (*(const uint64_t *)(bytes + at) != number + at) return false;
  return true;
}

static void stores(const char *directory) {
  const perdura_mapping *mapping = map(directory);
  perdura_figures before = figures(mapping);
  EXPECT(before.budget_bytes == BUDGET && before.promised_flush_ns > 0 && before.faults == 0);
  store(mapping, 1);
  perdura_figures after = figures(mapping);
  EXPECT(after.faults >= LEN / PAGE && after.device_bytes >= LEN - BUDGET);
  EXPECT(perdura_checkpoint(mapping) == PERDURA_OK);
  EXPECT(figures(mapping).checkpoints > after.checkpoints);

  store(mapping, 2);
  EXPECT(perdura_budget(mapping, BUDGET / 4) == PERDURA_OK);
  EXPECT(figures(mapping).budget_bytes == BUDGET / 4);
  store(mapping, 3);
  EXPECT(perdura_budget(mapping, 1 << 30) == PERDURA_OK);
  EXPECT(figures(mapping).budget_bytes == BUDGET);
  EXPECT(perdura_budget(mapping, 1) == PERDURA_OK);
  EXPECT(figures(mapping).budget_bytes >= PAGE);
  store(mapping, 4);
  EXPECT(perdura_unmap(mapping) == PERDURA_OK);
  EXPECT(perdura_unmap(NULL) == PERDURA_OK);
}

static void finds(const char *directory) {
  const perdura_mapping *mapping = map(directory);
  EXPECT(has(mapping, 4));
  store(mapping, 5);
  EXPECT(perdura_sync(mapping) == PERDURA_OK);
  raise(SIGKILL);
}

static void finds_synced(const char *directory) {
  const perdura_mapping *mapping = map(directory);
  EXPECT(has(mapping, 5));
  EXPECT(perdura_unmap(mapping) == PERDURA_OK);
}

// A system call stores to the mapping.
static void reads(const char *directory) {
  const perdura_mapping *mapping = map(directory);
  char *to = (char *)mapping->address + 2 * PAGE + 100;
  int zeros = open("/dev/zero", O_RDONLY);
  store(mapping, 6);
  EXPECT(perdura_sync(mapping) == PERDURA_OK);
  memset(to, 7, 3 * PAGE);
  EXPECT(perdura_checkpoint(mapping) == PERDURA_OK);
  EXPECT(read(zeros, to, 3 * PAGE) < 3 * PAGE);
  perdura_prepared *prepared = perdura_prepare_write(mapping, to, 3 * PAGE);
  EXPECT(prepared != NULL);
  EXPECT(read(zeros, to, 3 * PAGE) == 3 * PAGE);
  perdura_end_write(prepared);
  perdura_end_write(NULL);
  EXPECT(to[0] == 0 && to[3 * PAGE - 1] == 0 && to[3 * PAGE] == 0);

  EXPECT(perdura_prepare_write(mapping, to, BUDGET) == NULL);
  FAILED(PERDURA_REGION, "");
  EXPECT(perdura_prepare_write(mapping, to, LEN) == NULL);
  FAILED(PERDURA_OUT_OF_OBJECT, "leave a region");
  EXPECT(perdura_prepare_write(mapping, to, UINT64_MAX) == NULL);
  FAILED(PERDURA_OUT_OF_OBJECT, "leave a region");
  EXPECT(perdura_prepare_write(mapping, &zeros - (1 << 20), 1) == NULL);
  EXPECT(perdura_unmap(mapping) == PERDURA_OK);
}

static void mistakes(const char *directory) {
  EXPECT(perdura_map(NULL, NULL) == NULL);
  FAILED(PERDURA_ARGUMENT, "directory is null");
  perdura_options options;
  memset(&options, 0, sizeof options);
  options.bind_numa = 1;
  EXPECT(perdura_map(directory, &options) == NULL);
  FAILED(PERDURA_ARGUMENT, "bind_numa");
  memset(&options, 0, sizeof options);
  options.len_bytes = LEN;
  options.warning_ms = 1;
  EXPECT(perdura_map(directory, &options) == NULL);
  FAILED(PERDURA_REGION, "warning");
  memset(&options, 0, sizeof options);
  options.len_bytes = LEN;
  options.guard = "no-guard.sock";
  EXPECT(perdura_map(directory, &options) == NULL);
  FAILED(PERDURA_REGION, "no-guard.sock");
  options.holder = "perdura";
  EXPECT(perdura_map(directory, &options) == NULL);
  FAILED(PERDURA_ARGUMENT, "no holder beside a guard");
  EXPECT(perdura_map("/dev/null/nowhere", NULL) == NULL);
  FAILED(PERDURA_FILE, "/dev/null");

  const perdura_mapping *mapping = map(directory);
  EXPECT(perdura_map(directory, NULL) == NULL);
  FAILED(PERDURA_IN_USE, "");
  EXPECT(perdura_sync(NULL) == PERDURA_ARGUMENT);
  EXPECT(perdura_checkpoint(NULL) == PERDURA_ARGUMENT);
  EXPECT(perdura_budget(NULL, 1) == PERDURA_ARGUMENT);
  EXPECT(perdura_stats(mapping, NULL) == PERDURA_ARGUMENT);
  FAILED(PERDURA_ARGUMENT, "figures is null");
  EXPECT(perdura_unmap(mapping) == PERDURA_OK);
}

static void forks(const char *directory) {
  const perdura_mapping *mapping = map(directory);
  store(mapping, 8);
  pid_t child = fork();
  if (child == 0) {
    perdura_figures now;
    EXPECT(perdura_sync(mapping) == PERDURA_FORKED);
    EXPECT(perdura_stats(mapping, &now) == PERDURA_FORKED);
    EXPECT(perdura_unmap(mapping) == PERDURA_OK);
    exit(0);
  }
  int status = 1;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  EXPECT(has(mapping, 8));
  EXPECT(perdura_unmap(mapping) == PERDURA_OK);
  mapping = map(directory);
  EXPECT(has(mapping, 8));
  EXPECT(perdura_unmap(mapping) == PERDURA_OK);
}

int main(int count, char **words) {
  if (count != 3) return 2;
  const char *part = words[1];
  if (strcmp(part, "stores") == 0) stores(words[2]);
  else if (strcmp(part, "finds") == 0) finds(words[2]);
  else if (strcmp(part, "finds-synced") == 0) finds_synced(words[2]);
  else if (strcmp(part, "reads") == 0) reads(words[2]);
  else if (strcmp(part, "mistakes") == 0) mistakes(words[2]);
  else if (strcmp(part, "forks") == 0) forks(words[2]);
  else return 2;
  return 0;
}
