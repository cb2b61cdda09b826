#include "errors.h"

#include <math.h>
#include <stdio.h>

const char *const PART_NAMES[PARTS] = {"W1", "b1", "W2", "b2"};

// How far the parameters may be from the reference's. Rounding alone caused 1e-7 to 2e-7 over all
// of them and up to 3e-6 in b1, which has the smallest values. But a hidden unit may be so close to
// zero that rounding decides whether it is on, for a sample in one batch. This caused 4e-6 over
// all, and 4e-5 in b1, so the bounds allow it. Of the mistakes made on purpose, a learning rate
// that was off by a ten-thousandth caused 5e-5, and all others 6e-3 and more.
const double PART_BOUNDS[PARTS] = {5e-5, 5e-4, 5e-5, 5e-5}, TOTAL_BOUND = 5e-5;

// The elements of a part, as a matrix. A bias has a single row.
struct shape {
    size_t first, rows, columns;
};

static struct shape shape_of(enum part part, size_t hidden) {
    const size_t columns = part == WEIGHTS1 || part == BIAS1 ? hidden : OUTPUTS;
    const size_t first = part_offset(part, hidden);
    return (struct shape){first, (part_offset(part + 1, hidden) - first) / columns, columns};
}

static double relative_error(const float *found, const double *expected, size_t count) {
    double distance = 0, norm = 0;
    for (size_t i = 0; i < count; ++i) {
        distance += (found[i] - expected[i]) * (found[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    return distance == 0 ? 0 : sqrt(distance / norm);
}

double part_error(const struct outcome *outcome, enum part part) {
    const struct shape shape = shape_of(part, outcome->hidden);
    return relative_error(outcome->found + shape.first, outcome->expected + shape.first,
                          shape.rows * shape.columns);
}

double total_error(const struct outcome *outcome) {
    return relative_error(outcome->found, outcome->expected, part_offset(PARTS, outcome->hidden));
}

// These compare with <=, so that a NaN is wrong.
bool part_is_right(const struct outcome *outcome, enum part part) {
    return part_error(outcome, part) <= PART_BOUNDS[part];
}

bool loss_is_right(const struct outcome *outcome) {
    // The loss is printed with six decimals.
    return fabs(outcome->found_loss - outcome->expected_loss) <=
           1e-6 + 1e-5 * outcome->expected_loss;
}

bool parts_and_loss_are_right(const struct outcome *outcome) {
    bool right = loss_is_right(outcome);
    for (enum part part = 0; part < PARTS; ++part)
        right = right && part_is_right(outcome, part);
    return right;
}

// Returns how far an element of a part may be off.
static double element_bound(const struct outcome *outcome, enum part part) {
    const struct shape shape = shape_of(part, outcome->hidden);
    const size_t count = shape.rows * shape.columns;
    double squares = 0;
    for (size_t i = 0; i < count; ++i)
        squares += outcome->expected[shape.first + i] * outcome->expected[shape.first + i];
    return PART_BOUNDS[part] * sqrt(squares / (double)count);
}

static bool element_is_right(const struct outcome *outcome, size_t index, double bound) {
    return fabs(outcome->found[index] - outcome->expected[index]) <= bound;
}

size_t first_wrong(const struct outcome *outcome, enum part part) {
    const size_t last = part_offset(part + 1, outcome->hidden) - 1;
    const double bound = element_bound(outcome, part);
    size_t i = part_offset(part, outcome->hidden);
    while (i < last && element_is_right(outcome, i, bound))
        ++i;
    return i;
}

struct name name_of(size_t parameter, size_t hidden) {
    struct name name;
    enum part part = 0;
    while (part_offset(part + 1, hidden) <= parameter)
        ++part;
    const struct shape shape = shape_of(part, hidden);
    const size_t i = parameter - shape.first;
    if (shape.rows == 1)
        snprintf(name.text, sizeof name.text, "%s[%zu]", PART_NAMES[part], i);
    else
        snprintf(name.text, sizeof name.text, "%s[%zu][%zu]", PART_NAMES[part], i / shape.columns,
                 i % shape.columns);
    return name;
}

static void print_row(const char *name, double error, bool right, const char *where, double found,
                      double expected) {
    // printf would print −nan for some.
    printf("%-4s  %7.1e  ", name, isnan(error) ? NAN : error);
    if (right)
        printf("right\n");
    else
        printf("WRONG   %-12s %12.6g %12.6g\n", where, isnan(found) ? NAN : found, expected);
}

void print_errors(const struct outcome *outcome) {
    printf("        error%s\n", parts_and_loss_are_right(outcome)
                                    ? ""
                                    : "         first wrong         found     expected");
    print_row("loss", fabs(outcome->found_loss / outcome->expected_loss - 1),
              loss_is_right(outcome), "", outcome->found_loss, outcome->expected_loss);
    for (enum part part = 0; part < PARTS; ++part) {
        const size_t first = first_wrong(outcome, part);
        print_row(PART_NAMES[part], part_error(outcome, part), part_is_right(outcome, part),
                  name_of(first, outcome->hidden).text, (double)outcome->found[first],
                  outcome->expected[first]);
    }
}

// Some rows and columns of a part. Each end is one past the last.
struct box {
    size_t row, end_row, column, end_column;
};

// Returns the smallest box that holds all wrong elements.
static struct box box_of_wrong(const struct outcome *outcome, enum part part) {
    const struct shape shape = shape_of(part, outcome->hidden);
    const double bound = element_bound(outcome, part);
    struct box box = {shape.rows, 0, shape.columns, 0};
    for (size_t row = 0; row < shape.rows; ++row) {
        for (size_t column = 0; column < shape.columns; ++column) {
            const size_t index = shape.first + row * shape.columns + column;
            if (element_is_right(outcome, index, bound))
                continue;
            box.row = row < box.row ? row : box.row;
            box.end_row = row + 1;
            box.column = column < box.column ? column : box.column;
            box.end_column = column >= box.end_column ? column + 1 : box.end_column;
        }
    }
    return box;
}

// A step as `times` the right one plus `again` times the step of the batch before.
struct fit {
    bool good;
    double times, again;
};

// Fits by least squares. A fit is good if what it leaves is at most a hundredth of what it
// explains. Anything fits a few elements, so for them only a step of zero is good.
static struct fit fit_step(const struct outcome *outcome, enum part part, struct box box,
                           const struct step *step) {
    const struct shape shape = shape_of(part, outcome->hidden);
    double ff = 0, fr = 0, rr = 0, fb = 0, rb = 0, bb = 0;
    for (size_t row = box.row; row < box.end_row; ++row) {
        for (size_t column = box.column; column < box.end_column; ++column) {
            const size_t i = shape.first + row * shape.columns + column;
            const double found = outcome->found[i] - step->before[i];
            const double right = outcome->expected[i] - step->before[i];
            const double before = step->first ? step->before[i] - step->first[i] : 0;
            ff += found * found, fr += found * right, rr += right * right;
            fb += found * before, rb += right * before, bb += before * before;
        }
    }
    const bool many = (box.end_row - box.row) * (box.end_column - box.column) >= 5;
    // These are squares, so 1e-4 stands for a hundredth.
    struct fit fit = {.times = fr / rr};
    fit.good = ff - fit.times * fr <= 1e-4 * (fit.times - 1) * (fit.times - 1) * rr &&
               (many || fabs(fit.times) < 1e-3);
    const double determinant = rr * bb - rb * rb;
    if (fit.good || !many || !(determinant > 1e-6 * rr * bb))
        return fit;
    fit.times = (fr * bb - fb * rb) / determinant;
    fit.again = (fb * rr - fr * rb) / determinant;
    fit.good = ff - fit.times * fr - fit.again * fb <= 1e-4 * fit.again * fit.again * bb;
    return fit;
}

static bool about(double value, double other) {
    return fabs(value - other) <= 0.01 * fabs(other);
}

// Prints what a fit means for the elements of that name.
static void explain_fit(const char *name, struct fit fit, const struct step *step) {
    const double images = (double)step->images, batch = (double)step->batch;
    if (fit.again != 0)
        printf("The step of %s is %.5g × the right one + %.5g × that of the batch before: is its "
               "gradient set to zero?\n",
               name, fit.times, fit.again);
    else if (fabs(fit.times) < 0.01)
        printf("%s did not move.\n", name);
    else if (images < batch && about(fit.times, images / batch))
        printf("The step of %s is %.5g times the right one: divided by %zu images, not %zu?\n",
               name, fit.times, step->batch, step->images);
    else if (images > 1 && about(fit.times, images))
        printf("The step of %s is %.5g times the right one: not divided by the %zu images?\n", name,
               fit.times, step->images);
    else
        printf("The step of %s is %.5g times the right one.\n", name, fit.times);
}

// Writes "[776..783]", or "[776]" for a single one. Returns the end.
static char *write_range(char *text, size_t first, size_t end) {
    return text + (end - first == 1 ? sprintf(text, "[%zu]", first)
                                    : sprintf(text, "[%zu..%zu]", first, end - 1));
}

// Returns whether it has found an explanation to print.
static bool explain_part(const struct outcome *outcome, enum part part, const struct step *step) {
    const struct shape shape = shape_of(part, outcome->hidden);
    const struct box whole = {0, shape.rows, 0, shape.columns}, box = box_of_wrong(outcome, part);
    char name[128], *end = name + sprintf(name, "%s", PART_NAMES[part]);
    struct fit fit = fit_step(outcome, part, whole, step);
    if (!fit.good) {
        fit = fit_step(outcome, part, box, step);
        if (shape.rows > 1)
            end = write_range(end, box.row, box.end_row);
        write_range(end, box.column, box.end_column);
    }
    if (fit.good)
        explain_fit(name, fit, step);
    return fit.good;
}

void explain_errors(const struct outcome *outcome, struct step step) {
    bool said = false;
    int wrong = 0; // a bit for each part
    for (enum part part = 0; part < PARTS; ++part) {
        if (!part_is_right(outcome, part)) {
            wrong |= 1 << part;
            said |= explain_part(outcome, part, &step);
        }
    }
    if (!loss_is_right(outcome))
        printf("The loss is computed before the step: look at forward first.\n");
    else if (!said && wrong == (1 << PARTS) - 1)
        printf("The loss is right, but all steps are wrong: look at p and dz first.\n");
    else if (!said && wrong == (1 << WEIGHTS1 | 1 << BIAS1))
        printf("Only W1 and b1 depend on da: look there first.\n");
}
