// Calls every function, rightly and wrongly. Run it with the name of a part; it exits with 0, or
// names the line that is wrong.

#include <perdura.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(bool holds, const char *what, int line) {
  if (!holds) {
    fprintf(stderr, "calls.c:%d: %s; last error %d: %s\n", line, what, perdura_error_code(),
            perdura_error());
    exit(1);
  }
}

// Of a call that must fail: its code, and a message that holds a word.
static void expect_error(int code, const char *word, const char *what, int line) {
  expect((int)perdura_error_code() == code, what, line);
  expect(strstr(perdura_error(), word) != NULL, word, line);
}

#define EXPECT(holds) expect((holds), #holds, __LINE__)
#define FAILS(call, code, word)                                                                    \
  do {                                                                                             \
    EXPECT((call) == (code));                                                                      \
    expect_error((code), (word), #call, __LINE__);                                                 \
  } while (0)
#define NULLS(call, code, word)                                                                    \
  do {                                                                                             \
    EXPECT((call) == NULL);                                                                        \
    expect_error((code), (word), #call, __LINE__);                                                 \
  } while (0)

static perdura_heap *open_heap(const char *path, uint64_t bytes) {
  perdura_options options;
  memset(&options, 0, sizeof options);
  options.len_bytes = bytes;
  perdura_heap *heap = perdura_open(path, &options);
  EXPECT(heap != NULL);
  return heap;
}

static int write_and_abort(perdura_tx *tx, void *arg) {
  long value = 7, seen = 0;
  EXPECT(perdura_tx_write(tx, arg, &value, sizeof value) == PERDURA_OK);
  EXPECT(perdura_tx_read(tx, &seen, arg, sizeof seen) == PERDURA_OK && seen == 7);
  EXPECT(perdura_tx_alloc(tx, 100) != NULL);
  return 42;
}

struct swap {
  perdura_heap *heap;
  long *old;
};

static int replace(perdura_tx *tx, void *arg) {
  struct swap *swap = arg;
  long value = 99;
  long *fresh = perdura_tx_alloc(tx, sizeof value);
  EXPECT(fresh != NULL);
  EXPECT(perdura_tx_write(tx, fresh, &value, sizeof value) == PERDURA_OK);
  EXPECT(perdura_tx_root_set(tx, "number", fresh) == PERDURA_OK);
  EXPECT(perdura_tx_free(tx, swap->old) == PERDURA_OK);
  FAILS(perdura_tx_free(tx, swap->old), PERDURA_FREED_TWICE, "freed before");
  FAILS(perdura_tx_write(tx, (char *)fresh + 8, &value, 64), PERDURA_OUT_OF_OBJECT, "one object");
  FAILS(perdura_tx_write(tx, &value, &value, 8), PERDURA_FOREIGN, "not in this heap");
  FAILS(perdura_tx_write(tx, fresh, &value, SIZE_MAX), PERDURA_OUT_OF_OBJECT,
        "18446744073709551615");
  FAILS(perdura_tx_read(tx, &value, fresh, SIZE_MAX / 2 + 1), PERDURA_OUT_OF_OBJECT, "one object");
  FAILS(perdura_tx_read(tx, &value, fresh, SIZE_MAX / 2), PERDURA_OUT_OF_OBJECT, "one object");
  FAILS(perdura_transaction(swap->heap, replace, arg), PERDURA_NESTED, "no nested");
  FAILS(persistfree(swap->heap, fresh), PERDURA_NESTED, "perdura_tx_free");
  NULLS(persistrealloc(swap->heap, fresh, 5000), PERDURA_NESTED, "perdura_tx_alloc");
  return 0;
}

static int count_roots(const char *name, void *memory, void *arg) {
  EXPECT(name[0] != 0 && memory != NULL);
  *(int *)arg += 1;
  return 0;
}

/* Memory that is allocated, replaced and freed together with the word that names it. */
static void link_words(perdura_heap *heap) {
  uint64_t *words = persistmalloc(heap, 2 * sizeof *words, "words");
  EXPECT(words != NULL);
  words[0] = words[1] = 0;
  char *first = perdura_alloc_into(heap, &words[0], 6, "first");
  EXPECT(first != NULL && strcmp(first, "first") == 0);
  EXPECT(perdura_pointer(heap, words[0]) == first);
  char *second = perdura_replace_at(heap, &words[0], 100, NULL);
  EXPECT(second != NULL && words[0] == perdura_offset(heap, second));
  FAILS(persistfree(heap, first), PERDURA_FREED_TWICE, "freed before");
  EXPECT(perdura_replace_at(heap, &words[1], 7, "second") != NULL);
  EXPECT(perdura_free_from(heap, &words[0]) == PERDURA_OK && words[0] == 0);
  EXPECT(perdura_free_from(heap, &words[0]) == PERDURA_OK);
  uint64_t local = 0;
  NULLS(perdura_alloc_into(heap, &local, 8, NULL), PERDURA_FOREIGN, "not in this heap");
  NULLS(perdura_alloc_into(heap, NULL, 8, NULL), PERDURA_ARGUMENT, "null");
  NULLS(perdura_alloc_into(heap, words, 0, NULL), PERDURA_SIZE, "0 bytes");
  NULLS(perdura_alloc_into(heap, words, SIZE_MAX, "x"), PERDURA_SIZE, "an object");
  uint64_t *between = (uint64_t *)((char *)words + 4);
  FAILS(perdura_free_from(heap, between), PERDURA_ARGUMENT, "eight bytes");
  words[0] = perdura_offset(heap, words);
  FAILS(perdura_free_from(heap, words), PERDURA_ARGUMENT, "the one that is freed");
  words[0] = 0;
  EXPECT(perdura_persist(heap, words, sizeof *words) == PERDURA_OK);
}

static void make(const char *path) {
  perdura_heap *heap = open_heap(path, 16 << 20);
  link_words(heap);
  long *number = persistmalloc(heap, sizeof *number, "number");
  EXPECT(number != NULL && perdura_usable_size(heap, number) >= sizeof *number);
  *number = 5;
  EXPECT(perdura_persist(heap, number, sizeof *number) == PERDURA_OK);
  EXPECT(perdura_pointer(heap, perdura_offset(heap, number)) == number);
  FAILS(perdura_transaction(heap, write_and_abort, number), PERDURA_ABORTED, "42");
  EXPECT(*number == 5);
  struct swap swap = {heap, number};
  EXPECT(perdura_transaction(heap, replace, &swap) == PERDURA_OK);
  EXPECT(*(long *)perdura_root(heap, "number") == 99);
  char *text = persistmalloc(heap, 10, NULL);
  strcpy(text, "moved");
  text = persistrealloc(heap, text, 100000);
  EXPECT(text != NULL && strcmp(text, "moved") == 0);
  EXPECT(perdura_root_set(heap, "text", text) == PERDURA_OK);
  char *area = nvmmap(heap, PERDURA_PERSISTENT, 200000);
  EXPECT(area != NULL && area[199999] == 0);
  strcpy(area, "area");
  EXPECT(perdura_persist(heap, area, 5) == PERDURA_OK);
  EXPECT(perdura_root_set(heap, "area", area) == PERDURA_OK);
  char *plain = capmalloc(heap, 1000);
  EXPECT(plain != NULL && perdura_usable_size(heap, plain) >= 1000);
  memset(plain, 1, 1000);
  plain = caprealloc(heap, plain, 70000);
  EXPECT(plain != NULL && plain[999] == 1);
  EXPECT(capfree(heap, plain) == PERDURA_OK);
  void *aligned = capmemalign(heap, 4096, 10);
  EXPECT(aligned != NULL && (uintptr_t)aligned % 4096 == 0);
  void *hollow = nvmmap(heap, PERDURA_CAPACITY, 1 << 20);
  EXPECT(hollow != NULL && nvmunmap(heap, hollow) == PERDURA_OK);
  EXPECT(perdura_close(heap) == PERDURA_OK);
}

static void find(const char *path) {
  perdura_heap *heap = open_heap(path, 0);
  int roots = 0;
  EXPECT(perdura_roots(heap, count_roots, &roots) == PERDURA_OK && roots == 4);
  uint64_t *words = perdura_root(heap, "words");
  EXPECT(words != NULL && words[0] == 0);
  EXPECT(strcmp(perdura_pointer(heap, words[1]), "second") == 0);
  EXPECT(*(long *)perdura_root(heap, "number") == 99);
  EXPECT(strcmp(perdura_root(heap, "text"), "moved") == 0);
  char *area = perdura_root(heap, "area");
  EXPECT(area != NULL && strcmp(area, "area") == 0);
  EXPECT(perdura_root_remove(heap, "area") == PERDURA_OK);
  EXPECT(nvmunmap(heap, area) == PERDURA_OK);
  NULLS(perdura_root(heap, "area"), PERDURA_NO_ROOT, "\"area\"");
  EXPECT(perdura_close(heap) == PERDURA_OK);
}

static void mistakes(const char *path) {
  perdura_heap *heap = open_heap(path, 4 << 20);
  char *object = persistmalloc(heap, 100, NULL), *plain = capmalloc(heap, 100);
  int local = 0;
  EXPECT(perdura_error_code() == PERDURA_OK && perdura_error()[0] == 0);
  FAILS(persistfree(heap, &local), PERDURA_FOREIGN, "not in this heap");
  FAILS(capfree(heap, &local), PERDURA_FOREIGN, "not in this heap");
  FAILS(persistfree(heap, object + 16), PERDURA_NO_OBJECT, "first byte");
  FAILS(persistfree(heap, plain), PERDURA_OTHER_KIND, "capacity memory");
  FAILS(capfree(heap, object), PERDURA_OTHER_KIND, "persistent memory");
  EXPECT(persistfree(heap, object) == PERDURA_OK && capfree(heap, plain) == PERDURA_OK);
  FAILS(persistfree(heap, object), PERDURA_FREED_TWICE, "freed before");
  FAILS(capfree(heap, plain), PERDURA_FREED_TWICE, "freed before");
  EXPECT(persistfree(heap, NULL) == PERDURA_OK && capfree(heap, NULL) == PERDURA_OK);
  NULLS(persistmalloc(heap, 0, NULL), PERDURA_SIZE, "0 bytes");
  NULLS(persistmalloc(heap, 1 << 30, NULL), PERDURA_SIZE, "1073741824");
  NULLS(persistmalloc(heap, SIZE_MAX, NULL), PERDURA_SIZE, "an object");
  NULLS(capmalloc(heap, 0), PERDURA_SIZE, "0 bytes");
  NULLS(capmalloc(heap, SIZE_MAX), PERDURA_SIZE, "an object");
  NULLS(capmemalign(heap, 24, 10), PERDURA_ALIGNMENT, "24");
  NULLS(nvmmap(heap, 2, 10), PERDURA_ARGUMENT, "kind");
  NULLS(nvmmap(heap, PERDURA_CAPACITY, 0), PERDURA_SIZE, "compartment");
  NULLS(persistmalloc(heap, 10, ""), PERDURA_ROOT_NAME, "1 to 39");
  NULLS(persistmalloc(heap, 10, "a name of forty bytes, one more than may"), PERDURA_ROOT_NAME,
        "40");
  NULLS(persistmalloc(heap, 10, "\xff"), PERDURA_ARGUMENT, "UTF-8");
  EXPECT(persistmalloc(heap, 10, "name") != NULL);
  NULLS(persistmalloc(heap, 10, "name"), PERDURA_ROOT_TAKEN, "\"name\"");
  NULLS(perdura_root(heap, "nobody"), PERDURA_NO_ROOT, "\"nobody\"");
  FAILS(perdura_root_remove(heap, "nobody"), PERDURA_NO_ROOT, "\"nobody\"");
  FAILS(perdura_root_set(heap, "name", &local), PERDURA_FOREIGN, "not in this heap");
  FAILS(perdura_persist(heap, &local, 4), PERDURA_FOREIGN, "not in this heap");
  FAILS(perdura_persist(heap, perdura_root(heap, "name"), SIZE_MAX), PERDURA_OUT_OF_OBJECT,
        "bytes");
  FAILS(perdura_transaction(heap, NULL, NULL), PERDURA_ARGUMENT, "null");
  FAILS(perdura_persist(NULL, &local, 4), PERDURA_ARGUMENT, "heap is null");
  EXPECT(perdura_offset(heap, &local) == 0 && perdura_error_code() == PERDURA_FOREIGN);
  NULLS(perdura_pointer(heap, 1 << 30), PERDURA_FOREIGN, "not in this heap");
  EXPECT(perdura_usable_size(heap, object) == 0);
  NULLS(perdura_open(path, NULL), PERDURA_IN_USE, path);
  while (persistmalloc(heap, 50000, NULL) != NULL) {
  }
  expect_error(PERDURA_NO_MEMORY, "persistent", "exhausted", __LINE__);
  while (capmalloc(heap, 500) != NULL) {
  }
  expect_error(PERDURA_NO_MEMORY, "capacity", "exhausted", __LINE__);
  // What is exhausted can still be used, and give room.
  EXPECT(perdura_root_remove(heap, "name") == PERDURA_OK);
  EXPECT(perdura_close(heap) == PERDURA_OK);
  EXPECT(perdura_close(NULL) == PERDURA_OK);
}

static void refused(const char *path, const char *code, const char *word) {
  NULLS(perdura_open(path, NULL), atoi(code), word);
}

// What a program compiled with a later header passes.
struct later_options {
  perdura_options known;
  uint64_t unknown[3];
};

static void bad_options(const char *path) {
  perdura_options options;
  memset(&options, 0, sizeof options);
  EXPECT(sizeof options == 56 && (char *)&options.size_bytes == (char *)&options);
  struct later_options later;
  memset(&later, 0, sizeof later);
  later.known.size_bytes = sizeof later;
  later.known.len_bytes = 1000;
  NULLS(perdura_open(path, &later.known), PERDURA_SIZE, "1000");
  later.unknown[2] = 1;
  NULLS(perdura_open(path, &later.known), PERDURA_ARGUMENT, "options->size_bytes");
  // The last field is none of what it says it knows.
  later.known.size_bytes -= sizeof later.unknown[2];
  NULLS(perdura_open(path, &later.known), PERDURA_SIZE, "1000");
  options.size_bytes = sizeof options - 1;
  NULLS(perdura_open(path, &options), PERDURA_ARGUMENT, "options->size_bytes");
  options.size_bytes = UINT32_MAX;
  NULLS(perdura_open(path, &options), PERDURA_ARGUMENT, "options->size_bytes");
  options.size_bytes = sizeof options;
  options.len_bytes = 1000;
  NULLS(perdura_open(path, &options), PERDURA_SIZE, "1000");
  options.len_bytes = 1 << 20;
  options.durability = 9;
  NULLS(perdura_open(path, &options), PERDURA_ARGUMENT, "durability");
  options.durability = PERDURA_ORDERED;
  options.bind_numa = 1;
  options.numa_node = 99;
  NULLS(perdura_open(path, &options), PERDURA_NODE, "99");
  NULLS(perdura_open("/nonexistent/folder/heap", NULL), PERDURA_FILE, "/nonexistent/folder/heap");
  NULLS(perdura_open(NULL, NULL), PERDURA_ARGUMENT, "path is null");
}

static void root_type(const char *path) {
  perdura_heap *heap = open_heap(path, 0);
  NULLS(perdura_root(heap, "word"), PERDURA_ROOT_TYPE, "\"word\"");
  EXPECT(perdura_close(heap) == PERDURA_OK);
}

// A directory: a counter in a region with a bounded dirty set.
static void directory(const char *path) {
  perdura_options options;
  memset(&options, 0, sizeof options);
  options.len_bytes = 8 << 20;
  perdura_heap *heap = perdura_open(path, &options);
  EXPECT(heap != NULL);
  long *count = perdura_root(heap, "count");
  if (count == NULL) {
    count = persistmalloc(heap, sizeof *count, "count");
    EXPECT(count != NULL);
    *count = 0;
  }
  *count += 1;
  EXPECT(perdura_persist(heap, count, sizeof *count) == PERDURA_OK);
  printf("%ld\n", *count);
  EXPECT(perdura_close(heap) == PERDURA_OK);
}

int main(int count, char **words) {
  const char *part = count > 2 ? words[1] : "";
  if (strcmp(part, "make") == 0) make(words[2]);
  else if (strcmp(part, "find") == 0) find(words[2]);
  else if (strcmp(part, "mistakes") == 0) mistakes(words[2]);
  else if (strcmp(part, "refused") == 0 && count == 5) refused(words[2], words[3], words[4]);
  else if (strcmp(part, "options") == 0) bad_options(words[2]);
  else if (strcmp(part, "root-type") == 0) root_type(words[2]);
  else if (strcmp(part, "directory") == 0) directory(words[2]);
  else return fprintf(stderr, "calls PART PATH\n"), 2;
  return 0;
}
