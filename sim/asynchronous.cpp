// Barriers that count arrivals and bytes, and what comes to shared memory while threads do
// something else. It comes when a thread waits at its barrier, and as late as possible. Until then
// NaNs lie there. The blocks of a cluster run on one core of the machine, so nothing here needs a
// lock.
#include "simulator.h"

#include "../common/asynchronous.h"

#include <algorithm>

namespace simulator {
namespace {

// The 64 bits of a barrier. What they mean on a GPU is not documented.
struct mbarrier {
    uint64_t mark : 8; // MARK, if it is initialised
    uint64_t odd : 1;  // the parity of its phase
    uint64_t arrivals : 12, missing : 12;
    int64_t bytes : 24; // that are expected, less those that have come
};
static_assert(sizeof(mbarrier) == sizeof(uint64_t));
constexpr unsigned MARK = 0xb5;

// What is under way to a barrier's block. It comes from memory, or else it is the value.
struct transfer {
    char *to;
    const char *from;
    size_t bytes;
    float4 value;
    const void *code; // that has started it
    unsigned phase;
};
// By the address of the barrier.
thread_local map<list<transfer>> under_way;
// Who has initialised a barrier without publishing it.
thread_local map<position> unpublished;

[[noreturn]] void refuse(const char *what, const void *code, const text &found) {
    give_memory_to_both(); // because line_of() starts a program
    die(print("%s called %s at %s: %s", who().text, what, line_of(code).text, found.text));
}

// Returns the barrier that a thread names, of its own block or of any in the cluster.
mbarrier *find(const uint64_t *address, bool own, const char *what, const void *code) {
    mbarrier *const barrier = (mbarrier *)address;
    const owner owner = owner_of(address);
    if (owner.who != owner::SELF && (own || owner.who != owner::SAME_CLUSTER))
        refuse(what, code,
               print("found a barrier at %s, expected one in shared memory of its %s",
                     describe(address).text, own ? "block" : "cluster"));
    if (owner.returned)
        refuse(what, code, print("block %zu has returned", owner.block));
    if (barrier->mark != MARK)
        refuse(what, code, print("nobody has initialised a barrier at %s", describe(address).text));
    return barrier;
}

// Begins the next phase if this one is complete.
void complete(mbarrier *barrier, const char *what, const void *code) {
    if (barrier->missing || barrier->bytes > 0)
        return;
    if (barrier->bytes < 0)
        refuse(what, code,
               print("%d bytes more than expected have come to the barrier", -(int)barrier->bytes));
    barrier->odd ^= 1;
    barrier->missing = barrier->arrivals;
    if (note_phase)
        note_phase(barrier);
}

void arrive(uint64_t *address, unsigned bytes, const char *what, const void *code) {
    mbarrier *const barrier = find(address, true, what, code);
    if (!barrier->missing)
        refuse(what, code, print("all have arrived at the barrier, and bytes are missing"));
    if (note_arrival)
        note_arrival(address, code);
    --barrier->missing;
    barrier->bytes += bytes;
    note_move();
    complete(barrier, what, code);
}

// Lets something come to the barrier: any of what is under way to it. False if nothing is.
bool receive(mbarrier *barrier, const char *what, const void *code) {
    list<transfer> &coming = under_way[(size_t)barrier];
    if (coming.empty())
        return false;
    const auto next = coming.begin() + (ptrdiff_t)any_of(coming.size());
    if (note_coming)
        note_coming(barrier, next->phase, next->code);
    memcpy(next->to, next->from ? next->from : (const char *)&next->value, next->bytes);
    barrier->bytes -= (int64_t)next->bytes;
    coming.erase(next);
    note_move();
    complete(barrier, what, code);
    return true;
}

void start(transfer transfer, uint64_t *address, const char *what) {
    mbarrier *const barrier = find(address, transfer.from, what, transfer.code);
    const owner owner = owner_of(transfer.to);
    if (owner.who == owner::NOBODY || owner.block != owner_of(address).block)
        refuse(what, transfer.code,
               print("found %s, expected shared memory of the barrier's block",
                     describe(transfer.to).text));
    if (unpublished.count((size_t)barrier))
        refuse(what, transfer.code,
               print("who has initialised the barrier has not called mbarrier_publish"));
    if (note_start)
        transfer.phase =
            note_start(transfer.to, transfer.from, transfer.bytes, address, transfer.code);
    memset(transfer.to, UNINITIALISED, transfer.bytes);
    under_way[(size_t)barrier].push_back(transfer);
}

template <class T> void store(T *to, T value, uint64_t *barrier, const void *code) {
    transfer transfer = {(char *)to, nullptr, sizeof value, {}, code, 0};
    memcpy(&transfer.value, &value, sizeof value);
    if ((size_t)to % sizeof value)
        refuse("store_async", code,
               print("found %s, expected a multiple of %zu", describe(to).text, sizeof value));
    start(transfer, barrier, "store_async");
}

} // namespace

void forget_barriers() {
    for (auto &[barrier, coming] : under_way)
        if (!coming.empty() && owner_of((void *)barrier).who == owner::SELF) {
            give_memory_to_both();
            die(print("kernel %s, block %zu returns, and no thread has waited for what %s sends it",
                      device.kernel, running().block, line_of(coming[0].code).text));
        }
    for (auto each = unpublished.begin(); each != unpublished.end();)
        each = owner_of((void *)each->first).who == owner::SELF ? unpublished.erase(each)
                                                                : std::next(each);
}

} // namespace simulator

