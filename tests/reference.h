// The network in float64, written for the tests from the formulas in stages/README.md. It shares
// nothing with the stages, on purpose. It has its own generator and its own loops, and takes one
// sample at a time.
#ifndef TESTS_REFERENCE_H
#define TESTS_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

enum { INPUTS = 784, OUTPUTS = 10 };

// The parameters lie in one array, in the order of a stage's --save-weights:
// W1 784 × H, b1 H, W2 H × 10, b2 10.
enum part { WEIGHTS1, BIAS1, WEIGHTS2, BIAS2, PARTS };

// Where a part begins. For PARTS: the number of all parameters.
size_t part_offset(enum part part, size_t hidden);

struct samples {
    size_t count;
    const double *images;  // count × 784
    const uint8_t *labels; // count
};

// PCG32, XSH-RR 64/32: O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
// Algorithms for Random Number Generation", 2014.
struct generator {
    uint64_t state;
    uint64_t increment;
};

struct generator start_generator(uint64_t seed, uint64_t stream);
uint32_t draw_bits(struct generator *generator);

// The initial parameters. They are float32 values, so a stage's must be equal to the bit.
void initial_parameters(double *parameters, size_t hidden, uint64_t seed);

// Returns the mean loss over the samples. Writes its gradient, laid out as the parameters, unless
// `gradient` is NULL.
double loss_and_gradient(const double *parameters, size_t hidden, struct samples samples,
                         double *gradient);

// Trains by plain gradient descent, in batches in file order. Returns the last epoch's mean loss:
// each sample's loss is taken when its batch is trained on.
double train_reference(double *parameters, size_t hidden, struct samples samples, size_t batch,
                       int epochs, double learning_rate);

// The fraction of samples whose most probable class is their label.
double reference_accuracy(const double *parameters, size_t hidden, struct samples samples);

#endif
