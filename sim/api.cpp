// The functions that the host calls. Everything runs in the order in which it was submitted, and is
// done when the call returns. But the host does not see that before it has waited.
#include "simulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <vector>

using namespace simulator;
using simulator::device;

struct simulated_event {
    size_t number; // 0: not recorded
    double milliseconds;
    bool captured;
};

struct simulated_stream {
    bool blocking; // waits for the default stream, and that one for it
};

namespace {

// What a graph does, in this order.
struct node {
    enum { LAUNCH, COPY, SET } what;
    configuration launch;
    size_t parameters; // where those of the launch begin in the graph's
    char *to, *from;
    size_t bytes;
    cudaMemcpyKind kind;
    int byte;
};

} // namespace

struct simulated_graph {
    std::vector<node> nodes;
    std::vector<char> parameters;
};

struct simulated_graph_exec {
    simulated_graph graph;
};

namespace {

// One stream at a time is captured. What it is given is recorded and not done.
struct {
    cudaStream_t stream; // nullptr: none
    cudaStreamCaptureMode mode;
    cudaGraph_t graph;
    bool invalid; // because of a call that may not be made then
} capture;

// Copies to pinned memory that the host has not waited for. Until it has, it finds NaNs there. A
// GPU would mostly have copied in time.
struct arrival {
    size_t number;
    void *to;
    std::vector<char> data;
};
std::vector<arrival> arrivals;

std::vector<void *> registered; // by cudaHostRegister()

void wait_for(size_t number) {
    if (number > device.waited)
        device.waited = number;
    size_t arrived = 0;
    for (; arrived < arrivals.size() && arrivals[arrived].number <= device.waited; ++arrived)
        memcpy(arrivals[arrived].to, arrivals[arrived].data.data(), arrivals[arrived].data.size());
    arrivals.erase(arrivals.begin(), arrivals.begin() + (ptrdiff_t)arrived);
    give_memory_to_host();
}

cudaError_t check_device(int number = 0) {
    if (!device.present)
        return fail(cudaErrorNoDevice);
    return number == 0 ? cudaSuccess : fail(cudaErrorInvalidDevice);
}

// Asks whether work for this stream is recorded. It must not be given to the default stream while
// one that waits for that is captured.
cudaError_t check_stream(cudaStream_t stream, bool *recorded) {
    *recorded = capture.stream && stream == capture.stream;
    if (cudaError_t error = check_device())
        return error;
    if (*recorded && capture.invalid)
        return fail(cudaErrorStreamCaptureInvalidated);
    if (!capture.stream || stream || !capture.stream->blocking)
        return cudaSuccess;
    capture.invalid = true;
    return fail(cudaErrorStreamCaptureImplicit);
}

// The same for calls that may not be made at all while a stream is captured. They wait, or could.
cudaError_t check_no_capture() {
    if (!capture.stream || capture.mode == cudaStreamCaptureModeRelaxed)
        return check_device();
    capture.invalid = true;
    return fail(cudaErrorStreamCaptureUnsupported);
}

enum side { HOST_SIDE = 1, DEVICE_SIDE = 2, EITHER_SIDE = 3 };

// Whether the bytes that `function` reads or writes are on the side that it expects, and all within
// one allocation.
cudaError_t check(const char *function, const void *memory, size_t bytes, int side) {
    const kind kind = kind_of(memory);
    const int found = kind == MANAGED ? EITHER_SIDE : kind == DEVICE ? DEVICE_SIDE : HOST_SIDE;
    if (cudaError_t error = check_device())
        return error;
    if (!(found & side)) {
        complain(print("%s expects %s memory, found %s", function,
                       side == HOST_SIDE ? "host" : "device", describe(memory).text));
        return fail(cudaErrorInvalidMemcpyDirection);
    }
    const allocation *const allocation = find_allocation(memory);
    if (!allocation && kind == HOST) // on the stack, or not from malloc()
        return cudaSuccess;
    if (!allocation || !allocation->live ||
        (const char *)memory + bytes > allocation->start + allocation->bytes) {
        complain(print("%s of %zu bytes: too many at %s", function, bytes, describe(memory).text));
        return fail(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

// A copy of rows: their starts are `pitch` bytes apart.
struct rows {
    char *start;
    size_t pitch;
};

cudaError_t copy(const char *function, rows to, rows from, size_t width, size_t height,
                 cudaMemcpyKind kind, bool async, cudaStream_t stream = nullptr) {
    static const int TO[] = {HOST_SIDE, DEVICE_SIDE, HOST_SIDE, DEVICE_SIDE, EITHER_SIDE};
    static const int FROM[] = {HOST_SIDE, HOST_SIDE, DEVICE_SIDE, DEVICE_SIDE, EITHER_SIDE};
    bool recorded;
    if (cudaError_t error = check_stream(stream, &recorded))
        return error;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return fail(cudaErrorInvalidMemcpyDirection);
    if (width == 0 || height == 0)
        return cudaSuccess;
    if (to.pitch < width || from.pitch < width)
        return fail(cudaErrorInvalidPitchValue);
    if (cudaError_t error = check(function, to.start, to.pitch * (height - 1) + width, TO[kind]))
        return error;
    if (cudaError_t error =
            check(function, from.start, from.pitch * (height - 1) + width, FROM[kind]))
        return error;
    if (recorded) {
        capture.graph->nodes.push_back({node::COPY, {}, 0, to.start, from.start, width, kind, 0});
        return cudaSuccess;
    }
    if (!async && kind != cudaMemcpyDeviceToDevice)
        wait_for(device.submitted);
    if (note_copy)
        note_copy(kind_of(to.start) == HOST || kind_of(to.start) == PINNED       ? TO_HOST
                  : kind_of(from.start) == HOST || kind_of(from.start) == PINNED ? TO_DEVICE
                                                                                 : WITHIN_DEVICE,
                  width * height);
    ++device.submitted;
    give_memory_to_both();
    for (; height > 0; --height, to.start += to.pitch, from.start += from.pitch) {
        if (async && kind_of(to.start) == PINNED && kind_of(from.start) == DEVICE) {
            arrivals.push_back({device.submitted, to.start, {from.start, from.start + width}});
            memset(to.start, UNINITIALISED, width);
        } else {
            memcpy(to.start, from.start, width);
        }
    }
    give_memory_to_host();
    return cudaSuccess;
}

cudaError_t allocate_on_device(kind kind, void **memory, size_t bytes) {
    *memory = nullptr;
    if (cudaError_t error = check_no_capture())
        return error;
    if (bytes == 0)
        return cudaSuccess;
    if (kind != PINNED && bytes > device.memory - device.allocated)
        return fail(cudaErrorMemoryAllocation);
    *memory = allocate(kind, bytes, 256, UNINITIALISED);
    give_memory_to_host();
    if (!*memory)
        return fail(cudaErrorMemoryAllocation);
    device.allocated += kind == PINNED ? 0 : bytes;
    return cudaSuccess;
}

cudaError_t free_on_device(const char *function, void *memory, bool pinned) {
    if (cudaError_t error = check_no_capture())
        return error;
    if (!memory)
        return cudaSuccess;
    wait_for(device.submitted);
    const kind kind = kind_of(memory);
    const bool right = pinned ? kind == PINNED : kind == DEVICE || kind == MANAGED;
    const allocation *const freed = right ? release(kind, memory) : nullptr;
    give_memory_to_host();
    if (!freed) {
        complain(print("%s: nothing to free at %s", function, describe(memory).text));
        return fail(cudaErrorInvalidValue);
    }
    device.allocated -= pinned ? 0 : freed->bytes;
    return cudaSuccess;
}

cudaError_t set(const char *function, void *memory, int byte, size_t bytes, cudaStream_t stream) {
    bool recorded;
    if (cudaError_t error = check_stream(stream, &recorded))
        return error;
    if (cudaError_t error = bytes ? check(function, memory, bytes, DEVICE_SIDE) : cudaSuccess)
        return error;
    if (recorded) {
        capture.graph->nodes.push_back(
            {node::SET, {}, 0, (char *)memory, nullptr, bytes, cudaMemcpyDefault, byte});
        return cudaSuccess;
    }
    if (note_copy)
        note_copy(MEMSET, bytes);
    ++device.submitted;
    give_memory_to_both();
    memset(memory, byte, bytes);
    give_memory_to_host();
    return cudaSuccess;
}

double milliseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

} // namespace

// ---- Errors

const char *cudaGetErrorString(cudaError_t error) {
    switch (error) {
#define X(name, number, words)                                                                     \
    case name:                                                                                     \
        return words;
        SIM_ERRORS(X)
#undef X
    }
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define X(name, number, words)                                                                     \
    case name:                                                                                     \
        return #name;
        SIM_ERRORS(X)
#undef X
    }
    return "unrecognized error code";
}

cudaError_t cudaPeekAtLastError() {
    device.launch_failed = false;
    return device.last_error;
}

cudaError_t cudaGetLastError() {
    const cudaError_t error = cudaPeekAtLastError();
    device.last_error = cudaSuccess;
    return error;
}

// ---- The device

cudaError_t cudaGetDeviceCount(int *count) {
    *count = device.present;
    return check_device();
}

cudaError_t cudaSetDevice(int number) {
    return check_device(number);
}

cudaError_t cudaGetDevice(int *number) {
    *number = 0;
    return check_device();
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int number) {
    *properties = {};
    snprintf(properties->name, sizeof properties->name, "%s", device.name);
    properties->totalGlobalMem = device.memory;
    properties->sharedMemPerBlock = SHARED_BYTES;
    properties->sharedMemPerBlockOptin = SHARED_BYTES_OPT_IN;
    properties->sharedMemPerMultiprocessor = SHARED_BYTES_OPT_IN;
    properties->regsPerBlock = 65536;
    properties->warpSize = warpSize;
    properties->maxThreadsPerBlock = (int)MAX_THREADS;
    properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = (int)MAX_THREADS;
    properties->maxThreadsDim[2] = (int)MAX_BLOCK_Z;
    properties->maxGridSize[0] = (int)MAX_GRID_X;
    properties->maxGridSize[1] = properties->maxGridSize[2] = (int)MAX_GRID_YZ;
    properties->maxThreadsPerMultiProcessor = (int)MAX_THREADS;
    properties->multiProcessorCount = (int)device.multiprocessors;
    properties->major = 7;
    properties->minor = 5;
    properties->l2CacheSize = 4 << 20;
    properties->unifiedAddressing = 1;
    properties->managedMemory = 1;
    properties->concurrentManagedAccess = 1;
    return check_device(number);
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int number) {
    const struct {
        cudaDeviceAttr attribute;
        int value;
    } ATTRIBUTES[] = {{cudaDevAttrMaxThreadsPerBlock, MAX_THREADS},
                      {cudaDevAttrMaxSharedMemoryPerBlock, SHARED_BYTES},
                      {cudaDevAttrWarpSize, warpSize},
                      {cudaDevAttrMultiProcessorCount, (int)device.multiprocessors},
                      {cudaDevAttrMaxThreadsPerMultiProcessor, MAX_THREADS},
                      {cudaDevAttrComputeCapabilityMajor, 7},
                      {cudaDevAttrComputeCapabilityMinor, 5},
                      {cudaDevAttrManagedMemory, 1},
                      {cudaDevAttrPageableMemoryAccess, 0},
                      {cudaDevAttrConcurrentManagedAccess, 1},
                      {cudaDevAttrCooperativeLaunch, 1},
                      {cudaDevAttrMaxSharedMemoryPerBlockOptin, SHARED_BYTES_OPT_IN}};
    for (const auto &known : ATTRIBUTES)
        if (known.attribute == attribute)
            *value = known.value;
    return check_device(number);
}

cudaError_t cudaDeviceSynchronize() {
    if (cudaError_t error = check_no_capture())
        return error;
    wait_for(device.submitted);
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value) {
    if (cudaError_t error = check_device())
        return error;
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize &&
        (value < 0 || !set_shared_limit(kernel, (size_t)value)))
        return fail(cudaErrorInvalidValue);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int threads,
                                                          size_t shared_bytes) {
    if (threads < 1 || threads > (int)MAX_THREADS)
        return fail(cudaErrorInvalidValue);
    *blocks = (int)blocks_at_once((size_t)threads, shared_bytes);
    return check_device();
}

// ---- Memory

cudaError_t cudaMalloc(void **memory, size_t bytes) {
    return allocate_on_device(DEVICE, memory, bytes);
}

cudaError_t cudaMallocManaged(void **memory, size_t bytes, unsigned) {
    return allocate_on_device(MANAGED, memory, bytes);
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned) {
    return allocate_on_device(PINNED, memory, bytes);
}

cudaError_t cudaFree(void *memory) {
    return free_on_device("cudaFree", memory, false);
}

cudaError_t cudaFreeHost(void *memory) {
    return free_on_device("cudaFreeHost", memory, true);
}

// A kernel still cannot reach the host's memory: only copies from it become faster.
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned) {
    if (cudaError_t error = check_no_capture())
        return error;
    if (cudaError_t error = check("cudaHostRegister", memory, bytes, HOST_SIDE))
        return error;
    if (std::find(registered.begin(), registered.end(), memory) != registered.end())
        return fail(cudaErrorHostMemoryAlreadyRegistered);
    registered.push_back(memory);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory) {
    const auto found = std::find(registered.begin(), registered.end(), memory);
    if (found == registered.end())
        return fail(cudaErrorHostMemoryNotRegistered);
    registered.erase(found);
    return check_device();
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    *free = device.memory - device.allocated;
    *total = device.memory;
    return check_device();
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    return copy("cudaMemcpy", {(char *)to, bytes}, {(char *)from, bytes}, bytes, 1, kind, false);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    return copy("cudaMemcpyAsync", {(char *)to, bytes}, {(char *)from, bytes}, bytes, 1, kind, true,
                stream);
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
    return copy("cudaMemcpy2D", {(char *)to, to_pitch}, {(char *)from, from_pitch}, width, height,
                kind, false);
}

