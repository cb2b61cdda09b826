// Compares the weights that a stage has after 50 batches with the float64 reference's:
//
//     test_stages [-v] [-1] [-f] HIDDEN,HIDDEN,... PROGRAM...
//     test_stages -c ORIGIN HIDDEN,HIDDEN,... PROGRAM
//
// Each program is a stage's train, or a build of it with other flags. It is run from its command
// line on a small data set made here, with each number of hidden units and each batch size below.
// -v prints how far every run was from the reference. -1 tests one number of threads, for programs
// that take seconds to start. -f tests one batch size, for slow programs.
//
// -c is `make check`. It also compares after the first batch, stops at the first mistake, and says
// in plain words what is wrong. ORIGIN is the program that this one came from. It limits how long a
// run may take, and may be empty.
#include "errors.h"
#include "support.h"

#include <err.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TRAIN_SAMPLES = 207, TEST_SAMPLES = 200, MAX_PROGRAMS = 64, MAX_TESTS = 1024 };

// Seconds that a run may take in a check, with an origin and without one. It may take TIMES_ORIGIN
// times as long as its origin, if that is more.
enum { CHECK_LIMIT = 5, CHECK_LIMIT_ALONE = 60, TIMES_ORIGIN = 20 };

// Fifty batches of each size. The last of an epoch is short where possible. If rounding decides
// whether a hidden unit is on, a small batch is further off than a large one (errors.c says how
// far). So no unit comes closer to zero with these seeds than 5e-6 (batches of 1 and 3), 4e-7 (32
// and 50) or 2e-7 (128). This holds for the numbers of hidden units in the Makefile. With 1024
// hidden units 00_serial takes 5 ms a sample, so there are no more samples.
static const struct cell {
    int batch, train, epochs;
    double learning_rate;
    uint64_t seed;
} CELLS[] = {
    {1, 50, 1, 0.1, 9},      // a single epoch
    {3, 74, 2, 0.1, 5},      // 25 batches an epoch, the last of 2
    {32, 145, 10, 0.1, 13},  // 5 batches an epoch, the last of 17
    {50, 207, 10, 0.03, 23}, // 5 batches an epoch, the last of 7
    {128, 165, 25, 0.1, 19}, // 2 batches an epoch, the last of 37
    {1000, 40, 50, 0.1, 24}, // larger than the training set: each epoch is one short batch
};

// The test of the initial weights has a seed of 64 bits.
static const struct cell UNTRAINED = {8, 8, 0, 0.1, 0xfedcba9876543210};

// A run is compared with this. It is computed once for all programs.
struct expected {
    double *weights; // NULL: not computed yet
    double loss, accuracy;
};

struct context {
    char directory[WORD_SIZE];
    struct digits train, test;
    double *train_images, *test_images;
    bool verbose, one_number_of_threads, few_batches;
    bool check;
    bool shown;            // a check has shown a table
    struct program origin; // what the program in a check came from, if available
};

// One cmocka test: a program on a cell.
struct test {
    struct context *context;
    struct program *program;
    int hidden;
    const struct cell *cell;
    struct expected *expected;
};

// How the program is started.
struct start {
    int threads; // 0: not given
    bool many;   // it is told that there are 64 processors
    int epochs;
};

static struct samples samples_from(const struct digits *digits, const double *images, int first,
                                   int count) {
    return (struct samples){(size_t)count, images + (size_t)first * INPUTS, digits->labels + first};
}

static void compute_expected(const struct test *test) {
    const struct context *context = test->context;
    const struct cell *cell = test->cell;
    struct expected *expected = test->expected;
    const size_t hidden = (size_t)test->hidden;
    if (expected->weights)
        return;
    expected->weights = allocate(part_offset(PARTS, hidden), sizeof(double));
    initial_parameters(expected->weights, hidden, cell->seed);
    // The stage's learning rate is a float32.
    expected->loss =
        train_reference(expected->weights, hidden,
                        samples_from(&context->train, context->train_images, 0, cell->train),
                        (size_t)cell->batch, cell->epochs, (float)cell->learning_rate);
    expected->accuracy =
        reference_accuracy(expected->weights, hidden,
                           samples_from(&context->test, context->test_images, 0, TEST_SAMPLES));
}

// Returns the options that distinguish a run from the others, as on its command line.
static const char *options_of(const struct test *test, struct start start) {
    static char options[256];
    const struct cell *cell = test->cell;
    const int length =
        snprintf(options, sizeof options, "--hidden %d --batch %d --train %d --epochs %d",
                 test->hidden, cell->batch, cell->train, start.epochs);
    if (start.threads)
        snprintf(options + length, sizeof options - (size_t)length, " --threads %d%s",
                 start.threads, start.many ? ", as on 64 processors" : "");
    return options;
}

