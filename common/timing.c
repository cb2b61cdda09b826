#include "common/timing.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOW = 2,   // seconds of an epoch that has a line of progress
    WIDTH = 80, // columns of a terminal that does not say how many it has
    MARGIN = 4, // columns before the rest of a line that is too long
};

// The line of the epoch that runs. A process has one terminal. As an argument, this would be in the
// training loop of every stage.
static struct {
    int epochs;
    long batches; // of an epoch
    double start; // of this epoch; 0: not known
    double due;   // when to draw the line again
    int width;    // of what is drawn
} progress = {.due = INFINITY};

// Whether standard output is a terminal on which a line can be drawn again.
static bool is_terminal(void) {
    const char *kind = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(kind && strcmp(kind, "dumb") == 0);
}

double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void timer_add(struct timer *timer, double duration) {
    double distance = duration - timer->mean;
    ++timer->count;
    timer->total += duration;
    timer->mean += distance / (double)timer->count;
    timer->squares += distance * (duration - timer->mean);
    timer->min = timer->count == 1 ? duration : fmin(timer->min, duration);
    timer->max = timer->count == 1 ? duration : fmax(timer->max, duration);
}

void timer_repeat(struct timer *timer, long times) {
    timer->count *= times;
    timer->total *= (double)times;
    timer->squares *= (double)times;
}

void watch_epochs(int epochs, long batches) {
    if (!is_terminal())
        return;
    progress.epochs = epochs;
    progress.batches = batches;
    progress.due = 0; // the first batch sets the start
}

void erase_progress(void) {
    // Spaces, because not every terminal knows how to erase a line.
    if (progress.width > 0)
        printf("\r%*s\r", progress.width, "");
    progress.width = 0;
    fflush(stdout);
}

struct duration {
    char text[32];
};

static struct duration in_words(double duration) {
    struct duration words;
    if (duration < 100)
        snprintf(words.text, sizeof words.text, "%.0f s", duration);
    else if (duration < 6000)
        snprintf(words.text, sizeof words.text, "%.0f min", duration / 60);
    else
        snprintf(words.text, sizeof words.text, "%.1f h", duration / 3600);
    return words;
}

// Draws the line of an epoch, which counts from 0. `part` of it is done, or 0: not known.
static void draw_progress(int epoch, double part, double epoch_s) {
    const double left = (1 - part) * epoch_s;
    char rest[64] = "", done[16] = "about";
    if (part > 0)
        snprintf(done, sizeof done, "%.0f %%,", 100 * part);
    if (epoch + 1 < progress.epochs)
        snprintf(rest, sizeof rest, ", %s left in all",
                 in_words(left + (progress.epochs - epoch - 1) * epoch_s).text);
    erase_progress();
    progress.width = printf("epoch %d of %d: %s %s left%s", epoch + 1, progress.epochs, done,
                            in_words(left).text, rest);
    fflush(stdout);
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

void print_epoch(int epoch, const char *format, ...) {
    va_list values;
    va_start(values, format);
    erase_progress();
    print_folded(format, values);
    fflush(stdout);
    va_end(values);
    if (isinf(progress.due))
        return;
    const double now = seconds(), epoch_s = now - progress.start;
    const bool is_slow = progress.start > 0 && epoch_s > SLOW;
    if (is_slow && epoch < progress.epochs)
        draw_progress(epoch, 0, epoch_s);
    progress.start = now;
    progress.due = now + (is_slow ? 1 : SLOW);
}

// Draws the line after a batch of the run, which counts from 1.
static void update_progress(long batch, double start, double now) {
    if (progress.start > 0) {
        const long epoch = (batch - 1) / progress.batches;
        const double part = (double)(batch - epoch * progress.batches) / (double)progress.batches;
        draw_progress((int)epoch, part, (now - progress.start) / part);
        progress.due = now + 1;
    } else {
        progress.start = start;
        progress.due = start + SLOW;
    }
}

double timer_lap(struct timer *timer, double start) {
    double now = seconds();
    timer_add(timer, now - start);
    if (now >= progress.due)
        update_progress(timer->count, start, now);
    return now;
}

double timer_stddev(const struct timer *timer) {
    return timer->count < 2 ? 0 : sqrt(timer->squares / (double)(timer->count - 1));
}

void print_timer(const char *phase, const struct timer *timer, const char *rounds) {
    if (timer->count == 0)
        return;
    print_line("%-8s %8.3f s in %ld %s: mean %.1f us, deviation %.1f, min %.1f, max %.1f\n", phase,
               timer->total, timer->count, rounds, 1e6 * timer->mean, 1e6 * timer_stddev(timer),
               1e6 * timer->min, 1e6 * timer->max);
}
