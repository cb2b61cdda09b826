// Draws digits that look handwritten into the four files of MNIST, for machines without MNIST.
//
// A digit is a few knots that the pen passes through (glyphs.h). They are scattered, bent and
// slanted, because hands differ. Smooth curves join them, and the result is scaled and centred as
// in MNIST. Each pixel's distance from the pen decides its ink.
//
// The same seed must give the same bytes on every machine. So the arithmetic is only + - * / and
// sqrt, which IEEE 754 rounds exactly: the last bits of sin and exp differ between libraries.
// Nothing is fused (-ffp-contract=off in the Makefile). No expression draws two random numbers,
// because the compiler would choose their order.
#include "glyphs.h"

#include <argp.h>
#include <errno.h>
#include <float.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// 16 is of processors that compute in float16, and says the same of doubles as 0.
_Static_assert(FLT_EVAL_METHOD == 0 || FLT_EVAL_METHOD == 16,
               "doubles must be computed as doubles: on x86, with SSE2");

enum {
    SIDE = 28,
    PIXELS = SIDE * SIDE,
    BOX = 20,  // MNIST scales a digit to fit 20 × 20
    STEPS = 8, // straight segments between two knots
    MAX_SAMPLES = 1000000,
    EXIT_BAD_INPUT = 2
};

// Options without a short form: numbers that are no characters.
enum { SEED = 256, TRAIN, TEST };

struct options {
    const char *directory;
    uint64_t seed;
    int train_samples;
    int test_samples;
};

struct file {
    const char *name;
    size_t size;
    uint8_t *bytes;
};

// MNIST moves a digit's centre of mass to the middle of pixel 14, 14.
static const double CENTRE = 14.5;

typedef double point __attribute__((vector_size(16))); // x, y

struct segment {
    point from, to;
};

// The pen's way through a digit.
struct path {
    int count;
    struct segment segments[MAX_KNOTS * STEPS];
};

// PCG32 (XSH-RR 64/32, O'Neill 2014).
struct pcg32 {
    uint64_t state;
    uint64_t increment;
};

static uint32_t pcg32_next(struct pcg32 *generator) {
    uint64_t state = generator->state;
    generator->state = state * 6364136223846793005u + generator->increment;
    uint32_t shifted = (uint32_t)(((state >> 18) ^ state) >> 27);
    uint32_t rotation = (uint32_t)(state >> 59);
    return shifted >> rotation | shifted << (-rotation & 31);
}

static struct pcg32 pcg32_seed(uint64_t seed, uint64_t stream) {
    struct pcg32 generator = {0, stream << 1 | 1};
    pcg32_next(&generator);
    generator.state += seed;
    pcg32_next(&generator);
    return generator;
}

static double uniform(struct pcg32 *generator, double low, double high) {
    return low + (high - low) * (pcg32_next(generator) * 0x1p-32);
}

// Nearly normal, with mean 0. It sums three draws from ±deviation, each of variance deviation² / 3,
// and never goes beyond three deviations.
static double normal(struct pcg32 *generator, double deviation) {
    double sum = 0;
    for (int i = 0; i < 3; ++i)
        sum += uniform(generator, -deviation, deviation);
    return sum;
}

static double min(double a, double b) {
    return a < b ? a : b;
}

static double max(double a, double b) {
    return a > b ? a : b;
}

static const struct glyph *choose_glyph(struct pcg32 *generator) {
    const struct glyph *glyph = GLYPHS;
    uint32_t draw = (uint32_t)((uint64_t)pcg32_next(generator) * 10 * DIGIT_WEIGHT >> 32);
    for (; draw >= glyph->weight; ++glyph)
        draw -= glyph->weight;
    return glyph;
}

