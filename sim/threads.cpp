// Threads as fibres: `kernel<<<grid, block>>>(...)`, and the functions that kernels call.
#include "simulator.h"

#include <dlfcn.h>
#include <gnu/lib-names.h>
#include <omp.h>
#include <setjmp.h>
#include <ucontext.h>

#include <initializer_list>
#include <numeric>

__thread uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
const simulator::declared_clusters *simulator::declared_clusters::first;

namespace simulator {
namespace {

struct {
    size_t threads, blocks; // in a block, in the grid
    size_t begun;           // blocks, and more when all have
    size_t shared_bytes;    // of dynamic shared memory
    size_t shared_limit;    // of all shared memory of a block
    size_t cluster;         // blocks
    bool cooperative;
    uint3 indices[MAX_THREADS];
    void (*thread)(const void *parameters);
    alignas(64) char parameters[4096];
} grid;

struct place {
    const char *what, *file;
    int line;
    const void *code; // instead of a file and a line
};
const char GRID_BARRIER[] = "grid.sync", CLUSTER_BARRIER[] = "cluster.sync";
enum thread_state : uint8_t { RUNNING, READY, AT_BARRIER, IN_EXCHANGE, RETURNED };
struct thread {
    thread_state state;
    size_t fibre;
    place at;       // where it waits
    unsigned mask;  // of the lanes that exchange values
    int source;     // the lane whose value it gets
    uint64_t value; // its own, then that of the source
};

// An order of the numbers below n: first, first + step, ... modulo n.
struct order {
    size_t n, next, step;

    size_t take() {
        const size_t taken = next;
        next += step;
        next -= next >= n ? n : 0;
        return taken;
    }
};

constexpr size_t MAX_SHARED_ARRAYS = 256, SHARED_GAP = 4096;
constexpr size_t SHARED_SPACE = MOST_SHARED_BYTES + (MAX_SHARED_ARRAYS + 1) * (SHARED_GAP + 128);
static_assert(SHARED_SPACE % 128 == 0, "each begins at the first bank");
// Stacks at a distance of a power of two would compete for the same lines of the cache.
constexpr size_t STACK_BYTES = (64 << 10) + 320, STACK_END_BYTES = 1024;

// A core of the machine runs one block at a time. It runs one of the block's threads until that
// thread must wait for others. As long as none must wait, all threads share a fibre. A thread that
// waits keeps its fibre, and the next threads run on another. Blocks that are alive at once have a
// `core` each, and a core of the machine takes turns with several.
struct core {
    size_t block, slot; // its place in `together`
    core *next_idle;
    order starting;
    size_t moment;                                   // how often its threads have taken turns
    size_t unstarted, unreturned, at_barrier, ready; // threads
    size_t running;                                  // the thread
    size_t steps;                                    // that it has taken since it went on
    bool gave_way;                                   // a thread has, in a loop in which it may wait
    bool moved; // a thread has done something that others may wait for
    thread threads[MAX_THREADS];
    unsigned exchanging[MAX_THREADS / warpSize]; // lanes of each warp

    size_t fibre; // the one to start
    size_t fibres_made;
    jmp_buf scheduler, fibres[MAX_THREADS];
    char *stacks;

