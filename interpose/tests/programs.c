// A program that calls malloc and all related functions in several threads, and forks. It exits
// with 0, or names the line that is wrong.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(holds)                                                                              \
  do {                                                                                             \
    if (!(holds)) {                                                                                \
      fprintf(stderr, "programs.c:%d: %s\n", __LINE__, #holds);                                    \
      _exit(1);                                                                                    \
    }                                                                                              \
  } while (0)

enum { SLOTS = 500, ROUNDS = 40000, THREADS = 4 };

static uint64_t next_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static int holds(const unsigned char *memory, size_t bytes, unsigned char value) {
  for (size_t at = 0; at < bytes; at++) {
    if (memory[at] != value) return 0;
  }
  return 1;
}

// Each object is filled with its slot's number, and looked at before it goes.
static void *churn(void *seed) {
  uint64_t random = (uint64_t)(uintptr_t)seed * 7919 + 1;
  unsigned char *objects[SLOTS] = {0};
  size_t sizes[SLOTS] = {0};
  for (int round = 0; round < ROUNDS; round++) {
    int slot = next_random(&random) % SLOTS;
    size_t bytes = next_random(&random) % (round % 100 == 0 ? 300000 : 600);
    if (objects[slot] == NULL) {
      switch (next_random(&random) % 3) {
      case 0: objects[slot] = malloc(bytes); break;
      case 1:
        objects[slot] = calloc(1, bytes);
        EXPECT(holds(objects[slot], bytes, 0));
        break;
      default: {
        size_t align = (size_t)16 << next_random(&random) % 9;
        void *memory = NULL;
        EXPECT(posix_memalign(&memory, align, bytes) == 0 && (uintptr_t)memory % align == 0);
        objects[slot] = memory;
      }
      }
      EXPECT(objects[slot] != NULL && malloc_usable_size(objects[slot]) >= bytes);
      sizes[slot] = bytes;
    } else if (next_random(&random) % 3 == 0 && bytes > 0) {
      objects[slot] = realloc(objects[slot], bytes);
      size_t kept = sizes[slot] < bytes ? sizes[slot] : bytes;
      EXPECT(holds(objects[slot], kept, (unsigned char)slot));
      sizes[slot] = bytes;
    } else {
      EXPECT(holds(objects[slot], sizes[slot], (unsigned char)slot));
      free(objects[slot]);
      objects[slot] = NULL;
      continue;
    }
    memset(objects[slot], slot, sizes[slot]);
  }
  for (int slot = 0; slot < SLOTS; slot++) free(objects[slot]);
  return NULL;
}

static void expect_child(int what) {
  int status = 0;
  EXPECT(what > 0 && waitpid(what, &status, 0) == what);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Children are forked while other threads allocate; what they change the parent must not see.
static void threads(void) {
  pthread_t all[THREADS];
  char *mine = strcpy(malloc(100), "the parent's");
  for (intptr_t index = 0; index < THREADS; index++) {
    EXPECT(pthread_create(&all[index], NULL, churn, (void *)(index + 1)) == 0);
  }
  for (int round = 0; round < 5; round++) {
    int child = fork();
    if (child == 0) {
      EXPECT(strcmp(mine, "the parent's") == 0);
      strcpy(mine, "the child's");
      churn((void *)(intptr_t)(round + 100));
      EXPECT(strcmp(mine, "the child's") == 0);
      free(mine);
      exit(0);
    }
    expect_child(child);
    EXPECT(strcmp(mine, "the parent's") == 0);
  }
  for (int index = 0; index < THREADS; index++) EXPECT(pthread_join(all[index], NULL) == 0);
  free(mine);
}

static void *fork_often(void *unused) {
  for (int round = 0; round < 500; round++) {
    void *mine = malloc(300000);
    int child = fork();
    if (child == 0) {
      free(mine);
      free(malloc(300000));
      _exit(0);
    }
    expect_child(child);
    free(mine);
  }
  return unused;
}

// Freeing changes no errno, though it may wait for a fork, and be interrupted by signals meanwhile.
static atomic_int is_over;
static void nothing(int number) { (void)number; }

static void *fork_slowly(void *unused) {
  void *much = memset(malloc(20 << 20), 1, 20 << 20);
  for (int round = 0; round < 20; round++) {
    int child = fork();
    if (child == 0) _exit(0);
    expect_child(child);
  }
  free(much);
  is_over = 1;
  return unused;
}

static void *interrupt(void *whom) {
  while (!is_over) EXPECT(pthread_kill(*(pthread_t *)whom, SIGUSR1) == 0);
  return NULL;
}

static void keep_errno(void) {
  pthread_t all[2], self = pthread_self();
  struct sigaction action = {.sa_handler = nothing};
  EXPECT(sigaction(SIGUSR1, &action, NULL) == 0);
  EXPECT(pthread_create(&all[0], NULL, fork_slowly, NULL) == 0);
  EXPECT(pthread_create(&all[1], NULL, interrupt, &self) == 0);
  while (!is_over) {
    void *volatile some = malloc(100000);
    errno = 77;
    free(some);
    EXPECT(errno == 77);
  }
  for (int index = 0; index < 2; index++) EXPECT(pthread_join(all[index], NULL) == 0);
}

static void in_threads(void *(*what)(void *)) {
  pthread_t all[THREADS];
  for (int index = 0; index < THREADS; index++)
    EXPECT(pthread_create(&all[index], NULL, what, NULL) == 0);
  for (int index = 0; index < THREADS; index++) EXPECT(pthread_join(all[index], NULL) == 0);
}

// What a thread frees after its own destructors have run.
static pthread_key_t late_key;
static void at_end(void *memory) {
  free(memory);
  free(malloc(50));
}

static void *end_late(void *unused) {
  (void)unused;
  EXPECT(pthread_setspecific(late_key, malloc(100)) == 0);
  return NULL;
}

static long mappings(void) {
  long lines = 0;
  FILE *file = fopen("/proc/self/maps", "r");
  EXPECT(file != NULL);
  for (int c; (c = getc(file)) != EOF;) lines += c == '\n';
  fclose(file);
  return lines;
}

// Thousands of threads leave nothing behind.
static void many_threads(void) {
  EXPECT(pthread_key_create(&late_key, at_end) == 0);
  long before = 0;
  for (int index = 0; index < 3000; index++) {
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, end_late, NULL) == 0 && pthread_join(thread, NULL) == 0);
    if (index == 1000) before = mappings();
  }
  EXPECT(mappings() < before + 50);
}

