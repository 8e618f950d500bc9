/* Preloaded: counts the calls that ask for memory, of a process and of its threads.
 *
 * The count lies in a file that is mapped, `<pid>` in $GAUSSDECODE_BENCH_COUNTS, so that it is
 * there however the process ends. Arrow is told to ask malloc too, not its own allocator. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);

static uint64_t before; /* what is asked for before the file is there */
static uint64_t *count = &before;

static void note(void) { __atomic_fetch_add(count, 1, __ATOMIC_RELAXED); }

__attribute__((constructor)) static void begin(void)
{
    const char *directory = getenv("GAUSSDECODE_BENCH_COUNTS");
    char path[4096];
    if (!directory)
        return;
    setenv("ARROW_DEFAULT_MEMORY_POOL", "system", 1);
    snprintf(path, sizeof path, "%s/%d", directory, (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *page = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof *count) == 0)
        page = (void *)syscall(SYS_mmap, NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED,
                               fd, 0L);
    if (page == MAP_FAILED) {
        fputs("allocations: the file of counts cannot be made\n", stderr);
        _exit(127);
    }
    close(fd);
    __atomic_fetch_add((uint64_t *)page, before, __ATOMIC_RELAXED);
    count = page;
}

void *malloc(size_t size)
{
    note();
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size)
{
    note();
    return __libc_calloc(number, size);
}

void *realloc(void *old, size_t size)
{
    note();
    return __libc_realloc(old, size);
}

void *memalign(size_t alignment, size_t size)
{
    note();
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    note();
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **found, size_t alignment, size_t size)
{
    note();
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)))
        return EINVAL;
    void *block = __libc_memalign(alignment, size);
    if (!block)
        return ENOMEM;
    *found = block;
    return 0;
}

void *mmap(void *where, size_t size, int protection, int flags, int fd, off_t offset)
{
    note();
    return (void *)syscall(SYS_mmap, where, size, protection, flags, fd, offset);
}

void *mmap64(void *where, size_t size, int protection, int flags, int fd, off_t offset)
{
    note();
    return (void *)syscall(SYS_mmap, where, size, protection, flags, fd, offset);
}
