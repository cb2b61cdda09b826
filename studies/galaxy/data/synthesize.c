// Usage: synthesize [DIR]
// Draws train.csv and test.csv into DIR (synthetic, beside this program), for machines without the
// galaxies.
//
// A galaxy is light on a bright sky, dark as in the real images. An elliptical one is a smooth
// ellipse. A spiral one has two arms, more or less visible, in a flat disc. An irregular one is an
// ellipse and lumps beside it. All have neighbours now and then, and noise.
//
// All machines must draw the same bytes. So the arithmetic is only + - * / and sqrt, which IEEE 754
// rounds exactly, and nothing is fused (-ffp-contract=off in the Makefile).
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIDE = 32, CLASSES = 3, TRAIN = 2700, TEST = 675 };
enum kind { ELLIPTICAL, SPIRAL, IRREGULAR };

// PCG32, XSH-RR 64/32: O'Neill 2014.
static uint32_t draw_bits(uint64_t *state) {
    const uint64_t old = *state;
    *state = old * 6364136223846793005u + 1442695040888963407u;
    const uint32_t bits = (uint32_t)((old ^ old >> 18) >> 27);
    const unsigned turn = (unsigned)(old >> 59);
    return bits >> turn | bits << (-turn & 31);
}

static double draw(uint64_t *state, double low, double high) {
    return low + (high - low) * draw_bits(state) / 0x1p32;
}

// A random direction.
struct direction {
    double x, y;
};

static struct direction draw_direction(uint64_t *state) {
    for (;;) {
        const double x = draw(state, -1, 1), y = draw(state, -1, 1);
        const double length = sqrt(x * x + y * y);
        if (length > 0.1 && length <= 1)
            return (struct direction){x / length, y / length};
    }
}

// Light around a centre: its peak, its size, how round it is, and where its long axis points.
struct blob {
    double x, y, peak, size, ratio;
    struct direction axis;
    double arms, winding; // how visible the arms are, and the radius of their first quarter turn
};

static struct blob draw_blob(uint64_t *state, double distance, double peak, double size) {
    const struct direction away = draw_direction(state);
    struct blob blob = {SIDE / 2.0 + away.x * distance,
                        SIDE / 2.0 + away.y * distance,
                        peak,
                        size,
                        1,
                        draw_direction(state),
                        0,
                        1};
    blob.ratio = draw(state, 0.45, 1);
    return blob;
}

// The light of a blob at a point. It falls as a star's does in a telescope: Moffat 1969.
static double light(const struct blob *blob, double x, double y) {
    x -= blob->x;
    y -= blob->y;
    const double along = x * blob->axis.x + y * blob->axis.y;
    const double across = (y * blob->axis.x - x * blob->axis.y) / blob->ratio;
    const double square = along * along + across * across;
    const double q = square / (blob->size * blob->size);
    double value = blob->peak / (1 + q) / sqrt(1 + q);
    if (blob->arms > 0) {
        // The cosine of twice the angle, turned by 4·arctan(radius / winding).
        const double u = sqrt(square) / blob->winding, scale = 1 + u * u;
        const double c = (1 - u * u) / scale, s = 2 * u / scale;
        const double cosine = (along * along - across * across) / (square + 0.01);
        const double sine = 2 * along * across / (square + 0.01);
        const double wave = cosine * (c * c - s * s) + sine * 2 * c * s;
        value = blob->peak / (1 + q * q) * (1 + blob->arms * wave * u * u / scale);
    }
    return value;
}

static void draw_galaxy(uint64_t *state, enum kind kind, uint8_t pixels[SIDE * SIDE]) {
    struct blob blobs[8];
    int count = 0;
    const double peak = draw(state, 0.45, 0.8), size = draw(state, 3, 9);
    blobs[count++] = draw_blob(state, draw(state, 0, 1), peak, size);
    if (kind == SPIRAL) {
        blobs[0].peak *= draw(state, 0.35, 0.7);
        blobs[0].size = draw(state, 9, 14);
        blobs[0].arms = draw(state, 0.2, 0.9);
        blobs[0].winding = draw(state, 3, 8) * (draw_bits(state) % 2 ? 1 : -1);
        blobs[count++] = draw_blob(state, 0, peak * draw(state, 0.3, 0.7), draw(state, 2, 4));
    } else if (kind == IRREGULAR) {
        for (unsigned lumps = 1 + draw_bits(state) % 3; lumps > 0; --lumps)
            blobs[count++] = draw_blob(state, draw(state, 3, 12), peak * draw(state, 0.2, 0.9),
                                       draw(state, 1.5, 5));
    }
    if (draw_bits(state) % 5 == 0) // a neighbour
        blobs[count++] =
            draw_blob(state, draw(state, 10, 18), draw(state, 0.1, 0.7), draw(state, 0.8, 2));

    const double sky = draw(state, 0.93, 0.99), noise = draw(state, 0.005, 0.03);
    for (int i = 0; i < SIDE * SIDE; ++i) {
        const int row = i / SIDE, column = i % SIDE;
        double value = sky;
        for (int b = 0; b < count; ++b)
            value -= light(&blobs[b], column + 0.5, row + 0.5);
        for (int term = 0; term < 4; ++term)
            value += draw(state, -noise, noise);
        value = value < 0.05 ? 0.05 : value > 1 ? 1 : value;
        pixels[i] = (uint8_t)(value * 255 + 0.5);
    }
}

static void fail(const char *path) {
    fprintf(stderr, "synthesize: %s: %s\n", path, strerror(errno));
    exit(1);
}

// Writes a file: as many galaxies of each kind, one kind after another, as in the real files. A
// file gets its name when it is complete.
static void write_file(const char *directory, const char *name, uint64_t seed, int samples) {
    char path[PATH_MAX], partial[PATH_MAX + 16];
    uint64_t state = seed;
    uint8_t pixels[SIDE * SIDE];
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        fail(directory);
    }
    struct stat before;
    if (stat(path, &before) == 0 && !S_ISREG(before.st_mode)) {
        errno = EEXIST;
        fail(path);
    }
    snprintf(partial, sizeof partial, "%s.partial", path);
    FILE *file = fopen(partial, "w");
    if (!file)
        fail(partial);
    draw_bits(&state);
    for (int s = 0; s < samples; ++s) {
        const enum kind kind = (enum kind)(s * CLASSES / samples);
        draw_galaxy(&state, kind, pixels);
        fprintf(file, "%d", kind);
        for (int i = 0; i < SIDE * SIDE; ++i)
            fprintf(file, ",%d", pixels[i]);
        fputc('\n', file);
    }
    const int failed = ferror(file);
    if (fclose(file) != 0 || failed || rename(partial, path) != 0) {
        const int error = errno;
        unlink(partial);
        errno = error;
        fail(path);
    }
}

int main(int argc, char **argv) {
    char folder[PATH_MAX + 16];
    const char *directory = argv[argc - 1];
    if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
        fprintf(stderr, "synthesize: found '%s', expected a directory at most\n", argv[argc - 1]);
        return 2;
    }
    if (argc == 1) {
        snprintf(folder, sizeof folder, "%s/synthetic", dirname(argv[0]));
        directory = folder;
    }
    signal(SIGXFSZ, SIG_IGN); // a file above ulimit -f is an error, like a full disk
    if (mkdir(directory, 0777) != 0 && errno != EEXIST)
        fail(directory);
    // Its presence tells the loader that the others are drawn.
    write_file(directory, "SYNTHETIC", 0, 0);
    write_file(directory, "test.csv", 2, TEST);
    write_file(directory, "train.csv", 1, TRAIN);
    return 0;
}
