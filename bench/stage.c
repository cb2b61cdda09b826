// Includes a stage's own source with its main renamed, and calls it. Only create, destroy and train
// are called: their parameters are the same in all stages. Those of forward and backward are not.
#define main stage_main
#include "train.c"
#undef main

#include "bench/stage.h"

const char stage_name[] = STAGE;

struct network *stage_create(const struct options *options) {
    // Aligned, because a network may hold vectors.
    const size_t floats = (sizeof(struct network) + sizeof(float) - 1) / sizeof(float);
    struct network *network = (struct network *)allocate_floats(floats);
    *network = create(options);
    return network;
}

void stage_destroy(struct network *network) {
    destroy(network);
    free(network);
}

void stage_train(struct network *network, const struct dataset *dataset,
                 const struct options *options, struct result *result) {
    train(network, dataset, options, result);
}
