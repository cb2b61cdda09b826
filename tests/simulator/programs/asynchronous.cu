// Right and wrong programs of common/asynchronous.h: asynchronous NAME.
#include "common/asynchronous.h"
#include "tests/simulator/programs/programs.h"

#include <cooperative_groups.h>

enum { THREADS = 32, ROUNDS = 6, AHEAD = 2 };

// What a program does wrong.
enum fault {
    NONE,
    NO_BARRIER,     // between the initialisation and the first use
    NO_PUBLICATION, // of the barriers
    NO_ARRIVALS,    // for a barrier to count
    NO_WAIT,        // for the last round
    NO_COPY,        // of the last round
    NO_PARITY,
    NO_ACKNOWLEDGEMENT,
    TWO_INBOXES,   // in place of it
    MORE_BYTES,    // than expected
    MORE_ARRIVALS, // than the barrier counts
    MORE_ROUNDS,   // than are waited for
    MISALIGNED,
    WRONG_SIZE,
    SOURCE_CHANGES,
    BUFFER_IN_USE,
    NO_FENCE, // between loads and the next copy
    TOO_MUCH,
    BLOCK_RETURNED,
    OWN_BARRIER,
    BARRIER_OF_OTHER
};

// A block sums up rounds of numbers, which it copies to shared memory two rounds ahead.
__global__ void sum_up(float *sums, float *from, fault fault) {
    __shared__ float4 buffers[AHEAD][THREADS / 4];
    __shared__ uint64_t arrived[AHEAD];
    const int i = threadIdx.x;
    const auto start = [&](int round) {
        const bool last = round == ROUNDS - 1;
        const unsigned bytes =
            sizeof buffers[0] + 16 * (fault == TOO_MUCH) - 8 * (fault == WRONG_SIZE);
        float4 *const to = buffers[round % AHEAD];
        uint64_t *const barrier = &arrived[round % AHEAD];
        mbarrier_expect(barrier, bytes - (fault == MORE_BYTES && last ? 16 : 0));
        if (fault == MORE_ARRIVALS)
            mbarrier_arrive(barrier); // one more
        if (fault != NO_COPY || !last)
            copy_async(to, from + round * THREADS + (fault == MISALIGNED), bytes, barrier); // ahead
    };
    if (i == 0) {
        for (int buffer = 0; buffer < AHEAD; ++buffer)
            mbarrier_init(&arrived[buffer], fault != NO_ARRIVALS); // with one arrival
        if (fault != NO_PUBLICATION)
            mbarrier_publish();
        for (int round = 0; round < AHEAD; ++round)
            start(round);
    }
    if (fault != NO_BARRIER)
        __syncthreads();
    if (fault == SOURCE_CHANGES)
        from[i] = 0; // while it is copied
    float sum = 0;
    for (int round = 0; round < ROUNDS; ++round) {
        const float *const buffer = (const float *)buffers[round % AHEAD];
        const int parity = fault == NO_PARITY ? round : round / AHEAD % 2;
        if (fault != NO_WAIT || round < ROUNDS - 1)
            mbarrier_wait(&arrived[round % AHEAD], parity); // for the round's
        sum = 2 * sum + buffer[(i + 1) % THREADS];          // of the round
        if (fault != NO_FENCE)
            fence_async();
        if (fault != BUFFER_IN_USE)
            __syncthreads();
        if (i == 0 && round + AHEAD < ROUNDS + (fault == MORE_ROUNDS))
            start(round + AHEAD);
    }
    sums[i] = sum;
}

static void launch_sum_up(float *x, fault fault = NONE, bool from_host = false) {
    float *const from = device_memory();
    float numbers[N];
    for (int i = 0; i < N; ++i)
        numbers[i] = (float)(i % 7);
    cudaMemcpy(from, numbers, BYTES, cudaMemcpyHostToDevice);
    sum_up<<<1, THREADS>>>(x, from_host ? numbers : from, fault);
    print(x);
    cudaFree(from);
}

