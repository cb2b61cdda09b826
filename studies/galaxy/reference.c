// The reference: the network, its gradient and the minimizer in float64, from the formulas in
// README.md and the papers named below. It shares nothing with the stages or common/, on purpose.
// It has its own generator, options and loops.
//
//     reference --data DIR [OPTION...]
//     reference --data DIR --differences [OPTION...]
//
// It takes the options of a stage, and writes the weights as float64. It prints what
// bench/testing.py compares, and how far a stage may be off: see stages/reference.c. With
// --differences it prints how far the gradient is from central differences of the cost, at the
// initial weights.
#include <err.h>
#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { INPUTS = 1024, OUTPUTS = 3 };

// Each iteration of conjugate gradients amplifies rounding. After ten, stages that add up in other
// orders had costs up to 6e-9 apart, and weights that differ by the rounding to float32 only, in
// which they are saved: 3e-8. After 30 iterations on galaxies the costs were up to 3e-7 apart, and
// after 300 up to 7 %: SciPy's is 9 % from SciPy's if the start is moved by 1e-15. RIGHT bounds the
// accuracy then.
enum { COMPARABLE_ITERATIONS = 10, LATER_ITERATIONS = 30 };
static const double WEIGHTS = 1e-7, COST = 1e-7, LATER = 1e-4, MUCH_LATER = 0.1, RIGHT = 0.05;

struct samples {
    size_t count;
    double *images; // count × 1024: pixel / 255
    int *labels;
};

// The parameters lie in the order of --save-weights: W1 1024 × H, b1 H, W2 3 × H, b2 3.
struct problem {
    size_t hidden, count;
    double lambda;
    struct samples samples;
    long evaluations;
};

// PCG32, XSH-RR 64/32: O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
// Algorithms for Random Number Generation", 2014.
struct generator {
    uint64_t state;
    uint64_t increment;
};

static uint32_t draw_bits(struct generator *generator) {
    const uint64_t old = generator->state;
    generator->state = old * 0x5851f42d4c957f2d + generator->increment;
    const uint32_t bits = (uint32_t)((old ^ old >> 18) >> 27);
    const unsigned turn = (unsigned)(old >> 59);
    return turn ? bits >> turn | bits << (32 - turn) : bits;
}

static struct generator start_generator(uint64_t seed, uint64_t stream) {
    struct generator generator = {.increment = 2 * stream + 1};
    draw_bits(&generator);
    generator.state += seed;
    draw_bits(&generator);
    return generator;
}

// Uniform in ±0.2, as a float32. Everything before the product is exact.
static double draw_weight(struct generator *generator) {
    return (float)((ldexp(draw_bits(generator) >> 8, -23) - 1) * 0.2f);
}

static double *allocate(size_t count) {
    double *values = calloc(count, sizeof *values);
    if (!values)
        err(EXIT_FAILURE, "reference");
    return values;
}

// Draws a unit's bias and then its weights, unit by unit: stream 1 for the hidden units, stream 2
// for the outputs.
static double *initial_parameters(const struct problem *problem, uint64_t seed) {
    const size_t hidden = problem->hidden;
    double *theta = allocate(problem->count), *bias1 = theta + INPUTS * hidden;
    double *weights2 = bias1 + hidden, *bias2 = weights2 + OUTPUTS * hidden;
    struct generator first = start_generator(seed, 1), second = start_generator(seed, 2);
    for (size_t h = 0; h < hidden; ++h) {
        bias1[h] = draw_weight(&first);
        for (size_t k = 0; k < INPUTS; ++k)
            theta[k * hidden + h] = draw_weight(&first);
    }
    for (size_t o = 0; o < OUTPUTS; ++o) {
        bias2[o] = draw_weight(&second);
        for (size_t h = 0; h < hidden; ++h)
            weights2[o * hidden + h] = draw_weight(&second);
    }
    return theta;
}

static double logistic(double z) {
    return z < 0 ? exp(z) / (1 + exp(z)) : 1 / (1 + exp(-z));
}

