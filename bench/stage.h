// The functions that every train.c has, under names that can be called from outside.
#ifndef BENCH_STAGE_H
#define BENCH_STAGE_H

#include "stages/training.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const char stage_name[];

struct network;
struct network *stage_create(const struct options *options);
void stage_destroy(struct network *network);

// Trains for --epochs on the data set. Leaves the phases' timers and the loss in `result`.
void stage_train(struct network *network, const struct dataset *dataset,
                 const struct options *options, struct result *result);

#ifdef __cplusplus
}
#endif

#endif
