// The functions that the host calls. What a stream is given is done when something waits for it,
// and not before: a program that forgets to wait always finds it undone.
#include "simulator.h"

#include <stdio.h>

#include <algorithm>
#include <set>

using namespace simulator;
using simulator::device;

struct simulated_event {
    size_t moment; // its place in `moments`; 0: not recorded
    bool captured;
};

struct simulated_stream {
    bool blocking; // waits for the default stream, and that one for it
};

namespace {

// A matrix: its rows begin `pitch` bytes apart.
struct rows {
    char *start;
    size_t pitch;
};

// What a stream is given. A graph holds such work, too.
struct work {
    enum { LAUNCH, COPY, SET, RECORD, WAIT } what;
    size_t moment = 0;              // of the event that it records or waits for
    const char *function = nullptr; // that copies or sets
    rows to = {}, from = {};
    size_t width = 0, height = 0;
    cudaMemcpyKind kind = cudaMemcpyDefault;
    int byte = 0;
    configuration launch = {};
    list<char> data = {};          // a launch's parameters, or what a copy has read already
    cudaStream_t stream = nullptr; // it is in, which may be destroyed by now
    bool blocking = false;         // that is the default one, or waits for it
    bool in_graph = false;
};
list<work> pending;      // in the order in which it was submitted
list<double> moments{1}; // at which events happened, in milliseconds; 0: not yet

} // namespace

