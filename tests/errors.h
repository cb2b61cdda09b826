// Measures how far a stage is from the reference, and explains in what way.
#ifndef TESTS_ERRORS_H
#define TESTS_ERRORS_H

#include "reference.h"

#include <stdbool.h>

extern const char *const PART_NAMES[PARTS];
extern const double PART_BOUNDS[PARTS], TOTAL_BOUND;

// A stage's parameters and loss beside the reference's. All parameters have the layout of
// reference.h.
struct outcome {
    size_t hidden;
    const float *found;
    const double *expected;
    double found_loss, expected_loss;
};

// Return ‖found − expected‖ / ‖expected‖. Where only zeros are expected (the biases of hidden units
// that are off), only zeros may be found.
double part_error(const struct outcome *outcome, enum part part);
double total_error(const struct outcome *outcome);

bool part_is_right(const struct outcome *outcome, enum part part);
bool loss_is_right(const struct outcome *outcome);
bool parts_and_loss_are_right(const struct outcome *outcome);

// Returns the first parameter of a part that is off by more than the part's bound times its
// parameters' root mean square. There is one if the part as a whole is off.
size_t first_wrong(const struct outcome *outcome, enum part part);

// A parameter's name: W1[783][32], b2[9].
struct name {
    char text[64];
};
struct name name_of(size_t parameter, size_t hidden);

// Prints a table: the error of the loss and of each part, and the first parameter that is wrong.
void print_errors(const struct outcome *outcome);

// The step that a batch of `images` should take, from `before` to the expected parameters.
struct step {
    const double *before;
    const double *first; // the parameters one batch earlier; NULL: there was no such batch
    size_t images, batch;
};

// Prints a line for each wrong part that it can explain: it took no step, a multiple of the right
// one, or the step of the batch before once more. Prints nothing if none of these fits.
void explain_errors(const struct outcome *outcome, struct step step);

#endif