// The two blocks of a cluster send each other numbers in turn. A message also says that its thread
// has read what came last. So there is one inbox, and no barrier of the cluster.
__global__ void __cluster_dims__(2, 1, 1) exchange(float *sums, fault fault) {
    __shared__ float4 inbox[2][THREADS];
    __shared__ float own[THREADS];
    __shared__ uint64_t arrived[1], all_read[1];
    const auto cluster = cooperative_groups::this_cluster();
    const int i = threadIdx.x, rank = cluster.block_rank(), other = 1 - rank;
    uint64_t *const there = cluster.map_shared_rank(arrived, other);
    float sum = 0;
    if (i == 0) {
        mbarrier_init(arrived, 1);
        mbarrier_init(all_read, THREADS);
        mbarrier_publish();
    }
    if (fault == NO_BARRIER)
        __syncthreads();
    else
        cluster.sync();
    for (int round = 0; round < ROUNDS; ++round) {
        const bool both = fault == NO_ACKNOWLEDGEMENT || fault == TWO_INBOXES;
        float4 *const in = inbox[fault == TWO_INBOXES ? round % 2 : 0];
        float4 *const to = cluster.map_shared_rank(in, other);
        uint64_t *const barrier = fault == OWN_BARRIER ? arrived : there;
        const float4 message = make_float4((float)(i + round), 0, 1, 0);
        if ((both || round % 2 == rank) && !(fault == NO_COPY && i == 7))
            store_async(to + i, message, barrier); // a message's
        if (!both && round % 2 == rank)
            continue;
        if (i == 0)
            mbarrier_expect(fault == BARRIER_OF_OTHER ? there : arrived, sizeof inbox[0]); // all
        mbarrier_wait(arrived, (both ? round : round / 2) % 2); // for a message
        sum = 2 * sum + in[i].x + in[i].z;
    }
    own[i] = sum;
    mbarrier_arrive(all_read); // once
    if (fault == NO_WAIT)
        mbarrier_arrive(all_read);
    mbarrier_wait(all_read, 0);
    float *const word = cluster.map_shared_rank((float *)inbox, other);
    if (fault == MISALIGNED)
        store_async((float2 *)(word + 1), make_float2(0, 0), there); // at 4
    if (fault == BLOCK_RETURNED) {
        cluster.sync();
        if (rank == 1)
            store_async(word + i, 0, there); // that nobody expects
    }
    const int from = fault == NO_WAIT ? i : (i + 1) % THREADS;
    sums[blockIdx.x * THREADS + i] = own[from]; // an arrival hands over stores
}

static void launch_exchange(float *x, fault fault = NONE) {
    exchange<<<4, THREADS>>>(x, fault);
    print(x);
}

// A message says that there is something to load from the block that has sent it.
__global__ void __cluster_dims__(2, 1, 1) hand_over(float *got, bool fence) {
    __shared__ float own[THREADS], inbox[THREADS];
    __shared__ uint64_t arrived[1];
    const auto cluster = cooperative_groups::this_cluster();
    const int i = threadIdx.x, rank = cluster.block_rank();
    if (i == 0) {
        mbarrier_init(arrived, 1);
        mbarrier_publish();
    }
    cluster.sync();
    if (rank == 0) {
        own[i] = 1; // to hand over
        if (fence)
            __threadfence();
        store_async(cluster.map_shared_rank(inbox, 1) + i, 1, cluster.map_shared_rank(arrived, 1));
    } else {
        if (i == 0)
            mbarrier_expect(arrived, sizeof inbox);
        mbarrier_wait(arrived, 0);
        got[i] = inbox[i] + cluster.map_shared_rank(own, 0)[i]; // handed over
    }
    cluster.sync();
}

static void launch_hand_over(float *x, bool fence) {
    hand_over<<<2, THREADS>>>(x, fence);
    print(x);
}

// Two warps have loaded a word. Both say so to the other block before it stores to the word, or
// only the second one does.
__global__ void __cluster_dims__(2, 1, 1) acknowledge(float *got, bool both) {
    __shared__ float word[1], inbox[2];
    __shared__ uint64_t arrived[1];
    const auto cluster = cooperative_groups::this_cluster();
    const int i = threadIdx.x, warp = i / 32, rank = cluster.block_rank();
    if (i == 0) {
        word[0] = 1;
        mbarrier_init(arrived, 1);
        mbarrier_publish();
    }
    cluster.sync();
    if (rank == 1) {
        got[i] = word[0]; // by each of two warps
        __syncwarp();
        if (i % 32 == 0 && (both || warp == 1))
            store_async(cluster.map_shared_rank(inbox, 0) + warp, 1,
                        cluster.map_shared_rank(arrived, 0));
    } else if (i == 0) {
        mbarrier_expect(arrived, both ? 8 : 4);
        mbarrier_wait(arrived, 0);
        cluster.map_shared_rank(word, 1)[0] = 2; // behind the loads
    }
    cluster.sync();
}

static void launch_acknowledge(float *x, bool both) {
    acknowledge<<<2, 2 * THREADS>>>(x, both);
    print(x);
}

// A lane waits for all of its warp, and a block for what a thread of it starts after a barrier of
// the grid.
__global__ void wait_for_others(float *sums, const float *from) {
    __shared__ float4 buffer[THREADS / 4];
    __shared__ uint64_t arrived[1];
    const int i = threadIdx.x;
    if (i == 0) {
        mbarrier_init(arrived, 1);
        mbarrier_publish();
    }
    __syncthreads();
    float sum = 0;
    for (int phase = 0; phase < 2; ++phase) {
        if (i == THREADS * phase / 2) {
            mbarrier_expect(arrived, sizeof buffer);
            copy_async(buffer, from + phase * THREADS, sizeof buffer, arrived);
            mbarrier_wait(arrived, phase);
        }
        __syncwarp();
        sum = 2 * sum + ((float *)buffer)[(i + 1) % THREADS];
        fence_async();
        cooperative_groups::this_grid().sync();
    }
    sums[blockIdx.x * THREADS + i] = sum;
}

