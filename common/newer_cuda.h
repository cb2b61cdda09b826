// For CUDA stages that not every device runs, as CAPABILITY in their Makefile says.
#ifndef COMMON_NEWER_CUDA_H
#define COMMON_NEWER_CUDA_H

#include "common/cuda.h"

// open_device(), and where that device is too old, one line with the stage to use instead, and
// EXIT_NO_DEVICE.
static inline const char *open_newer_device(void) {
    const char *name = open_device();
    int major, minor;
    CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    if (10 * major + minor < CAPABILITY) {
        report_error(STAGE, "needs a device of compute capability %d.%d, found %d.%d; try %s",
                     CAPABILITY / 10, CAPABILITY % 10, major, minor, INSTEAD);
        exit(EXIT_NO_DEVICE);
    }
    return name;
}

#endif
