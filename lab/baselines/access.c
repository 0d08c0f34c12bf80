/* Loops that the harness of `perdura-lab access run` is held against: as simple as they can be, for a compiler at its best.
 *
 *   access read   BYTES THREADS ROUNDS   sum all words, each thread its part    -> GiB/s
 *   access random BYTES THREADS READS    a line anywhere, each thread its own   -> ns a read
 *   access chase  BYTES 1       READS    a line whose place the last one names  -> ns a read
 *
 * Built and run by `cargo run --release -p perdura-bench --example access_baselines`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { LINE = 64, WORDS = LINE / 8 };

static uint64_t *memory;
static uint64_t bytes, amount;
static int threads;
static char mode;
static pthread_barrier_t together;
static volatile uint64_t sink;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static uint64_t sum(const uint64_t *words, uint64_t count) {
    uint64_t s = 0;
    for (uint64_t i = 0; i < count; i++) s += words[i];
    return s;
}

static void *work(void *number) {
    uint64_t n = (uint64_t)(uintptr_t)number, s = 0, lines = bytes / LINE;
    uint64_t part = bytes / 8 / (uint64_t)threads;
    pthread_barrier_wait(&together);
    if (mode == 'e') {
        for (uint64_t round = 0; round < amount; round++) s += sum(memory + n * part, part);
    } else if (mode == 'a') {
        uint64_t state = 88172645463325252u + n;
        for (uint64_t i = 0; i < amount; i++) {
            const uint64_t *line = memory + (uint64_t)(((__uint128_t)next(&state) * lines) >> 64) * WORDS;
            for (int w = 0; w < WORDS; w++) s += line[w];
        }
    } else {
        uint64_t at = 0;
        for (uint64_t i = 0; i < amount; i++) at = memory[at * WORDS];
        s = at;
    }
    sink += s;
    pthread_barrier_wait(&together);
    return NULL;
}

/* One cycle through all lines, in an order that no prefetcher guesses (Sattolo). */
static void tie(void) {
    uint64_t lines = bytes / LINE, state = 1442695040888963407u;
    for (uint64_t i = 0; i < lines; i++) memory[i * WORDS] = i;
    for (uint64_t i = lines - 1; i > 0; i--) {
        uint64_t j = (uint64_t)(((__uint128_t)next(&state) * i) >> 64), word = memory[i * WORDS];
        memory[i * WORDS] = memory[j * WORDS];
        memory[j * WORDS] = word;
    }
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    mode = argv[1][1] == 'e' ? 'e' : argv[1][1] == 'a' ? 'a' : 'h';
    bytes = strtoull(argv[2], NULL, 10);
    threads = atoi(argv[3]);
    amount = strtoull(argv[4], NULL, 10);
    memory = mmap(NULL, bytes + (2 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return perror("mmap"), 1;
    memory = (uint64_t *)(((uintptr_t)memory + (2 << 20) - 1) & ~(uintptr_t)((2 << 20) - 1));
    madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 0, bytes);
    if (mode == 'h') tie();
    pthread_barrier_init(&together, NULL, (unsigned)threads + 1);
    pthread_t *all = calloc((size_t)threads, sizeof *all);
    for (int n = 0; n < threads; n++)
        if (pthread_create(&all[n], NULL, work, (void *)(uintptr_t)n)) return 1;
    pthread_barrier_wait(&together);
    uint64_t began = now_ns();
    pthread_barrier_wait(&together);
    double ns = (double)(now_ns() - began);
    for (int n = 0; n < threads; n++) pthread_join(all[n], NULL);
    if (mode == 'e')
        printf("%.4f\n", (double)bytes * (double)amount / ns * 1e9 / (double)(1 << 30));
    else
        printf("%.4f\n", ns / (double)amount / threads);
    return 0;
}
