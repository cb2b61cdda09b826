// The part of CUDA that the stages use, on the CPU: see README.md. CUDA's own documentation is not
// repeated here.
#ifndef SIM_CUDA_RUNTIME_H
#define SIM_CUDA_RUNTIME_H

#include <float.h>
#include <math.h> // before the macros below, because it declares functions of the same names
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

#define CUDART_VERSION 13000

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// translate.sed turns declarations of shared memory into references. A declaration that it does not
// know ends with this message.
#define __shared__ a_whole_declaration_of_shared_memory_has_to_be_in_one_line
#define __cluster_dims__ has_to_be_in_one_line_with_the_name_of_a_kernel_that_is_no_template

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {
    }
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {
    }
    constexpr operator uint3() const {
        return {x, y, z};
    }
};
struct __align__(8) float2 {
    float x, y;
};
struct __align__(16) float4 {
    float x, y, z, w;
};
struct __align__(16) uint4 {
    unsigned x, y, z, w;
};
struct __align__(4) uchar4 {
    unsigned char x, y, z, w;
};
inline float2 make_float2(float x, float y) {
    return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}

extern __thread uint3 threadIdx, blockIdx; // a core runs one thread of one block at a time
extern dim3 blockDim, gridDim;             // one kernel runs at a time
constexpr int warpSize = 32;

// These functions are approximations on a device. Here they are exact.
#define __expf expf
#define __logf logf
#define __fdividef(x, y) ((x) / (y))
inline float rsqrtf(float x) {
    return 1 / sqrtf(x);
}
template <class A, class B, class T = std::common_type_t<A, B>> constexpr T min(A a, B b) {
    return (T)b < (T)a ? (T)b : (T)a;
}
template <class A, class B, class T = std::common_type_t<A, B>> constexpr T max(A a, B b) {
    return (T)a < (T)b ? (T)b : (T)a;
}
template <class T> T __ldg(const T *address) {
    return *address;
}
template <class T> T __ldcg(const T *address) {
    return *address;
}