// Activations (H) and the outputs before their sigmoid (3) of one image.
static void predict(const struct problem *problem, const double *theta, const double *image,
                    double *activations, double z[OUTPUTS]) {
    const size_t hidden = problem->hidden;
    const double *bias1 = theta + INPUTS * hidden, *weights2 = bias1 + hidden;
    memcpy(activations, bias1, hidden * sizeof *activations);
    for (size_t k = 0; k < INPUTS; ++k)
        for (size_t h = 0; h < hidden; ++h)
            activations[h] += theta[k * hidden + h] * image[k];
    for (size_t h = 0; h < hidden; ++h)
        activations[h] = logistic(activations[h]);
    for (size_t o = 0; o < OUTPUTS; ++o) {
        z[o] = weights2[OUTPUTS * hidden + o];
        for (size_t h = 0; h < hidden; ++h)
            z[o] += weights2[o * hidden + h] * activations[h];
    }
}

// Returns the cost, and writes its gradient unless that is NULL.
static double cost_and_gradient(struct problem *problem, const double *theta, double *gradient) {
    const size_t hidden = problem->hidden, first2 = (INPUTS + 1) * hidden;
    const double samples = (double)problem->samples.count;
    double *activations = allocate(hidden), z[OUTPUTS], cost = 0;
    ++problem->evaluations;
    if (gradient)
        memset(gradient, 0, problem->count * sizeof *gradient);
    for (size_t s = 0; s < problem->samples.count; ++s) {
        const double *image = problem->samples.images + s * INPUTS;
        predict(problem, theta, image, activations, z);
        double errors[OUTPUTS];
        for (int o = 0; o < OUTPUTS; ++o) {
            // −log p if it is the label, −log(1 − p) if not, where p = logistic(z)
            const bool is_label = o == problem->samples.labels[s];
            const double wrong = is_label ? -z[o] : z[o];
            cost += wrong > 0 ? wrong + log1p(exp(-wrong)) : log1p(exp(wrong));
            errors[o] = (logistic(z[o]) - is_label) / samples;
        }
        for (size_t o = 0; o < OUTPUTS && gradient; ++o)
            gradient[first2 + OUTPUTS * hidden + o] += errors[o];
        for (size_t h = 0; h < hidden && gradient; ++h) {
            double error = 0;
            for (size_t o = 0; o < OUTPUTS; ++o) {
                gradient[first2 + o * hidden + h] += errors[o] * activations[h];
                error += errors[o] * theta[first2 + o * hidden + h];
            }
            error *= activations[h] * (1 - activations[h]);
            gradient[INPUTS * hidden + h] += error;
            for (size_t k = 0; k < INPUTS; ++k)
                gradient[k * hidden + h] += error * image[k];
        }
    }
    cost /= samples;
    for (size_t i = 0; i < problem->count; ++i) {
        const bool is_bias = (i >= INPUTS * hidden && i < first2) || i >= first2 + OUTPUTS * hidden;
        cost += is_bias ? 0 : problem->lambda / 2 / samples * theta[i] * theta[i];
        if (gradient && !is_bias)
            gradient[i] += problem->lambda / samples * theta[i];
    }
    free(activations);
    return cost;
}

static double inner(const double *x, const double *y, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i)
        sum += x[i] * y[i];
    return sum;
}

// The line search of MINPACK: dcsrch and dcstep. Moré and Thuente, "Line search algorithms with
// guaranteed sufficient decrease", 1994. x is the best step so far, y the other end of the
// interval, t the trial. f is a cost, d its slope.
struct line {
    double x, fx, dx, y, fy, dy, t, ft, dt, low, high;
    bool bracket;
};

// The step from a towards b at which a cubic is smallest.
static double cubic_step(double a, double fa, double da, double b, double fb, double db,
                         double *ratio) {
    const double theta = 3 * (fa - fb) / (b - a) + da + db;
    double gamma = sqrt(fmax(0, theta * theta - da * db));
    if (b < a)
        gamma = -gamma;
    const double r = (gamma - da + theta) / (2 * gamma - da + db);
    *ratio = gamma == 0 ? 0 : r;
    return a + r * (b - a);
}

