// Processes that end and fork with a heap open. Run it with the name of a part and a path; it exits
// with 0, or names the line that is wrong.

#define _GNU_SOURCE

#include <perdura.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(holds)                                                                              \
  do {                                                                                             \
    if (!(holds)) {                                                                                \
      fprintf(stderr, "endings.c:%d: %s; last error %d: %s\n", __LINE__, #holds,                   \
              perdura_error_code(), perdura_error());                                              \
      _exit(1);                                                                                    \
    }                                                                                              \
  } while (0)
#define IS_FORKED(call)                                                                            \
  do {                                                                                             \
    EXPECT(call);                                                                                  \
    EXPECT(perdura_error_code() == PERDURA_FORKED && strstr(perdura_error(), "forked") != NULL);   \
  } while (0)

enum { OBJECTS = 2000 };

static perdura_heap *heap;
static char *objects[OBJECTS];
static perdura_tx *parents_tx;

static int nothing(perdura_tx *tx, void *arg) {
  (void)tx, (void)arg;
  return 0;
}

// Everything that a child can call: nothing of it may reach the parent's heap.
static void use_in_child(void) {
  char byte = 1;
  for (int i = 0; i < 200; i++) IS_FORKED(persistmalloc(heap, 64, NULL) == NULL);
  IS_FORKED(persistmalloc(heap, 64, "child") == NULL);
  IS_FORKED(persistrealloc(heap, objects[20], 5000) == NULL);
  IS_FORKED(persistfree(heap, objects[20]) == PERDURA_FORKED);
  IS_FORKED(perdura_persist(heap, objects[20], 8) == PERDURA_FORKED);
  IS_FORKED(perdura_usable_size(heap, objects[20]) == 0);
  IS_FORKED(capmalloc(heap, 64) == NULL && capmemalign(heap, 64, 64) == NULL);
  IS_FORKED(capfree(heap, objects[20]) == PERDURA_FORKED);
  IS_FORKED(nvmmap(heap, PERDURA_PERSISTENT, 64) == NULL);
  IS_FORKED(nvmunmap(heap, objects[20]) == PERDURA_FORKED);
  IS_FORKED(perdura_root(heap, "child") == NULL && perdura_offset(heap, objects[20]) == 0);
  IS_FORKED(perdura_root_set(heap, "child", objects[20]) == PERDURA_FORKED);
  IS_FORKED(perdura_root_remove(heap, "child") == PERDURA_FORKED);
  IS_FORKED(perdura_pointer(heap, 4096) == NULL);
  IS_FORKED(perdura_transaction(heap, nothing, NULL) == PERDURA_FORKED);
  if (parents_tx != NULL) {
    IS_FORKED(perdura_tx_alloc(parents_tx, 64) == NULL);
    IS_FORKED(perdura_tx_write(parents_tx, objects[30], &byte, 1) == PERDURA_FORKED);
    IS_FORKED(perdura_tx_free(parents_tx, objects[30]) == PERDURA_FORKED);
  }
  EXPECT(perdura_close(heap) == PERDURA_OK);
}

static int fork_within(perdura_tx *tx, void *returns) {
  parents_tx = tx;
  EXPECT(perdura_tx_alloc(tx, 64) != NULL);
  pid_t child = fork();
  if (child == 0) {
    use_in_child();
    if (returns != NULL) return 0;
    exit(0);
  }
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child);
  // The child that returned from the function is ended there.
  EXPECT(returns != NULL ? WIFSIGNALED(status) : status == 0);
  return 0;
}

// The parent has frees that are not durable, slots of its own and a log; the child has copies.
static void forks(void) {
  for (int i = 0; i < OBJECTS; i++) EXPECT((objects[i] = persistmalloc(heap, 64, NULL)) != NULL);
  for (int i = 0; i < 3; i++) EXPECT(persistfree(heap, objects[i]) == PERDURA_OK);
  int gate[2];
  EXPECT(pipe(gate) == 0);
  pid_t child = fork();
  if (child == 0) {
    char byte;
    // Only once the parent has gone on.
    close(gate[1]);
    EXPECT(read(gate[0], &byte, 1) == 0);
    use_in_child();
    exit(0); // with all that a thread does at its end
  }
  char name[16];
  for (int i = 0; i < 100; i++) {
    sprintf(name, "root %d", i);
    char *named = persistmalloc(heap, 100, name);
    EXPECT(named != NULL && persistmalloc(heap, 80, NULL) != NULL);
    memset(named, i, 100);
    EXPECT(perdura_persist(heap, named, 100) == PERDURA_OK);
  }
  for (int i = 100; i < 1000; i++) EXPECT(persistfree(heap, objects[i]) == PERDURA_OK);
  for (int i = 0; i < 1000; i++) EXPECT(persistmalloc(heap, 300, NULL) != NULL);
  close(gate[1]);
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  EXPECT(perdura_transaction(heap, fork_within, NULL) == PERDURA_OK);
  EXPECT(perdura_transaction(heap, fork_within, heap) == PERDURA_OK);
  for (int i = 0; i < 100; i++) {
    sprintf(name, "root %d", i);
    char *named = perdura_root(heap, name);
    EXPECT(named != NULL && named[0] == i && named[99] == i);
  }
}