cudaError_t cudaMemset(void *memory, int byte, size_t bytes) {
    return set("cudaMemset", memory, byte, bytes, nullptr);
}

cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes, cudaStream_t stream) {
    return set("cudaMemsetAsync", memory, byte, bytes, stream);
}

cudaError_t cudaMemPrefetchAsync(const void *memory, size_t bytes, int, cudaStream_t) {
    if (kind_of(memory) == MANAGED)
        return check("cudaMemPrefetchAsync", memory, bytes, EITHER_SIDE);
    complain(print("cudaMemPrefetchAsync, cudaMemAdvise expect managed memory, found %s",
                   describe(memory).text));
    return fail(cudaErrorInvalidValue);
}

// ---- Events

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    *event = new simulated_event{};
    return check_device();
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return check_device();
}

// An event in a captured stream is a place in the graph. It never gets a time.
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    bool recorded;
    if (cudaError_t error = check_stream(stream, &recorded))
        return error;
    if (recorded)
        *event = {0, 0, true};
    else
        *event = {++device.submitted, milliseconds(), false};
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (event->captured)
        return fail(cudaErrorCapturedEvent);
    wait_for(event->number);
    return check_device();
}

cudaError_t cudaEventElapsedTime(float *elapsed, cudaEvent_t start, cudaEvent_t end) {
    if (start->captured || end->captured)
        return fail(cudaErrorCapturedEvent);
    if (!start->number || !end->number)
        return fail(cudaErrorInvalidResourceHandle);
    if (start->number > device.waited || end->number > device.waited)
        return fail(cudaErrorNotReady);
    *elapsed = (float)(end->milliseconds - start->milliseconds);
    return check_device();
}