inline unsigned __float_as_uint(float x) {
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

namespace simulator {
// A thread has done an atomic operation, which may have changed the word.
void note_atomic(bool changes, const char *what, const char *file, int line);

template <class T, class Operation>
T atomic(T *address, Operation operation, const char *what, const char *file, int line) {
    static_assert(sizeof(T) == 4);
    T old, now;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    do
        now = operation(old);
    while (
        !__atomic_compare_exchange(address, &old, &now, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    note_atomic(memcmp(&old, &now, sizeof old) != 0, what, file, line);
    return old;
}
} // namespace simulator

template <class T>
T atomicAdd(T *address, std::common_type_t<T> value, const char *file = __builtin_FILE(),
            int line = __builtin_LINE()) {
    using wrapping = std::conditional_t<std::is_integral_v<T>, unsigned, T>;
    return simulator::atomic(
        address, [=](T old) { return (T)((wrapping)old + (wrapping)value); }, "atomicAdd", file,
        line);
}
template <class T>
T atomicExch(T *address, std::common_type_t<T> value, const char *file = __builtin_FILE(),
             int line = __builtin_LINE()) {
    return simulator::atomic(
        address, [=](T) { return value; }, "atomicExch", file, line);
}
template <class T>
T atomicCAS(T *address, std::common_type_t<T> compare, std::common_type_t<T> value,
            const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    static_assert(std::is_integral_v<T>);
    return simulator::atomic(
        address, [=](T old) { return old == compare ? value : old; }, "atomicCAS", file, line);
}
inline void __threadfence() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline long long clock64() { // nanoseconds of the host
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1000000000 * (long long)now.tv_sec + now.tv_nsec;
}

namespace simulator {

// The compute capability that the program is compiled for: 90 for 9.0. The device has it, too,
// unless SIM_CAPABILITY says otherwise.
extern size_t compiled_for;
#ifdef CAPABILITY
size_t compiled_for = CAPABILITY;
#endif

// The rest of this header is made of these. `file` and `line` are those of the caller.
void wait_for_block(const char *file, int line);
void wait_for_grid(const char *file, int line);
void wait_for_cluster(const char *file, int line);
unsigned cluster_blocks();
void *shared_memory_of(unsigned rank, const void *own);
void wait_for_launch();
void trigger();
uint64_t exchange(unsigned mask, uint64_t value, int source, const char *what, const char *file,
                  int line);
int lane();
// For common/tensor_cores.h.
enum number_format { F16, BF16 };
void multiply(number_format format, float *sum, const uint32_t *a, const uint32_t *b,
              const char *what, const char *file, int line);
uint32_t pack_f16(float first, float second);
float2 unpack_f16(uint32_t word);
int new_shared_array();
void *shared_memory(int array, size_t bytes);
void *dynamic_shared_memory();

// The variable that a block has for one `__shared__` declaration. Each of these has its own `Site`.
template <class T, class Site> T &shared(Site) {
    static const int array = new_shared_array();
    return *(T *)shared_memory(array, sizeof(T));
}
template <class T> T *dynamic_shared() {
    return (T *)dynamic_shared_memory();
}

// The value that the lane `source` of this warp brings to the same call.
template <class T>
T shuffle(unsigned mask, T value, int source, const char *what, const char *file, int line) {
    static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = exchange(mask, bits, source, what, file, line);
    memcpy(&value, &bits, sizeof value);
    return value;
}

} // namespace simulator

inline void __syncthreads(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    simulator::wait_for_block(file, line);
}
inline void __syncwarp(unsigned mask = 0xffffffff, const char *file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
    simulator::exchange(mask, 0, simulator::lane(), "__syncwarp", file, line);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize,
              const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    const int group = simulator::lane() & -width;
    return simulator::shuffle(mask, value, group + (source & (width - 1)), "__shfl_sync", file,
                              line);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                   const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    const int lane = simulator::lane(), source = lane + (int)delta;
    return simulator::shuffle(mask, value, source < (lane & -width) + width ? source : lane,
                              "__shfl_down_sync", file, line);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = warpSize,
                  const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    const int lane = simulator::lane(), source = lane ^ bits;
    return simulator::shuffle(mask, value, source < (lane & -width) + width ? source : lane,
                              "__shfl_xor_sync", file, line);
}

// nvcc refuses these for an older device.
#if CAPABILITY >= 90
inline void cudaGridDependencySynchronize() {
    simulator::wait_for_launch();
}
inline void cudaTriggerProgrammaticLaunchCompletion() {
    simulator::trigger();
}
#endif

// The names, numbers and words of the errors that can occur here.
#define SIM_ERRORS(X)                                                                              \
    X(cudaSuccess, 0, "no error")                                                                  \
    X(cudaErrorInvalidValue, 1, "invalid argument")                                                \
    X(cudaErrorMemoryAllocation, 2, "out of memory")                                               \
    X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                          \
    X(cudaErrorInvalidPitchValue, 12, "invalid pitch argument")                                    \
    X(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                    \
    X(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                                \
    X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                       \
    X(cudaErrorNoKernelImageForDevice, 209,                                                        \
      "no kernel image is available for execution on the device")                                  \
    X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                              \
    X(cudaErrorIllegalState, 401, "the operation cannot be performed in the present state")        \
    X(cudaErrorNotReady, 600, "device not ready")                                                  \
    X(cudaErrorHostMemoryAlreadyRegistered, 712,                                                   \
      "part or all of the requested memory range is already mapped")                               \
    X(cudaErrorHostMemoryNotRegistered, 713,                                                       \
      "pointer does not correspond to a registered memory region")                                 \
    X(cudaErrorCooperativeLaunchTooLarge, 720, "too many blocks in cooperative launch")            \
    X(cudaErrorNotSupported, 801, "operation not supported")                                       \
    X(cudaErrorStreamCaptureUnsupported, 900, "operation not permitted when stream is capturing")  \
    X(cudaErrorStreamCaptureInvalidated, 901,                                                      \
      "operation failed due to a previous error during capture")                                   \
    X(cudaErrorStreamCaptureImplicit, 906,                                                         \
      "operation would make the legacy stream depend on a capturing blocking stream")              \
    X(cudaErrorCapturedEvent, 907,                                                                 \
      "operation not permitted on an event last recorded in a capturing stream")                   \
    X(cudaErrorInvalidClusterSize, 912, "cluster misconfiguration")

enum cudaError {
#define X(name, number, words) name = number,
    SIM_ERRORS(X)
#undef X
};
typedef enum cudaError cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};
enum cudaMemLocationType {
    cudaMemLocationTypeInvalid,
    cudaMemLocationTypeDevice,
    cudaMemLocationTypeHost
};
struct cudaMemLocation {
    enum cudaMemLocationType type;
    int id;
};
enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrCooperativeLaunch = 95,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrClusterLaunch = 120
};
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributeNonPortableClusterSizeAllowed = 14
};
enum {
    cudaCpuDeviceId = -1,
    cudaMemAttachGlobal = 1,
    cudaHostRegisterDefault = 0,
    cudaStreamDefault = 0,
    cudaStreamNonBlocking = 1
};
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    size_t sharedMemPerBlockOptin;
    size_t sharedMemPerMultiprocessor;
    int warpSize;
    int maxThreadsPerBlock;
    int maxThreadsPerMultiProcessor;
    int multiProcessorCount;
    int major, minor;
    int l2CacheSize;
};
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};
typedef struct simulated_event *cudaEvent_t;
typedef struct simulated_stream *cudaStream_t;
typedef struct simulated_graph *cudaGraph_t;
typedef struct simulated_graph_exec *cudaGraphExec_t;

