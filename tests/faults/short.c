/* Writes to files take only a part of what they are given, as they may: for LD_PRELOAD. What is past the page cache ends
 * at whole blocks. At its end a process adds to the file $SHORT a line with how many of its writes were cut. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BLOCK = 4096 };
static long cut;

/* Of `count` bytes, how many are taken. */
static size_t part(int fd, size_t count)
{
    struct stat found;
    if (count < 2 || fstat(fd, &found) < 0 || !S_ISREG(found.st_mode))
        return count;
    size_t half = count / 2;
    if (fcntl(fd, F_GETFL) & O_DIRECT)
        half = half / BLOCK * BLOCK;
    if (half == 0)
        return count;
    __atomic_add_fetch(&cut, 1, __ATOMIC_RELAXED);
    return half;
}

ssize_t write(int fd, const void *data, size_t count)
{
    return syscall(SYS_write, fd, data, part(fd, count));
}

ssize_t pwrite(int fd, const void *data, size_t count, off_t at)
{
    return syscall(SYS_pwrite64, fd, data, part(fd, count), at);
}

ssize_t pwrite64(int fd, const void *data, size_t count, off64_t at)
{
    return pwrite(fd, data, count, at);
}

/* A first buffer alone, and of it a part. */
ssize_t writev(int fd, const struct iovec *pieces, int count)
{
    return count > 0 ? write(fd, pieces[0].iov_base, pieces[0].iov_len) : 0;
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t at)
{
    return count > 0 ? pwrite(fd, pieces[0].iov_base, pieces[0].iov_len, at) : 0;
}

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t at, int flags)
{
    (void)flags;
    return pwritev(fd, pieces, count, at);
}

__attribute__((destructor)) static void tell(void)
{
    char line[32];
    const char *path = getenv("SHORT");
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    int size = snprintf(line, sizeof line, "%ld\n", cut);
    if (fd >= 0 && syscall(SYS_write, fd, line, size) == size)
        close(fd);
}
