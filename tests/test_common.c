// Tests common/: the timers against naive sums, the loader's values against the bytes written.
#include "common/program.h"
#include "stages/training.h"
#include "support.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { DURATIONS = 1000 };

static void timer_repeated(void **state) {
    (void)state;
    struct timer once = {0}, thrice = {0};
    for (int i = 0; i < 5; ++i)
        timer_add(&once, 1 + 0.1 * i);
    for (int i = 0; i < 15; ++i)
        timer_add(&thrice, 1 + 0.1 * (i % 5));
    timer_repeat(&once, 3);
    assert_int_equal(once.count, 15);
    assert_true(fabs(once.total - thrice.total) < 1e-12);
    assert_true(fabs(once.mean - thrice.mean) < 1e-12);
    assert_true(fabs(timer_stddev(&once) - timer_stddev(&thrice)) < 1e-12);
    assert_true(once.min == thrice.min && once.max == thrice.max);
}

// Compares a timer with two passes over all durations, in long double.
static void check_against_two_passes(const double *durations, size_t count) {
    struct timer timer = {0};
    long double total = 0, squares = 0;
    double min = INFINITY, max = -INFINITY;
    for (size_t i = 0; i < count; ++i) {
        timer_add(&timer, durations[i]);
        total += durations[i];
        min = fmin(min, durations[i]);
        max = fmax(max, durations[i]);
    }
    const long double mean = total / count;
    for (size_t i = 0; i < count; ++i)
        squares += (durations[i] - mean) * (durations[i] - mean);
    const double deviation = sqrt((double)(squares / (count - 1)));
    assert_int_equal(timer.count, count);
    assert_true(fabs(timer.total - (double)total) <= 1e-12 * (double)total);
    assert_true(fabs(timer.mean - (double)mean) <= 1e-12 * (double)mean);
    assert_true(fabs(timer_stddev(&timer) - deviation) <= 1e-6 * deviation);
    assert_true(timer.min == min);
    assert_true(timer.max == max);
}

static void timer_equals_two_passes(void **state) {
    (void)state;
    double durations[DURATIONS];
    struct generator generator = start_generator(1, 4);
    for (int i = 0; i < DURATIONS; ++i)
        durations[i] = ldexp(draw_bits(&generator), -42); // up to a millisecond
    check_against_two_passes(durations, DURATIONS);
}

// The deviation is a few milliseconds, the mean 11 days. The square of the mean has no digits left
// for the deviation: the mean of the squares less the square of the mean would be only rounding.
static void timer_does_not_cancel(void **state) {
    (void)state;
    double durations[DURATIONS];
    struct generator generator = start_generator(1, 5);
    for (int i = 0; i < DURATIONS; ++i)
        durations[i] = 1e6 + 0.01 * ldexp(draw_bits(&generator), -32);
    check_against_two_passes(durations, DURATIONS);
}

static void timer_of_one_duration_has_no_deviation(void **state) {
    (void)state;
    struct timer timer = {0};
    assert_true(timer_stddev(&timer) == 0);
    timer_add(&timer, 2.5);
    assert_true(timer_stddev(&timer) == 0);
    assert_true(timer.min == 2.5 && timer.max == 2.5 && timer.mean == 2.5 && timer.total == 2.5);
}

static void laps_add_up_to_the_time_that_passed(void **state) {
    (void)state;
    const struct timespec pause = {.tv_nsec = 2000000};
    struct timer timer = {0};
    const double start = seconds();
    double clock = start;
    for (int i = 0; i < 5; ++i) {
        nanosleep(&pause, NULL);
        clock = timer_lap(&timer, clock);
    }
    assert_int_equal(timer.count, 5);
    assert_true(timer.min >= 0.002);
    assert_true(fabs(timer.total - (clock - start)) < 1e-9);
}

