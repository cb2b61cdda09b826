// Right and wrong programs of what compute capability 9.0 adds: hopper NAME.
#include "tests/simulator/programs/programs.h"

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

int main(int argc, char **argv) {
    programs["early"] = [](float *x) { launch_with(x, TRIGGER_EARLY); };
    programs["early_load"] = [](float *x) { launch_with(x, LOAD_EARLY); };
    programs["early_store"] = [](float *x) { launch_with(x, STORE_EARLY); };
    programs["early_without_barrier"] = [](float *x) { launch_with(x, FORGET_BARRIER); };
    programs["early_without_wait"] = [](float *x) { launch_with(x, FORGET_WAIT); };
    programs["early_without_need_to_wait"] = [](float *x) { launch_with(x, NEED_NO_WAIT); };
    // The fourth launch may begin before the second has ended, as the third lets it too early.
    programs["early_trigger"] = [](float *x) { launch_with(x, TRIGGER_EARLY, LOAD_OLD); };
    return run_program(argc, argv);
}