// Places a glyph's knots as one hand would: scattered, bent, tapered, slanted and turned. The
// amounts make the digits about as hard to tell apart as MNIST's (README.md). Returns the number of
// knots.
static int place_knots(struct pcg32 *generator, const struct glyph *glyph, point *knots) {
    const double bow = normal(generator, 0.11), taper = normal(generator, 0.15);
    const double sag = normal(generator, 0.11), lean = normal(generator, 0.15);
    const double width = 0.9 + normal(generator, 0.15), slant = 0.15 + normal(generator, 0.28);
    const double turn = normal(generator, 0.08); // the tangent of half the angle
    const double cosine = (1 - turn * turn) / (1 + turn * turn);
    const double sine = 2 * turn / (1 + turn * turn);
    int count = 0;
    do {
        const double dx = normal(generator, 0.125), dy = normal(generator, 0.125);
        const double x = (glyph->knots[count][0] - 50) / 50.0 + dx;
        const double y = (glyph->knots[count][1] - 50) / 50.0 + dy;
        const double bent_x = x + bow * y * y + taper * x * y;
        const double bent_y = y + sag * x * x + lean * x * y;
        const double slanted = width * bent_x - slant * bent_y;
        knots[count] = (point){cosine * slanted - sine * bent_y, sine * slanted + cosine * bent_y};
    } while (glyph->knots[count++][2] != END);
    return count;
}

// Joins the knots by cubic Hermite curves. At a smooth knot, the direction is from the knot before
// to the one after (Catmull and Rom 1974). At any other knot it is that of the chord.
static void trace(const struct glyph *glyph, const point *knots, int count, struct path *path) {
    path->count = 0;
    for (int k = 1; k < count; ++k) {
        const point start = knots[k - 1], end = knots[k];
        const bool first = k == 1 || glyph->knots[k - 2][2] == LIFT;
        point leave = end - start, arrive = leave, pen = start;
        if (glyph->knots[k - 1][2] == LIFT)
            continue;
        if (glyph->knots[k - 1][2] == SMOOTH && !first)
            leave = (end - knots[k - 2]) / 2;
        if (glyph->knots[k][2] == SMOOTH)
            arrive = (knots[k + 1] - start) / 2;
        for (int step = 1; step <= STEPS; ++step) {
            const double t = (double)step / STEPS, u = 1 - t;
            const point to = u * u * (1 + 2 * t) * start + t * t * (1 + 2 * u) * end +
                             u * u * t * leave - t * t * u * arrive;
            path->segments[path->count++] = (struct segment){pen, to};
            pen = to;
        }
    }
}

// Scales the path until its longer side is `size` pixels, and moves its centre of mass to `centre`.
static void fit(struct path *path, double size, point centre) {
    point low = path->segments[0].from, high = low, mass = {0, 0};
    double length = 0;
    for (int i = 0; i < path->count; ++i) {
        const struct segment s = path->segments[i];
        for (int axis = 0; axis < 2; ++axis) {
            low[axis] = min(low[axis], min(s.from[axis], s.to[axis]));
            high[axis] = max(high[axis], max(s.from[axis], s.to[axis]));
        }
        const point square = (s.to - s.from) * (s.to - s.from);
        const double piece = sqrt(square[0] + square[1]);
        mass += piece / 2 * (s.from + s.to);
        length += piece;
    }
    const double scale = size / max(high[0] - low[0], high[1] - low[1]);
    for (int i = 0; i < path->count; ++i) {
        path->segments[i].from = (path->segments[i].from - mass / length) * scale + centre;
        path->segments[i].to = (path->segments[i].to - mass / length) * scale + centre;
    }
}

static double squared_distance(point p, struct segment s) {
    const point along = s.to - s.from, square = along * along, dot = (p - s.from) * along;
    const double length = square[0] + square[1];
    const double t = length > 0 ? min(max((dot[0] + dot[1]) / length, 0), 1) : 0;
    const point away = s.from + t * along - p, distance = away * away;
    return distance[0] + distance[1];
}

