// Right and wrong programs of what compute capability 9.0 adds: hopper NAME.
#include "tests/simulator/programs/programs.h"

#include <cooperative_groups.h>

// ---- Launches that may begin before the one in front of them has ended.

// What a kernel does, right or wrong.
enum deed {
    WAIT,
    LOAD_EARLY,
    STORE_EARLY,
    FORGET_BARRIER,
    FORGET_WAIT,
    NEED_NO_WAIT,
    TRIGGER_EARLY,
    LOAD_OLD
};

// Stores a sum of what the launch in front has stored, and of a table that no kernel changes. The
// first thread waits for all of its block.
__global__ void add_table(float *to, const float *from, const float *table, deed deed) {
    const int i = threadIdx.x;
    float sum = table[i];
    if (deed == LOAD_EARLY)
        sum += from[i]; // too early
    if (deed == STORE_EARLY)
        to[i] = 0; // the launch in front may be reading it
    if (deed == LOAD_OLD)
        sum += to[i]; // of the launch before that in front
    if (deed == TRIGGER_EARLY)
        cudaTriggerProgrammaticLaunchCompletion();
    if (i == 0 && deed != FORGET_WAIT && deed != NEED_NO_WAIT)
        cudaGridDependencySynchronize();
    if (deed != FORGET_BARRIER)
        __syncthreads();
    cudaTriggerProgrammaticLaunchCompletion();
    if (deed == NEED_NO_WAIT)
        return;
    to[i] = sum + from[N - 1 - i]; // only the first thread has waited, or none
}

static cudaError_t launch_early(cudaStream_t stream, float *to, const float *from,
                                const float *table, deed deed) {
    cudaLaunchAttribute attributes[1] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = 1;
    config.blockDim = N;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, add_table, to, from, table, deed);
}

// Four launches. They store to two arrays in turn.
static void add_four_times(cudaStream_t stream, float *x, float *y, const float *table, deed third,
                           deed fourth) {
    const deed deeds[] = {WAIT, WAIT, third, fourth};
    for (int i = 0; i < 4; ++i)
        if (launch_early(stream, i % 2 ? x : y, i % 2 ? y : x, table, deeds[i]))
            exit(3);
}

static void launch_with(float *x, deed third, deed fourth = WAIT) {
    float *const y = device_memory(), *const table = device_memory();
    fill<<<1, N>>>(table, N, 1);
    copy<<<1, N>>>(y, table, 0, N); // table is not of the launch in front of the others
    add_four_times(0, x, y, table, third, fourth);
    print(x);
    cudaFree(y);
    cudaFree(table);
}

PROGRAM(early_in_graph) {
    float *const y = device_memory(), *const table = device_memory();
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    fill<<<1, N>>>(table, N, 1);
    cudaDeviceSynchronize();
    cudaStreamCreate(&stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    cudaMemsetAsync(x, 0, BYTES, stream); // is done before anything that follows
    launch_early(stream, y, x, table, LOAD_EARLY);
    add_four_times(stream, x, y, table, WAIT, LOAD_OLD);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    for (int i = 0; i < 2; ++i)
        cudaGraphLaunch(exec, stream);
    cudaStreamSynchronize(stream);
    print(x);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    cudaFree(y);
    cudaFree(table);
}

PROGRAM(early_on_this_device) {
    float *const y = device_memory();
    int major, minor, shared_bytes;
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, 0);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
    const bool same = properties.major == major && properties.minor == minor &&
                      properties.sharedMemPerBlockOptin == (size_t)shared_bytes;
    printf("%d.%d, %d KiB, %s, %s\n", major, minor, shared_bytes / 1024, same ? "same" : "other",
           cudaGetErrorName(launch_early(0, x, y, y, WAIT)));
    cudaGetLastError();
    cudaFree(y);
}

// ---- Clusters.

enum { THREADS = 32 }; // of a block