// What the manual says of sizes, alignments and errno. Sizes are volatile: compilers know malloc.
static void manners(void) {
  volatile size_t huge = SIZE_MAX / 2, zero = 0, two = 2;
  free(NULL);
  errno = 0;
  EXPECT(malloc(huge) == NULL && errno == ENOMEM);
  errno = 0;
  EXPECT(calloc(huge, 4) == NULL && errno == ENOMEM);
  errno = 0;
  EXPECT(reallocarray(NULL, huge, 4) == NULL && errno == ENOMEM);
  void *first = malloc(zero), *second = malloc(zero), *out = &errno;
  EXPECT(first != NULL && second != NULL && first != second);
  errno = 77;
  free(first);
  free(second);
  EXPECT(errno == 77);
  EXPECT(posix_memalign(&out, 3, 10) == EINVAL && out == &errno);
  EXPECT(posix_memalign(&out, two, 10) == EINVAL && out == &errno);
  EXPECT(posix_memalign(&out, 64, huge) == ENOMEM && out == &errno && errno == 77);
  void *pages = valloc(10), *whole = pvalloc(10);
  void *line = aligned_alloc(64, 100), *far = memalign(1 << 21, 9);
  EXPECT((uintptr_t)pages % 4096 == 0 && (uintptr_t)whole % 4096 == 0);
  EXPECT((uintptr_t)line % 64 == 0 && (uintptr_t)far % (1 << 21) == 0 && far != NULL);
  EXPECT(malloc_usable_size(whole) >= 4096 && malloc_usable_size(NULL) == 0);
  free(pages), free(whole), free(line), free(far);
  char *grown = strcpy(malloc(6), "grown");
  char *same = realloc(grown, huge);
  EXPECT(same == NULL && strcmp(grown, "grown") == 0);
  EXPECT(realloc(grown, zero) == NULL);
  EXPECT((grown = realloc(NULL, 10)) != NULL);
  free(grown);
}

static long resident_bytes(void) {
  long pages = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  EXPECT(file != NULL && fscanf(file, "%ld %ld", &pages, &resident) == 2);
  fclose(file);
  return resident * 4096;
}

// A large table of which little is touched costs little, and calloc gives zeros however often the
// memory was used before.
static void sparse(void) {
  enum { BYTES = 512 << 20 };
  for (int round = 0; round < 6; round++) {
    int zeroed = round % 2;
    unsigned char *table = zeroed ? calloc(BYTES / 8, 8) : malloc(BYTES);
    EXPECT(table != NULL);
    for (size_t at = 0; at < BYTES; at += BYTES / 16 + 4097) {
      EXPECT(!zeroed || (table[at] == 0 && table[at + 1] == 0));
      table[at] = 1;
    }
    EXPECT(resident_bytes() < 128 << 20);
    free(table);
  }
}