static void stop_check(const struct context *context) {
    remove_directory(context->directory);
    exit(EXIT_FAILURE);
}

// Ends the test. In a check, it ends the whole check.
__attribute__((format(printf, 3, 4))) static void
fail_test(const struct test *test, struct start start, const char *format, ...) {
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (!test->context->check)
        fail_msg("%s, %d threads: %s", test->program->path, start.threads, message);
    printf("%s: WRONG with %s: %s\n", test->program->name, options_of(test, start), message);
    stop_check(test->context);
}

static void path_of(const struct test *test, const char *name, char path[2 * WORD_SIZE]) {
    snprintf(path, (size_t)2 * WORD_SIZE, "%s/%s", test->context->directory, name);
}

// Runs the program, or its origin, for up to `limit` seconds. Returns its exit status.
static int run_for(const struct test *test, const struct program *program, struct start start,
                   int limit) {
    const struct cell *cell = test->cell;
    char weights[2 * WORD_SIZE], row[2 * WORD_SIZE], error[2 * WORD_SIZE];
    path_of(test, "weights", weights);
    path_of(test, "row.csv", row);
    path_of(test, "error", error);
    unlink(weights);
    unlink(row);

    struct command command = {.limit = limit};
    if (start.many) {
        add_word(&command, "env");
        add_word(&command, "LD_PRELOAD=%s/many_processors.so", test->context->directory);
    }
    add_word(&command, "%s", program->path);
    add_word(&command, "--data=%s", test->context->directory);
    add_word(&command, "--hidden=%d", test->hidden);
    add_word(&command, "--batch=%d", cell->batch);
    add_word(&command, "--epochs=%d", start.epochs);
    add_word(&command, "--learning-rate=%g", cell->learning_rate);
    add_word(&command, "--seed=%llu", (unsigned long long)cell->seed);
    add_word(&command, "--train=%d", cell->train);
    add_word(&command, "--test=%d", TEST_SAMPLES);
    add_word(&command, "--csv=%s", row);
    add_word(&command, "--save-weights=%s", weights);
    if (start.threads && program->threads)
        add_word(&command, "--threads=%d", start.threads);
    return run_command(&command, error);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// Runs the program for as long as it may take. Returns its exit status.
static int run_in_time(const struct test *test, struct start start) {
    const struct context *context = test->context;
    const struct program *origin = &context->origin;
    int limit = !context->check ? 0 : !*origin->unavailable ? CHECK_LIMIT : CHECK_LIMIT_ALONE;
    if (test->program->hangs)
        fail_test(test, start, "not run: it had to be stopped before");
    int status = run_for(test, test->program, start, limit);
    if (status != TOO_SLOW)
        return status;
    if (!context->check) {
        test->program->hangs = true;
        fail_test(test, start, "hangs: had to be stopped after ten minutes");
    }
    if (*origin->unavailable)
        fail_test(test, start, "hangs, or takes over %d s", limit);
    const double clock = now();
    if (run_for(test, origin, start, CHECK_LIMIT_ALONE) != 0)
        fail_test(test, start, "hangs, or takes over %d s; %s fails, too", limit, origin->name);
    const double seconds = now() - clock;
    if (TIMES_ORIGIN * seconds > limit) {
        limit = (int)(TIMES_ORIGIN * seconds);
        status = run_for(test, test->program, start, limit);
    }
    if (status == TOO_SLOW)
        fail_test(test, start, "hangs, or takes over %d s where %s takes %.2g s", limit,
                  origin->name, seconds);
    return status;
}

// Runs the program and returns its weights, which the caller frees. The row is in
// directory/row.csv. A stage whose loss is not a number blames the learning rate. But the
// reference's loss is a number.
static float *run_program(const struct test *test, struct start start) {
    char weights[2 * WORD_SIZE], error[2 * WORD_SIZE], line[256];
    path_of(test, "weights", weights);
    path_of(test, "error", error);
    const int status = run_in_time(test, start);
    first_line(error, line, sizeof line);
    if (status > 128)
        fail_test(test, start, "ended by a signal: %s%s%s", strsignal(status - 128),
                  *line ? ": " : "", line);
    if (status == 1 && strstr(line, "the loss became"))
        fail_test(test, start,
                  "its loss is not a number, and the reference's is: the arithmetic is wrong, not "
                  "the learning rate");
    if (status != 0 || *line)
        fail_test(test, start, "exit status %d: %s", status, line);
    size_t size;
    float *values = read_file(weights, &size);
    const size_t expected_size = part_offset(PARTS, (size_t)test->hidden) * sizeof(float);
    if (!values || size != expected_size)
        fail_test(test, start, "%s: found %zu bytes, expected %zu", weights, values ? size : 0,
                  expected_size);
    return values;
}

static double row_value(const struct test *test, const char *column) {
    char row[2 * WORD_SIZE], value[64];
    path_of(test, "row.csv", row);
    csv_value(row, column, value, sizeof value);
    return *value ? atof(value) : NAN;
}

// Prints a table under a line that says what it shows.
static void show(const struct test *test, struct start start, const struct outcome *outcome,
                 const char *what) {
    printf("%s: %s (%s)\n\n", test->program->name, what, options_of(test, start));
    print_errors(outcome);
    printf("\n");
    test->context->shown = true;
}

// Compares after a batch of `first` images and, unless `second` is 0, a batch of `second` images.
static void compare_step(const struct test *test, struct start start, int first, int second,
                         const char *what) {
    struct context *context = test->context;
    const size_t hidden = (size_t)test->hidden, size = part_offset(PARTS, hidden);
    struct cell cell = *test->cell;
    const int images[] = {first, second}, steps = second ? 2 : 1;
    double *states[3] = {allocate(size, sizeof(double))}, loss = 0;
    initial_parameters(states[0], hidden, cell.seed);
    cell.train = 0;
    for (int i = 0; i < steps; ++i) {
        const struct samples batch =
            samples_from(&context->train, context->train_images, cell.train, images[i]);
        states[i + 1] = allocate(size, sizeof(double));
        memcpy(states[i + 1], states[i], size * sizeof(double));
        loss += images[i] * train_reference(states[i + 1], hidden, batch, batch.count, 1,
                                            (float)cell.learning_rate);
        cell.train += images[i];
    }

    struct test short_test = *test;
    short_test.cell = &cell;
    start.epochs = 1;
    float *weights = run_program(&short_test, start);
    const struct outcome outcome = {hidden, weights, states[steps],
                                    row_value(&short_test, "final_loss"), loss / cell.train};
    if (!parts_and_loss_are_right(&outcome)) {
        show(&short_test, start, &outcome, what);
        if (start.threads > 1)
            printf("With 1 thread it is right.\n");
        if (memcmp(run_program(&short_test, start), weights, size * sizeof *weights) != 0)
            printf("A second run gives other weights: a race, or memory that is not set.\n");
        else
            explain_errors(&outcome, (struct step){states[steps - 1], second ? states[0] : NULL,
                                                   (size_t)images[steps - 1], (size_t)cell.batch});
        stop_check(context);
    }
    if (!context->shown)
        show(&short_test, start, &outcome, "right after the first batch");
    free(weights);
    for (int i = 0; i <= steps; ++i)
        free(states[i]);
}

// Compares early, before everything that follows from a mistake is wrong as well. What a batch
// leaves behind shows only in the second one. A wrong number of images shows only in a short one.
static void compare_first_batches(const struct test *test, struct start start) {
    const struct cell *cell = test->cell;
    const int first = cell->batch < cell->train ? cell->batch : cell->train;
    compare_step(test, start, first, 0, "WRONG after the first batch");
    if (first + cell->batch <= TRAIN_SAMPLES)
        compare_step(test, start, first, cell->batch,
                     "right after the first batch, WRONG after a second");
    if (cell->train % first)
        compare_step(test, start, first, cell->train % first,
                     "right after the first batch, WRONG after a second that is short");
}

static void compare(const struct test *test, struct start start, const float *weights) {
    const struct expected *expected = test->expected;
    const struct outcome outcome = {(size_t)test->hidden, weights, expected->weights,
                                    row_value(test, "final_loss"), expected->loss};
    const double total = total_error(&outcome);
    if (test->context->verbose)
        print_message("%-40s hidden %4d, batch %4d, %2d threads: %.1e (W1 %.1e, b1 %.1e, "
                      "W2 %.1e, b2 %.1e)\n",
                      test->program->name, test->hidden, test->cell->batch, start.threads, total,
                      part_error(&outcome, WEIGHTS1), part_error(&outcome, BIAS1),
                      part_error(&outcome, WEIGHTS2), part_error(&outcome, BIAS2));
    if (test->context->check && !parts_and_loss_are_right(&outcome)) {
        compare_first_batches(test, start);
        show(test, start, &outcome, "right after the first batches, WRONG after 50");
        stop_check(test->context);
    }
    for (enum part part = 0; part < PARTS; ++part) {
        const size_t first = first_wrong(&outcome, part);
        if (!part_is_right(&outcome, part))
            fail_test(test, start,
                      "the first that differs is %s: found %.9g, expected %.9g; %s as a whole is "
                      "%.2e away from the reference, expected at most %.0e",
                      name_of(first, outcome.hidden).text, (double)weights[first],
                      expected->weights[first], PART_NAMES[part], part_error(&outcome, part),
                      PART_BOUNDS[part]);
    }
    if (!(total <= TOTAL_BOUND))
        fail_test(test, start,
                  "all weights together are %.2e away from the reference, expected at most %.0e",
                  total, TOTAL_BOUND);
    if (!loss_is_right(&outcome))
        fail_test(test, start, "loss %.6f, expected %.6f", outcome.found_loss, expected->loss);
    // One image of 200 may be a near tie.
    const double accuracy = row_value(test, "test_accuracy");
    if (!(fabs(accuracy - expected->accuracy) <= 1.0 / TEST_SAMPLES + 1e-6))
        fail_test(test, start, "accuracy %.6f, expected %.6f", accuracy, expected->accuracy);
}

// A stage may use fewer threads than it is asked for, but never more.
static void check_threads(const struct test *test, struct start start) {
    const double used = row_value(test, "threads");
    if (!(used >= 1 && used <= start.threads))
        fail_test(test, start, "used %g threads, asked for %d", used, start.threads);
    // With enough hidden units and processors, it has to use all. Otherwise 3 and 5 threads are not
    // tested at all on a machine with two cores.
    if (start.many && test->hidden >= 256 && start.threads <= 5 && used != start.threads)
        fail_test(test, start, "used %g threads of %d, with 64 processors and %d hidden units",
                  used, start.threads, test->hidden);
}

static void first_batches(void **state) {
    const struct test *test = *state;
    compare_first_batches(test, (struct start){.threads = test->program->threads ? 1 : 0});
    if (test->program->threads)
        compare_first_batches(test, (struct start){.threads = 3, .many = true});
}

static void weights_after_50_batches(void **state) {
    const struct test *test = *state;
    static const int THREADS[] = {1, 2, 3, 5, 17};
    struct start start = {.epochs = test->cell->epochs};
    compute_expected(test);
    float *weights = run_program(test, start);
    compare(test, start, weights);
    free(weights);
    if (!test->program->threads || test->context->one_number_of_threads)
        return;
    for (int many = 0; many < 2; ++many) {
        for (size_t i = 0; i < sizeof THREADS / sizeof *THREADS; ++i) {
            start.threads = THREADS[i];
            start.many = many;
            weights = run_program(test, start);
            compare(test, start, weights);
            check_threads(test, start);
            free(weights);
        }
    }
}

static void initial_weights(void **state) {
    const struct test *test = *state;
    const size_t hidden = (size_t)test->hidden, count = part_offset(PARTS, hidden);
    double *expected = allocate(count, sizeof *expected);
    const struct start start = {.epochs = 0};
    float *weights = run_program(test, start);
    initial_parameters(expected, hidden, test->cell->seed);
    for (size_t i = 0; i < count; ++i) {
        const float value = (float)expected[i];
        if (weights[i] != value || signbit(weights[i]) != signbit(value))
            fail_test(test, start, "%s is %.9g at the start, expected %.9g",
                      name_of(i, hidden).text, (double)weights[i], expected[i]);
    }
    free(weights);
    free(expected);
}

// Tests threads, too: the order of their sums must not depend on the scheduler.
static void same_command_same_bytes(void **state) {
    const struct test *test = *state;
    const size_t size = part_offset(PARTS, (size_t)test->hidden) * sizeof(float);
    struct start start = {.epochs = test->cell->epochs};
    if (test->program->threads)
        start = (struct start){3, true, test->cell->epochs};
    float *once = run_program(test, start), *twice = run_program(test, start);
    if (memcmp(once, twice, size) != 0)
        fail_test(test, start, "two runs do not give the same weights");
    free(once);
    free(twice);
}

static void add_test(struct CMUnitTest *tests, struct test test, CMUnitTestFunction function,
                     const char *what) {
    struct test *copy = allocate(1, sizeof *copy);
    *copy = test;
    append_test(tests, MAX_TESTS, function, copy, "%s: %d hidden units, %s", test.program->name,
                test.hidden, what);
}

// Adds the tests of all programs with this many hidden units, in the order in which mistakes show.
static void add_tests(struct CMUnitTest *tests, struct context *context, struct program *programs,
                      int hidden) {
    for (struct program *program = programs; program->path; ++program) {
        struct test test = {context, program, hidden, &UNTRAINED, NULL};
        if (*program->unavailable)
            continue;
        add_test(tests, test, initial_weights, "initial weights");
        test.cell = &CELLS[2];
        if (context->check)
            add_test(tests, test, first_batches, "first batches");
        add_test(tests, test, same_command_same_bytes, "same command, same bytes");
    }
    for (size_t i = 0; i < sizeof CELLS / sizeof *CELLS; ++i) {
        if (context->few_batches && CELLS[i].batch != 32)
            continue;
        struct expected *expected = allocate(1, sizeof *expected);
        for (struct program *program = programs; program->path; ++program) {
            const struct test test = {context, program, hidden, &CELLS[i], expected};
            char what[64];
            snprintf(what, sizeof what, "50 batches of %d", CELLS[i].batch);
            if (!*program->unavailable)
                add_test(tests, test, weights_after_50_batches, what);
        }
    }
}

// Runs the tests of the one program until one fails. Returns the exit status.
static int check(const struct CMUnitTest *tests, const struct program *program) {
    size_t count = 0;
    if (*program->unavailable) {
        printf("%s: not checked: %s\n", program->name, program->unavailable);
        return EXIT_FAILURE;
    }
    for (; tests[count].name; ++count) {
        void *state = tests[count].initial_state;
        tests[count].test_func(&state);
    }
    printf("%s: right, %zu tests\n", program->name, count);
    return 0;
}

// Links the library that lies beside this program into `directory`, because LD_PRELOAD takes no
// path with a space or a colon.
static void link_many_processors(const char *directory) {
    char program[PATH_MAX], library[PATH_MAX + WORD_SIZE], link[2 * WORD_SIZE];
    if (!realpath("/proc/self/exe", program))
        err(EXIT_FAILURE, "/proc/self/exe");
    snprintf(library, sizeof library, "%s/many_processors.so", dirname(program));
    snprintf(link, sizeof link, "%s/many_processors.so", directory);
    if (symlink(library, link) != 0)
        err(EXIT_FAILURE, "%s", link);
}

int main(int argc, char **argv) {
    static struct CMUnitTest tests[MAX_TESTS + 1];
    struct program programs[MAX_PROGRAMS + 1] = {0};
    struct context context = {.train = draw_digits(TRAIN_SAMPLES, 1),
                              .test = draw_digits(TEST_SAMPLES, 2)};
    const char *origin = NULL;
    bool wrong = false;
    for (int option; (option = getopt(argc, argv, "+c:v1f")) != -1;) {
        origin = option == 'c' ? optarg : origin;
        context.verbose |= option == 'v';
        context.one_number_of_threads |= option == '1';
        context.few_batches |= option == 'f';
        wrong |= option == '?';
    }
    argc -= optind;
    argv += optind;
    context.check = origin;
    if (wrong || argc < 2 || argc - 1 > (origin ? 1 : MAX_PROGRAMS))
        errx(2, "usage: test_stages [-v] [-1] [-f] [-c ORIGIN] HIDDEN,HIDDEN,... PROGRAM...");

    create_directory(context.directory);
    link_many_processors(context.directory);
    write_idx(context.directory, "train", &context.train);
    write_idx(context.directory, "t10k", &context.test);
    context.train_images = images_of(&context.train);
    context.test_images = images_of(&context.test);
    if (origin)
        context.origin =
            probe_program(origin, context.directory, context.directory, CHECK_LIMIT_ALONE);
    for (int i = 0; i < argc - 1; ++i) {
        programs[i] = probe_program(argv[i + 1], context.directory, context.directory,
                                    origin ? CHECK_LIMIT : 0);
        if (*programs[i].unavailable && !origin)
            append_test(tests, MAX_TESTS, skip_test, NULL, "%s: %s", programs[i].name,
                        programs[i].unavailable);
    }
    for (char *list = argv[0], *word; (word = strsep(&list, ","));)
        add_tests(tests, &context, programs, atoi(word));

    const int failed = origin ? check(tests, &programs[0])
                              : cmocka_run_group_tests_name("stages", tests, NULL, NULL);
    remove_directory(context.directory);
    return failed != 0;
}