// ---- Streams and graphs

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    *stream = new simulated_stream{flags != cudaStreamNonBlocking};
    return check_device();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (capture.stream && stream == capture.stream)
        return fail(cudaErrorStreamCaptureUnsupported);
    delete stream;
    return check_device();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    bool recorded;
    if (cudaError_t error = check_stream(stream, &recorded))
        return error;
    if (recorded)
        return check_no_capture();
    wait_for(device.submitted);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    bool recorded;
    if (cudaError_t error = check_stream(stream, &recorded))
        return error;
    if (recorded == event->captured)
        return cudaSuccess;
    complain(print("cudaStreamWaitEvent: a captured stream and another wait for each other, which "
                   "is not simulated"));
    return check_no_capture();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    if (cudaError_t error = check_device())
        return error;
    if (!stream)
        return fail(cudaErrorStreamCaptureUnsupported);
    if (capture.stream)
        return fail(cudaErrorIllegalState);
    capture = {stream, mode, new simulated_graph, false};
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    *graph = nullptr;
    if (!capture.stream || stream != capture.stream)
        return fail(cudaErrorIllegalState);
    capture.stream = nullptr;
    if (capture.invalid) {
        delete capture.graph;
        return fail(cudaErrorStreamCaptureInvalidated);
    }
    *graph = capture.graph;
    ++device.graphs;
    return check_device();
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long) {
    *exec = nullptr;
    if (!graph)
        return fail(cudaErrorInvalidValue);
    if (cudaError_t error = check_no_capture())
        return error;
    *exec = new simulated_graph_exec{*graph};
    ++device.graphs;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    bool recorded;
    if (cudaError_t error = check_stream(stream, &recorded))
        return error;
    return exec && !recorded ? cudaSuccess : fail(cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    bool recorded;
    if (cudaError_t error = check_stream(stream, &recorded))
        return error;
    if (!exec)
        return fail(cudaErrorInvalidValue);
    if (recorded) // a graph in a graph
        return check_no_capture();
    for (const node &node : exec->graph.nodes) {
        cudaError_t error = cudaSuccess;
        switch (node.what) {
        case node::LAUNCH:
            memcpy(parameter_space(), &exec->graph.parameters[node.parameters],
                   node.launch.parameter_bytes);
            device.in_graph = true;
            run(node.launch);
            device.in_graph = false;
            break;
        case node::COPY:
            error = copy("cudaMemcpyAsync in a graph", {node.to, node.bytes},
                         {node.from, node.bytes}, node.bytes, 1, node.kind, true, stream);
            break;
        case node::SET:
            error = set("cudaMemsetAsync in a graph", node.to, node.byte, node.bytes, stream);
            break;
        }
        if (error)
            return error;
    }
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    device.graphs -= graph != nullptr;
    delete graph;
    return graph ? check_device() : fail(cudaErrorInvalidValue);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    device.graphs -= exec != nullptr;
    delete exec;
    return exec ? check_device() : fail(cudaErrorInvalidValue);
}

cudaError_t simulator::submit(const configuration &launch) {
    bool recorded;
    if (cudaError_t error = check_stream(launch.stream, &recorded))
        return error;
    if (cudaError_t error = check_launch(launch))
        return fail(error);
    if (!recorded) {
        run(launch);
        return cudaSuccess;
    }
    simulated_graph &graph = *capture.graph;
    const char *const parameters = (const char *)parameter_space();
    graph.nodes.push_back(
        {node::LAUNCH, launch, graph.parameters.size(), nullptr, nullptr, 0, cudaMemcpyDefault, 0});
    graph.parameters.insert(graph.parameters.end(), parameters,
                            parameters + launch.parameter_bytes);
    return cudaSuccess;
}

void simulator::submit_and_go_on(const configuration &launch) {
    device.launch_failed |= submit(launch) != cudaSuccess;
}
