/* The wall clock of one process, moved: preloaded, with seconds from the real time in the file that CHAOS_CLOCK names.
 *
 * A wait until a time of the wall clock follows it, as with a clock that is really set: set back, the wait lasts longer. It
 * wakes for nothing every 100 ms to look, which callers must bear with anyway. The monotonic clock is left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) offset = mapped;
}

static struct timespec now(clockid_t clock) {
    struct timespec time;
    syscall(SYS_clock_gettime, clock, &time);
    if (offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time.tv_sec += *offset;
    return time;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    *time = now(clock);
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec real = now(CLOCK_REALTIME);
    time->tv_sec = real.tv_sec;
    time->tv_usec = real.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    time_t seconds = now(CLOCK_REALTIME).tv_sec;
    if (into) *into = seconds;
    return seconds;
}

int timespec_get(struct timespec *time, int base) {
    *time = now(CLOCK_REALTIME);
    return base;
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until) {
    static int (*real)(cnd_t *, mtx_t *, const struct timespec *);
    if (!real) real = (int (*)(cnd_t *, mtx_t *, const struct timespec *))dlsym(RTLD_NEXT, "cnd_timedwait");
    const int64_t slice = 100 * 1000 * 1000;
    struct timespec begun = now(CLOCK_REALTIME), end;
    int64_t left = (int64_t)(until->tv_sec - begun.tv_sec) * 1000000000 + until->tv_nsec - begun.tv_nsec;
    int64_t wait = left < 0 ? 0 : left < slice ? left : slice;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &end);
    end.tv_nsec += wait;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    int woken = real(condition, mutex, &end);
    return woken == thrd_timedout && left > slice ? thrd_success : woken;
}
