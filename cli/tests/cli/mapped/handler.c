/* Signal handlers: one that writes to a served file while its thread does, and one that opens a
 * page to which a served file is read. */
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

static char *page;

static void open_page(int signal) {
    (void)signal;
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
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
    setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, 0);
    page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGSEGV, open_page);
    if (pread(fd, page, 4096, 0) != 4096 || page[0] != 'w') return 5;
    puts("all right");
    return 0;
}