// Memory that was used goes back to the system when it is freed, whatever the sizes.
static void give_back(void) {
  enum { OBJECTS = 100 };
  static unsigned char *objects[OBJECTS];
  for (int kib = 512; kib <= 4096; kib *= 2) {
    for (int index = 0; index < OBJECTS; index++) {
      objects[index] = malloc((size_t)kib << 10);
      EXPECT(objects[index] != NULL);
      memset(objects[index], index, (size_t)kib << 10);
    }
    EXPECT(resident_bytes() > (long)OBJECTS * kib << 10);
    for (int index = 0; index < OBJECTS; index++) free(objects[index]);
    EXPECT(resident_bytes() < 128 << 20);
  }
  unsigned char *all = malloc(600 << 20);
  EXPECT(all != NULL);
  memset(all, 1, 600 << 20);
  EXPECT(resident_bytes() > 600 << 20);
  free(all);
  EXPECT(resident_bytes() < 128 << 20);
}

// A program may close what it did not open, and believe that the next descriptor is its own.
static void close_all(const char *path) {
  for (int number = 3; number < 4096; number++) close(number);
  struct stat found;
  int own = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  EXPECT(own >= 0 && dup2(own, 1000) == 1000 && dup2(own, 1001) == 1001);
  for (int number = 4; number < 200; number++) EXPECT(dup2(own, number) == number);
  for (int round = 0; round < 2; round++) {
    unsigned char *memory[20];
    for (int index = 0; index < 20; index++) {
      memory[index] = malloc(1 << 20);
      EXPECT(memory[index] != NULL);
      memset(memory[index], index, 1 << 20);
    }
    int child = fork();
    if (child == 0) {
      EXPECT(fstat(1000, &found) == 0 && S_ISREG(found.st_mode) && found.st_nlink == 1);
      for (int index = 0; index < 20; index++)
        EXPECT(holds(memory[index], 1 << 20, (unsigned char)index));
      free(malloc(20 << 20));
      exit(0);
    }
    expect_child(child);
    for (int index = 0; index < 20; index++) free(memory[index]);
  }
  EXPECT(fstat(own, &found) == 0 && found.st_size == 0 && found.st_blocks == 0);
}

// A process that has all the descriptors it may have, or nearly, can fork.
static void no_descriptors(void) {
  struct rlimit limit = {1200, 1200};
  EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  int last = 0;
  for (int number; (number = dup(2)) >= 0;) last = number;
  EXPECT(errno == EMFILE && last > 1000);
  unsigned char *mine = malloc(3 << 20);
  EXPECT(mine != NULL);
  memset(mine, 1, 3 << 20);
  for (int left = 0; left < 5; left++) {
    int child = fork();
    if (child == 0) {
      EXPECT(holds(mine, 3 << 20, 1));
      memset(mine, 2, 3 << 20);
      churn((void *)(intptr_t)(left + 200));
      int grandchild = fork();
      if (grandchild == 0) {
        EXPECT(holds(mine, 3 << 20, 2));
        free(mine);
        exit(0);
      }
      expect_child(grandchild);
      free(mine);
      unsigned char *zeros = calloc(3, 1 << 20);
      EXPECT(holds(zeros, 3 << 20, 0));
      exit(0);
    }
    expect_child(child);
    EXPECT(holds(mine, 3 << 20, 1));
    EXPECT(close(last - left) == 0);
  }
  free(mine);
}

// More than the heap has: the rest comes from elsewhere, and goes back there.
static void exhaust(void) {
  enum { OBJECTS = 3000, BYTES = 100000 };
  static unsigned char *objects[OBJECTS];
  for (int index = 0; index < OBJECTS; index++) {
    objects[index] = malloc(BYTES);
    EXPECT(objects[index] != NULL);
    memset(objects[index], index, BYTES);
  }
  for (int index = 0; index < OBJECTS; index++) {
    EXPECT(holds(objects[index], BYTES, (unsigned char)index));
    if (index % 2) objects[index] = realloc(objects[index], 2 * BYTES);
    EXPECT(holds(objects[index], BYTES, (unsigned char)index));
    free(objects[index]);
  }
}

int main(int count, char **words) {
  const char *part = count > 1 ? words[1] : "";
  alarm(60); // A program that waits for itself fails its test.
  if (strcmp(part, "threads") == 0) threads();
  else if (strcmp(part, "fork") == 0) fork_often(NULL);
  else if (strcmp(part, "forks") == 0) in_threads(fork_often);
  else if (strcmp(part, "errno") == 0) keep_errno();
  else if (strcmp(part, "many-threads") == 0) many_threads();
  else if (strcmp(part, "manners") == 0) manners();
  else if (strcmp(part, "exhaust") == 0) exhaust();
  else if (strcmp(part, "sparse") == 0) sparse();
  else if (strcmp(part, "give-back") == 0) give_back();
  else if (strcmp(part, "no-descriptors") == 0) no_descriptors();
  else if (strcmp(part, "close-all") == 0) close_all(words[2]);
  else if (strcmp(part, "double-free") == 0) {
    void *volatile memory = malloc(10);
    free(memory);
    free(memory);
  } else if (strcmp(part, "foreign") == 0) {
    int local = 0;
    void *volatile memory = &local;
    free(memory);
  } else return 2;
  puts("done");
  return 0;
}