// How to launch blocks of so many threads in clusters of this size.
struct in_clusters {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attributes[2] = {};

    in_clusters(unsigned blocks, unsigned size, bool cooperative = false) {
        attributes[0].id = cudaLaunchAttributeClusterDimension;
        attributes[0].val.clusterDim.x = size;
        attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
        attributes[1].id = cudaLaunchAttributeCooperative;
        attributes[1].val.cooperative = cooperative;
        config.gridDim = blocks;
        config.blockDim = THREADS;
        config.attrs = attributes;
        config.numAttrs = 2;
    }
};

// Each block stores a number to the shared memory of the next one of its cluster, three times. One
// of the four barriers may be missing, or none: 0. The last is that behind the last store.
__global__ void pass_on(float *x, int missing) {
    __shared__ float got[THREADS];
    const auto cluster = cooperative_groups::this_cluster();
    const int rank = cluster.block_rank(), n = cluster.num_blocks();
    float *const next = cluster.map_shared_rank(got, (rank + 1) % n);
    float sum = 0;
    got[threadIdx.x] = 0;
    if (missing != 1)
        cluster.sync();
    for (int round = 0; round < 3; ++round) {
        next[threadIdx.x] += (float)(rank + 1); // to the next block
        if (missing != 2)
            cluster.sync();
        sum = sum * 10 + got[threadIdx.x]; // from the one before
        if (missing != 3 && round < 2)
            cluster.sync();
    }
    if (missing == 4) {
        cluster.sync();
        if (rank == n - 1)
            next[threadIdx.x] = 0; // it may have returned
    }
    x[blockIdx.x * THREADS + threadIdx.x] = sum;
}

static void launch_pass_on(float *x, int missing) {
    in_clusters launch(8, 4);
    if (cudaLaunchKernelEx(&launch.config, pass_on, x, missing))
        exit(3);
    print(x);
}

// The first block of a cluster adds up what the others have in dynamic shared memory. They may have
// to wait for it.
__global__ void add_up(float *x, bool wait) {
    extern __shared__ float own[];
    const auto cluster = cooperative_groups::this_cluster();
    own[threadIdx.x] = (float)cluster.block_rank();
    cluster.sync();
    if (cluster.block_rank() == 0) {
        float sum = 0;
        for (unsigned rank = 0; rank < cluster.num_blocks(); ++rank)
            sum += cluster.map_shared_rank(own, rank)[threadIdx.x]; // of all blocks
        x[blockIdx.x * THREADS + threadIdx.x] = sum;
    }
    if (wait)
        cluster.sync();
}

static cudaError_t launch_add_up(float *x, unsigned size, bool wait, unsigned blocks = 0) {
    in_clusters launch(blocks ? blocks : size, size);
    launch.config.dynamicSmemBytes = THREADS * sizeof(float);
    return cudaLaunchKernelEx(&launch.config, add_up, x, wait);
}

// The first block gives the others an address of its shared memory.
__global__ void hand_out(float *x, float **address) {
    __shared__ float own;
    if (threadIdx.x == 0)
        own = 1;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *address = &own;
    cooperative_groups::this_grid().sync();
    if (threadIdx.x == 0)
        x[blockIdx.x] = **address; // of the first block
    cooperative_groups::this_grid().sync();
}

static void launch_hand_out(float *x, unsigned size) {
    in_clusters launch(4, size, true);
    if (cudaLaunchKernelEx(&launch.config, hand_out, x, (float **)(x + N / 2)))
        exit(3);
    cudaMemset(x + N / 2, 0, BYTES / 2);
    print(x);
}

__global__ void wait_in_some_blocks(unsigned n) {
    const auto cluster = cooperative_groups::this_cluster();
    if (cluster.block_rank() < n)
        cluster.sync(); // of some
}

__global__ void map_rank(float *x, int rank, bool twice) {
    __shared__ float own;
    const auto cluster = cooperative_groups::this_cluster();
    float *address = cluster.map_shared_rank(&own, rank);
    if (twice)
        address = cluster.map_shared_rank(address, 0);
    cluster.sync();
    x[0] = *address;
}

