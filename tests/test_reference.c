// Tests the reference that the stages are compared with.
#include "cmocka_tests.h"

#define main reference_main
#include "../stages/reference.c" // NOLINT(bugprone-suspicious-include)
#undef main

enum { UNITS = 6, SAMPLES = 5 };

// The author's pcg32-demo prints these for round 1, with its built-in seeds.
static void pcg32_draws_what_its_author_published(void **state) {
    (void)state;
    const uint32_t expected[] = {0xa15c02b7, 0x7b47f409, 0xba1d3330,
                                 0x83d2f293, 0xbfa4784b, 0xcbed606e};
    struct generator generator = start_generator(42, 54);
    for (int i = 0; i < 6; ++i)
        assert_int_equal(draw_bits(&generator), expected[i]);
}

static void initial_weights_fill_their_range(void **state) {
    (void)state;
    const size_t hidden = 50, biases = part_offset(BIAS1, hidden);
    double parameters[795 * 50 + 10], largest = 0, sum = 0;
    assert_int_equal(part_offset(PARTS, hidden), sizeof parameters / sizeof *parameters);
    initial_parameters(parameters, hidden, 1);
    for (size_t i = 0; i < biases; ++i) {
        largest = fmax(largest, fabs(parameters[i]));
        sum += parameters[i];
    }
    const double limit = sqrt(6.0 / 784);
    assert_true(largest <= limit * (1 + 1e-7) && largest > 0.999 * limit);
    // They are uniform: the mean is 0 within five of its standard deviations.
    assert_true(fabs(sum / (double)biases) < 5 * limit / sqrt(3.0 * (double)biases));
    for (size_t i = 0; i < hidden; ++i)
        assert_true(parameters[biases + i] == 0);
}

// Images of which some pixels are zero, and parameters for which some hidden units are off.
static struct samples small_problem(double *parameters) {
    static float images[SAMPLES * INPUTS];
    static const uint8_t labels[SAMPLES] = {3, 0, 9, 3, 5};
    struct generator generator = start_generator(7, 3);
    for (int i = 0; i < SAMPLES * INPUTS; ++i) {
        const double value = ldexp(draw_bits(&generator), -32);
        images[i] = value < 0.7 ? 0 : (float)value;
    }
    initial_parameters(parameters, UNITS, 1);
    for (size_t i = part_offset(BIAS1, UNITS); i < part_offset(WEIGHTS2, UNITS); ++i)
        parameters[i] = ldexp(draw_bits(&generator), -32) - 0.5;
    return (struct samples){SAMPLES, images, labels};
}

// They would also agree if the loss were constant and the gradient zero.
static void gradient_equals_central_differences(void **state) {
    (void)state;
    // The difference is wrong by step² / 6 times a third derivative, and by 1e-16 / step. Both are
    // below 1e-9 here.
    const double step = 1e-6, tolerance = 1e-8;
    double parameters[795 * UNITS + 10], gradient[795 * UNITS + 10];
    const struct samples samples = small_problem(parameters);
    loss_and_gradient(parameters, UNITS, samples, gradient);
    for (size_t i = 0; i < part_offset(PARTS, UNITS); ++i) {
        const double here = parameters[i];
        parameters[i] = here + step;
        const double above = loss_and_gradient(parameters, UNITS, samples, NULL);
        parameters[i] = here - step;
        const double below = loss_and_gradient(parameters, UNITS, samples, NULL);
        parameters[i] = here;
        const double difference = (above - below) / (2 * step);
        if (!(fabs(difference - gradient[i]) <= tolerance))
            fail_msg("parameter %zu: gradient %.12g, central difference %.12g", i, gradient[i],
                     difference);
    }
    for (int part = 0; part < PARTS; ++part) {
        double norm = 0;
        for (size_t i = part_offset(part, UNITS); i < part_offset(part + 1, UNITS); ++i)
            norm = hypot(norm, gradient[i]);
        assert_true(norm > 0.01);
    }
}

// Five samples in batches of two: the third batch has one sample, and is averaged over that one.
static void training_steps_through_the_batches_in_order(void **state) {
    (void)state;
    double trained[795 * UNITS + 10], expected[795 * UNITS + 10], gradient[795 * UNITS + 10];
    const struct samples samples = small_problem(trained);
    small_problem(expected);
    double loss = 0;
    for (size_t first = 0; first < SAMPLES; first += 2) {
        const size_t count = first == 4 ? 1 : 2;
        const struct samples batch = {count, samples.images + first * INPUTS,
                                      samples.labels + first};
        loss += (double)count * loss_and_gradient(expected, UNITS, batch, gradient) / SAMPLES;
        for (size_t i = 0; i < part_offset(PARTS, UNITS); ++i)
            expected[i] -= 0.1 * gradient[i];
    }
    assert_true(fabs(train_reference(trained, UNITS, samples, 2, 1, 0.1) - loss) < 1e-14);
    for (size_t i = 0; i < part_offset(PARTS, UNITS); ++i)
        assert_true(fabs(trained[i] - expected[i]) < 1e-14);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pcg32_draws_what_its_author_published),
        cmocka_unit_test(initial_weights_fill_their_range),
        cmocka_unit_test(gradient_equals_central_differences),
        cmocka_unit_test(training_steps_through_the_batches_in_order),
    };
    return cmocka_run_group_tests_name("reference", tests, NULL, NULL);
}
