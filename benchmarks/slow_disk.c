/* Makes every flush to the disk take longer, by BENCH_FLUSH_DELAY_US microseconds: for LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

static int slowly(int (*flush)(int), int descriptor)
{
    const char *text = getenv("BENCH_FLUSH_DELAY_US");
    long delay_us = text ? atol(text) : 0;
    struct timespec delay = {delay_us / 1000000, delay_us % 1000000 * 1000};
    int result = flush(descriptor);
    int error = errno;
    clock_nanosleep(CLOCK_MONOTONIC, 0, &delay, NULL);
    errno = error;
    return result;
}

int fsync(int descriptor)
{
    return slowly((int (*)(int))dlsym(RTLD_NEXT, "fsync"), descriptor);
}

int fdatasync(int descriptor)
{
    return slowly((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"), descriptor);
}