static void launch_wait_for_others(float *x) {
    float *const from = device_memory();
    fill<<<1, N>>>(from, N, 1);
    void *arguments[] = {&x, (void *)&from};
    cudaLaunchCooperativeKernel((const void *)wait_for_others, 2, THREADS, arguments, 0, 0);
    print(x);
    cudaFree(from);
}

// A block copies what it has stored to the GPU's memory.
__global__ void store_and_copy(float *x, bool fence) {
    __shared__ float4 buffer[THREADS / 4];
    __shared__ uint64_t arrived[1];
    const int i = threadIdx.x;
    if (i == 0) {
        mbarrier_init(arrived, 1);
        mbarrier_publish();
    }
    x[i] = (float)i; // to copy
    if (fence)
        fence_async();
    __syncthreads();
    if (i == 0) {
        mbarrier_expect(arrived, sizeof buffer);
        copy_async(buffer, x, sizeof buffer, arrived); // what is there
    }
    mbarrier_wait(arrived, 0);
    x[THREADS + i] = ((float *)buffer)[(i + 1) % THREADS];
}

static void launch_store_and_copy(float *x, bool fence) {
    store_and_copy<<<1, THREADS>>>(x, fence);
    print(x);
}

int main(int argc, char **argv) {
    programs["copies"] = [](float *x) { launch_sum_up(x); };
    programs["copies_without_barrier"] = [](float *x) { launch_sum_up(x, NO_BARRIER); };
    programs["copies_without_publication"] = [](float *x) { launch_sum_up(x, NO_PUBLICATION); };
    programs["copies_without_arrivals"] = [](float *x) { launch_sum_up(x, NO_ARRIVALS); };
    programs["copies_without_wait"] = [](float *x) { launch_sum_up(x, NO_WAIT); };
    programs["copies_that_never_start"] = [](float *x) { launch_sum_up(x, NO_COPY); };
    programs["copies_without_parity"] = [](float *x) { launch_sum_up(x, NO_PARITY); };
    programs["copies_of_more_bytes"] = [](float *x) { launch_sum_up(x, MORE_BYTES); };
    programs["copies_with_more_arrivals"] = [](float *x) { launch_sum_up(x, MORE_ARRIVALS); };
    programs["copies_of_more_rounds"] = [](float *x) { launch_sum_up(x, MORE_ROUNDS); };
    programs["copies_misaligned"] = [](float *x) { launch_sum_up(x, MISALIGNED); };
    programs["copies_of_wrong_size"] = [](float *x) { launch_sum_up(x, WRONG_SIZE); };
    programs["copies_past_the_end"] = [](float *x) { launch_sum_up(x, TOO_MUCH); };
    programs["copies_from_host"] = [](float *x) { launch_sum_up(x, NONE, true); };
    programs["copies_of_what_changes"] = [](float *x) { launch_sum_up(x, SOURCE_CHANGES); };
    programs["copies_to_what_is_read"] = [](float *x) { launch_sum_up(x, BUFFER_IN_USE); };
    programs["copies_without_fence"] = [](float *x) { launch_sum_up(x, NO_FENCE); };
    programs["copies_of_what_was_stored"] = [](float *x) { launch_store_and_copy(x, false); };
    programs["copies_of_what_is_fenced"] = [](float *x) { launch_store_and_copy(x, true); };
    programs["waits_for_others"] = launch_wait_for_others;
    programs["messages"] = [](float *x) { launch_exchange(x); };
    programs["messages_without_barrier"] = [](float *x) { launch_exchange(x, NO_BARRIER); };
    programs["messages_that_never_come"] = [](float *x) { launch_exchange(x, NO_COPY); };
    programs["messages_too_early"] = [](float *x) { launch_exchange(x, NO_ACKNOWLEDGEMENT); };
    programs["messages_in_two_inboxes"] = [](float *x) { launch_exchange(x, TWO_INBOXES); };
    programs["messages_hand_over"] = [](float *x) { launch_hand_over(x, true); };
    programs["messages_without_fence"] = [](float *x) { launch_hand_over(x, false); };
    programs["messages_acknowledge"] = [](float *x) { launch_acknowledge(x, true); };
    programs["messages_of_one_warp"] = [](float *x) { launch_acknowledge(x, false); };
    programs["messages_to_who_returned"] = [](float *x) { launch_exchange(x, BLOCK_RETURNED); };
    programs["messages_misaligned"] = [](float *x) { launch_exchange(x, MISALIGNED); };
    programs["messages_of_own_barrier"] = [](float *x) { launch_exchange(x, OWN_BARRIER); };
    programs["barrier_without_wait"] = [](float *x) { launch_exchange(x, NO_WAIT); };
    programs["barrier_of_other_block"] = [](float *x) { launch_exchange(x, BARRIER_OF_OTHER); };
    return run_program(argc, argv);
}
