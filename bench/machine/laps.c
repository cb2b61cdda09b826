// What is built into a stage by `make bench STAGE=`: for each phase, the time and the processor's
// counters, without those of its first batch, which touches new pages. At its end, each process of
// the stage appends its phases to the file that $LAPS names:
//
//     NAME BATCHES SECONDS COUNT...
//
// A count is - where the machine does not count that.
#include "bench/machine/laps.h"

#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PHASES = 8, EVENTS = 5 };

// Cycles, instructions, misses of L1 (loads), of the last cache and of the TLB (loads).
static const struct {
    uint32_t type;
    uint64_t config;
} wanted[EVENTS] = {
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    {PERF_TYPE_HW_CACHE, PERF_COUNT_HW_CACHE_L1D | PERF_COUNT_HW_CACHE_RESULT_MISS << 16},
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
    {PERF_TYPE_HW_CACHE, PERF_COUNT_HW_CACHE_DTLB | PERF_COUNT_HW_CACHE_RESULT_MISS << 16},
};

struct phase {
    const char *timer; // such as &result->forward_time
    long batches;
    double seconds;
    uint64_t counts[EVENTS];
};

// The stage does not know of it, so it lies here: phases, the events' files, and their last values.
static struct phase phases[PHASES];
static int files[EVENTS];
static uint64_t before[EVENTS];

// A processor with too few counters counts each event for a part of the time.
static void count(uint64_t counts[EVENTS]) {
    for (int i = 0; i < EVENTS; ++i) {
        struct {
            uint64_t count, enabled, running;
        } now;
        counts[i] = 0;
        if (files[i] >= 0 && read(files[i], &now, sizeof now) == sizeof now && now.running)
            counts[i] = (uint64_t)((double)now.count * (double)now.enabled / (double)now.running);
    }
}

// The threads that the stage starts later are counted, too.
__attribute__((constructor)) static void begin(void) {
    for (int i = 0; i < EVENTS; ++i) {
        struct perf_event_attr event = {.type = wanted[i].type,
                                        .size = sizeof event,
                                        .config = wanted[i].config,
                                        .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED |
                                                       PERF_FORMAT_TOTAL_TIME_RUNNING,
                                        .inherit = 1,
                                        .exclude_kernel = 1,
                                        .exclude_hv = 1};
        files[i] = (int)syscall(SYS_perf_event_open, &event, 0, -1, -1, 0);
    }
}

__attribute__((destructor)) static void end(void) {
    FILE *file = fopen(getenv("LAPS"), "a");
    if (!file)
        return;
    for (const struct phase *phase = phases; phase->batches; ++phase) {
        const char *arrow = strrchr(phase->timer, '>'), *name = arrow ? arrow + 1 : phase->timer;
        const char *rest = strstr(name, "_time");
        fprintf(file, "%.*s %ld %.9g", (int)(rest ? rest - name : (long)strlen(name)), name,
                phase->batches - 1, phase->seconds);
        for (int i = 0; i < EVENTS; ++i)
            if (files[i] < 0)
                fputs(" -", file);
            else
                fprintf(file, " %llu", (unsigned long long)phase->counts[i]);
        fputc('\n', file);
    }
    fclose(file);
}

double end_phase(const char *timer, double duration) {
    uint64_t counts[EVENTS];
    count(counts);
    struct phase *phase = phases;
    while (phase < phases + PHASES - 2 && phase->timer && strcmp(phase->timer, timer) != 0)
        ++phase;
    phase->timer = timer;
    if (phase->batches++ > 0) {
        phase->seconds += duration;
        for (int i = 0; i < EVENTS; ++i)
            phase->counts[i] += counts[i] - before[i];
    }
    count(before);
    return seconds();
}