enum cudaLaunchAttributeID {
    cudaLaunchAttributeCooperative = 2,
    cudaLaunchAttributeClusterDimension = 4,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6
};
union cudaLaunchAttributeValue {
    int cooperative;
    uint3 clusterDim;
    int programmaticStreamSerializationAllowed;
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};

const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize();

namespace simulator {
enum kind { HOST, PINNED, MANAGED, DEVICE, KINDS }; // of memory
cudaError_t allocate_for_device(kind kind, void **memory, size_t bytes);
} // namespace simulator

cudaError_t cudaFree(void *memory);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *memory);
cudaError_t cudaMemGetInfo(size_t *free, size_t *total);
template <class T> cudaError_t cudaMalloc(T **memory, size_t bytes) {
    return simulator::allocate_for_device(simulator::DEVICE, (void **)memory, bytes);
}
template <class T>
cudaError_t cudaMallocManaged(T **memory, size_t bytes, unsigned = cudaMemAttachGlobal) {
    return simulator::allocate_for_device(simulator::MANAGED, (void **)memory, bytes);
}
template <class T> cudaError_t cudaMallocHost(T **memory, size_t bytes) {
    return simulator::allocate_for_device(simulator::PINNED, (void **)memory, bytes);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = 0);
cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind);
cudaError_t cudaMemset(void *memory, int byte, size_t bytes);
cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes, cudaStream_t stream = 0);

// As it was until CUDA 12, then as it is since CUDA 13.
cudaError_t cudaMemPrefetchAsync(const void *memory, size_t bytes, int device,
                                 cudaStream_t stream = 0);
inline cudaError_t cudaMemPrefetchAsync(const void *memory, size_t bytes, cudaMemLocation location,
                                        unsigned, cudaStream_t = 0) {
    return cudaMemPrefetchAsync(memory, bytes, location.id);
}

cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = 0);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end);
inline cudaError_t cudaEventQuery(cudaEvent_t event) {
    return cudaEventSynchronize(event); // otherwise a loop that asks would never end
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
inline cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

// A graph is a line of launches, copies and memsets: what one stream was given.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long flags = 0);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                        unsigned long long flags = 0) {
    return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value);
template <class T>
cudaError_t cudaFuncSetAttribute(T *kernel, cudaFuncAttribute attribute, int value) {
    return cudaFuncSetAttribute((const void *)kernel, attribute, value);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel,
                                                          int threads, size_t shared_bytes);
template <class T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, T *kernel, int threads,
                                                          size_t shared_bytes) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, (const void *)kernel, threads,
                                                         shared_bytes);
}
cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *kernel,
                                           const cudaLaunchConfig_t *config);
