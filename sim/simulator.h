// What the parts of the simulator share.
#ifndef SIM_SIMULATOR_H
#define SIM_SIMULATOR_H

#include "cuda_runtime.h"

#include <unordered_map>
#include <vector>

extern "C" void *__real_malloc(size_t bytes);
extern "C" void __real_free(void *memory);

namespace simulator {

// The limits of every compute capability.
constexpr size_t MAX_THREADS = 1024, MAX_BLOCK_Z = 64, MAX_GRID_X = INT32_MAX, MAX_GRID_YZ = 65535;
constexpr size_t SHARED_BYTES = 48 << 10;
constexpr size_t MAX_MULTIPROCESSORS = 256, MAX_BLOCKS = 32; // of a multiprocessor

// What differs. A multiprocessor has room for so many blocks, threads, and bytes of shared memory.
struct capability {
    size_t number; // 75 for 7.5
    size_t blocks, threads, shared_bytes;
    size_t reserved_bytes;      // of them, for each block
    size_t shared_bytes_opt_in; // that a block may have
};
constexpr capability CAPABILITIES[] = {
    {75, 16, 1024, 64 << 10, 0, 64 << 10}, // the oldest that the stages are compiled for
    {90, MAX_BLOCKS, 2048, 228 << 10, 1 << 10, 227 << 10},
};
constexpr size_t MOST_SHARED_BYTES = CAPABILITIES[1].shared_bytes_opt_in;
constexpr size_t MAX_CLUSTER = 8, MAX_NON_PORTABLE_CLUSTER = 16; // blocks, of 9.0
// Memory that nobody has written to has this byte: it makes a NaN as float and as double, and an
// index that is out of every bound.
constexpr int UNINITIALISED = 0xff;

extern struct device {
    bool present;
    const char *name;
    struct capability capability;
    size_t multiprocessors;
    size_t memory, allocated; // bytes
    size_t graphs;            // that are not destroyed
    size_t seed;              // for the order of blocks and threads; 0: from first to last
    cudaError_t last_error;   // what cudaGetLastError() gives
    bool launch_failed;       // and nobody has asked for the error

    size_t kernels;     // that have begun
    size_t pending;     // kernels that the host has not waited for
    const char *kernel; // the name of the last one that was launched or that runs
    bool in_kernel;     // it is running
    bool in_graph;      // it is a node of a graph
} device;

// ---- Reports

struct text {
    char text[512];
};
__attribute__((format(printf, 1, 2))) text print(const char *format, ...);

// Prints a line on standard error.
void complain(const text &line);

// The same, and ends the program. Nothing more of it runs, because half of its memory may be out of
// reach.
[[noreturn]] void die(const text &line);

// Who is running: "the host", or the kernel with its block and thread.
text who();

// The address, and what lies there or next to it.
text describe(const void *memory);

// The file and line that an address of code, behind a call, comes from.
text line_of(const void *code);

cudaError_t fail(cudaError_t error);

// ---- Memory: memory.cpp

struct allocation {
    char *start;
    size_t bytes;
    const char *function; // that allocated it
    bool live;
};

// Allocates bytes that all hold `byte`. They are accessible until memory is given to somebody.
// Returns nullptr if there is no room.
void *allocate(kind kind, size_t bytes, size_t alignment, int byte);

// Frees the live allocation of this kind that begins there. Returns it, or nullptr for none.
const allocation *release(kind kind, void *memory);

// Memory that is of no other kind is HOST, wherever it comes from.
kind kind_of(const void *memory);

// The allocation that the address lies in or behind; nullptr if there is none.
allocation *find_allocation(const void *memory);

// They set who may touch which memory from now on.
void give_memory_to_host();
void give_memory_to_kernel();
void give_memory_to_both();

// They tell AddressSanitizer, if the program is built with it.
void poison(const void *memory, size_t bytes);
void unpoison(const void *memory, size_t bytes);

// Reserves address space. Pages become memory when they are touched.
char *reserve(size_t bytes, bool accessible);

// From now on, kernels cannot reach the host's stack from the frame `innermost` to that of main().
void set_innermost_frame(const void *innermost);

size_t round_up(size_t n, size_t multiple);

// While a kernel runs, it must not reach the host's heap. So what is kept here lies elsewhere.
template <class T> struct elsewhere {
    using value_type = T;
    elsewhere() = default;
    template <class U> elsewhere(const elsewhere<U> &) {
    }
    T *allocate(size_t n) {
        return (T *)__real_malloc(n * sizeof(T));
    }
    void deallocate(T *memory, size_t) {
        __real_free(memory);
    }
    template <class U> bool operator==(const elsewhere<U> &) const {
        return true;
    }
    template <class U> bool operator!=(const elsewhere<U> &) const {
        return false;
    }
};
template <class T> using list = std::vector<T, elsewhere<T>>;
template <class T>
using map = std::unordered_map<size_t, T, std::hash<size_t>, std::equal_to<size_t>,
                               elsewhere<std::pair<const size_t, T>>>;

// ---- Threads: threads.cpp

// The running block's shared memory that is nearest to the address; nullptr if none is near.
const allocation *find_shared_memory(const void *address);

// Sets how much dynamic shared memory a block of the kernel may have. False if that is too much.
bool set_shared_limit(const void *kernel, size_t bytes);

// The number of blocks, of so many threads and so much dynamic shared memory, that a multiprocessor
// runs at once.
size_t blocks_at_once(size_t threads, size_t shared_bytes);

// Lets a kernel have clusters of more than MAX_CLUSTER blocks, or not.
void allow_large_clusters(const void *kernel, bool allowed);

// What is wrong with a launch's clusters, and how many of them the device runs at once.
cudaError_t check_clusters(const configuration &launch);
size_t clusters_at_once(const configuration &launch);

// What is wrong with a launch.
cudaError_t check_launch(const configuration &launch);

// Runs a kernel, with the parameters that are in parameter_space().
void run(const configuration &launch);

// The running thread has done what others may wait for, or lets them go on as it waits itself.
void note_move();
void give_way(const char *what, const void *code);

// A number below n, another for each seed. Seed 0 gives 0.
size_t any_of(size_t n);

// The numbers of the running block in its grid, and of the running thread in its block.
struct position {
    size_t block, thread;
};
position running();

// Whose shared memory it is. `SAME_CLUSTER` is another block than the running one.
struct owner {
    enum { NOBODY, SELF, SAME_CLUSTER, STRANGER } who;
    size_t block;
    bool returned;
};
owner owner_of(const void *address);

// ---- Tensor cores: tensor_cores.cpp

// What a lane brings to a multiplication, laid out as in common/tensor_cores.h.
struct fragments {
    float *sum;
    const uint32_t *a, *b;
};

// Adds a·b to the sum that the lanes of a warp have together.
void multiply(number_format format, const fragments *const *lanes);

// ---- Barriers that count bytes: asynchronous.cpp

// The running block returns. Ends the program if something is under way to it.
void forget_barriers();

// ---- Accesses: accesses.cpp, in programs that count

enum copy_direction { TO_DEVICE, TO_HOST, WITHIN_DEVICE, MEMSET };

#define IF_COUNTING __attribute__((weak))
// `early`: it may begin before the launch in front of it has ended.
IF_COUNTING void note_launch(const char *kernel, size_t grid_blocks, size_t block_threads,
                             size_t cluster_blocks, bool early);
IF_COUNTING void note_end(); // of the launch
// The threads of a block have gone on, each until it waits or has returned.
IF_COUNTING void note_turns_taken();
IF_COUNTING void note_return(size_t block);
IF_COUNTING void note_barrier(size_t block);
IF_COUNTING void note_cluster_barrier(size_t first); // of the blocks from this one on
IF_COUNTING void note_grid_barrier();
IF_COUNTING void note_exchange(size_t warp); // of values, in the running block
IF_COUNTING void note_multiplication();      // of a warp
// A thread has initialised a barrier that counts bytes, arrives, or has waited for its last
// complete phase. Or something starts that will come to the barrier's block, from memory or a
// value, and comes. It belongs to the phase that note_start() returns.
IF_COUNTING void note_barrier_made(const void *barrier, const void *code);
IF_COUNTING void note_arrival(const void *barrier, const void *code);
IF_COUNTING void note_phase(const void *barrier); // is complete
IF_COUNTING void note_wait(const void *barrier, const void *code);
IF_COUNTING unsigned note_start(const void *to, const void *from, size_t bytes, const void *barrier,
                                const void *code);
IF_COUNTING void note_coming(const void *barrier, unsigned phase, const void *code);
IF_COUNTING void note_fence(); // between a thread's accesses and copies that begin later
// The running thread has waited until the launch in front has ended, or lets the next one begin.
IF_COUNTING void note_wait_for_launch();
IF_COUNTING void note_trigger();
IF_COUNTING void note_copy(copy_direction direction, const void *from, size_t bytes);
IF_COUNTING void write_counts();
#undef IF_COUNTING

} // namespace simulator

#endif