// The first numbers of the author's demo program, pcg32-demo, for seed 42 and stream 54.
static void pcg32_is_the_authors(void **state) {
    (void)state;
    static const uint32_t EXPECTED[] = {0xa15c02b7, 0x7b47f409, 0xba1d3330,
                                        0x83d2f293, 0xbfa4784b, 0xcbed606e};
    struct pcg32 generator = pcg32_start(42, 54), same = generator;
    for (size_t i = 0; i < sizeof EXPECTED / sizeof *EXPECTED; ++i) {
        assert_int_equal(pcg32_next(&generator), EXPECTED[i]);
        const double uniform = 0.5 * (ldexp(EXPECTED[i] >> 8, -23) - 1);
        assert_true(draw_uniform(&same, 0.5f) == uniform);
    }
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

// Seven training and three test images, in which every byte value occurs.
struct fixture {
    char directory[WORD_SIZE];
    struct digits train, test;
};

static int create_fixture(void **state) {
    struct fixture *fixture = allocate(1, sizeof *fixture);
    create_directory(fixture->directory);
    fixture->train = draw_digits(7, 1);
    fixture->test = draw_digits(3, 2);
    for (int i = 0; i < 256; ++i)
        fixture->train.pixels[2 * INPUTS + i] = (uint8_t)i;
    *state = fixture;
    return 0;
}

static int destroy_fixture(void **state) {
    struct fixture *fixture = *state;
    remove_directory(fixture->directory);
    free_digits(&fixture->train);
    free_digits(&fixture->test);
    free(fixture);
    return 0;
}

static void check_dataset(const struct dataset *dataset, const struct digits *digits, int samples) {
    assert_int_equal(dataset->samples, samples);
    assert_int_equal((uintptr_t)dataset->images % 64, 0);
    assert_memory_equal(dataset->labels, digits->labels, samples);
    for (int i = 0; i < samples * INPUTS; ++i)
        assert_true(dataset->images[i] == (float)digits->pixels[i] / 255.0f);
}

static void check_loaded(const struct fixture *fixture, int train, int test, const char *name) {
    const struct options options = {
        .data = fixture->directory, .train_samples = train, .test_samples = test};
    struct data data;
    assert_int_equal(load_data(&options, &data), 0);
    assert_string_equal(data.name, name);
    assert_true(data.load_s > 0);
    check_dataset(&data.train, &fixture->train, train);
    check_dataset(&data.test, &fixture->test, test);
    free_data(&data);
    assert_null(data.train.images);
}

static void idx_values_are_exact(void **state) {
    const struct fixture *fixture = *state;
    write_idx(fixture->directory, "train", &fixture->train);
    write_idx(fixture->directory, "t10k", &fixture->test);
    check_loaded(fixture, 7, 3, "mnist");
    check_loaded(fixture, 1, 1, "mnist");
}

// The rows of a CSV file: the training images, then the test images.
static void write_rows(FILE *file, const struct digits *digits) {
    for (size_t s = 0; s < digits->count; ++s) {
        fprintf(file, "%d", digits->labels[s]);
        for (int k = 0; k < INPUTS; ++k)
            fprintf(file, ",%d", digits->pixels[s * INPUTS + k]);
        fputc('\n', file);
    }
}

static void csv_values_are_exact(void **state) {
    const struct fixture *fixture = *state;
    char path[2 * WORD_SIZE];
    snprintf(path, sizeof path, "%s/train.csv", fixture->directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "label");
    for (int k = 0; k < INPUTS; ++k)
        fprintf(file, ",pixel%d", k);
    fputc('\n', file);
    write_rows(file, &fixture->train);
    write_rows(file, &fixture->test);
    fclose(file);
    check_loaded(fixture, 7, 3, "csv");
}

static void batches_cover_the_data_set(void **state) {
    const struct fixture *fixture = *state;
    const struct options options = {
        .data = fixture->directory, .batch = 3, .train_samples = 7, .test_samples = 3};
    struct data data;
    write_idx(fixture->directory, "train", &fixture->train);
    write_idx(fixture->directory, "t10k", &fixture->test);
    assert_int_equal(load_data(&options, &data), 0);
    assert_int_equal(batch_at(&data.train, 0, 3).samples, 3);
    assert_int_equal(batch_at(&data.train, 6, 3).samples, 1);
    assert_ptr_equal(batch_at(&data.train, 6, 3).images, data.train.images + (size_t)6 * INPUTS);
    assert_ptr_equal(batch_at(&data.train, 6, 3).labels, data.train.labels + 6);
    assert_int_equal(largest_batch(&options), 3);
    assert_int_equal(largest_batch(&(struct options){.batch = 99, .train_samples = 7}), 7);
    free_data(&data);
}

// What a row is made of. Not all of it is a column.
struct run {
    struct options options;
    const char *device, *dataset, *load_s, *list;
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
    COLUMN("dataset", TEXT, dataset),
    COLUMN("load_s", TEXT, load_s),
    COLUMN("list", LIST, list),
    OPTIONAL("none", INT_FROM_0, none),
    COLUMN("zero", INT_FROM_0, none),
    COLUMN("time_s", SECONDS, time_s),
    OPTIONAL("forward_s", SECONDS, forward_s),
    COLUMN("entropy", NUMBER, entropy),
    COLUMN("unknown", NUMBER, unknown),
    OPTIONAL("vram", NUMBER, forward_s),
    {0},
};

static void header_and_row_come_from_the_same_list(void **state) {
    (void)state;
    char directory[WORD_SIZE], path[2 * WORD_SIZE], line[256];
    create_directory(directory);
    snprintf(path, sizeof path, "%s/rows.csv", directory);
    const struct run run = {.options = {.seed = UINT64_MAX, .learning_rate = 0.1f, .quiet = true},
                            .device = "cpu",
                            .threads = 2,
                            .dataset = "drawn",
                            .load_s = "",
                            .list = "8,9",
                            .time_s = 0.25,
                            .entropy = 0.1f,
                            .unknown = NAN};
    check_rows("csv", path, FIELDS);
    for (int lines = 1; lines <= 2; ++lines) {
        assert_int_equal(append_row("csv", path, FIELDS, &run), 0);
        check_rows("csv", path, FIELDS);
        first_line(path, line, sizeof line);
        assert_string_equal(line,
                            "stage,device,threads,seed,learning_rate,fast,dataset,load_s,list,"
                            "none,zero,time_s,forward_s,entropy,unknown,vram");
    }
    size_t size;
    char *text = read_file(path, &size);
    const char *values = "tests,cpu,2,18446744073709551615,0.1,1,drawn,,\"8,9\",,0,0.250000000,,"
                         "0.10000000149011612,,\n";
    assert_int_equal(size, strlen(line) + 1 + 2 * strlen(values));
    assert_memory_equal(text + strlen(line) + 1, values, strlen(values));
    assert_memory_equal(text + size - strlen(values), values, strlen(values));
    free(text);
    remove_directory(directory);
}

static void floats_read_back_equal(void **state) {
    (void)state;
    const float values[] = {0.123456789f, 1e-30f, FLT_MAX};
    char directory[WORD_SIZE], path[2 * WORD_SIZE], text[64];
    create_directory(directory);
    snprintf(path, sizeof path, "%s/rows.csv", directory);
    for (size_t i = 0; i < sizeof values / sizeof *values; ++i) {
        const struct run run = {.options = {.learning_rate = values[i]},
                                .device = "cpu",
                                .dataset = "",
                                .load_s = "",
                                .list = ""};
        assert_int_equal(append_row("csv", path, FIELDS, &run), 0);
        csv_value(path, "learning_rate", text, sizeof text);
        assert_true(strtof(text, NULL) == values[i]);
    }
    remove_directory(directory);
}

// What became a pipe while the program ran stays one, and a link to it stays a link.
static void arrays_replace_regular_files_only(void **state) {
    (void)state;
    char directory[WORD_SIZE], pipe[2 * WORD_SIZE], link[2 * WORD_SIZE];
    struct stat file;
    const struct array array = {(float[]){1}, 1};
    create_directory(directory);
    snprintf(pipe, sizeof pipe, "%s/pipe", directory);
    snprintf(link, sizeof link, "%s/link", directory);
    assert_int_equal(mkfifo(pipe, 0666), 0);
    assert_int_equal(symlink("pipe", link), 0);
    assert_int_equal(write_arrays("save", pipe, &array, 1), EXIT_RUN_FAILED);
    assert_int_equal(write_arrays("save", link, &array, 1), EXIT_RUN_FAILED);
    assert_true(stat(pipe, &file) == 0 && S_ISFIFO(file.st_mode));
    assert_int_equal(unlink(pipe), 0);
    assert_int_equal(write_arrays("save", link, &array, 1), 0);
    assert_true(stat(pipe, &file) == 0 && file.st_size == sizeof(float));
    assert_true(lstat(link, &file) == 0 && S_ISLNK(file.st_mode));
    remove_directory(directory);
}

// A loss of 1.6e35 has 36 digits before its point.
static void results_read_back_equal(void **state) {
    (void)state;
    static const double LOSSES[] = {1.6e35, DBL_MAX, DBL_TRUE_MIN, 1.0 / 3, -0.1, 2};
    char directory[WORD_SIZE], path[2 * WORD_SIZE], text[64];
    create_directory(directory);
    snprintf(path, sizeof path, "%s/rows.csv", directory);
    const struct options options = {.epochs = 1, .csv = path, .quiet = true};
    const struct data data = {.name = "mnist"};
    for (size_t i = 0; i < sizeof LOSSES / sizeof *LOSSES; ++i) {
        const struct result result = {
            .device = "cpu", .final_loss = LOSSES[i], .test_accuracy = 2.0 / 3};
        assert_int_equal(report_result(&options, &data, &result), 0);
        csv_value(path, "final_loss", text, sizeof text);
        assert_true(strtod(text, NULL) == LOSSES[i]);
        csv_value(path, "test_accuracy", text, sizeof text);
        assert_true(strtod(text, NULL) == 2.0 / 3);
    }
    remove_directory(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timer_equals_two_passes),
        cmocka_unit_test(timer_does_not_cancel),
        cmocka_unit_test(timer_of_one_duration_has_no_deviation),
        cmocka_unit_test(timer_repeated),
        cmocka_unit_test(laps_add_up_to_the_time_that_passed),
        cmocka_unit_test(header_and_row_come_from_the_same_list),
        cmocka_unit_test(floats_read_back_equal),
        cmocka_unit_test(arrays_replace_regular_files_only),
        cmocka_unit_test(results_read_back_equal),
        cmocka_unit_test(pcg32_is_the_authors),
        cmocka_unit_test(allocated_arrays_are_zero_and_aligned),
        cmocka_unit_test_setup_teardown(idx_values_are_exact, create_fixture, destroy_fixture),
        cmocka_unit_test_setup_teardown(csv_values_are_exact, create_fixture, destroy_fixture),
        cmocka_unit_test_setup_teardown(batches_cover_the_data_set, create_fixture,
                                        destroy_fixture),
    };
    return cmocka_run_group_tests_name("common", tests, NULL, NULL);
}
