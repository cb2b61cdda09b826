#include "support.h"

#include <dirent.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// SplitMix64: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014.
uint32_t draw_bits(struct generator *generator) {
    uint64_t bits = generator->state += 0x9e3779b97f4a7c15;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
    return (uint32_t)(bits >> 32);
}

struct generator start_generator(uint64_t seed, uint64_t stream) {
    return (struct generator){seed << 32 | stream};
}

struct digits draw_digits(size_t count, uint64_t seed) {
    struct digits digits = {count, allocate(count, INPUTS), allocate(count, 1)};
    struct generator generator = start_generator(seed, 0);
    for (size_t i = 0; i < count * INPUTS; ++i)
        digits.pixels[i] = (uint8_t)draw_bits(&generator);
    for (size_t s = 0; s < count; ++s)
        digits.labels[s] = (uint8_t)(draw_bits(&generator) % 10);
    return digits;
}

void free_digits(struct digits *digits) {
    free(digits->pixels);
    free(digits->labels);
}

void create_directory(char path[WORD_SIZE]) {
    const char *parent = getenv("TMPDIR");
    snprintf(path, WORD_SIZE, "%s/stages.XXXXXX", parent ? parent : "/tmp");
    if (!mkdtemp(path))
        err(EXIT_FAILURE, "%s", path);
}

void remove_directory(const char *path) {
    char name[2 * WORD_SIZE];
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        unlink(name); // refuses . and ..
    }
    if (directory)
        closedir(directory);
    rmdir(path);
}

static void write_file(const char *directory, const char *name, const void *head, size_t head_size,
                       const void *body, size_t body_size) {
    char path[2 * WORD_SIZE];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(head, 1, head_size, file) != head_size ||
        fwrite(body, 1, body_size, file) != body_size || fclose(file) != 0)
        err(EXIT_FAILURE, "%s", path);
}

void write_idx(const char *directory, const char *set, const struct digits *digits) {
    char name[64];
    const uint8_t high = (uint8_t)(digits->count >> 8), low = (uint8_t)digits->count;
    const uint8_t images[] = {0, 0, 8, 3, 0, 0, high, low, 0, 0, 0, 28, 0, 0, 0, 28};
    const uint8_t labels[] = {0, 0, 8, 1, 0, 0, high, low};
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", set);
    write_file(directory, name, images, sizeof images, digits->pixels, digits->count * INPUTS);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", set);
    write_file(directory, name, labels, sizeof labels, digits->labels, digits->count);
}

void first_line(const char *path, char *line, size_t size) {
    *line = '\0';
    FILE *file = fopen(path, "r");
    if (!file)
        return;
    if (!fgets(line, (int)size, file))
        *line = '\0';
    line[strcspn(line, "\n")] = '\0';
    fclose(file);
}

void *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    void *bytes = malloc(*size + 1);
    if (!bytes || fread(bytes, 1, *size, file) != *size)
        err(EXIT_FAILURE, "%s", path);
    fclose(file);
    return bytes;
}

void csv_value(const char *path, const char *column, char *value, size_t size) {
    char header[1024] = "", row[1024] = "", *names = header, *values = row, *name;
    first_line(path, header, sizeof header);
    FILE *file = fopen(path, "r");
    while (file && fgets(row, sizeof row, file))
        ;
    if (file)
        fclose(file);
    row[strcspn(row, "\n")] = '\0';
    *value = '\0';
    while ((name = strsep(&names, ","))) {
        const char *found = strsep(&values, ",");
        if (found && strcmp(name, column) == 0)
            snprintf(value, size, "%s", found);
    }
}

void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory)
        err(EXIT_FAILURE, "%zu x %zu bytes", count, size);
    return memory;
}