__global__ void __cluster_dims__(4, 1, 1) count_blocks(float *x) {
    x[blockIdx.x] = (float)cooperative_groups::this_cluster().num_blocks();
}

// Prints how many clusters of 4, 8 and 16 blocks fit at once where a block takes so much shared
// memory, and what becomes of launches.
PROGRAM(sizes_of_clusters) {
    const auto fit = [](unsigned size, size_t bytes) {
        int clusters = -1;
        in_clusters launch(size, size);
        launch.config.dynamicSmemBytes = bytes;
        cudaOccupancyMaxActiveClusters(&clusters, add_up, &launch.config);
        return clusters;
    };
    const auto name = [](cudaError_t error) {
        cudaGetLastError();
        return cudaGetErrorName(error);
    };
    const int most = 227 << 10;
    cudaFuncSetAttribute(add_up, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
    printf("%d %d %s\n", fit(4, most), fit(8, most / 2 - 512), name(launch_add_up(x, 16, true)));
    cudaFuncSetAttribute(add_up, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    printf("%d %s ", fit(16, most), name(launch_add_up(x, 16, true)));
    printf("%s %s\n", name(launch_add_up(x, 4, true, 6)), name(launch_add_up(x, 17, true)));
    cudaDeviceSynchronize();
}

int main(int argc, char **argv) {
    programs["early"] = [](float *x) { launch_with(x, TRIGGER_EARLY); };
    programs["early_load"] = [](float *x) { launch_with(x, LOAD_EARLY); };
    programs["early_store"] = [](float *x) { launch_with(x, STORE_EARLY); };
    programs["early_without_barrier"] = [](float *x) { launch_with(x, FORGET_BARRIER); };
    programs["early_without_wait"] = [](float *x) { launch_with(x, FORGET_WAIT); };
    programs["early_without_need_to_wait"] = [](float *x) { launch_with(x, NEED_NO_WAIT); };
    // The fourth launch may begin before the second has ended, as the third lets it too early.
    programs["early_trigger"] = [](float *x) { launch_with(x, TRIGGER_EARLY, LOAD_OLD); };
    programs["cluster"] = [](float *x) { launch_pass_on(x, 0); };
    programs["cluster_may_not_have_begun"] = [](float *x) { launch_pass_on(x, 1); };
    programs["cluster_barrier_missing"] = [](float *x) { launch_pass_on(x, 2); };
    programs["cluster_second_barrier_missing"] = [](float *x) { launch_pass_on(x, 3); };
    programs["cluster_has_returned"] = [](float *x) { launch_pass_on(x, 4); };
    programs["cluster_waits_to_return"] = [](float *x) {
        launch_add_up(x, 4, true);
        print(x);
    };
    programs["cluster_returns"] = [](float *x) {
        launch_add_up(x, 4, false);
        print(x);
    };
    programs["address_in_cluster"] = [](float *x) { launch_hand_out(x, 4); };
    programs["address_of_other_cluster"] = [](float *x) { launch_hand_out(x, 2); };
    programs["cluster_barrier_not_reached_by_all"] = [](float *) {
        in_clusters launch(4, 4);
        cudaLaunchKernelEx(&launch.config, wait_in_some_blocks, 3);
    };
    programs["rank_beyond_cluster"] = [](float *x) {
        in_clusters launch(4, 4);
        cudaLaunchKernelEx(&launch.config, map_rank, x, 4, false);
    };
    programs["address_mapped_twice"] = [](float *x) {
        in_clusters launch(4, 4);
        cudaLaunchKernelEx(&launch.config, map_rank, x, 1, true);
    };
    programs["declared_cluster"] = [](float *x) {
        count_blocks<<<8, 1>>>(x);
        print(x);
    };
    return run_program(argc, argv);
}
