#include "common/terminal.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    SLOW = 2,   // seconds of an epoch after which the terminal says how long the next takes
    WIDTH = 80, // columns of a terminal that does not say how many it has
    MARGIN = 4, // columns before the rest of a line that is too long
};

// Whether standard output is a terminal on which a line can be drawn again.
static bool is_terminal(void) {
    const char *kind = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(kind && strcmp(kind, "dumb") == 0);
}

static void print_folded(const char *format, va_list values) {
    char text[1024], *rest = text;
    struct winsize size;
    vsnprintf(text, sizeof text, format, values);
    if (is_terminal() && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
        const size_t width = size.ws_col > 2 * MARGIN ? size.ws_col : WIDTH;
        for (size_t room = width; strcspn(rest, "\n") > room; room = width - MARGIN) {
            char *end = rest + room;
            while (end > rest && (*end != ' ' || !strchr(",:", end[-1])))
                --end;
            if (end == rest)
                break;
            printf("%.*s\n%*s", (int)(end - rest), rest, MARGIN, "");
            rest = end + 1;
        }
    }
    fputs(rest, stdout);
}

void print_line(const char *format, ...) {
    va_list values;
    va_start(values, format);
    print_folded(format, values);
    va_end(values);
}

static void print_duration(const char *before, double duration) {
    if (duration < 100)
        printf("%s %.0f s", before, duration);
    else if (duration < 6000)
        printf("%s %.0f min", before, duration / 60);
    else
        printf("%s %.1f h", before, duration / 3600);
}

void print_epoch(int epoch, int epochs, double epoch_s, const char *format, ...) {
    va_list values;
    va_start(values, format);
    if (is_terminal())
        fputs("\033[K", stdout); // erases what stands there since the epoch before
    print_folded(format, values);
    va_end(values);
    if (is_terminal() && epoch_s > SLOW && epoch < epochs) {
        printf("epoch %d of %d takes", epoch + 1, epochs);
        print_duration(" about", epoch_s);
        if (epoch + 1 < epochs)
            print_duration(", the rest", (epochs - epoch - 1) * epoch_s);
        putchar('\r'); // what comes next is written over it
    }
    fflush(stdout);
}

void print_timer(const char *phase, const struct timer *timer, const char *rounds) {
    if (timer->count == 0)
        return;
    print_line("%-8s %8.3f s in %ld %s: mean %.1f us, deviation %.1f, min %.1f, max %.1f\n", phase,
               timer->total, timer->count, rounds, 1e6 * timer->mean, 1e6 * timer_stddev(timer),
               1e6 * timer->min, 1e6 * timer->max);
}