using namespace simulator;

#define CODE __builtin_return_address(0)

void mbarrier_init(uint64_t *barrier, unsigned arrivals) {
    if (owner_of(barrier).who != owner::SELF || arrivals < 1 || arrivals > MAX_THREADS)
        refuse("mbarrier_init", CODE,
               print("found %u arrivals at %s, expected 1 to %zu in shared memory of its block",
                     arrivals, describe(barrier).text, MAX_THREADS));
    const mbarrier fresh = {MARK, 0, arrivals, arrivals, 0};
    memcpy(barrier, &fresh, sizeof fresh);
    unpublished[(size_t)barrier] = running();
    if (note_barrier_made)
        note_barrier_made(barrier, CODE);
}

void mbarrier_publish() {
    const position self = running();
    for (auto each = unpublished.begin(); each != unpublished.end();)
        each = each->second.block == self.block && each->second.thread == self.thread
                   ? unpublished.erase(each)
                   : std::next(each);
}

void mbarrier_arrive(uint64_t *barrier) {
    arrive(barrier, 0, "mbarrier_arrive", CODE);
}

void mbarrier_expect(uint64_t *barrier, unsigned bytes) {
    arrive(barrier, bytes, "mbarrier_expect", CODE);
}

void mbarrier_wait(uint64_t *address, unsigned parity) {
    const char *const what = "mbarrier_wait";
    mbarrier *const barrier = find(address, true, what, CODE);
    if (parity > 1)
        refuse(what, CODE, print("found parity %u, expected 0 or 1", parity));
    // It comes late: when the others have gone on, until they wait.
    for (bool late = false; barrier->odd == parity; late = true)
        if (!late || !receive(barrier, what, CODE))
            give_way(what, CODE);
    if (note_wait)
        note_wait(address, CODE);
}

void store_async(float *to, float value, uint64_t *barrier) {
    store(to, value, barrier, CODE);
}

void store_async(float2 *to, float2 value, uint64_t *barrier) {
    store(to, value, barrier, CODE);
}

void store_async(float4 *to, float4 value, uint64_t *barrier) {
    store(to, value, barrier, CODE);
}

void fence_async() {
    if (note_fence)
        note_fence();
}

void copy_async(void *to, const void *from, unsigned bytes, uint64_t *barrier) {
    const kind kind = kind_of(from);
    if (((size_t)to | (size_t)from | bytes) % 16)
        refuse("copy_async", CODE,
               print("found %u bytes to %p from %p, expected multiples of 16", bytes, to, from));
    if (kind != DEVICE && kind != MANAGED)
        refuse("copy_async", CODE, print("found %s, expected device memory", describe(from).text));
    start({(char *)to, (const char *)from, bytes, {}, CODE, 0}, barrier, "copy_async");
}