struct simulated_graph {
    list<work> nodes;
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

std::set<void *> registered; // by cudaHostRegister()

void copy_rows(const work &work) {
    const kind to = kind_of(work.to.start), from = kind_of(work.from.start);
    give_memory_to_both();
    if (note_copy)
        note_copy(to == HOST || to == PINNED       ? TO_HOST
                  : from == HOST || from == PINNED ? TO_DEVICE
                                                   : WITHIN_DEVICE,
                  work.from.start, work.width * work.height);
    for (size_t row = 0; row < work.height; ++row)
        memcpy(work.to.start + row * work.to.pitch,
               work.data.empty() ? work.from.start + row * work.from.pitch
                                 : &work.data[row * work.width],
               work.width);
}

void perform(const work &work) {
    switch (work.what) {
    case work::LAUNCH:
        memcpy(parameter_space(), work.data.data(), work.data.size());
        device.in_graph = work.in_graph;
        run(work.launch);
        --device.pending;
        break;
    case work::COPY:
        copy_rows(work);
        break;
    case work::SET:
        if (note_copy)
            note_copy(MEMSET, nullptr, work.width);
        give_memory_to_both();
        memset(work.to.start, work.byte, work.width);
        break;
    case work::RECORD:
        moments[work.moment] = 1e-6 * (double)clock64();
        break;
    case work::WAIT:
        break;
    }
}

// Whether work comes after what was submitted before it. Work of the default stream waits for all
// blocking streams, and they wait for it.
bool comes_after(const work &later, const work &earlier) {
    return later.stream == earlier.stream ||
           (later.blocking && earlier.blocking && (!later.stream || !earlier.stream)) ||
           (later.what == work::WAIT && earlier.what == work::RECORD &&
            later.moment == earlier.moment);
}

// Does pending work, and first what it comes after.
void finish(size_t last) {
    list<size_t> needed = {last};
    for (size_t i = last; i-- > 0;)
        if (std::any_of(needed.begin(), needed.end(),
                        [=](size_t later) { return comes_after(pending[later], pending[i]); }))
            needed.push_back(i);
    for (size_t i = needed.size(); i-- > 0;)
        perform(pending[needed[i]]);
    for (size_t i : needed)
        pending.erase(pending.begin() + (ptrdiff_t)i);
    give_memory_to_host();
}

// What nothing orders is done in the other order than that in which it was submitted.
void wait_for_all() {
    while (!pending.empty())
        finish(pending.size() - 1);
}

void submit(work &&work, cudaStream_t stream) {
    work.stream = stream;
    work.blocking = !stream || stream->blocking;
    const kind from = kind_of(work.from.start), to = kind_of(work.to.start);
    // The driver reads the host's memory at once, unless it is pinned.
    if (work.what == work::COPY && from == HOST && to == DEVICE)
        for (size_t row = 0; row < work.height; ++row) {
            const char *const start = work.from.start + row * work.from.pitch;
            work.data.insert(work.data.end(), start, start + work.width);
        }
    // Until the host has waited for a copy, it finds NaNs there, if none before reads that memory.
    if (work.what == work::COPY && from == DEVICE && to == PINNED &&
        std::none_of(pending.begin(), pending.end(), [&](const struct work &earlier) {
            return find_allocation(earlier.from.start) == find_allocation(work.to.start);
        }))
        memset(work.to.start, UNINITIALISED, work.width);
    if (work.what == work::LAUNCH) {
        device.kernel = work.launch.kernel;
        ++device.pending;
    }
    pending.push_back(std::move(work));
    give_memory_to_host();
}

// Work that takes no time, behind all that the stream has been given.
void wait_for(cudaStream_t stream) {
    submit({work::RECORD}, stream);
    finish(pending.size() - 1);
}

cudaError_t check_device(int number = 0) {
    if (!device.present)
        return fail(cudaErrorNoDevice);
    return number == 0 ? cudaSuccess : fail(cudaErrorInvalidDevice);
}

bool is_captured(cudaStream_t stream) {
    return capture.stream && stream == capture.stream;
}

// Work must not be given to the default stream while one that waits for that is captured.
cudaError_t check_stream(cudaStream_t stream) {
    if (cudaError_t error = check_device())
        return error;
    if (is_captured(stream) && capture.invalid)
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

cudaError_t check(const work &work) {
    static const int TO[] = {HOST_SIDE, DEVICE_SIDE, HOST_SIDE, DEVICE_SIDE, EITHER_SIDE};
    static const int FROM[] = {HOST_SIDE, HOST_SIDE, DEVICE_SIDE, DEVICE_SIDE, EITHER_SIDE};
    const auto bytes = [&](rows rows) { return rows.pitch * (work.height - 1) + work.width; };
    cudaError_t error = cudaSuccess;
    if (work.what == work::LAUNCH && (error = check_launch(work.launch)))
        return fail(error);
    if (work.what == work::SET && work.width)
        return check(work.function, work.to.start, work.width, DEVICE_SIDE);
    if (work.what == work::COPY)
        error = check(work.function, work.to.start, bytes(work.to), TO[work.kind]);
    if (work.what == work::COPY && !error)
        error = check(work.function, work.from.start, bytes(work.from), FROM[work.kind]);
    return error;
}

// Whether the last of the work that a stream or a graph has been given is a launch, beside events.
bool ends_in_launch(const list<work> &works, cudaStream_t stream) {
    for (size_t i = works.size(); i-- > 0;)
        if (works[i].stream == stream && works[i].what != work::RECORD &&
            works[i].what != work::WAIT)
            return works[i].what == work::LAUNCH && !works[i].in_graph;
    return false;
}

// Submits work, or records it if the stream is captured.
cudaError_t give(work &&work, cudaStream_t stream) {
    if (cudaError_t error = check_stream(stream))
        return error;
    if (cudaError_t error = check(work))
        return error;
    work.launch.early =
        work.launch.early && (is_captured(stream) ? ends_in_launch(capture.graph->nodes, nullptr)
                                                  : ends_in_launch(pending, stream));
    if (!is_captured(stream)) {
        submit(std::move(work), stream);
        return cudaSuccess;
    }
    work.function =
        work.what == work::COPY ? "cudaMemcpyAsync in a graph" : "cudaMemsetAsync in a graph";
    capture.graph->nodes.push_back(std::move(work));
    return cudaSuccess;
}

cudaError_t copy(const char *function, rows to, rows from, size_t width, size_t height,
                 cudaMemcpyKind kind, bool async, cudaStream_t stream = nullptr) {
    if (cudaError_t error = check_stream(stream))
        return error;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return fail(cudaErrorInvalidMemcpyDirection);
    if (width == 0 || height == 0)
        return cudaSuccess;
    if (to.pitch < width || from.pitch < width)
        return fail(cudaErrorInvalidPitchValue);
    const enum kind target = kind_of(to.start), source = kind_of(from.start);
    const bool waits = !is_captured(stream) && (async ? target == HOST || source == HOST
                                                      : kind != cudaMemcpyDeviceToDevice);
    if (waits && !async)
        wait_for(stream);
    const cudaError_t error =
        give({work::COPY, 0, function, to, from, width, height, kind}, stream);
    if (waits && !error && !(source == HOST && target == DEVICE)) // that has been read
        wait_for(stream);
    return error;
}

cudaError_t free_on_device(const char *function, void *memory, bool pinned) {
    if (cudaError_t error = check_no_capture())
        return error;
    if (!memory)
        return cudaSuccess;
    wait_for_all();
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
    return give(
        {work::SET, 0, function, {(char *)memory, 0}, {}, bytes, 1, cudaMemcpyDefault, byte},
        stream);
}

} // namespace

// ---- Errors

static std::pair<const char *, const char *> name_and_words(cudaError_t error) {
    switch (error) {
#define X(name, number, words)                                                                     \
    case name:                                                                                     \
        return {#name, words};
        SIM_ERRORS(X)
#undef X
    }
    return {"unrecognized error code", "unrecognized error code"};
}

const char *cudaGetErrorName(cudaError_t error) {
    return name_and_words(error).first;
}

const char *cudaGetErrorString(cudaError_t error) {
    return name_and_words(error).second;
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

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int number) {
    *properties = {};
    snprintf(properties->name, sizeof properties->name, "%s", device.name);
    properties->totalGlobalMem = device.memory;
    properties->sharedMemPerBlock = SHARED_BYTES;
    properties->sharedMemPerBlockOptin = device.capability.shared_bytes_opt_in;
    properties->sharedMemPerMultiprocessor = device.capability.shared_bytes;
    properties->warpSize = warpSize;
    properties->maxThreadsPerBlock = (int)MAX_THREADS;
    properties->maxThreadsPerMultiProcessor = (int)device.capability.threads;
    properties->multiProcessorCount = (int)device.multiprocessors;
    properties->major = (int)device.capability.number / 10;
    properties->minor = (int)device.capability.number % 10;
    properties->l2CacheSize = 4 << 20;
    return check_device(number);
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int number) {
    const capability &capability = device.capability;
    const struct {
        cudaDeviceAttr attribute;
        int value;
    } ATTRIBUTES[] = {
        {cudaDevAttrMultiProcessorCount, (int)device.multiprocessors},
        {cudaDevAttrComputeCapabilityMajor, (int)capability.number / 10},
        {cudaDevAttrComputeCapabilityMinor, (int)capability.number % 10},
        {cudaDevAttrCooperativeLaunch, 1},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, (int)capability.shared_bytes_opt_in},
        {cudaDevAttrClusterLaunch, capability.number >= 90},
    };
    for (const auto &known : ATTRIBUTES)
        if (known.attribute == attribute)
            *value = known.value;
    return check_device(number);
}

cudaError_t cudaDeviceSynchronize() {
    if (cudaError_t error = check_no_capture())
        return error;
    wait_for_all();
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value) {
    if (cudaError_t error = check_device())
        return error;
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize &&
        !set_shared_limit(kernel, (size_t)value))
        return fail(cudaErrorInvalidValue);
    if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed)
        allow_large_clusters(kernel, value);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int threads,
                                                          size_t shared_bytes) {
    if (threads < 1 || threads > (int)MAX_THREADS)
        return fail(cudaErrorInvalidValue);
    *blocks = (int)blocks_at_once((size_t)threads, shared_bytes);
    return check_device();
}

