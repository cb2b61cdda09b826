// What the CUDA stages share beside training.h: the device, and the times of the phases.
#ifndef STUDIES_MLP_TRAINING_CUDA_H
#define STUDIES_MLP_TRAINING_CUDA_H

#include "common/cuda.h"
#include "studies/mlp/training.h"

// Creates the events of an epoch: for two phases in each batch, and one before the first.
static inline struct phase_events create_events(const struct options *options) {
    const size_t batches = ((size_t)options->train_samples - 1) / (size_t)options->batch + 1;
    return create_events(1 + 2 * batches);
}

// Adds the times between the marks of an epoch to the timers of the two phases, as if all epochs of
// the run had taken them, and destroys the events.
static inline void collect_events(struct phase_events *events, const struct options *options,
                                  struct result *result) {
    collect_events(events, {&result->forward, &result->backward}, options->epochs);
}

#endif
