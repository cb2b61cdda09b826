// What the programs print. None of it is timed.
#ifndef COMMON_TERMINAL_H
#define COMMON_TERMINAL_H

#include "common/timing.h"

#ifdef __cplusplus
extern "C" {
#endif

// Prints a line as printf() does. On a terminal, a line that is too long goes on in the next, after
// a comma or a colon.
__attribute__((format(printf, 1, 2))) void print_line(const char *format, ...);

// Prints the line of a finished epoch, which counts from 1, as print_line() does. If an epoch takes
// over two seconds, a terminal then says how long the next should take, until its line comes. A
// file, or a terminal where TERM is dumb, does not.
__attribute__((format(printf, 4, 5))) void print_epoch(int epoch, int epochs, double epoch_s,
                                                       const char *format, ...);

// Prints a phase's time and its spread, or nothing if no duration was added. `rounds` says what was
// timed each time, such as "batches".
void print_timer(const char *phase, const struct timer *timer, const char *rounds);

#ifdef __cplusplus
}
#endif

#endif
