// How processes come and go with a heap open. Run with the name of a part and a path; exits with 0, or says which line
// is wrong.

#include <perdura.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPECT(holds)                                                                              \
  do {                                                                                             \
    if (!(holds)) {                                                                                \
      fprintf(stderr, "endings.c:%d: %s; last error %d: %s\n", __LINE__, #holds,                   \
              perdura_error_code(), perdura_error());                                              \
      _exit(1);                                                                                    \
    }                                                                                              \
  } while (0)
static perdura_heap *heap;

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
  heap = perdura_open(count > 2 ? words[2] : NULL, &options);
  EXPECT(heap != NULL);
  if (strcmp(part, "exits-within") == 0) {
    perdura_transaction(heap, exit_within, persistmalloc(heap, 64, NULL));
  }
  return fprintf(stderr, "endings PART PATH\n"), 2;
}