configuration simulator::configure(const char *kernel, const cudaLaunchConfig_t *config) {
    configuration launch = {kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes,
                            config->stream};
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        const cudaLaunchAttribute &attribute = config->attrs[i];
        if (attribute.id == cudaLaunchAttributeCooperative)
            launch.cooperative = attribute.val.cooperative;
        if (attribute.id == cudaLaunchAttributeClusterDimension)
            launch.cluster = attribute.val.clusterDim;
        if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization)
            launch.early = attribute.val.programmaticStreamSerializationAllowed;
    }
    return launch;
}

cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *kernel,
                                           const cudaLaunchConfig_t *config) {
    configuration launch = configure("", config);
    launch.function = kernel;
    *clusters = 0;
    if (cudaError_t error = check_device())
        return error;
    if (cudaError_t error = check_clusters(launch))
        return fail(error);
    *clusters = (int)clusters_at_once(launch);
    return cudaSuccess;
}

// ---- Memory

cudaError_t simulator::allocate_for_device(kind kind, void **memory, size_t bytes) {
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
    return registered.insert(memory).second ? cudaSuccess
                                            : fail(cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void *memory) {
    return registered.erase(memory) ? check_device() : fail(cudaErrorHostMemoryNotRegistered);
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
    const cudaError_t error = set("cudaMemset", memory, byte, bytes, nullptr);
    if (!error && kind_of(memory) == MANAGED)
        wait_for(nullptr);
    return error;
}

cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes, cudaStream_t stream) {
    return set("cudaMemsetAsync", memory, byte, bytes, stream);
}