static void step_safely(struct line *l) {
    double next, ratio, cubic, other;
    if (l->ft > l->fx) {
        cubic = cubic_step(l->x, l->fx, l->dx, l->t, l->ft, l->dt, &ratio);
        other = l->x + l->dx / ((l->fx - l->ft) / (l->t - l->x) + l->dx) / 2 * (l->t - l->x);
        next = fabs(cubic - l->x) <= fabs(other - l->x) ? cubic : cubic + (other - cubic) / 2;
    } else {
        cubic = cubic_step(l->t, l->ft, l->dt, l->x, l->fx, l->dx, &ratio);
        other = l->t + l->dt / (l->dt - l->dx) * (l->x - l->t);
        if (l->dt * l->dx < 0) {
            next = fabs(cubic - l->t) > fabs(other - l->t) ? cubic : other;
        } else if (fabs(l->dt) < fabs(l->dx)) {
            if (ratio >= 0)
                cubic = l->t > l->x ? l->high : l->low;
            const bool is_cubic_nearer = fabs(cubic - l->t) < fabs(other - l->t);
            next = is_cubic_nearer == l->bracket ? cubic : other;
            if (l->bracket) {
                const double end = l->t + 0.66 * (l->y - l->t);
                next = l->t > l->x ? fmin(end, next) : fmax(end, next);
            } else {
                next = fmax(l->low, fmin(l->high, next));
            }
        } else if (l->bracket) {
            next = cubic_step(l->t, l->ft, l->dt, l->y, l->fy, l->dy, &ratio);
        } else {
            next = l->t > l->x ? l->high : l->low;
        }
    }
    if (l->ft > l->fx || l->dt * l->dx < 0)
        l->bracket = true;
    if (l->ft > l->fx) {
        l->y = l->t, l->fy = l->ft, l->dy = l->dt;
    } else {
        if (l->dt * l->dx < 0)
            l->y = l->x, l->fy = l->fx, l->dy = l->dx;
        l->x = l->t, l->fx = l->ft, l->dx = l->dt;
    }
    l->t = next;
}

// Returns a step that meets Wolfe's strong conditions, and leaves the cost and the gradient there.
static double search_line(struct problem *problem, const double *theta, const double *direction,
                          double first, double *cost, double slope, double *there,
                          double *gradient) {
    const double start = *cost, promised = 1e-4 * slope;
    struct line l = {0, start, slope, 0, start, slope, first, 0, 0, 0, 5 * first, false};
    double width = HUGE_VAL, old_width = HUGE_VAL;
    bool first_stage = true;
    for (int trial = 0; trial < 100; ++trial) {
        for (size_t i = 0; i < problem->count; ++i)
            there[i] = theta[i] + l.t * direction[i];
        *cost = l.ft = cost_and_gradient(problem, there, gradient);
        l.dt = inner(gradient, direction, problem->count);
        const double allowed = start + l.t * promised;
        if (l.ft <= allowed && fabs(l.dt) <= 0.4 * fabs(slope))
            return l.t;
        if (l.ft <= allowed && l.dt >= 0)
            first_stage = false;
        if (first_stage && l.ft <= l.fx && l.ft > allowed) {
            l.fx -= l.x * promised, l.fy -= l.y * promised, l.ft -= l.t * promised;
            l.dx -= promised, l.dy -= promised, l.dt -= promised;
            step_safely(&l);
            l.fx += l.x * promised, l.fy += l.y * promised;
            l.dx += promised, l.dy += promised;
        } else {
            step_safely(&l);
        }
        if (l.bracket) {
            if (fabs(l.y - l.x) >= 0.66 * old_width)
                l.t = l.x + 0.5 * (l.y - l.x);
            old_width = width;
            width = fabs(l.y - l.x);
            l.low = fmin(l.x, l.y);
            l.high = fmax(l.x, l.y);
        } else {
            l.low = l.t + 1.1 * (l.t - l.x);
            l.high = l.t + 4 * (l.t - l.x);
        }
    }
    errx(1, "reference: found no step: these options are no test");
}

