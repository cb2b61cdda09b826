// How far a stage is from the reference, and in what way.
#ifndef TESTS_ERRORS_H
#define TESTS_ERRORS_H

#include "reference.h"

#include <stdbool.h>

extern const char *const PART_NAMES[PARTS];
extern const double PART_BOUNDS[PARTS], TOTAL_BOUND;

// A stage's parameters and loss beside the reference's. All parameters are laid out as those of
// reference.h.
struct outcome {
    size_t hidden;
    const float *found;
    const double *expected;
    double found_loss, expected_loss;
};

// ‖found − expected‖ / ‖expected‖. Where nothing but zeros is expected (the biases of hidden units
// that are off), nothing else may be found.
double part_error(const struct outcome *outcome, enum part part);
double total_error(const struct outcome *outcome);

bool part_is_right(const struct outcome *outcome, enum part part);
bool loss_is_right(const struct outcome *outcome);
bool parts_and_loss_are_right(const struct outcome *outcome);

// The first parameter of a part that is off by more than the part's bound times its parameters'
// root mean square. If the part as a whole is off, there is one.
size_t first_wrong(const struct outcome *outcome, enum part part);

// What a parameter is called: W1[783][32], b2[9].
struct name {
    char text[64];
};
struct name name_of(size_t parameter, size_t hidden);

// A table on standard output: the error of the loss and of each part, and where it begins.
void print_errors(const struct outcome *outcome);

// The step that a batch of `images` was to take, from `before` to what is expected.
struct step {
    const double *before;
    const double *first; // the parameters before the batch before; NULL: there was none
    size_t images, batch;
};

// Says in words, a line each, what the data say about the parts that are wrong: no step, a multiple
// of the right one, the batch before once more. Says nothing where no such thing fits.
void explain_errors(const struct outcome *outcome, struct step step);

#endif