// Inks each pixel: 255 under the pen, whose tip has this radius, and less across its blurred edge.
static void ink(struct pcg32 *generator, const struct path *path, double radius, uint8_t *image) {
    const double blur = uniform(generator, 0.9, 1.7), reach = radius + blur;
    double nearest[PIXELS];
    for (int i = 0; i < PIXELS; ++i)
        nearest[i] = reach * reach;
    for (int i = 0; i < path->count; ++i) {
        const struct segment s = path->segments[i];
        const int left = (int)max(min(s.from[0], s.to[0]) - reach, 0);
        const int right = (int)min(max(s.from[0], s.to[0]) + reach, SIDE - 1);
        const int top = (int)max(min(s.from[1], s.to[1]) - reach, 0);
        const int bottom = (int)min(max(s.from[1], s.to[1]) + reach, SIDE - 1);
        for (int y = top; y <= bottom; ++y) {
            for (int x = left; x <= right; ++x) {
                double *distance = &nearest[y * SIDE + x];
                *distance = min(*distance, squared_distance((point){x + 0.5, y + 0.5}, s));
            }
        }
    }
    for (int i = 0; i < PIXELS; ++i) {
        double level = 0;
        if (nearest[i] < reach * reach) {
            const double distance = sqrt(nearest[i]) + normal(generator, 0.12);
            level = min(max((radius - distance) / blur + 0.5, 0), 1);
        }
        image[i] = (uint8_t)(level * 255 + 0.5);
    }
}

// Draws one digit into 28 × 28 pixels. Returns its label.
static uint8_t draw_digit(struct pcg32 *generator, uint8_t *image) {
    point knots[MAX_KNOTS];
    struct path path;
    const struct glyph *glyph = choose_glyph(generator);
    const int count = place_knots(generator, glyph, knots);
    trace(glyph, knots, count, &path);
    const double radius = uniform(generator, 0.8, 1.85);
    const double size = uniform(generator, 0.88, 1) * BOX;
    const double dx = normal(generator, 0.5), dy = normal(generator, 0.5);
    fit(&path, size - 2 * radius, (point){CENTRE + dx, CENTRE + dy});
    ink(generator, &path, radius, image);
    return glyph->digit;
}

// Prints one line and exits.
static void fail(int status, const char *about, const char *message) {
    fprintf(stderr, "synthesize: %s: %s\n", about, message);
    exit(status);
}

static void big_endian(uint8_t *bytes, uint32_t value) {
    for (int i = 0; i < 4; ++i)
        bytes[i] = (uint8_t)(value >> (24 - 8 * i));
}

// Draws a set as two IDX files in memory (http://yann.lecun.com/exdb/mnist). Each set has its own
// stream, so that the test set does not depend on the size of the training set.
static void draw_set(uint64_t seed, uint64_t stream, int samples, struct file *images,
                     struct file *labels) {
    images->size = 16 + (size_t)samples * PIXELS;
    labels->size = 8 + (size_t)samples;
    images->bytes = malloc(images->size);
    labels->bytes = malloc(labels->size);
    if (!images->bytes || !labels->bytes)
        fail(EXIT_FAILURE, images->name, strerror(errno));
    big_endian(images->bytes, 0x803);
    big_endian(images->bytes + 4, (uint32_t)samples);
    big_endian(images->bytes + 8, SIDE);
    big_endian(images->bytes + 12, SIDE);
    big_endian(labels->bytes, 0x801);
    big_endian(labels->bytes + 4, (uint32_t)samples);
    struct pcg32 generator = pcg32_seed(seed, stream);
    for (int s = 0; s < samples; ++s)
        labels->bytes[8 + s] = draw_digit(&generator, images->bytes + 16 + (size_t)s * PIXELS);
}

// Writes DIR/name, or exits. The file is whole before it gets its name.
static void write_file(const char *directory, const struct file *file) {
    char path[PATH_MAX], partial[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", directory, file->name);
    snprintf(partial, sizeof partial, "%s/.%s.%ld", directory, file->name, (long)getpid());
    struct stat before;
    if (stat(path, &before) == 0 && !S_ISREG(before.st_mode))
        fail(EXIT_BAD_INPUT, path, "is not a regular file; expected a new file, or one to replace");
    FILE *stream = fopen(partial, "wb");
    bool written = stream && fwrite(file->bytes, 1, file->size, stream) == file->size;
    if (stream && fclose(stream) != 0)
        written = false;
    if (!written || rename(partial, path) != 0) {
        const char *reason = strerror(errno);
        unlink(partial);
        fail(EXIT_FAILURE, path, reason);
    }
}

static bool exists(const char *directory, const char *name, const char *suffix) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s%s", directory, name, suffix);
    return access(path, F_OK) == 0;
}