// Polak and Ribière's conjugate gradients, as in section 5.2 of Nocedal and Wright, "Numerical
// Optimization", 2006. Returns the last cost.
static double minimize_reference(struct problem *problem, double *theta, size_t iterations) {
    const size_t count = problem->count;
    double *gradient = allocate(count), *direction = allocate(count), *there = allocate(count),
           *next = allocate(count);
    double cost = cost_and_gradient(problem, theta, gradient);
    double before = cost + sqrt(inner(gradient, gradient, count)) / 2;
    for (size_t i = 0; i < count; ++i)
        direction[i] = -gradient[i];
    for (size_t iteration = 0; iteration < iterations; ++iteration) {
        const double square = inner(gradient, gradient, count), old_cost = cost;
        double largest = 0;
        for (size_t i = 0; i < count; ++i)
            largest = fmax(largest, fabs(gradient[i]));
        if (largest <= 1e-5)
            break;
        const double slope = inner(gradient, direction, count);
        double first = 2.02 * (cost - before) / slope;
        first = first < 0 || first > 1 ? 1 : first;
        search_line(problem, theta, direction, first, &cost, slope, there, next);
        before = old_cost;
        double beta = 0;
        for (size_t i = 0; i < count; ++i)
            beta += next[i] * (next[i] - gradient[i]) / square;
        beta = fmax(beta, 0);
        const double next_square = inner(next, next, count);
        if (beta * inner(direction, next, count) - next_square > -0.01 * next_square)
            beta = 0;
        for (size_t i = 0; i < count; ++i)
            direction[i] = beta * direction[i] - next[i];
        memcpy(gradient, next, count * sizeof *next);
        memcpy(theta, there, count * sizeof *there);
    }
    free(gradient);
    free(direction);
    free(there);
    free(next);
    return cost;
}

// Returns how far the gradient is from central differences, over the gradient's norm.
static double compare_differences(struct problem *problem, double *theta) {
    const double step = 1e-4;
    double *gradient = allocate(problem->count), error = 0;
    cost_and_gradient(problem, theta, gradient);
    for (size_t i = 0; i < problem->count; ++i) {
        const double kept = theta[i];
        theta[i] = kept + step;
        const double above = cost_and_gradient(problem, theta, NULL);
        theta[i] = kept - step;
        const double below = cost_and_gradient(problem, theta, NULL);
        theta[i] = kept;
        error += pow((above - below) / (2 * step) - gradient[i], 2);
    }
    error = sqrt(error / inner(gradient, gradient, problem->count));
    free(gradient);
    return error;
}

static double reference_accuracy(const struct problem *problem, const double *theta,
                                 struct samples samples) {
    double *activations = allocate(problem->hidden), z[OUTPUTS];
    size_t right = 0;
    for (size_t s = 0; s < samples.count; ++s) {
        predict(problem, theta, samples.images + s * INPUTS, activations, z);
        int best = 0;
        for (int o = 1; o < OUTPUTS; ++o)
            best = z[o] > z[best] ? o : best;
        right += best == samples.labels[s];
    }
    free(activations);
    return (double)right / (double)samples.count;
}

// Reads the first rows of a CSV file, raw or gzipped.
static struct samples read_samples(const char *directory, const char *name, size_t count) {
    static char path[4096], line[8192];
    struct samples samples = {count, allocate(count * INPUTS), calloc(count, sizeof(int))};
    snprintf(path, sizeof path, "%s/%s", directory, name);
    gzFile file = gzopen(path, "rb");
    if (!file)
        file = gzopen(strcat(path, ".gz"), "rb");
    if (!file || !samples.labels)
        err(2, "%s", path);
    for (size_t s = 0; s < count; ++s) {
        if (!gzgets(file, line, sizeof line))
            errx(2, "%s: too short", path);
        char *text = line;
        samples.labels[s] = (int)strtol(text, &text, 10);
        for (size_t k = 0; k < INPUTS; ++k)
            samples.images[s * INPUTS + k] = (double)strtol(text + 1, &text, 10) / 255;
    }
    gzclose(file);
    return samples;
}

