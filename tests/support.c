#include "support.h"

#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct digits draw_digits(size_t count, uint64_t seed) {
    struct digits digits = {count, allocate(count, INPUTS), allocate(count, 1)};
    for (size_t s = 0; s < count; ++s) {
        struct generator generator = start_generator(seed, s);
        digits.labels[s] = (uint8_t)(draw_bits(&generator) % OUTPUTS);
        for (uint32_t k = 0; k < INPUTS; ++k) {
            // Six pixels of 31 are likely to be drawn. The label decides which.
            const bool likely = (7 * k + 3u * digits.labels[s]) % 31 < 6;
            const bool drawn = draw_bits(&generator) % 100 < (likely ? 60 : 10);
            digits.pixels[s * INPUTS + k] = drawn ? (uint8_t)draw_bits(&generator) : 0;
        }
    }
    return digits;
}

void free_digits(struct digits *digits) {
    free(digits->pixels);
    free(digits->labels);
}

double *images_of(const struct digits *digits) {
    double *images = allocate(digits->count * INPUTS, sizeof *images);
    for (size_t i = 0; i < digits->count * INPUTS; ++i)
        images[i] = (float)(digits->pixels[i] / 255.0);
    return images;
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

void add_word(struct command *command, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (command->count == WORDS ||
        vsnprintf(command->words[command->count++], WORD_SIZE, format, arguments) >= WORD_SIZE)
        errx(EXIT_FAILURE, "command too long at '%s'", format);
    va_end(arguments);
}

int run_command(const struct command *command, const char *error) {
    char limit[16];
    snprintf(limit, sizeof limit, "%d", command->limit ? command->limit : 600);
    char *arguments[WORDS + 4] = {"timeout", "--foreground", limit};
    for (int i = 0; i < command->count; ++i)
        arguments[i + 3] = (char *)command->words[i];
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, 2, error, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    pid_t child;
    int status;
    errno = posix_spawnp(&child, arguments[0], &files, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&files);
    if (errno != 0 || waitpid(child, &status, 0) < 0)
        err(EXIT_FAILURE, "%s", command->words[0]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
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

struct program probe_program(const char *path, const char *data, const char *directory, int limit) {
    struct program program = {.path = path};
    struct command command = {.limit = limit};
    char error[2 * WORD_SIZE];
    snprintf(error, sizeof error, "%s/error", directory);

    // 00_serial for ../stages/00_serial/train, asan/00_serial for build/asan/00_serial.
    const char *start = strstr(path, "stages/") ? strstr(path, "stages/") + 7 : path;
    start += strncmp(start, "build/", 6) == 0 ? 6 : 0;
    snprintf(program.name, sizeof program.name, "%s", start);
    char *end = strstr(program.name, "/train");
    if (end)
        *end = '\0';

    if (access(path, X_OK) != 0) {
        snprintf(program.unavailable, sizeof program.unavailable, "not built on this machine");
        return program;
    }
    add_word(&command, "%s", path);
    add_word(&command, "--data=%s", data);
    add_word(&command, "--epochs=0");
    add_word(&command, "--train=8");
    add_word(&command, "--test=8");
    const int status = run_command(&command, error);
    if (status == 77)
        first_line(error, program.unavailable, sizeof program.unavailable);
    if (status == 77 || status == TOO_SLOW)
        return program;
    add_word(&command, "--threads=2");
    program.threads = run_command(&command, error) != 2;
    return program;
}

void append_test(struct CMUnitTest *tests, size_t capacity, CMUnitTestFunction function,
                 void *state, const char *format, ...) {
    va_list arguments;
    size_t count = 0;
    while (count < capacity && tests[count].name)
        ++count;
    va_start(arguments, format);
    if (count == capacity || vasprintf((char **)&tests[count].name, format, arguments) < 0)
        errx(EXIT_FAILURE, "more than %zu tests", capacity);
    va_end(arguments);
    tests[count].test_func = function;
    tests[count].initial_state = state;
}

void skip_test(void **state) {
    (void)state;
    skip();
}

void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory)
        err(EXIT_FAILURE, "%zu x %zu bytes", count, size);
    return memory;
}
