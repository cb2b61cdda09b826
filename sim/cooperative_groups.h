// The part of CUDA's cooperative groups that the stages use: the barriers of a whole grid and of a
// cluster, and the shared memory of its blocks.
#ifndef SIM_COOPERATIVE_GROUPS_H
#define SIM_COOPERATIVE_GROUPS_H

#include "cuda_runtime.h"

namespace cooperative_groups {

struct grid_group {
    void sync(const char *file = __builtin_FILE(), int line = __builtin_LINE()) const {
        simulator::wait_for_grid(file, line);
    }
};
inline grid_group this_grid() {
    return {};
}

#if CAPABILITY >= 90
struct cluster_group {
    void sync(const char *file = __builtin_FILE(), int line = __builtin_LINE()) const {
        simulator::wait_for_cluster(file, line);
    }
    unsigned block_rank() const {
        return blockIdx.x % num_blocks();
    }
    unsigned num_blocks() const {
        return simulator::cluster_blocks();
    }
    template <class T> T *map_shared_rank(T *address, int rank) const {
        return (T *)simulator::shared_memory_of((unsigned)rank, (const void *)address);
    }
};
inline cluster_group this_cluster() {
    return {};
}
#endif

} // namespace cooperative_groups

#endif