static unsigned long long parse_number(const char *option, const char *text, unsigned long long low,
                                       unsigned long long high) {
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end || errno || strchr(text, '-') || value < low || value > high) {
        fprintf(stderr, "synthesize: --%s: found '%s', expected a whole number from %llu to %llu\n",
                option, text, low, high);
        exit(EXIT_BAD_INPUT);
    }
    return value;
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    struct options *options = state->input;
    switch (key) {
    case SEED:
        options->seed = parse_number("seed", arg, 0, UINT64_MAX);
        return 0;
    case TRAIN:
        options->train_samples = (int)parse_number("train", arg, 1, MAX_SAMPLES);
        return 0;
    case TEST:
        options->test_samples = (int)parse_number("test", arg, 1, MAX_SAMPLES);
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0)
            fail(EXIT_BAD_INPUT, arg, "expected one directory at most");
        options->directory = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// Exits with one line if the directory holds the real MNIST: the drawn files would be found first,
// and the real ones would be called synthetic.
static void check_directory(const char *directory, const struct file *files, int count) {
    if (exists(directory, files[0].name, ""))
        return;
    for (int i = 1; i < count; ++i)
        if (exists(directory, files[i].name, "") || exists(directory, files[i].name, ".gz"))
            fail(EXIT_BAD_INPUT, directory, "holds another data set, expected a new directory");
}

// The folder beside this program, wherever the repository lies now.
static const char *default_directory(void) {
    static char program[PATH_MAX], directory[PATH_MAX + sizeof "/synthetic"];
    const bool found = realpath("/proc/self/exe", program);
    snprintf(directory, sizeof directory, "%s/synthetic", found ? dirname(program) : ".");
    return directory;
}

int main(int argc, char **argv) {
    const struct argp_option known[] = {
        {"seed", SEED, "N", 0, "seed of every random choice (1)", 0},
        {"train", TRAIN, "N", 0, "training images (60000)", 0},
        {"test", TEST, "N", 0, "test images (10000)", 0},
        {0},
    };
    const struct argp argp = {
        .options = known,
        .parser = parse_option,
        .args_doc = "[DIR]",
        .doc = "Draws a stand-in for MNIST into DIR (synthetic, beside this program).",
    };
    struct options options = {default_directory(), 1, 60000, 10000};
    argp_err_exit_status = EXIT_BAD_INPUT;
    argp_parse(&argp, argc, argv, 0, NULL, &options);

    struct file files[] = {
        {.name = "SYNTHETIC"}, // its presence tells the loader not to call the others MNIST
        {.name = "train-images-idx3-ubyte"},
        {.name = "train-labels-idx1-ubyte"},
        {.name = "t10k-images-idx3-ubyte"},
        {.name = "t10k-labels-idx1-ubyte"},
    };
    const int count = sizeof files / sizeof *files;
    if (mkdir(options.directory, 0777) != 0 && errno != EEXIST)
        fail(EXIT_FAILURE, options.directory, strerror(errno));
    check_directory(options.directory, files, count);

    char about[200];
    int size = snprintf(
        about, sizeof about, "Drawn by synthesize --seed %llu --train %d --test %d: not MNIST.\n",
        (unsigned long long)options.seed, options.train_samples, options.test_samples);
    files[0].size = (size_t)size;
    files[0].bytes = (uint8_t *)about;
    draw_set(options.seed, 1, options.train_samples, &files[1], &files[2]);
    draw_set(options.seed, 2, options.test_samples, &files[3], &files[4]);

    // An interruption waits until the set is whole. Otherwise it could leave a temporary file, or
    // the images of one seed beside the labels of another.
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (int i = 0; i < count; ++i)
        write_file(options.directory, &files[i]);
    for (int i = 1; i < count; ++i)
        free(files[i].bytes);
    return EXIT_SUCCESS;
}
