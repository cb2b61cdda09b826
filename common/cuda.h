// What every CUDA stage needs around its kernels: checked calls, the device, the phases' events.
#ifndef COMMON_CUDA_H
#define COMMON_CUDA_H

#include "common/program.h"

#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

// Checks what a CUDA call returned. After a kernel launch, use CHECK(cudaGetLastError()). On an
// error, prints one line with file, line and the driver's words, and exits with EXIT_RUN_FAILED.
#define CHECK(call) check_cuda((call), #call, __FILE__, __LINE__)

static inline void check_cuda(cudaError_t error, const char *call, const char *file, int line) {
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(error));
    exit(EXIT_RUN_FAILED);
}

// Checks an allocation. If there is no room, says how much was asked for and how much is free.
#define CHECK_ALLOCATION(call, bytes)                                                              \
    check_cuda_allocation((call), (bytes), #call, __FILE__, __LINE__)

static inline void check_cuda_allocation(cudaError_t error, size_t bytes, const char *call,
                                         const char *file, int line) {
    if (error == cudaErrorMemoryAllocation) {
        size_t free_bytes = 0, total_bytes = 0;
        cudaGetLastError();
        cudaMemGetInfo(&free_bytes, &total_bytes);
        report_error(STAGE,
                     "out of device memory: asked for %.1f MiB, %.1f MiB of %.1f MiB are free; try "
                     "a smaller run",
                     (double)bytes / (1 << 20), (double)free_bytes / (1 << 20),
                     (double)total_bytes / (1 << 20));
        exit(EXIT_RUN_FAILED);
    }
    check_cuda(error, call, file, line);
}

// Creates the context on the first device and returns the device's name. If no device can be used,
// prints one line with the driver's reason and what to try, and exits with EXIT_NO_DEVICE.
static inline const char *open_device(void) {
    static cudaDeviceProp properties;
    int devices = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error == cudaSuccess && devices == 0)
        error = cudaErrorNoDevice;
    if (error == cudaSuccess)
        error = cudaFree(NULL); // creates the context
    if (error != cudaSuccess) {
        report_error(STAGE,
                     "no usable CUDA device: %s; try `make check`, which simulates one for the "
                     "stages",
                     cudaGetErrorString(error));
        exit(EXIT_NO_DEVICE);
    }
    CHECK(cudaGetDeviceProperties(&properties, 0));
    return properties.name;
}

// Whether this name is that of the simulated device (sim/). Times mean nothing there.
static inline bool is_simulated(const char *device) {
    return strcmp(device, "simulated") == 0;
}

// Returns the device memory that all programs use, in MiB. What a stage has added at its end is its
// peak, but for a graph or ticks that it has freed.
static inline double used_device_mib(void) {
    size_t free_bytes, total_bytes;
    CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    return (double)(total_bytes - free_bytes) / (1 << 20);
}

// How long a GPU works before it is timed, in seconds: idle, it runs at a fraction of its clock. A
// profile is in no hurry, and sets WARMUP_S in the environment to 0.
static inline double warmup_seconds(void) {
    const char *text = getenv("WARMUP_S");
    return text ? atof(text) : 0.5;
}

// The marks between the phases of a run, in the order in which the device passes them.
struct phase_events {
    std::vector<cudaEvent_t> events;
    size_t recorded;
};

// Creates so many events. They are created before the phases and read after them, so that a phase
// only records one and the host never waits for one. n phases in a row need n + 1.
static inline struct phase_events create_events(size_t count) {
    struct phase_events events = {std::vector<cudaEvent_t>(count), 0};
    for (cudaEvent_t &event : events.events)
        CHECK(cudaEventCreate(&event));
    return events;
}

// Marks the start of the first phase, or the end of a phase, in the stream of kernels. An event
// takes the device a microsecond or more, so a run whose whole time counts has none: NULL.
static inline void mark_phase(struct phase_events *events, cudaStream_t stream = 0) {
    if (events)
        CHECK(cudaEventRecord(events->events[events->recorded++], stream));
}

// Adds the times between the marks to the timers of the phases in turn, multiplies the timers as
// timer_repeat() does, and destroys the events. The device must have passed all of them.
static inline void collect_events(struct phase_events *events,
                                  const std::vector<struct timer *> &phases, long times = 1) {
    for (size_t i = 1; i < events->recorded; ++i) {
        float milliseconds;
        CHECK(cudaEventElapsedTime(&milliseconds, events->events[i - 1], events->events[i]));
        timer_add(phases[(i - 1) % phases.size()], 1e-3 * milliseconds);
    }
    for (struct timer *phase : phases)
        timer_repeat(phase, times);
    for (cudaEvent_t event : events->events)
        CHECK(cudaEventDestroy(event));
}

#endif