    char *shared;
    size_t shared_used, shared_bytes; // with the gaps between arrays, and without
    // `start` is nullptr until a thread of the block comes to the declaration.
    allocation arrays[MAX_SHARED_ARRAYS];
};
__thread core *this_core;
constexpr size_t MAX_CORES = MAX_MULTIPROCESSORS * MAX_BLOCKS;
// Those of blocks that are alive at once. The blocks of a cluster have slots one after the other.
core *together[MAX_CORES];
// Those of no block, which this core of the machine has made. Another must not run their fibres,
// because these may hold addresses of its variables.
__thread core *idle_cores;
core *cores[MAX_CORES]; // by the place of their shared memory
char *shared_spaces;
size_t cores_made;

// The C library's own function. Those of _FORTIFY_SOURCE and the sanitizers, which replace it, take
// a jump to another stack for an error.
void (*const long_jump)(jmp_buf, int) = (void (*)(jmp_buf, int))
    dlsym(dlopen(LIBC_SO, RTLD_LAZY | RTLD_NOLOAD), "_longjmp");

// makecontext() prepares a stack. But swapcontext() would ask the system for the signal mask at
// each switch, and take many times as long.
__attribute__((noinline)) void switch_stack(jmp_buf from, jmp_buf to) {
    if (_setjmp(from) == 0)
        long_jump(to, 1);
}

__attribute__((noinline)) void switch_to_new_stack(jmp_buf from, char *stack, size_t bytes,
                                                   void (*function)()) {
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = bytes;
    makecontext(&context, function, 0);
    if (_setjmp(from) == 0)
        setcontext(&context);
}

core *make_core() {
    core *const made = (core *)reserve(sizeof *made, true);
    made->stacks = reserve(MAX_THREADS * STACK_BYTES, true);
    for (size_t fibre = 0; fibre < MAX_THREADS; ++fibre)
        poison(made->stacks + fibre * STACK_BYTES, STACK_END_BYTES);
    const size_t number = __atomic_fetch_add(&cores_made, 1, __ATOMIC_RELAXED);
    cores[number] = made;
    made->shared = shared_spaces + number * SHARED_SPACE;
    poison(made->shared, SHARED_SPACE);
    return made;
}

// Gives another order for each seed, launch, block and moment of the block.
order shuffle(size_t n, size_t block, size_t moment) {
    if (device.seed == 0)
        return {n, 0, 1};
    uint64_t random = 0;
    for (uint64_t part : {device.seed, device.kernels, block, moment}) { // as in splitmix64
        random = (random ^ part) + 0x9e3779b97f4a7c15;
        random = (random ^ random >> 30) * 0xbf58476d1ce4e5b9;
        random = (random ^ random >> 27) * 0x94d049bb133111eb;
        random ^= random >> 31;
    }
    size_t step = random % n;
    do
        ++step;
    while (std::gcd(step, n) != 1);
    return {n, (random >> 20) % n, step % n};
}

void set_running(size_t thread) {
    this_core->running = thread;
    this_core->steps = 0;
    this_core->threads[thread].state = RUNNING;
    threadIdx = grid.indices[thread];
}

// Runs threads until all have been started. A thread that must wait keeps this fibre, and the next
// fibre starts the others.
void fibre_main() {
    const size_t fibre = this_core->fibre;
    for (;;) {
        while (this_core->unstarted) {
            --this_core->unstarted;
            set_running(this_core->starting.take());
            this_core->threads[this_core->running].fibre = fibre;
            grid.thread(grid.parameters);
            this_core->threads[this_core->running].state = RETURNED;
            --this_core->unreturned;
            this_core->moved = true;
        }
        switch_stack(this_core->fibres[fibre], this_core->scheduler);
    }
}

void start_threads(size_t fibre) {
    this_core->fibre = fibre;
    if (fibre < this_core->fibres_made)
        return switch_stack(this_core->scheduler, this_core->fibres[fibre]);
    ++this_core->fibres_made;
    switch_to_new_stack(this_core->scheduler, this_core->stacks + fibre * STACK_BYTES, STACK_BYTES,
                        fibre_main);
}

void resume(size_t thread) {
    --this_core->ready;
    set_running(thread);
    switch_stack(this_core->scheduler, this_core->fibres[this_core->threads[thread].fibre]);
}

// A thread calls this. It returns when the thread is resumed.
void wait(thread_state state, const place &at) {
    thread &waiting = this_core->threads[this_core->running];
    waiting.state = state;
    waiting.at = at;
    switch_stack(this_core->fibres[waiting.fibre], this_core->scheduler);
}

bool same(const place &a, const place &b) {
    return a.line == b.line && a.code == b.code &&
           (a.file == b.file || strcmp(a.file, b.file) == 0) &&
           (a.what == b.what || strcmp(a.what, b.what) == 0);
}

// No thread or block can go on: they wait at different places, or for some that have returned. Says
// where they wait, if at(i) is the place of thread or block i, or nullptr where it does not wait.
template <class At>
[[noreturn]] void report_stall(const text &whose, const char *what, size_t n, size_t unbegun,
                               At at) {
    text places = {};
    size_t waiting = 0;
    constexpr size_t MOST = max(MAX_THREADS, MAX_MULTIPROCESSORS * MAX_BLOCKS);
    bool counted[MOST] = {};
    for (size_t i = 0; i < min(n, MOST); ++i) {
        const place *const first = at(i);
        size_t count = 0;
        waiting += first != nullptr;
        if (!first || counted[i])
            continue;
        for (size_t other = i; other < min(n, MOST); ++other) {
            if (!at(other) || !same(*at(other), *first))
                continue;
            counted[other] = true;
            ++count;
        }
        give_memory_to_both(); // because line_of() starts a program
        places = print(
            "%s, %zu wait at %s in %s", places.text, count, first->what,
            (first->code ? line_of(first->code) : print("%s:%d", first->file, first->line)).text);
    }
    if (unbegun)
        places = print("%s, %zu find no room before others return", places.text, unbegun);
    die(print("%s: of %zu %s %zu returned%s", whose.text, n, what, n - waiting - unbegun,
              places.text));
}

[[noreturn]] void report_stalled_threads() {
    report_stall(
        print("kernel %s, block (%u,%u,%u)", device.kernel, blockIdx.x, blockIdx.y, blockIdx.z),
        "threads", grid.threads, 0, [](size_t t) {
            const thread &thread = this_core->threads[t];
            return thread.state == RETURNED ? nullptr : &thread.at;
        });
}

// All threads go on from a barrier.
void open_barrier(core *core) {
    for (size_t t = 0; t < grid.threads; ++t)
        core->threads[t].state = READY;
    core->at_barrier = 0;
    core->ready = grid.threads;
}

void begin_block(size_t block, size_t slot) {
    this_core = idle_cores ? idle_cores : make_core();
    idle_cores = this_core->next_idle;
    together[slot] = this_core;
    this_core->slot = slot;
    poison(this_core->shared, this_core->shared_used);
    this_core->shared_used = this_core->shared_bytes = 0;
    memset(this_core->arrays, 0, sizeof this_core->arrays);
    this_core->block = block;
    this_core->starting = shuffle(grid.threads, block, 0);
    this_core->moment = 1;
    this_core->unstarted = this_core->unreturned = grid.threads;
}

// Whether all threads of a block wait at such a barrier.
bool is_at(const core *core, const char *barrier) {
    return core->unreturned && core->at_barrier == grid.threads &&
           core->threads[0].at.what == barrier;
}

void return_block() {
    forget_barriers();
    if (grid.cluster == 1)
        return;
    // The others of its cluster find it no more.
    if (note_return)
        note_return(this_core->block);
    unpoison(this_core->shared, this_core->shared_used);
    memset(this_core->shared, UNINITIALISED, this_core->shared_used);
    poison(this_core->shared, this_core->shared_used);
}

// Runs a block that has begun until all its threads have returned, wait for the other blocks, or
// may do so in a loop. Returns whether any has moved.
bool run_block() {
    const size_t block = this_core->block;
    this_core->moved = this_core->gave_way = false;
    blockIdx.x = (unsigned)(block % gridDim.x);
    blockIdx.y = (unsigned)(block / gridDim.x % gridDim.y);
    blockIdx.z = (unsigned)(block / gridDim.x / gridDim.y);
    for (size_t fibre = 0; this_core->unstarted; ++fibre)
        start_threads(fibre);
    if (note_turns_taken)
        note_turns_taken();
    for (; this_core->unreturned && !this_core->gave_way; ++this_core->moment) {
        if (this_core->at_barrier == grid.threads) {
            const place &at = this_core->threads[0].at;
            for (size_t t = 0; t < grid.threads; ++t)
                if (!same(this_core->threads[t].at, at))
                    report_stalled_threads();
            if (at.what == GRID_BARRIER || at.what == CLUSTER_BARRIER)
                break;
            if (note_barrier)
                note_barrier(block);
            open_barrier(this_core);
        }
        if (!this_core->ready)
            report_stalled_threads();
        order order = shuffle(grid.threads, block, this_core->moment);
        for (size_t i = 0; i < grid.threads; ++i) {
            const size_t thread = order.take();
            if (this_core->threads[thread].state == READY)
                resume(thread);
        }
        if (note_turns_taken)
            note_turns_taken();
    }
    if (!this_core->unreturned)
        return_block();
    return this_core->moved;
}

// Whether a block of the cluster that has the slots from `first` on has not returned.
bool is_alive(size_t first) {
    for (size_t slot = first; slot < first + grid.cluster; ++slot)
        if (together[slot] && together[slot]->unreturned)
            return true;
    return false;
}

void end_cluster(size_t first) {
    for (size_t slot = first; slot < first + grid.cluster; ++slot) {
        together[slot]->next_idle = idle_cores;
        idle_cores = together[slot];
        together[slot] = nullptr;
    }
}

// Runs the blocks of the cluster that has the slots from `first` on, from one of its barriers to
// the next, until all have returned or wait otherwise. Returns whether any has moved.
bool run_cluster(size_t first) {
    bool moved = false;
    for (;;) {
        size_t waiting = 0;
        const core *const leader = together[first];
        order order = shuffle(grid.cluster, leader->block, leader->moment);
        for (size_t i = 0; i < grid.cluster; ++i) {
            this_core = together[first + order.take()];
            if (this_core->unreturned && !is_at(this_core, CLUSTER_BARRIER))
                moved = run_block() || moved;
        }
        for (size_t rank = 0; rank < grid.cluster; ++rank)
            waiting += is_at(together[first + rank], CLUSTER_BARRIER) &&
                       same(together[first + rank]->threads[0].at, leader->threads[0].at);
        if (waiting < grid.cluster)
            break;
        for (size_t rank = 0; rank < grid.cluster; ++rank) {
            open_barrier(together[first + rank]);
            ++together[first + rank]->moment;
        }
        if (note_cluster_barrier)
            note_cluster_barrier(leader->block);
    }
    if (!is_alive(first))
        end_cluster(first);
    return moved;
}

// A thread has given way in a loop without an atomic operation. What it stores may be what others
// wait for, and only time tells whether they wait for ever.
bool unseen_stores;

// Each block that has begun has returned, waits for the others, or may do so in a loop. Returns
// whether some may go on. None has moved the last `idle` times, nor in so many seconds.
bool go_on(size_t slots, size_t idle, time_t seconds) {
    const auto at = [=](size_t slot) -> const place * {
        const core *const core = slot < slots ? together[slot] : nullptr;
        if (!core || !core->unreturned)
            return nullptr;
        size_t t = 0;
        while (core->ready && core->threads[t].state != READY)
            ++t;
        return &core->threads[t].at;
    };
    size_t alive = 0, at_barrier = 0;
    bool apart = false;
    const place *first = nullptr;
    for (size_t slot = 0; slot < slots; ++slot) {
        if (!at(slot))
            continue;
        ++alive;
        at_barrier += together[slot]->at_barrier == grid.threads;
        first = first ? first : at(slot);
        apart = apart || !same(*at(slot), *first) || first->what == CLUSTER_BARRIER;
    }
    if (!alive)
        return false;
    const bool all_wait = at_barrier == alive;
    if (all_wait ? apart || alive < grid.blocks : idle > 1000 && (!unseen_stores || seconds > 5)) {
        if (grid.blocks == 1)
            report_stalled_threads();
        report_stall(print("kernel %s", device.kernel), "blocks", grid.blocks,
                     grid.blocks - min(grid.begun, grid.blocks), at);
    }
    for (size_t slot = 0; all_wait && slot < slots; ++slot) {
        open_barrier(together[slot]);
        ++together[slot]->moment;
    }
    if (all_wait && note_grid_barrier)
        note_grid_barrier();
    return true;
}

// Begins the blocks of the next cluster. False if there is none.
bool begin_cluster(size_t first, const order &clusters) {
    if (grid.begun >= grid.blocks)
        return false;
    const size_t next = __atomic_fetch_add(&grid.begun, grid.cluster, __ATOMIC_RELAXED);
    if (next >= grid.blocks)
        return false;
    const size_t cluster =
        (size_t)((clusters.next + (unsigned __int128)(next / grid.cluster) * clusters.step) %
                 clusters.n);
    for (size_t rank = 0; rank < grid.cluster; ++rank)
        begin_block(cluster * grid.cluster + rank, first + rank);
    return true;
}

// Runs the blocks, as many at once as a device has room for. A block that waits keeps its room, and
// those of a cluster begin together.
void run_blocks() {
    const order clusters = shuffle(grid.blocks / grid.cluster, 0, 0);
    const size_t room = device.multiprocessors * blocks_at_once(grid.threads, grid.shared_bytes);
    const size_t slots = min(room / grid.cluster * grid.cluster, grid.blocks);
    size_t idle = 0, moment = 0;
    time_t progress_at = time(nullptr);
    bool moved;
    grid.begun = 0;
    unseen_stores = false;
    do {
        moved = false;
#pragma omp parallel if (grid.blocks > 1 && !note_launch) reduction(|| : moved)
        {
            const size_t cores = (size_t)omp_get_num_threads(),
                         number = (size_t)omp_get_thread_num();
            order order = shuffle(slots / grid.cluster, 0, moment);
            for (size_t i = 0; i < slots / grid.cluster; ++i) {
                const size_t cluster = order.take(), first = cluster * grid.cluster;
                if (cluster % cores != number)
                    continue;
                if (is_alive(first))
                    moved = run_cluster(first) || moved;
                while (!is_alive(first) && begin_cluster(first, clusters))
                    moved = run_cluster(first) || moved;
            }
        }
        idle = moved ? 0 : idle + 1;
        progress_at = moved ? time(nullptr) : progress_at;
        ++moment;
    } while (go_on(slots, idle, time(nullptr) - progress_at));
}

// While kernels run, nothing may need the host's stack. So its thread runs blocks on another one.
jmp_buf host, launcher;

void launcher_main() {
    for (;;) {
        give_memory_to_kernel();
        run_blocks();
        give_memory_to_host();
        switch_stack(launcher, host);
    }
}

// Of dynamic shared memory, in bytes, by the address of a kernel that has not the usual limit.
map<size_t> shared_limits;
map<bool> large_clusters; // are allowed, by the address of a kernel

size_t count(dim3 size) {
    return (size_t)size.x * size.y * size.z;
}

bool valid(dim3 grid, dim3 block) {
    return grid.x && grid.y && grid.z && block.x && block.y && block.z && grid.x <= MAX_GRID_X &&
           grid.y <= MAX_GRID_YZ && grid.z <= MAX_GRID_YZ && block.x <= MAX_THREADS &&
           block.y <= MAX_THREADS && block.z <= MAX_BLOCK_Z && count(block) <= MAX_THREADS;
}

} // namespace

bool set_shared_limit(const void *kernel, size_t bytes) {
    if (bytes > device.capability.shared_bytes_opt_in)
        return false;
    shared_limits[(size_t)kernel] = bytes;
    return true;
}

size_t blocks_at_once(size_t threads, size_t shared_bytes) {
    const capability &room = device.capability;
    const size_t blocks = min(room.blocks, room.threads / threads);
    const size_t bytes = shared_bytes + room.reserved_bytes;
    return bytes ? min(blocks, room.shared_bytes / bytes) : blocks;
}

void allow_large_clusters(const void *kernel, bool allowed) {
    large_clusters[(size_t)kernel] = allowed;
}

cudaError_t check_clusters(const configuration &launch) {
    const size_t blocks = count(launch.cluster);
    if (blocks == 1)
        return cudaSuccess;
    if (launch.cluster.y > 1 || launch.cluster.z > 1)
        complain(print("a cluster whose blocks are not neighbours in x is not simulated"));
    const size_t most =
        large_clusters[(size_t)launch.function] ? MAX_NON_PORTABLE_CLUSTER : MAX_CLUSTER;
    const bool right = device.capability.number >= 90 && blocks == launch.cluster.x && blocks &&
                       blocks <= most && launch.grid.x % blocks == 0;
    return right ? cudaSuccess : cudaErrorInvalidClusterSize;
}

size_t clusters_at_once(const configuration &launch) {
    return device.multiprocessors * blocks_at_once(count(launch.block), launch.shared_bytes) /
           count(launch.cluster);
}

text who() {
    if (!device.in_kernel || !this_core)
        return print("the host");
    return print("kernel %s, block (%u,%u,%u), thread (%u,%u,%u)", device.kernel, blockIdx.x,
                 blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
}

// The core whose shared memory it is, or nullptr.
static core *core_of(const void *address) {
    const size_t number = (size_t)((const char *)address - shared_spaces) / SHARED_SPACE;
    return shared_spaces && number < cores_made ? cores[number] : nullptr;
}

const allocation *find_shared_memory(const void *address) {
    const allocation *nearest = nullptr;
    const core *const core = core_of(address);
    if (!core)
        return nullptr;
    for (const allocation &array : core->arrays)
        if (array.start && array.start - SHARED_GAP / 2 <= address &&
            (!nearest || array.start > nearest->start))
            nearest = &array;
    return nearest;
}

// ---- What kernels call

static void wait_at_barrier(const char *what, const char *file, int line) {
    ++this_core->at_barrier;
    this_core->moved = true;
    wait(AT_BARRIER, {what, file, line, nullptr});
}

void wait_for_block(const char *file, int line) {
    wait_at_barrier("__syncthreads", file, line);
}

void wait_for_grid(const char *file, int line) {
    if (!grid.cooperative)
        die(print("%s called %s in %s:%d, and cudaLaunchCooperativeKernel has not launched it",
                  who().text, GRID_BARRIER, file, line));
    wait_at_barrier(GRID_BARRIER, file, line);
}

void wait_for_cluster(const char *file, int line) {
    wait_at_barrier(CLUSTER_BARRIER, file, line);
}

unsigned cluster_blocks() {
    return (unsigned)grid.cluster;
}

void wait_for_launch() { // here it has ended
    if (note_wait_for_launch)
        note_wait_for_launch();
}

void trigger() {
    if (note_trigger)
        note_trigger();
}

// Lets others go on, as the thread waits in a loop for what one of them does.
static void give_way(const place &at) {
    ++this_core->ready;
    this_core->gave_way = true;
    wait(READY, at);
}

void give_way(const char *what, const void *code) {
    give_way({what, "", 0, code});
}

// The same after some steps, as the thread may be waiting.
static void take_steps(size_t steps, const place &at) {
    this_core->steps += steps;
    if (this_core->steps < 1000)
        return;
    unseen_stores = unseen_stores || at.code;
    give_way(at);
}

void note_move() {
    this_core->moved = true;
}

void note_atomic(bool changes, const char *what, const char *file, int line) {
    this_core->moved = this_core->moved || changes;
    take_steps(30, {what, file, line, nullptr});
}

int lane() {
    return (int)(this_core->running % warpSize);
}

// The lanes that the running thread's warp has. A block's last warp may have fewer than others.
static unsigned lanes_there() {
    const size_t threads = grid.threads - this_core->running / warpSize * warpSize;
    return threads < warpSize ? (1u << threads) - 1 : 0xffffffff;
}

// The running thread waits until all lanes of the mask are at the same place, each with a value.
// The last one of them calls finish(lanes, there), which may change the values. Returns the
// thread's.
template <class Finish>
static uint64_t meet(unsigned mask, uint64_t value, int source, const place &at, Finish finish) {
    const size_t warp = this_core->running / warpSize;
    thread *const lanes = &this_core->threads[warp * warpSize], &self = lanes[lane()];
    const unsigned expected = mask & lanes_there();
    if (!(expected >> lane() & 1))
        die(print("%s called %s in %s:%d with the mask 0x%08x, which it is not in", who().text,
                  at.what, at.file, at.line, mask));
    this_core->moved = true;
    self.at = at;
    self.mask = mask;
    self.source = source;
    self.value = value;
    this_core->exchanging[warp] |= 1u << lane();
    bool complete = (this_core->exchanging[warp] & expected) == expected;
    for (int i = 0; i < warpSize; ++i)
        if (expected >> i & 1)
            complete = complete && lanes[i].mask == mask && same(lanes[i].at, self.at);
    if (complete) {
        finish(lanes, expected);
        for (int i = 0; i < warpSize; ++i) {
            if (!(expected >> i & 1))
                continue;
            lanes[i].state = READY;
            ++this_core->ready;
        }
        this_core->exchanging[warp] &= ~expected;
    }
    wait(complete ? READY : IN_EXCHANGE, at);
    return self.value;
}

uint64_t exchange(unsigned mask, uint64_t value, int source, const char *what, const char *file,
                  int line) {
    const auto finish = [](thread *lanes, unsigned there) {
        uint64_t values[warpSize];
        for (int i = 0; i < warpSize; ++i) // the value of a lane that is not there is undefined
            values[i] = there >> i & 1 ? lanes[i].value : UINT64_MAX;
        for (int i = 0; i < warpSize; ++i)
            if (there >> i & 1)
                lanes[i].value = values[lanes[i].source];
        if (note_exchange)
            note_exchange(this_core->running / warpSize);
    };
    return meet(mask, value, source, {what, file, line, nullptr}, finish);
}

// Unlike an exchange, this orders no accesses to memory.
void multiply(number_format format, float *sum, const uint32_t *a, const uint32_t *b,
              const char *what, const char *file, int line) {
    if (lanes_there() != 0xffffffff)
        die(print("%s called %s in %s:%d, and its warp has %d of %d threads", who().text, what,
                  file, line, __builtin_popcount(lanes_there()), warpSize));
    const fragments own = {sum, a, b};
    const auto finish = [format](thread *lanes, unsigned) {
        const fragments *all[warpSize];
        for (int i = 0; i < warpSize; ++i)
            all[i] = (const fragments *)lanes[i].value;
        multiply(format, all);
        if (note_multiplication)
            note_multiplication();
    };
    meet(0xffffffff, (uint64_t)&own, 0, {what, file, line, nullptr}, finish);
}

int new_shared_array() {
    static int arrays = 1; // 0 is the dynamic one
    const int array = __atomic_fetch_add(&arrays, 1, __ATOMIC_RELAXED);
    if (array >= (int)MAX_SHARED_ARRAYS)
        die(print("more than %zu declarations of shared memory", MAX_SHARED_ARRAYS - 1));
    return array;
}

static void *shared_memory(core *core, int number, size_t bytes) {
    allocation &array = core->arrays[number];
    if (!array.start) {
        core->shared_bytes += bytes;
        if (core->shared_bytes > grid.shared_limit)
            die(print("kernel %s needs %zu bytes of shared memory for a block, found %zu",
                      device.kernel, core->shared_bytes, grid.shared_limit));
        char *const start = core->shared + round_up(core->shared_used + SHARED_GAP, 128);
        array = {start, bytes, "__shared__", true};
        core->shared_used = (size_t)(start - core->shared) + bytes;
        unpoison(start, bytes);
        memset(start, UNINITIALISED, bytes);
    }
    return array.start;
}

void *shared_memory(int number, size_t bytes) {
    return shared_memory(this_core, number, bytes);
}

// The same array of another block of the cluster, which may not have come to the declaration yet.
void *shared_memory_of(unsigned rank, const void *own) {
    const allocation *const array = core_of(own) == this_core ? find_shared_memory(own) : nullptr;
    if (!array)
        die(print("%s called map_shared_rank for %s: not in shared memory of its block", who().text,
                  describe(own).text));
    if (rank >= grid.cluster)
        die(print("%s called map_shared_rank for block %u of a cluster of %zu", who().text, rank,
                  grid.cluster));
    core *const other = together[this_core->slot / grid.cluster * grid.cluster + rank];
    char *const start =
        (char *)shared_memory(other, (int)(array - this_core->arrays), array->bytes);
    return start + ((const char *)own - array->start);
}

void *dynamic_shared_memory() {
    return shared_memory(0, grid.shared_bytes);
}

void *parameter_space() {
    return grid.parameters;
}

cudaError_t check_launch(const configuration &launch) {
    if (!device.present)
        return cudaErrorNoDevice;
    if (!valid(launch.grid, launch.block))
        return cudaErrorInvalidConfiguration;
    if (device.capability.number < compiled_for)
        return cudaErrorNoKernelImageForDevice;
    if (launch.early && device.capability.number < 90)
        return cudaErrorNotSupported;
    const auto limit = shared_limits.find((size_t)launch.function);
    if (launch.shared_bytes > (limit == shared_limits.end() ? SHARED_BYTES : limit->second))
        return cudaErrorInvalidValue;
    if (cudaError_t error = check_clusters(launch))
        return error;
    if (!clusters_at_once(launch))
        return cudaErrorInvalidClusterSize;
    if (launch.cooperative &&
        count(launch.grid) >
            device.multiprocessors * blocks_at_once(count(launch.block), launch.shared_bytes))
        return cudaErrorCooperativeLaunchTooLarge;
    return cudaSuccess;
}

void run(const configuration &launch) {
    static bool started;
    device.kernel = launch.kernel;
    ++device.kernels;
    gridDim = launch.grid;
    blockDim = launch.block;
    grid.blocks = count(gridDim);
    grid.threads = 0;
    for (unsigned z = 0; z < blockDim.z; ++z)
        for (unsigned y = 0; y < blockDim.y; ++y)
            for (unsigned x = 0; x < blockDim.x; ++x)
                grid.indices[grid.threads++] = {x, y, z};
    const capability &room = device.capability;
    grid.shared_bytes = launch.shared_bytes;
    grid.shared_limit =
        shared_limits.count((size_t)launch.function) ? room.shared_bytes_opt_in : SHARED_BYTES;
    if (launch.cooperative) { // the blocks share the multiprocessors
        const size_t most = (grid.blocks - 1) / device.multiprocessors + 1;
        grid.shared_limit = min(grid.shared_limit, room.shared_bytes / most - room.reserved_bytes);
    }
    grid.cooperative = launch.cooperative;
    grid.cluster = count(launch.cluster);
    grid.thread = launch.thread;

    if (note_launch)
        note_launch(launch.kernel, grid.blocks, grid.threads, grid.cluster, launch.early);
    set_innermost_frame(__builtin_frame_address(0));
    if (started) {
        switch_stack(host, launcher);
    } else {
        started = true;
        shared_spaces = reserve(MAX_CORES * SHARED_SPACE, true);
        constexpr size_t BYTES = 1 << 20;
        switch_to_new_stack(host, reserve(BYTES, true), BYTES, launcher_main);
    }
    if (note_end)
        note_end();
}

size_t any_of(size_t n) {
    return shuffle(n, this_core->block, this_core->moment++).next;
}

position running() {
    return {this_core->block, this_core->running};
}

owner owner_of(const void *address) {
    const core *const core = core_of(address);
    if (!core)
        return {owner::NOBODY, 0, false};
    const bool same = core->slot / grid.cluster == this_core->slot / grid.cluster;
    return {core == this_core ? owner::SELF
            : same            ? owner::SAME_CLUSTER
                              : owner::STRANGER,
            core->block, !core->unreturned};
}

} // namespace simulator

// What GCC calls wherever the program may have jumped to, if its source has volatile words.
extern "C" void __sanitizer_cov_trace_pc() {
    using namespace simulator;
    if (device.in_kernel)
        take_steps(1, {"a loop", "", 0, __builtin_return_address(0)});
}
