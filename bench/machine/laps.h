// `make bench STAGE=` includes this before a stage's source. It makes the stage tell laps.c where
// it reads its clock at the end of a phase. A phase has the name of its timer.
#ifndef BENCH_LAPS_H
#define BENCH_LAPS_H

#include "common/timing.h"

// Adds what a phase has taken, in seconds. Returns the time now, when the next phase begins.
double end_phase(const char *timer, double duration);

static inline double hooked_lap(struct timer *timer, const char *name, double start) {
    const double now = timer_lap(timer, start);
    return end_phase(name, now - start);
}

static inline void hooked_add(struct timer *timer, const char *name, double duration) {
    timer_add(timer, duration);
    end_phase(name, duration);
}

#define timer_lap(timer, start) hooked_lap(timer, #timer, start)
#define timer_add(timer, duration) hooked_add(timer, #timer, duration)

#endif