enum { HIDDEN, ITERATIONS, TRAIN, TEST, NUMBERS };

struct options {
    size_t numbers[NUMBERS];
    uint64_t seed;
    double lambda; // a float32, as in a stage
    bool differences;
    const char *data, *save;
};

static struct options parse_options(int argc, char **argv) {
    enum { SEED = NUMBERS, LAMBDA, DATA, SAVE, DIFFERENCES, IGNORED };
    static const struct option OPTIONS[] = {
        {"hidden", 1, 0, HIDDEN},
        {"iterations", 1, 0, ITERATIONS},
        {"train", 1, 0, TRAIN},
        {"test", 1, 0, TEST},
        {"seed", 1, 0, SEED},
        {"lambda", 1, 0, LAMBDA},
        {"data", 1, 0, DATA},
        {"save-weights", 1, 0, SAVE},
        {"differences", 0, 0, DIFFERENCES},
        {"threads", 1, 0, IGNORED},
        {"csv", 1, 0, IGNORED},
        {"quiet", 0, 0, IGNORED},
        {0},
    };
    struct options options = {{8, 300, 2700, 675}, 1, 1, false, NULL, NULL};
    for (int option; (option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        if (option < NUMBERS)
            options.numbers[option] = strtoul(optarg, NULL, 10);
        else if (option == SEED)
            options.seed = strtoull(optarg, NULL, 10);
        else if (option == LAMBDA)
            options.lambda = strtof(optarg, NULL);
        else if (option == DATA)
            options.data = optarg;
        else if (option == SAVE)
            options.save = optarg;
        else if (option == DIFFERENCES)
            options.differences = true;
        else if (option != IGNORED)
            exit(2);
    }
    if (!options.data || optind != argc)
        errx(2, "usage: reference --data DIR [--hidden N] [--save-weights FILE] ...");
    return options;
}

static void print_expected(const struct problem *problem, size_t iterations, double cost,
                           size_t test, double accuracy) {
    static const char *const names[] = {"W1", "b1", "W2", "b2"};
    const size_t rows[] = {INPUTS, 1, OUTPUTS, 1};
    const size_t columns[] = {problem->hidden, problem->hidden, problem->hidden, OUTPUTS};
    const bool comparable = iterations <= COMPARABLE_ITERATIONS;
    const double bound = iterations <= LATER_ITERATIONS ? LATER : MUCH_LATER;
    printf("result final_cost %.17g %g 0\n", cost, comparable ? COST : bound);
    if (comparable)
        printf("result gradient_evaluations %ld 0 0\n", problem->evaluations);
    for (int part = 0; part < 4 && comparable; ++part)
        printf("part %s %zu %zu norm %g\n", names[part], rows[part], columns[part],
               iterations ? WEIGHTS : 0);
    // One image may be a near tie.
    printf("result test_accuracy %.17g 0 %g\n", accuracy,
           1.0 / (double)test + (comparable ? 1e-6 : RIGHT));
}

int main(int argc, char **argv) {
    const struct options options = parse_options(argc, argv);
    const size_t hidden = options.numbers[HIDDEN], iterations = options.numbers[ITERATIONS];
    struct problem problem = {
        .hidden = hidden,
        .count = (INPUTS + 1 + OUTPUTS) * hidden + OUTPUTS,
        .lambda = options.lambda,
        .samples = read_samples(options.data, "train.csv", options.numbers[TRAIN]),
    };
    const struct samples test = read_samples(options.data, "test.csv", options.numbers[TEST]);
    double *theta = initial_parameters(&problem, options.seed);
    if (options.differences) {
        printf("%g\n", compare_differences(&problem, theta));
        return 0;
    }
    const double cost = minimize_reference(&problem, theta, iterations);
    print_expected(&problem, iterations, cost, test.count,
                   reference_accuracy(&problem, theta, test));
    FILE *file = options.save ? fopen(options.save, "wb") : NULL;
    if (options.save &&
        (!file || fwrite(theta, sizeof *theta, problem.count, file) != problem.count ||
         fclose(file) != 0))
        err(1, "%s", options.save);
    return 0;
}