cudaError_t cudaMemPrefetchAsync(const void *memory, size_t bytes, int, cudaStream_t) {
    if (kind_of(memory) == MANAGED)
        return check("cudaMemPrefetchAsync", memory, bytes, EITHER_SIDE);
    complain(print("cudaMemPrefetchAsync expects managed memory, found %s", describe(memory).text));
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
    if (cudaError_t error = check_stream(stream))
        return error;
    *event = {is_captured(stream) ? 0 : moments.size(), is_captured(stream)};
    if (event->captured)
        return cudaSuccess;
    moments.push_back(0);
    submit({work::RECORD, event->moment}, stream);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (event->captured)
        return fail(cudaErrorCapturedEvent);
    for (size_t i = 0; i < pending.size(); ++i)
        if (pending[i].what == work::RECORD && pending[i].moment == event->moment) {
            finish(i);
            break;
        }
    return check_device();
}

cudaError_t cudaEventElapsedTime(float *elapsed, cudaEvent_t start, cudaEvent_t end) {
    if (start->captured || end->captured)
        return fail(cudaErrorCapturedEvent);
    if (!start->moment || !end->moment)
        return fail(cudaErrorInvalidResourceHandle);
    if (!moments[start->moment] || !moments[end->moment])
        return fail(cudaErrorNotReady);
    *elapsed = (float)(moments[end->moment] - moments[start->moment]);
    return check_device();
}

// ---- Streams and graphs

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    *stream = new simulated_stream{flags != cudaStreamNonBlocking};
    return check_device();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (is_captured(stream))
        return fail(cudaErrorStreamCaptureUnsupported);
    delete stream;
    return check_device();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (cudaError_t error = check_stream(stream))
        return error;
    if (is_captured(stream))
        return check_no_capture();
    wait_for(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    if (cudaError_t error = check_stream(stream))
        return error;
    if (is_captured(stream) == event->captured) {
        if (!event->captured) // or it is a place in the graph
            submit({work::WAIT, event->moment}, stream);
        return cudaSuccess;
    }
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
    if (!is_captured(stream))
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
    if (cudaError_t error = check_stream(stream))
        return error;
    return exec && !is_captured(stream) ? cudaSuccess : fail(cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    if (cudaError_t error = check_stream(stream))
        return error;
    if (!exec)
        return fail(cudaErrorInvalidValue);
    if (is_captured(stream)) // a graph in a graph
        return check_no_capture();
    for (work node : exec->graph.nodes) {
        node.in_graph = true;
        if (cudaError_t error = check(node))
            return error;
        submit(std::move(node), stream);
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
    const char *const parameters = (const char *)parameter_space();
    work work = {work::LAUNCH};
    work.launch = launch;
    for (const declared_clusters *each = declared_clusters::first; each; each = each->next)
        if (strcmp(each->kernel, launch.kernel) == 0)
            work.launch.cluster = each->size;
    work.data.assign(parameters, parameters + launch.parameter_bytes);
    return give(std::move(work), launch.stream);
}

void simulator::submit_and_go_on(const configuration &launch) {
    device.launch_failed |= submit(launch) != cudaSuccess;
}
