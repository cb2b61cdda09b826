// What the CUDA stages share beside that: the device, and the times of the phases.
#ifndef STUDIES_MLP_TRAINING_CUDA_H
#define STUDIES_MLP_TRAINING_CUDA_H

#include "common/cuda.h"
#include "studies/mlp/training.h"

// Creates events for two phases in each batch, and one before the first. If they would take
// gigabytes, prints one line and exits with EXIT_BAD_INPUT.
static inline struct phase_events create_events(const struct options *options) {
    const size_t max_batches = 20000000;
    size_t batches = ((size_t)options->train_samples - 1) / (size_t)options->batch + 1;
    if (batches * (size_t)options->epochs > max_batches) {
        fprintf(stderr,
                "--epochs: found %d, expected at most %zu with %zu batches an epoch: each batch's "
                "phases are timed\n",
                options->epochs, max_batches / batches, batches);
        exit(EXIT_BAD_INPUT);
    }
    return create_events(1 + 2 * batches * (size_t)options->epochs);
}

// Adds the times between the marks to the timers of the two phases, and destroys the events.
static inline void collect_events(struct phase_events *events, struct result *result) {
    collect_events(events, {&result->forward, &result->backward});
}

#endif
