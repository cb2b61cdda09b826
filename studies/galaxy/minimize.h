// The minimizer, which is the same for all stages and no part of what they optimize: nonlinear
// conjugate gradients by Polak and Ribière, as in SciPy's fmin_cg.
#ifndef GALAXY_MINIMIZE_H
#define GALAXY_MINIMIZE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// What is minimized: a function of `count` parameters.
struct objective {
    void *context; // the first argument of evaluate()
    size_t count;
    // Returns the cost at θ, and writes its gradient.
    double (*evaluate)(void *context, const double *theta, double *gradient);
};

// Where the minimizer's vectors lie, and how it computes with them. It never looks into one, so
// that they may lie on a device.
struct vectors {
    void *context; // the first argument of dot()
    double *(*allocate)(size_t count);
    void (*release)(double *vector);
    double (*dot)(void *context, const double *x, const double *y, size_t count);
    double (*largest)(const double *x, size_t count); // of |x|
    // out = a·x + b·y; out may be x or y
    void (*combine)(double *out, double a, const double *x, double b, const double *y,
                    size_t count);
};

// Vectors in the host's memory, and plain loops.
extern const struct vectors HOST_VECTORS;

struct minimum {
    double cost;
    int iterations;   // may be fewer than asked for: see minimize()
    long evaluations; // calls of evaluate()
};

// Moves θ downhill by so many iterations. It stops before, if no element of the gradient is above
// 1e-5, as SciPy does, or if no step along the gradient lowers the cost: then rounding hides what
// is left to gain. It also stops where a cost is not finite, which is then the cost that it
// returns.
struct minimum minimize(const struct objective *objective, const struct vectors *vectors,
                        double *theta, int iterations);

#ifdef __cplusplus
}
#endif

#endif
