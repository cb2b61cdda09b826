// What moves data to shared memory while the threads do something else, on devices of compute
// capability 9.0: messages to another block of the cluster, and copies from the GPU's memory. What
// arrives is counted by a barrier in the shared memory that it arrives in, an mbarrier.
//
// CUDA C++ has no functions for these instructions. Here each is one: its PTX for nvcc, and for the
// simulated device a function of sim/asynchronous.cpp.
//
// A barrier goes through phases. One is complete when as many threads have arrived as it has been
// initialised with, and as many bytes as these have said. Then the next one begins. Phases 0, 2, 4
// have parity 0, the others 1. Nobody may arrive or send for a phase before he can know that the
// one before it is complete.
#ifndef COMMON_ASYNCHRONOUS_H
#define COMMON_ASYNCHRONOUS_H

#include <stdint.h>

#ifdef __CUDACC__

static __device__ inline uint32_t shared_address(const void *generic) {
    return (uint32_t)__cvta_generic_to_shared(generic);
}

// One thread initialises a barrier of its block, for so many arrivals in each phase.
static __device__ inline void mbarrier_init(uint64_t *barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
}

// After the same thread has called this, and then a barrier of the block or cluster, what comes
// asynchronously finds the barriers that it has initialised.
static __device__ inline void mbarrier_publish() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ inline void mbarrier_arrive(uint64_t *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}

// Arrives, and says that so many bytes more come in this phase. Some may have come already.
static __device__ inline void mbarrier_expect(uint64_t *barrier, unsigned bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}

// Waits until the phase of this parity is complete. It is the current one or the one before.
static __device__ inline void mbarrier_wait(uint64_t *barrier, unsigned parity) {
    asm volatile(
        "{\n"
        "    .reg .pred complete;\n"
        "again:\n"
        "    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 complete, [%0], %1;\n"
        "    @!complete bra again;\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

// Stores to the shared memory of a block of the cluster, at an address from map_shared_rank(). The
// bytes count at the barrier, which is in the same block. Who has waited there may store to what
// this thread has loaded before, if what is sent depends on it or a barrier was between. What it
// has stored before, he may load only if a __threadfence() was between.
static __device__ inline void store_async(float *to, float value, uint64_t *barrier) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
            shared_address(to)),
        "f"(value), "r"(shared_address(barrier))
        : "memory");
}

static __device__ inline void store_async(float2 *to, float2 value, uint64_t *barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2},"
                 " [%3];" ::"r"(shared_address(to)),
                 "f"(value.x), "f"(value.y), "r"(shared_address(barrier))
                 : "memory");
}

static __device__ inline void store_async(float4 *to, float4 value, uint64_t *barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2,"
                 " %3, %4}, [%5];" ::"r"(shared_address(to)),
                 "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w),
                 "r"(shared_address(barrier))
                 : "memory");
}

// Copies go another way than a thread's loads and stores. What this thread has done comes before
// copies that begin behind its next barrier.
static __device__ inline void fence_async() {
    asm volatile("fence.proxy.async;" ::: "memory");
}

// Copies from the GPU's memory to the block's shared memory. The addresses and the number of bytes
// are multiples of 16. The bytes count at the barrier. Each thread that has touched what is copied
// or overwritten calls fence_async() before the barrier that orders it and the copy.
static __device__ inline void copy_async(void *to, const void *from, unsigned bytes,
                                         uint64_t *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2,"
                 " [%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

#else

void mbarrier_init(uint64_t *barrier, unsigned arrivals);
void mbarrier_publish();
void mbarrier_arrive(uint64_t *barrier);
void mbarrier_expect(uint64_t *barrier, unsigned bytes);
void mbarrier_wait(uint64_t *barrier, unsigned parity);
void store_async(float *to, float value, uint64_t *barrier);
void store_async(float2 *to, float2 value, uint64_t *barrier);
void store_async(float4 *to, float4 value, uint64_t *barrier);
void fence_async();
void copy_async(void *to, const void *from, unsigned bytes, uint64_t *barrier);

#endif
#endif
