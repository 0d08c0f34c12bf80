// A library that uses memory before and after each fork, and registered its handlers before
// anything else was initialised.

#include <pthread.h>
#include <stdlib.h>

static void use_memory(void) {
  enum { OBJECTS = 300 };
  void *objects[OBJECTS];
  for (int index = 0; index < OBJECTS; index++) objects[index] = malloc(32 + 700 * (size_t)index);
  for (int index = 0; index < OBJECTS; index++) free(objects[index]);
}

__attribute__((constructor)) static void begin(void) {
  if (pthread_atfork(use_memory, use_memory, use_memory) != 0) abort();
}
