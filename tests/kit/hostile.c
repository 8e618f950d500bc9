/* Preloaded: a disk and a clock that misbehave as the page of `kit.hostile` says.
 *
 * Files outside of $HOSTILE_ROOT are left alone. Children do not inherit any of it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static volatile struct page {
    int64_t sync_delay_us, sync_fails, no_space, clock_offset_ns, sync_count, fail_count;
} *page;
static char root[4096];

#define SECOND 1000000000LL
/* found at each call: constructors of other libraries may call before ours has run */
#define REAL(name) static __typeof__(&name) real; \
    if (!real) real = (__typeof__(real))dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("HOSTILE_CONTROL"), *below = getenv("HOSTILE_ROOT");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0 || !below) {
        fputs("hostile: HOSTILE_CONTROL and HOSTILE_ROOT are needed\n", stderr);
        _exit(127);
    }
    snprintf(root, sizeof root, "%s/", below);
    void *found = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (found == MAP_FAILED)
        _exit(127);
    page = found;
    unsetenv("LD_PRELOAD");
}

static int concerns(int fd)
{
    char name[64], path[4096];
    if (!page)
        return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(name, path, sizeof path - 2);
    if (size < 0)
        return 0;
    memcpy(path + size, "/", 2); /* so that the root itself is below it */
    return strncmp(path, root, strlen(root)) == 0;
}

static int fails(int fd, int64_t is_meant, int why)
{
    if (!page || !is_meant || !concerns(fd))
        return 0;
    __atomic_add_fetch(&page->fail_count, 1, __ATOMIC_SEQ_CST);
    errno = why;
    return 1;
}

static int sync_fails(int fd)
{
    if (!concerns(fd))
        return 0;
    __atomic_add_fetch(&page->sync_count, 1, __ATOMIC_SEQ_CST);
    /* in short sleeps: who behaves again does so at once */
    for (int64_t slept = 0; slept < page->sync_delay_us; slept += 5000)
        usleep(5000);
    int64_t left = page->sync_fails;
    while (left > 0 && !__atomic_compare_exchange_n(&page->sync_fails, &left, left - 1, 0,
                                                    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    return fails(fd, left == 1, EIO);
}

int fsync(int fd)
{
    REAL(fsync);
    return sync_fails(fd) ? -1 : real(fd);
}

int fdatasync(int fd)
{
    REAL(fdatasync);
    return sync_fails(fd) ? -1 : real(fd);
}

ssize_t write(int fd, const void *data, size_t size)
{
    REAL(write);
    return page && fails(fd, page->no_space, ENOSPC) ? -1 : real(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    REAL(pwrite);
    return page && fails(fd, page->no_space, ENOSPC) ? -1 : real(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
    REAL(pwrite64);
    return page && fails(fd, page->no_space, ENOSPC) ? -1 : real(fd, data, size, at);
}

ssize_t writev(int fd, const struct iovec *pieces, int count)
{
    REAL(writev);
    return page && fails(fd, page->no_space, ENOSPC) ? -1 : real(fd, pieces, count);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    REAL(clock_gettime);
    int result = real(clock, now);
    if (result == 0 && page && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t all = now->tv_sec * SECOND + now->tv_nsec + page->clock_offset_ns;
        all = all < 0 ? 0 : all; /* no clock shows a time before 1970 */
        now->tv_sec = all / SECOND;
        now->tv_nsec = all % SECOND;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise) != 0)
        return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result)
{
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (result)
        *result = precise.tv_sec;
    return precise.tv_sec;
}
