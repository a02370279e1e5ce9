/* The clock of the day, off by as many seconds as stand in the file $CLOCK: for LD_PRELOAD. Other clocks are as they are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long offset(void)
{
    char text[32] = {0};
    const char *path = getenv("CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return 0;
    if (read(fd, text, sizeof text - 1) < 0)
        text[0] = 0;
    close(fd);
    return atol(text);
}

int clock_gettime(clockid_t which, struct timespec *now)
{
    long done = syscall(SYS_clock_gettime, which, now);
    if (done == 0 && which == CLOCK_REALTIME)
        now->tv_sec += offset();
    return (int)done;
}
