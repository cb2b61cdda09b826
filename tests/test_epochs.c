// Trains on the real MNIST for five epochs, and compares with the float64 reference after the same
// training:
//
//     test_epochs PROGRAM...
//
// After so many steps two right versions have different weights, but the same loss and accuracy.
#include "stages/training.h"
#include "support.h"

#include <err.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRAIN_SAMPLES = 37800, TEST_SAMPLES = 4200, EPOCHS = 5, MAX_TESTS = 64 };

static const double LOSS_BOUND = 0.01;      // relative
static const double ACCURACY_BOUND = 0.005; // half a point

struct cell {
    int hidden, batch;
    double loss, accuracy; // the reference's
};

struct test {
    const char *directory, *data;
    struct program program;
    const struct cell *cell;
};

// The reference takes the loader's floats, because the loader has its own tests.
static struct samples in_double(const struct dataset *dataset) {
    const size_t count = (size_t)dataset->samples;
    double *images = allocate(count * INPUTS, sizeof *images);
    for (size_t i = 0; i < count * INPUTS; ++i)
        images[i] = dataset->images[i];
    return (struct samples){count, images, dataset->labels};
}

static void train_cells(struct cell *cells, const char *directory) {
    const struct options options = {
        .data = directory, .train_samples = TRAIN_SAMPLES, .test_samples = TEST_SAMPLES};
    struct data data;
    if (load_data(&options, &data) != 0)
        exit(EXIT_FAILURE);
    const struct samples train = in_double(&data.train), test = in_double(&data.test);
    for (struct cell *cell = cells; cell->hidden; ++cell) {
        const size_t hidden = (size_t)cell->hidden;
        double *weights = allocate(part_offset(PARTS, hidden), sizeof *weights);
        initial_parameters(weights, hidden, 1);
        cell->loss = train_reference(weights, hidden, train, (size_t)cell->batch, EPOCHS, 0.1f);
        cell->accuracy = reference_accuracy(weights, hidden, test);
        free(weights);
    }
    free((double *)train.images);
    free((double *)test.images);
    free_data(&data);
}

static void loss_and_accuracy_after_five_epochs(void **state) {
    const struct test *test = *state;
    char row[2 * WORD_SIZE], error[2 * WORD_SIZE], line[256], loss[32], accuracy[32];
    snprintf(row, sizeof row, "%s/row.csv", test->directory);
    snprintf(error, sizeof error, "%s/error", test->directory);
    unlink(row);
    struct command command = {0};
    add_word(&command, "%s", test->program.path);
    add_word(&command, "--data=%s", test->data);
    add_word(&command, "--hidden=%d", test->cell->hidden);
    add_word(&command, "--batch=%d", test->cell->batch);
    add_word(&command, "--csv=%s", row);
    const int status = run_command(&command, error);
    first_line(error, line, sizeof line);
    if (status != 0)
        fail_msg("exit status %d: %s", status, line);
    csv_value(row, "final_loss", loss, sizeof loss);
    csv_value(row, "test_accuracy", accuracy, sizeof accuracy);
    print_message("%s: loss %s (reference %.6f), accuracy %s (%.6f)\n", test->program.name, loss,
                  test->cell->loss, accuracy, test->cell->accuracy);
    assert_true(fabs(atof(loss) / test->cell->loss - 1) <= LOSS_BOUND);
    assert_true(fabs(atof(accuracy) - test->cell->accuracy) <= ACCURACY_BOUND);
}

static bool has(const char *directory, const char *name) {
    char path[2 * WORD_SIZE];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, R_OK) == 0;
}

static bool has_mnist(const char *directory) {
    return (has(directory, "train-images-idx3-ubyte") ||
            has(directory, "train-images-idx3-ubyte.gz")) &&
           !has(directory, "SYNTHETIC");
}

static void add_tests(struct CMUnitTest *tests, const struct program *program,
                      const struct cell *cells, const char *directory, const char *data) {
    if (*program->unavailable) {
        append_test(tests, MAX_TESTS, skip_test, NULL, "%s: %s", program->name,
                    program->unavailable);
        return;
    }
    for (const struct cell *cell = cells; cell->hidden; ++cell) {
        struct test *test = allocate(1, sizeof *test);
        *test = (struct test){directory, data, *program, cell};
        append_test(tests, MAX_TESTS, loss_and_accuracy_after_five_epochs, test,
                    "%s: %d hidden units, batches of %d, five epochs", program->name, cell->hidden,
                    cell->batch);
    }
}

int main(int argc, char **argv) {
    static struct CMUnitTest tests[MAX_TESTS];
    struct cell cells[] = {{.hidden = 128, .batch = 64}, {.hidden = 32, .batch = 128}, {0}};
    char directory[WORD_SIZE];
    const char *data = getenv("MNIST_DIR");
    if (!data || !*data)
        data = default_data();
    create_directory(directory);
    if (has_mnist(data)) {
        train_cells(cells, data);
        for (int i = 1; i < argc; ++i) {
            const struct program program = probe_program(argv[i], data, directory, 0);
            add_tests(tests, &program, cells, directory, data);
        }
    } else {
        append_test(tests, MAX_TESTS, skip_test, NULL, "five epochs: no MNIST in %s", data);
    }
    const int failed = cmocka_run_group_tests_name("epochs", tests, NULL, NULL);
    remove_directory(directory);
    return failed != 0;
}
