#include "studies/galaxy/minimize.h"
#include "common/program.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

// A step is good if it fulfils Wolfe's strong conditions. It has to lower the cost by this part of
// what the slope at the start promises, and to leave no more than this part of the slope.
static const double DECREASE = 1e-4, CURVATURE = 0.4;
// A direction has to go down at least so steeply, as part of the gradient's square.
static const double DESCENT = 0.01;
static const double SMALL_GRADIENT = 1e-5;
enum { MAX_TRIALS = 100 };

// A step along the direction, with the cost there and its slope.
struct point {
    double step, cost, slope;
};

// The search for a step: the state of the algorithm, and the vectors that it needs for a trial.
struct search {
    const struct objective *objective;
    const struct vectors *vectors;
    const double *theta, *direction;
    double *trial, *gradient; // θ + step·direction, and the gradient there
    long evaluations;

    struct point best, other; // the ends of the interval that the step lies in, once bracketed
    bool bracketed;
    double lower, upper; // of the next step
};

static double dot(const struct vectors *vectors, const double *x, const double *y, size_t count) {
    return vectors->dot(vectors->context, x, y, count);
}

// Returns whether an element of the gradient is above the limit. If its length is far above it, one
// of them has to be, and nobody needs to look at them.
static bool is_large(const struct vectors *vectors, const double *gradient, double square,
                     size_t count) {
    return square > SMALL_GRADIENT * SMALL_GRADIENT * (double)count ||
           vectors->largest(gradient, count) > SMALL_GRADIENT;
}

static struct point evaluate(struct search *search, double step) {
    const struct objective *objective = search->objective;
    const size_t count = objective->count;
    search->vectors->combine(search->trial, 1, search->theta, step, search->direction, count);
    ++search->evaluations;
    const double cost = objective->evaluate(objective->context, search->trial, search->gradient);
    return (struct point){step, cost,
                          dot(search->vectors, search->gradient, search->direction, count)};
}

// Returns r. The cubic with the costs and slopes of a and b has its minimum at a + r·(b − a). NaN
// if it has none.
static double cubic(struct point a, struct point b) {
    const double theta = 3 * (a.cost - b.cost) / (b.step - a.step) + a.slope + b.slope;
    const double root = sqrt(theta * theta - a.slope * b.slope);
    const double gamma = b.step < a.step ? -root : root;
    return (gamma - a.slope + theta) / (gamma - a.slope + gamma + b.slope);
}

// Returns the step at which the line through the slopes of a and b is zero.
static double secant(struct point a, struct point b) {
    return a.step + a.slope / (a.slope - b.slope) * (b.step - a.step);
}

static double nearer(double to, double a, double b) {
    return fabs(a - to) < fabs(b - to) ? a : b;
}

static double farther(double from, double a, double b) {
    return fabs(a - from) > fabs(b - from) ? a : b;
}

// Takes a trial into the interval. Returns the next step: the four cases of section 4 of Moré and
// Thuente, "Line search algorithms with guaranteed sufficient decrease", 1994.
static double update(struct search *search, struct point trial) {
    struct point *best = &search->best, *other = &search->other;
    const double width = trial.step - best->step;
    const double toward_best = trial.step + cubic(trial, *best) * (best->step - trial.step);
    const bool is_higher = trial.cost > best->cost, turns = trial.slope * best->slope < 0;
    double step;

    if (is_higher) {
        const double cube = best->step + cubic(*best, trial) * width;
        const double drop = (best->cost - trial.cost) / width + best->slope;
        const double parabola = best->step + best->slope / drop / 2 * width;
        step =
            fabs(cube - best->step) <= fabs(parabola - best->step) ? cube : (cube + parabola) / 2;
    } else if (turns) {
        step = farther(trial.step, toward_best, secant(trial, *best));
    } else if (fabs(trial.slope) < fabs(best->slope)) {
        // The cubic counts only if its minimum lies beyond the trial.
        const double end = width > 0 ? search->upper : search->lower;
        const double cube = cubic(trial, *best) < 0 ? toward_best : end;
        const double line = secant(trial, *best);
        if (search->bracketed) {
            const double limit = trial.step + 0.66 * (other->step - trial.step);
            step = nearer(trial.step, cube, line);
            step = width > 0 ? fmin(limit, step) : fmax(limit, step);
        } else {
            step = fmin(fmax(farther(trial.step, cube, line), search->lower), search->upper);
        }
    } else if (search->bracketed) {
        step = trial.step + cubic(trial, *other) * (other->step - trial.step);
    } else {
        step = width > 0 ? search->upper : search->lower;
    }

    if (is_higher) {
        *other = trial;
    } else {
        if (turns)
            *other = *best;
        *best = trial;
    }
    search->bracketed |= is_higher || turns;
    return step;
}

// Adds slope·step to the costs, so that a search for less than the promised decrease can begin on
// the costs without it.
static void tilt(struct point *point, double slope) {
    point->cost += slope * point->step;
    point->slope += slope;
}