// With what there is where most of the library has ended already.
static void fail_late(void) {
  EXPECT(perdura_error_code() == PERDURA_NO_ROOT && strstr(perdura_error(), "\"early\"") != NULL);
  EXPECT(perdura_root(heap, "late") == NULL);
  EXPECT(perdura_error_code() == PERDURA_NO_ROOT && strstr(perdura_error(), "\"late\"") != NULL);
  EXPECT(persistfree(heap, &heap) == PERDURA_FOREIGN && perdura_error_code() == PERDURA_FOREIGN);
  EXPECT(persistmalloc(heap, 64, NULL) != NULL);
}

static void fail_and_close_late(void) {
  fail_late();
  EXPECT(perdura_close(heap) == PERDURA_OK);
  fputs("closed\n", stderr);
}

static void fail_late_in_thread(void *arg) {
  fail_late();
  *(int *)arg = 1;
}

static void *fail_in_thread(void *key) {
  EXPECT(perdura_error_code() == PERDURA_OK && perdura_error()[0] == 0);
  EXPECT(perdura_root(heap, "early") == NULL);
  static int has_ended;
  EXPECT(pthread_setspecific(*(pthread_key_t *)key, &has_ended) == 0);
  return &has_ended;
}

// A path that is too long for a message.
static void long_message(void) {
  static char path[3000] = "/nonexistent/";
  for (size_t at = strlen(path); at < sizeof path - 1; at++) path[at] = at % 100 == 0 ? '/' : 'x';
  EXPECT(perdura_open(path, NULL) == NULL && perdura_error_code() == PERDURA_FILE);
  const char *said = perdura_error();
  EXPECT(strlen(said) > 900 && strlen(said) < 1024 && strstr(said, " [...] ") != NULL);
  EXPECT(strstr(said, "perdura_open: /nonexistent/xxx") == said);
  EXPECT(strstr(said, "No such file") != NULL);
}

static void fails_late(void) {
  pthread_key_t key;
  pthread_t thread;
  void *has_ended;
  EXPECT(pthread_key_create(&key, fail_late_in_thread) == 0);
  EXPECT(pthread_create(&thread, NULL, fail_in_thread, &key) == 0);
  EXPECT(pthread_join(thread, &has_ended) == 0 && *(int *)has_ended == 1);
  long_message();
  EXPECT(perdura_root(heap, "early") == NULL);
  EXPECT(atexit(fail_and_close_late) == 0);
}

static struct sigaction library_handles[2];
static volatile char *const nowhere = (char *)16;

static void handle(int signal, siginfo_t *info, void *context) {
  if (info->si_addr == (void *)nowhere) _exit(0);
  const struct sigaction *before = &library_handles[signal == SIGSEGV];
  if (before->sa_sigaction == NULL) _exit(3); // it was the library's
  before->sa_sigaction(signal, info, context);
}

static void install(struct sigaction *before) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO;
  EXPECT(sigaction(SIGBUS, &action, before) == 0);
  EXPECT(sigaction(SIGSEGV, &action, before == NULL ? NULL : before + 1) == 0);
}

// Ends by a fault of the program's own, which its handler takes for its success.
static void store_and_fault(void) {
  char *object = persistmalloc(heap, 1 << 20, NULL);
  EXPECT(object != NULL);
  memset(object, 1, 1 << 20);
  *nowhere = 1;
}

static int exit_within(perdura_tx *tx, void *arg) {
  char byte = 1;
  EXPECT(perdura_tx_write(tx, arg, &byte, 1) == PERDURA_OK && perdura_tx_alloc(tx, 64) != NULL);
  exit(0);
}

int main(int count, char **words) {
  perdura_options options;
  memset(&options, 0, sizeof options);
  options.len_bytes = 16 << 20;
  const char *part = count > 2 ? words[1] : "";
  if (strcmp(part, "handler-before") == 0) install(NULL);
  heap = perdura_open(count > 2 ? words[2] : NULL, &options);
  EXPECT(heap != NULL);
  if (strcmp(part, "handler-before") == 0) {
    store_and_fault();
  } else if (strcmp(part, "handler-passes-on") == 0) {
    install(library_handles);
    store_and_fault();
  } else if (strcmp(part, "forks") == 0) {
    forks();
    _exit(0); // unclosed
  } else if (strcmp(part, "forks-and-closes") == 0) {
    forks();
    return perdura_close(heap);
  } else if (strcmp(part, "fails-late") == 0) {
    fails_late();
    return 0;
  } else if (strcmp(part, "exits-within") == 0) {
    perdura_transaction(heap, exit_within, persistmalloc(heap, 64, NULL));
  }
  return fprintf(stderr, "endings PART PATH\n"), 2;
}
