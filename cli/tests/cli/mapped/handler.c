/* A signal handler that writes to a served file while its thread does. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

static int fd;
static volatile sig_atomic_t handled;

static void handle(int signal) {
    (void)signal;
    handled += pwrite(fd, "h", 1, 4096) == 1;
}

int main(void) {
    struct itimerval often = { { 0, 200 }, { 0, 200 } };
    fd = open("signals", O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 8192)) return 1;
    char *memory = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) return 2;
    signal(SIGALRM, handle);
    setitimer(ITIMER_REAL, &often, 0);
    while (handled < 200)
        if (pwrite(fd, "w", 1, 0) != 1) return 3;
    if (memory[0] != 'w' || memory[4096] != 'h') return 4;
    puts("all right");
    return 0;
}