// Searches from `start`, where the step is 0. Returns the good point. Its step is 0 if there is
// none. Either way, search->trial and search->gradient are those of the last trial.
static struct point line_search(struct search *search, struct point start, double step) {
    const double promised = DECREASE * start.slope;
    bool is_first_stage = true; // until a trial has lowered the cost and lies behind a minimum
    double width = INFINITY, width_before = INFINITY;
    search->best = search->other = start;
    search->bracketed = false;
    search->lower = 0;
    search->upper = 5 * step;

    for (int i = 0; i < MAX_TRIALS && isfinite(step); ++i) {
        struct point trial = evaluate(search, step);
        const double limit = start.cost + step * promised;
        if (!isfinite(trial.cost) ||
            (trial.cost <= limit && fabs(trial.slope) <= CURVATURE * -start.slope))
            return trial;
        if (search->bracketed && (step <= search->lower || step >= search->upper ||
                                  search->upper - search->lower <= 1e-14 * search->upper))
            break; // rounding hides what is left to gain
        if (trial.cost <= limit && trial.slope >= 0)
            is_first_stage = false;

        // In the first stage, the promised decrease is taken off the costs.
        const bool is_tilted =
            is_first_stage && trial.cost <= search->best.cost && trial.cost > limit;
        const double slope = is_tilted ? promised : 0;
        tilt(&trial, -slope);
        tilt(&search->best, -slope);
        tilt(&search->other, -slope);
        step = update(search, trial);
        tilt(&search->best, slope);
        tilt(&search->other, slope);

        const double a = search->best.step, b = search->other.step;
        if (search->bracketed) {
            if (fabs(b - a) >= 0.66 * width_before) // it shrinks too slowly
                step = a + 0.5 * (b - a);
            width_before = width;
            width = fabs(b - a);
            search->lower = fmin(a, b);
            search->upper = fmax(a, b);
            if (step <= search->lower || step >= search->upper)
                step = a;
        } else {
            search->lower = step + 1.1 * (step - a);
            search->upper = step + 4 * (step - a);
        }
    }
    return start;
}

static void swap(double **a, double **b) {
    double *kept = *a;
    *a = *b;
    *b = kept;
}

struct minimum minimize(const struct objective *objective, const struct vectors *vectors,
                        double *theta, int iterations) {
    const size_t count = objective->count;
    double *gradient = vectors->allocate(count), *direction = vectors->allocate(count);
    struct search search = {
        .objective = objective,
        .vectors = vectors,
        .theta = theta,
        .direction = direction,
        .trial = vectors->allocate(count),
        .gradient = vectors->allocate(count),
        .evaluations = 1,
    };
    struct minimum minimum = {objective->evaluate(objective->context, theta, gradient), 0, 0};
    double square = dot(vectors, gradient, gradient, count);
    // As if a step of length 1 had led here.
    double cost_before = minimum.cost + sqrt(square) / 2;
    bool is_steepest = true;
    vectors->combine(direction, -1, gradient, 0, gradient, count);

    while (minimum.iterations < iterations && is_large(vectors, gradient, square, count) &&
           isfinite(minimum.cost)) {
        const struct point start = {0, minimum.cost, dot(vectors, gradient, direction, count)};
        // The cost falls as much as in the step before, if it is a parabola.
        const double first = fmin(1, 1.01 * 2 * (start.cost - cost_before) / start.slope);
        const struct point found = line_search(&search, start, first < 0 ? 1 : first);
        if (found.step == 0 && is_steepest)
            break;
        if (found.step == 0) { // tries again, along the gradient
            is_steepest = true;
            vectors->combine(direction, -1, gradient, 0, gradient, count);
            continue;
        }
        cost_before = minimum.cost;
        minimum.cost = found.cost;
        ++minimum.iterations;

        // Polak and Ribière's β, not below 0. Without enough descent, it starts again from −g.
        const double new_square = dot(vectors, search.gradient, search.gradient, count);
        const double common = dot(vectors, search.gradient, gradient, count);
        const double beta = fmax(0, (new_square - common) / square);
        is_steepest = -new_square + beta * found.slope > -DESCENT * new_square;
        vectors->combine(direction, -1, search.gradient, is_steepest ? 0 : beta, direction, count);
        vectors->combine(theta, 1, search.trial, 0, search.trial, count);
        swap(&gradient, &search.gradient);
        square = new_square;
    }
    vectors->release(gradient);
    vectors->release(direction);
    vectors->release(search.trial);
    vectors->release(search.gradient);
    minimum.evaluations = search.evaluations;
    return minimum;
}

static double *host_allocate(size_t count) {
    return allocate_array(count, sizeof(double));
}

static void host_release(double *vector) {
    free(vector);
}

static double host_dot(void *context, const double *x, const double *y, size_t count) {
    (void)context;
    double sum = 0;
    for (size_t i = 0; i < count; ++i)
        sum += x[i] * y[i];
    return sum;
}

static double host_largest(const double *x, size_t count) {
    double largest = 0;
    for (size_t i = 0; i < count; ++i)
        largest = fmax(largest, fabs(x[i]));
    return largest;
}

static void host_combine(double *out, double a, const double *x, double b, const double *y,
                         size_t count) {
    for (size_t i = 0; i < count; ++i)
        out[i] = a * x[i] + b * y[i];
}

const struct vectors HOST_VECTORS = {NULL,     host_allocate, host_release,
                                     host_dot, host_largest,  host_combine};
