// What the stages share that run as several processes: one command line, one set of data, and each
// error in one line. Processes are counted from 0.
#ifndef STAGES_TRAINING_MPI_H
#define STAGES_TRAINING_MPI_H

#include "stages/training.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int process_number(void) {
    int number;
    MPI_Comm_rank(MPI_COMM_WORLD, &number);
    return number;
}

static inline int process_count(void) {
    int count;
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    return count;
}

// What process 0 tells the others when it has read the command line.
struct command {
    bool told, is_right;
    int status; // the exit status, unless the command line is right
    struct options options;
    char data[PATH_MAX]; // a pointer in the options means nothing to another process
};

// Tells the others, once. It is also called when process 0 ends within parse_options(), after a
// wrong option or --help. Then the others end, too.
static inline void tell_command(int status, void *argument) {
    struct command *command = argument;
    if (command->told)
        return;
    command->told = true;
    command->status = status;
    MPI_Bcast(command, sizeof *command, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (!command->is_right)
        MPI_Finalize();
}

// parse_options() in process 0 alone. So a wrong option is reported once, and the files for the
// results have to be there on one machine only. In the other processes csv is NULL, quiet is set,
// and save_weights only says whether it was given.
static inline struct options parse_options_once(int argc, char **argv, const char *about,
                                                int max_threads) {
    static struct command command; // static, because exit() still reads it
    if (process_number() == 0) {
        on_exit(tell_command, &command);
        command.options = parse_options(argc, argv, about, max_threads);
        snprintf(command.data, sizeof command.data, "%s", command.options.data);
        command.is_right = true;
        tell_command(0, &command);
        return command.options;
    }
    MPI_Bcast(&command, sizeof command, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (!command.is_right) {
        MPI_Finalize();
        exit(command.status);
    }
    command.options.data = command.data;
    command.options.csv = NULL;
    command.options.save_weights = command.options.save_weights ? "" : NULL;
    command.options.quiet = true;
    return command.options;
}

// Adds the bits of the images and the labels to a checksum (FNV-1a, by numbers of 32 bits).
static inline uint64_t add_to_checksum(uint64_t sum, const struct dataset *dataset) {
    const size_t samples = (size_t)dataset->samples;
    for (size_t i = 0; i < samples * PIXELS; ++i) {
        uint32_t bits;
        memcpy(&bits, &dataset->images[i], sizeof bits);
        sum = (sum ^ bits) * 0x100000001b3;
    }
    for (size_t s = 0; s < samples; ++s)
        sum = (sum ^ dataset->labels[s]) * 0x100000001b3;
    return sum;
}

// Loads the data in every process, each from the files of its own machine. All must have the same.
// Returns the exit status, which is that of the first process that failed. It alone says why.
static inline int load_same_data(const struct options *options, struct data *data) {
    const int number = process_number(), count = process_count();
    char *line = NULL;
    size_t length = 0;
    FILE *const errors = stderr, *const kept = open_memstream(&line, &length);
    stderr = kept ? kept : errors;
    int status = load_data(options, data);
    uint64_t checksum = status ? 0 : 0xcbf29ce484222325;
    if (!status)
        checksum = add_to_checksum(add_to_checksum(checksum, &data->train), &data->test);
    uint64_t first = checksum;
    MPI_Bcast(&first, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (!status && checksum != first) {
        fprintf(stderr,
                "--data: found other images or labels in %s than process 0 has; expected "
                "the same files on all machines\n",
                options->data);
        free_data(data);
        status = EXIT_BAD_INPUT;
    }
    stderr = errors;
    if (kept)
        fclose(kept);

    int failed = status ? number : count;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (failed < count) {
        if (number == failed && number == 0)
            fprintf(stderr, "%s", line ? line : "");
        else if (number == failed) {
            char machine[MPI_MAX_PROCESSOR_NAME];
            MPI_Get_processor_name(machine, &(int){0});
            fprintf(stderr, "process %d on %s: %s", number, machine, line ? line : "");
        }
        if (!status)
            free_data(data);
        MPI_Bcast(&status, 1, MPI_INT, failed, MPI_COMM_WORLD);
    }
    free(line);
    return status;
}

#endif
