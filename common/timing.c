#include "common/timing.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char HEADER[] =
    "stage,device,threads,hidden,batch,epochs,learning_rate,seed,train_samples,test_samples,"
    "dataset,load_s,setup_s,train_s,forward_s,backward_s,final_loss,test_accuracy,gflops,"
    "peak_rss_mib,peak_vram_mib\n";

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

double timer_lap(struct timer *timer, double start) {
    double now = seconds();
    timer_add(timer, now - start);
    return now;
}

double timer_stddev(const struct timer *timer) {
    return timer->count < 2 ? 0 : sqrt(timer->squares / (double)(timer->count - 1));
}

static double peak_rss_mib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024; // Linux counts it in KiB
}

// A multiply-add is two operations. For each sample, W1 takes part in two products and W2 in three.
static double gflops(const struct options *options, double train_s) {
    double hidden = options->hidden;
    double flops = 4.0 * PIXELS * hidden + 6.0 * CLASSES * hidden;
    return train_s > 0 ? options->epochs * (double)options->train_samples * flops / train_s / 1e9
                       : 0;
}

void report_epoch(const struct options *options, int epoch, double loss) {
    if (options->quiet)
        return;
    printf("epoch %d of %d: loss %#.5g\n", epoch + 1, options->epochs, loss);
    fflush(stdout);
}

static void print_timer(const char *phase, const struct timer *timer) {
    printf("%-8s %8.3f s in %ld batches: mean %.1f us, deviation %.1f, min %.1f, max %.1f\n", phase,
           timer->total, timer->count, 1e6 * timer->mean, 1e6 * timer_stddev(timer),
           1e6 * timer->min, 1e6 * timer->max);
}

// A number as text: 17 digits, a sign, a point and an exponent.
struct number {
    char text[32];
};

// Returns the fewest digits that read back as the same double.
static struct number shortest(double value) {
    struct number number;
    int digits = 0;
    do
        snprintf(number.text, sizeof number.text, "%.*g", ++digits, value);
    while (digits < DBL_DECIMAL_DIG && strtod(number.text, NULL) != value);
    return number;
}

// Returns the fewest digits that read back as the same float: 0.1 instead of 0.100000001.
static struct number shortest_float(float value) {
    struct number number;
    int digits = 0;
    do
        snprintf(number.text, sizeof number.text, "%.*g", ++digits, (double)value);
    while (digits < FLT_DECIMAL_DIG && strtof(number.text, NULL) != value);
    return number;
}

// Formats a result's row, with the columns of HEADER, into `row`. Returns its length. A column that
// does not apply is empty. Computed numbers have the digits to read back equal. Times have the
// digits of the clock, nanoseconds.
static int format_row(char *row, size_t size, const struct options *options,
                      const struct data *data, const struct result *result) {
    struct number threads = {""}, loss = {""}, vram = {""};
    if (result->threads > 0)
        snprintf(threads.text, sizeof threads.text, "%d", result->threads);
    if (options->epochs > 0)
        loss = shortest(result->final_loss);
    if (result->peak_vram_mib > 0)
        vram = shortest(result->peak_vram_mib);
    return snprintf(
        row, size, "%s,%s,%s,%d,%d,%d,%s,%llu,%d,%d,%s,%.9f,%.9f,%.9f,%.9f,%.9f,%s,%s,%s,%s,%s\n",
        STAGE, result->device, threads.text, options->hidden, options->batch, options->epochs,
        shortest_float(options->learning_rate).text, (unsigned long long)options->seed,
        options->train_samples, options->test_samples, data->name, data->load_s, result->setup_s,
        result->train_s, result->forward.total, result->backward.total, loss.text,
        shortest(result->test_accuracy).text, shortest(gflops(options, result->train_s)).text,
        shortest(peak_rss_mib()).text, vram.text);
}

// Appends the row, after the header if the file is empty. A single write keeps rows whole, for
// other readers and if this run is stopped. The lock keeps two runs from both writing a header. A
// write that came up short (a full disk) is taken back.
static int append_row(const char *path, const struct options *options, const struct data *data,
                      const struct result *result) {
    char text[sizeof HEADER + 1024] = "";
    struct stat before;
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0666);
    if (file < 0 || flock(file, LOCK_EX) < 0 || fstat(file, &before) < 0) {
        fprintf(stderr, "--csv: cannot write %s: %s; this run's row is not saved\n", path,
                strerror(errno));
        if (file >= 0)
            close(file);
        return EXIT_RUN_FAILED;
    }
    if (before.st_size == 0)
        strcpy(text, HEADER);
    size_t header = strlen(text);
    size_t length =
        header + (size_t)format_row(text + header, sizeof text - header, options, data, result);
    ssize_t written = write(file, text, length);
    if (written != (ssize_t)length) {
        fprintf(stderr, "--csv: cannot write %s: %s; this run's row is not saved\n", path,
                written < 0 ? strerror(errno) : "the disk is full");
        if (written > 0 && ftruncate(file, before.st_size) < 0)
            fprintf(stderr, "--csv: %s ends with part of a row\n", path);
        close(file);
        return EXIT_RUN_FAILED;
    }
    close(file);
    return 0;
}

int report_result(const struct options *options, const struct data *data,
                  const struct result *result) {
    if (options->epochs > 0 && !isfinite(result->final_loss)) {
        fprintf(stderr, STAGE ": the loss became %g: try a --learning-rate below %g\n",
                result->final_loss, (double)options->learning_rate);
        return EXIT_RUN_FAILED;
    }
    if (!options->quiet) {
        print_timer("forward", &result->forward);
        print_timer("backward", &result->backward);
    }
    char loss[32] = "untrained";
    if (options->epochs > 0)
        snprintf(loss, sizeof loss, "%#.5g", result->final_loss);
    int status = options->csv ? append_row(options->csv, options, data, result) : 0;
    printf("%s: hidden %d, batch %d, epochs %d, %s: train %.3f s, forward %.3f s, backward %.3f s, "
           "%.1f GFLOP/s, loss %s, accuracy %.4f\n",
           STAGE, options->hidden, options->batch, options->epochs, data->name, result->train_s,
           result->forward.total, result->backward.total, gflops(options, result->train_s), loss,
           result->test_accuracy);
    return status;
}

void check_results_file(const char *path) {
    char line[sizeof HEADER] = "";
    struct stat kind;
    // Do not read from a pipe or a terminal: that would wait until somebody writes.
    if (stat(path, &kind) < 0 || !S_ISREG(kind.st_mode) || kind.st_size == 0)
        return;
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr,
                "--csv: cannot read %s: %s; expected a new file or one that a stage wrote\n", path,
                strerror(errno));
        exit(EXIT_BAD_INPUT);
    }
    if (!fgets(line, sizeof line, file) || strcmp(line, HEADER) != 0) {
        fprintf(stderr,
                "--csv: %s begins with other columns than a result row has; expected a new file, "
                "or one that a stage wrote\n",
                path);
        exit(EXIT_BAD_INPUT);
    }
    if (fseek(file, -1, SEEK_END) == 0 && getc(file) != '\n') {
        fprintf(stderr, "--csv: %s ends within a row: complete or delete that row\n", path);
        exit(EXIT_BAD_INPUT);
    }
    fclose(file);
}
