// Tests what no run of a program shows: the timers against naive sums, allocation, a row's values.
#include "cmocka_tests.h"
#include "stages/training.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DURATIONS = 1000 };

static void timer_repeated(void **state) {
    (void)state;
    struct timer once = {0}, thrice = {0};
    for (int i = 0; i < 5; ++i)
        timer_add(&once, 1 + 0.1 * i);
    for (int i = 0; i < 15; ++i)
        timer_add(&thrice, 1 + 0.1 * (i % 5));
    timer_repeat(&once, 3);
    assert_int_equal(once.count, thrice.count);
    assert_true(fabs(once.total - thrice.total) < 1e-12);
    assert_true(fabs(once.mean - thrice.mean) < 1e-12);
    assert_true(fabs(timer_stddev(&once) - timer_stddev(&thrice)) < 1e-12);
}

// Compares a timer with two passes over durations that begin at `least`, in long double.
static void check_against_two_passes(double least, double range) {
    double durations[DURATIONS], min = INFINITY, max = -INFINITY;
    struct timer timer = {0};
    long double total = 0, squares = 0;
    for (int i = 0; i < DURATIONS; ++i) {
        durations[i] = least + range * fmod(0.618 * i, 1);
        timer_add(&timer, durations[i]);
        assert_true(i > 0 || timer_stddev(&timer) == 0);
        total += durations[i];
        min = fmin(min, durations[i]);
        max = fmax(max, durations[i]);
    }
    const long double mean = total / DURATIONS;
    for (int i = 0; i < DURATIONS; ++i)
        squares += (durations[i] - mean) * (durations[i] - mean);
    const double deviation = sqrt((double)(squares / (DURATIONS - 1)));
    assert_int_equal(timer.count, DURATIONS);
    assert_true(fabs(timer.total - (double)total) <= 1e-12 * (double)total);
    assert_true(fabs(timer.mean - (double)mean) <= 1e-12 * (double)mean);
    assert_true(fabs(timer_stddev(&timer) - deviation) <= 1e-6 * deviation);
    assert_true(timer.min == min && timer.max == max);
}

// In the second case the deviation is a few milliseconds, the mean 11 days. The square of the mean
// has no digits left for the deviation: the mean of the squares less it would be only rounding.
static void timer_equals_two_passes(void **state) {
    (void)state;
    check_against_two_passes(0, 0.001);
    check_against_two_passes(1e6, 0.01);
}

static void allocated_arrays_are_zero_and_aligned(void **state) {
    (void)state;
    for (size_t count = 1; count < 100; ++count)
        for (size_t size = 1; size < 20; size += 3) {
            char *bytes = allocate_array(count, size);
            assert_int_equal((uintptr_t)bytes % 64, 0);
            for (size_t i = 0; i < count * size; ++i)
                assert_true(bytes[i] == 0);
            free(bytes);
        }
    assert_null(try_allocate_array(SIZE_MAX / 4, 4));     // no room for the alignment
    assert_null(try_allocate_array(SIZE_MAX / 4 + 2, 4)); // 4 bytes, if the product overflows
}

// What a row is made of. Not all of it is a column.
struct run {
    struct options options;
    const char *device, *list;
    int threads, none;
    double time_s, forward_s, entropy, unknown;
};

static const struct field FIELDS[] = {
    COLUMN("device", TEXT, device),
    OPTIONAL("threads", INT_FROM_0, threads),
    OPTION("seed", UINT64, seed, NULL, "seed", NULL),
    OPTION("rate", FLOAT_ABOVE_0, learning_rate, NULL, "learning_rate", NULL),
    OPTION("directory", DIRECTORY, data, NULL, NULL, NULL),
    OPTION("fast", FLAG, quiet, NULL, "fast", NULL),
    COLUMN("list", LIST, list),
    OPTIONAL("none", INT_FROM_0, none),
    COLUMN("zero", INT_FROM_0, none),
    COLUMN("time_s", SECONDS, time_s),
    OPTIONAL("forward_s", SECONDS, forward_s),
    COLUMN("entropy", NUMBER, entropy),
    COLUMN("unknown", NUMBER, unknown),
    {0},
};

static char *printed(const struct field *fields, const struct run *run) {
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    print_row(stream, fields, run);
    fclose(stream);
    return text;
}

static void header_and_row_come_from_the_same_list(void **state) {
    (void)state;
    const struct run run = {.options = {.seed = UINT64_MAX, .learning_rate = 0.1f, .quiet = true},
                            .device = "cpu",
                            .threads = 100000,
                            .list = "8,9",
                            .time_s = 0.25,
                            .entropy = 0.1f,
                            .unknown = NAN};
    char *header = printed(FIELDS, NULL), *row = printed(FIELDS, &run);
    assert_string_equal(header, "stage,device,threads,seed,learning_rate,fast,list,none,zero,"
                                "time_s,forward_s,entropy,unknown\n");
    assert_string_equal(row, "tests,cpu,100000,18446744073709551615,0.1,1,\"8,9\",,0,"
                             "0.250000000,,0.10000000149011612,\n");
    free(header);
    free(row);
}

// A loss of 1.6e35 has 36 digits before its point.
static void numbers_read_back_equal(void **state) {
    (void)state;
    static const double NUMBERS[] = {1.6e35, DBL_MAX, DBL_TRUE_MIN, 1.0 / 3, -0.1, 2};
    static const float FLOATS[] = {0.123456789f, 1e-30f, FLT_MAX, FLT_TRUE_MIN, 1.0f / 3, 2};
    static const struct field fields[] = {COLUMN("entropy", NUMBER, entropy),
                                          COLUMN("rate", FLOAT_FROM_0, options.learning_rate),
                                          {0}};
    for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; ++i) {
        const struct run run = {.options = {.learning_rate = FLOATS[i]}, .entropy = NUMBERS[i]};
        char *text = printed(fields, &run), *end;
        assert_true(strtod(text + strlen("tests,"), &end) == NUMBERS[i]);
        assert_true(strtof(end + 1, NULL) == FLOATS[i]);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timer_equals_two_passes),
        cmocka_unit_test(timer_repeated),
        cmocka_unit_test(allocated_arrays_are_zero_and_aligned),
        cmocka_unit_test(header_and_row_come_from_the_same_list),
        cmocka_unit_test(numbers_read_back_equal),
    };
    return cmocka_run_group_tests_name("common", tests, NULL, NULL);
}