template <class T>
cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, T *kernel,
                                           const cudaLaunchConfig_t *config) {
    return cudaOccupancyMaxActiveClusters(clusters, (const void *)kernel, config);
}

namespace simulator {

// What __cluster_dims__ says of a kernel.
struct declared_clusters {
    const char *kernel;
    dim3 size;
    const declared_clusters *next;
    static const declared_clusters *first;

    declared_clusters(const char *kernel, dim3 size) : kernel(kernel), size(size), next(first) {
        first = this;
    }
};

// A launch, without the parameters.
struct configuration {
    const char *kernel;
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
    bool cooperative = false;
    dim3 cluster = 1;   // blocks
    bool early = false; // it may begin before the launch in front of it has ended
    const void *function = nullptr;
    void (*thread)(const void *parameters) = nullptr;
    size_t parameter_bytes = 0;
};

// Where the parameters have to be at a launch. The device cannot reach the caller's stack.
void *parameter_space();

// Gives the kernel to its stream, or records it if that is captured.
cudaError_t submit(const configuration &launch);

// The same for a launch whose error is only asked for later.
void submit_and_go_on(const configuration &launch);

// Puts the parameters where they have to be.
template <class... Parameters>
configuration with_parameters(configuration launch, void (*function)(Parameters...),
                              Parameters... parameters) {
    using call = std::tuple<void (*)(Parameters...), Parameters...>;
    static_assert(sizeof(call) <= 4096, "the parameters of a kernel take at most 4 KiB");
    new (parameter_space()) call(function, parameters...);
    launch.function = (const void *)function;
    launch.thread = [](const void *space) {
        std::apply([](auto kernel, const auto &...values) { kernel(values...); },
                   *(const call *)space);
    };
    launch.parameter_bytes = sizeof(call);
    return launch;
}

// `kernel<<<grid, block, shared_bytes, stream>>>(arguments)`, as translate.sed writes it:
// launch(kernel, "kernel", grid, block, shared_bytes, stream)(arguments).
template <class... Parameters> struct configured_kernel {
    configuration configured;
    void (*function)(Parameters...);

    void operator()(Parameters... arguments) const {
        submit_and_go_on(with_parameters(configured, function, arguments...));
    }
};
template <class... Parameters>
configured_kernel<Parameters...> launch(void (*function)(Parameters...), const char *name,
                                        dim3 grid, dim3 block, size_t shared_bytes = 0,
                                        cudaStream_t stream = 0) {
    return {{name, grid, block, shared_bytes, stream}, function};
}

template <class... Parameters, size_t... I>
cudaError_t launch_together(const configuration &configured, void (*function)(Parameters...),
                            [[maybe_unused]] void **arguments, std::index_sequence<I...>) {
    return submit(
        with_parameters<Parameters...>(configured, function, *(const Parameters *)arguments[I]...));
}
template <class... Parameters>
cudaError_t launch_together(void (*function)(Parameters...), const char *name, dim3 grid,
                            dim3 block, void **arguments, size_t shared_bytes = 0,
                            cudaStream_t stream = 0) {
    return launch_together({name, grid, block, shared_bytes, stream, true}, function, arguments,
                           std::index_sequence_for<Parameters...>());
}

// The same without the kernel's parameters.
configuration configure(const char *kernel, const cudaLaunchConfig_t *config);

template <class... Parameters, class... Arguments>
cudaError_t launch_as_configured(const char *name, const cudaLaunchConfig_t *config,
                                 void (*function)(Parameters...), Arguments &&...arguments) {
    return submit(with_parameters<Parameters...>(configure(name, config), function,
                                                 std::forward<Arguments>(arguments)...));
}

} // namespace simulator

// Macros, because messages have the kernel's name.
#define cudaLaunchKernelEx(config, kernel, ...)                                                    \
    simulator::launch_as_configured(#kernel, config, kernel __VA_OPT__(, ) __VA_ARGS__)
#define cudaLaunchCooperativeKernel(kernel, ...)                                                   \
    simulator::launch_together(kernel, #kernel, __VA_ARGS__)

#endif
