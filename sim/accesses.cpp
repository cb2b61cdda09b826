// What kernels do with memory, access by access: counts of what a GPU would do, and threads that
// touch the same bytes in no order. Only programs built with COUNT=1 have this part
// (common/cuda.mk). Their kernels are compiled with -fsanitize=thread, and the functions that GCC
// then calls before each access are here instead of in its library.
#include "simulator.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>

namespace simulator {
namespace {

constexpr size_t SECTOR = 32, WORD = 4, LARGEST = 16; // bytes
constexpr size_t SECTORS_A_CYCLE = 4, BANKS = 32;
constexpr unsigned ALL_LANES = 0xffffffff;
enum access_kind { LOAD, STORE, ATOMIC, ACCESS_KINDS };

// What a kernel has done since the program began.
struct counts {
    size_t launches, nodes, blocks, warps, threads, threads_at_work;
    // Of warps: an instruction of up to 32 threads is one request. `packed` is the number of
    // sectors that would hold the bytes asked for, if they lay side by side.
    size_t requests[ACCESS_KINDS], sectors[ACCESS_KINDS], packed[ACCESS_KINDS];
    size_t shared_requests[ACCESS_KINDS], passes[ACCESS_KINDS];
    size_t shared_words; // that a lane loads
    size_t barriers, grid_barriers;
    // Cycles of the load and store unit of the busiest multiprocessor, between two launches or
    // barriers of the grid: one for each pass, and for each four sectors of a request.
    size_t busiest;
    size_t misses;          // sectors of loads that L1 does not have
    size_t multiplications; // by tensor cores
};
list<std::pair<const char *, counts>> kernels;
// Of each multiprocessor, since the launch or the last barrier of the grid. They get blocks in
// turn.
list<size_t> cycles;
size_t copies[4], copied[4]; // by direction, and their bytes
unsigned phase;              // counts launches and barriers of the grid
// The phase in which a multiprocessor has touched a sector last. Each phase begins with an empty
// L1, which then keeps all that is loaded or stored.
map<unsigned> touched;

counts &of(const char *kernel) {
    for (auto &[name, counts] : kernels)
        if (strcmp(name, kernel) == 0)
            return counts;
    kernels.push_back({kernel, {}});
    return kernels.back().second;
}

// ---- Requests

// What the threads of a warp do with one instruction.
struct request {
    unsigned lanes; // that take part
    unsigned bytes; // of each
    uintptr_t addresses[warpSize];
    size_t order; // the most accesses that one of its lanes had made since the warp began or waited
};

// An instruction, and its requests since the warp began or waited. A thread's nth access belongs to
// the nth request.
struct site {
    uintptr_t place;
    access_kind kind;
    bool shared;
    size_t done[warpSize];
    list<request> requests;
};
list<site> sites;
size_t places[1 << 14]; // where in `sites` an address of code is, plus 1: a hash table
// The block and the warp whose accesses these are. Threads take turns in their order, because the
// seed is 0. So those of a warp come one after the other.
position warp;
size_t accesses[warpSize]; // that each lane has made since the warp began or waited

site &find_site(uintptr_t place, access_kind kind, bool shared) {
    size_t slot = place * 0x9e3779b97f4a7c15 >> 50;
    for (; places[slot]; slot = (slot + 1) % std::size(places)) {
        site &site = sites[places[slot] - 1];
        if (site.place == place && site.kind == kind && site.shared == shared)
            return site;
    }
    sites.push_back({place, kind, shared, {}, {}});
    if (sites.size() > std::size(places) / 2)
        die(print("more than %zu accesses in the source", std::size(places) / 2));
    places[slot] = sites.size();
    return sites.back();
}

size_t distinct(uintptr_t *values, size_t n) {
    std::sort(values, values + n);
    return (size_t)(std::unique(values, values + n) - values);
}

// How many of n sectors L1 does not have yet.
size_t count_misses(const uintptr_t *sectors, size_t n) {
    size_t misses = 0;
    for (size_t i = 0; i < n; ++i) {
        unsigned &last = touched[sectors[i] * cycles.size() + warp.block % cycles.size()];
        misses += last != phase;
        last = phase;
    }
    return misses;
}

// Adds the sectors that a request touches, and how many its bytes would fill. Returns how many of
// them L1 did not have.
size_t count_sectors(const request &request, size_t *sectors, size_t *packed, size_t *cycles) {
    uintptr_t found[warpSize * LARGEST];
    size_t n = 0;
    for (size_t lane = 0; lane < warpSize; ++lane)
        for (unsigned byte = 0; request.lanes >> lane & 1 && byte < request.bytes; ++byte)
            found[n++] = request.addresses[lane] + byte;
    n = distinct(found, n);
    *packed += (n + SECTOR - 1) / SECTOR;
    for (size_t i = 0; i < n; ++i)
        found[i] /= SECTOR;
    n = distinct(found, n);
    *sectors += n;
    *cycles += (n + SECTORS_A_CYCLE - 1) / SECTORS_A_CYCLE;
    return count_misses(found, n);
}

// Of each lane and each word that it wants, the pass that serves it.
using served = size_t[warpSize][LARGEST / WORD];

// Passes over the banks for some lanes at once: as many as words are wanted of one bank. `before`
// of the request's passes have served other lanes.
size_t passes_of(const request &request, unsigned lanes, size_t before, served *served) {
    uintptr_t words[warpSize * LARGEST / WORD];
    size_t n = 0, in_bank[BANKS] = {}, pass[warpSize * LARGEST / WORD];
    for (size_t lane = 0; lane < warpSize; ++lane)
        for (unsigned byte = 0; lanes >> lane & 1 && byte < request.bytes; byte += WORD)
            words[n++] = (request.addresses[lane] + byte) / WORD;
    n = distinct(words, n);
    for (size_t i = 0; i < n; ++i)
        pass[i] = before + in_bank[words[i] % BANKS]++;
    for (size_t lane = 0; served && lane < warpSize; ++lane)
        for (unsigned byte = 0; lanes >> lane & 1 && byte < request.bytes; byte += WORD)
            (*served)[lane][byte / WORD] =
                pass[std::lower_bound(words, words + n, (request.addresses[lane] + byte) / WORD) -
                     words];
    return *std::max_element(in_bank, in_bank + BANKS);
}

// Whether all lanes of a part of the warp want the same as the lane whose number differs in `bit`.
bool paired(const request &request, unsigned lanes, unsigned bit) {
    for (unsigned lane = 0; lane < warpSize; ++lane)
        if (lanes >> lane & lanes >> (lane ^ bit) & 1 &&
            request.addresses[lane] != request.addresses[lane ^ bit])
            return false;
    return true;
}

// A pass serves at most 128 bytes: a half of the warp with 8 bytes each, a quarter with 16. Two
// such parts go together where neighbouring lanes, or those two apart, want the same.
size_t count_passes(const request &request, served *served) {
    if (request.bytes <= WORD)
        return passes_of(request, request.lanes, 0, served);
    size_t passes = 0;
    const unsigned lanes_at_once = request.bytes == LARGEST ? 16 : warpSize;
    for (unsigned first = 0; first < warpSize; first += lanes_at_once) {
        const unsigned part = request.lanes & ALL_LANES >> (warpSize - lanes_at_once) << first;
        const unsigned half = part & ALL_LANES >> (warpSize - lanes_at_once / 2) << first;
        if (paired(request, part, 1) || paired(request, part, 2)) {
            passes += passes_of(request, part, passes, served);
        } else {
            passes += passes_of(request, half, passes, served);
            passes += passes_of(request, part & ~half, passes, served);
        }
    }
    return passes;
}

uintptr_t first_address(const request &request) {
    return request.addresses[__builtin_ctz(request.lanes)];
}

// Joins requests that a compiler makes one of: the same lanes want what lies behind what they want
// of `first`, and the sum is aligned. False if that is not so.
bool join(request *first, const request &second) {
    const unsigned bytes = first->bytes + second.bytes;
    if (first->lanes != second.lanes || first->bytes != second.bytes || bytes > LARGEST)
        return false;
    for (size_t lane = 0; lane < warpSize; ++lane)
        if (first->lanes >> lane & 1 &&
            (first->addresses[lane] % bytes ||
             second.addresses[lane] != first->addresses[lane] + first->bytes))
            return false;
    first->bytes = bytes;
    first->order = min(first->order, second.order);
    return true;
}

// Twice, so that four words become two times two and then one time four.
void join_pairs(list<request> *requests) {
    for (int time = 0; time < 2; ++time) {
        size_t kept = 0;
        for (size_t i = 0; i < requests->size(); ++i, ++kept) {
            (*requests)[kept] = (*requests)[i];
            if (i + 1 < requests->size() && join(&(*requests)[kept], (*requests)[i + 1]))
                ++i;
        }
        requests->resize(kept);
    }
}

// The same for all requests of two instructions. None are left of the second.
bool join_sites(list<request> *first, list<request> *second) {
    request joined = second->empty() ? request() : first->front();
    if (second->empty() || first->size() != second->size() || !join(&joined, second->front()))
        return false;
    list<request> all = *first;
    for (size_t i = 0; i < all.size(); ++i)
        if (!join(&all[i], (*second)[i]))
            return false;
    first->swap(all);
    second->clear();
    return true;
}

// Whether nvcc leaves accesses of successive iterations apart in the running kernel. SIM_APART
// lists such kernels: ,f,g,
bool iterations_stay_apart() {
    static const char *const kernels = getenv("SIM_APART");
    return kernels && strstr(kernels, print(",%s,", device.kernel).text);
}

// nvcc knows where arrays in shared memory lie. So it makes one access of several to neighbouring
// words: of different instructions, then of one in successive iterations of a loop.
void join_shared(access_kind kind) {
    list<site *> alike;
    for (site &site : sites)
        if (site.shared && site.kind == kind && !site.requests.empty())
            alike.push_back(&site);
    const auto begins_before = [](const site *a, const site *b) {
        return first_address(a->requests[0]) < first_address(b->requests[0]);
    };
    std::sort(alike.begin(), alike.end(), begins_before);
    for (int time = 0; time < 2; ++time) // as above
        for (size_t i = 0; i < alike.size(); ++i)
            for (size_t j = i + 1; j < alike.size(); ++j)
                if (join_sites(&alike[i]->requests, &alike[j]->requests))
                    break;
    if (iterations_stay_apart())
        return;
    for (site *site : alike)
        join_pairs(&site->requests);
}

// ---- The trace of a warp in each kernel's first launch: the block and warp of SIM_BLOCK and
// SIM_WARP, or the first.

struct traced_request {
    uintptr_t place;
    access_kind kind;
    bool shared;
    request made;
    size_t interval, sectors, misses, passes;
    uintptr_t array; // where what its first lane wants begins
    served by;       // zeros of global memory
};

struct trace {
    const char *kernel;
    dim3 grid, block;
    list<traced_request> requests;
};
list<trace> traces;

size_t number_of(const char *variable) {
    const char *const found = getenv(variable);
    return found ? strtoul(found, nullptr, 10) : 0;
}

// The trace that the warp's requests belong to; nullptr if there is none.
trace *find_trace(const counts &counts) {
    static const bool wanted = getenv("SIM_TRACE");
    static const size_t of_block = number_of("SIM_BLOCK"), of_warp = number_of("SIM_WARP");
    if (!wanted || warp.block != of_block || warp.thread != of_warp ||
        counts.launches + counts.nodes != 1)
        return nullptr;
    if (traces.empty() || traces.back().kernel != device.kernel)
        traces.push_back({device.kernel, gridDim, blockDim, {}});
    return &traces.back();
}

// Where the memory that an address lies in begins. A variable is its own.
uintptr_t array_of(uintptr_t address, bool shared) {
    const void *const memory = (void *)address;
    const allocation *const found = shared ? find_shared_memory(memory) : find_allocation(memory);
    return found ? (uintptr_t)found->start : address;
}

// Puts what the warp has done since it began or waited into the order in which its lanes did it.
void sort_requests(trace *trace, size_t first) {
    list<traced_request> &all = trace->requests;
    std::stable_sort(all.begin() + (ptrdiff_t)first, all.end(),
                     [](const traced_request &a, const traced_request &b) {
                         return a.made.order < b.made.order;
                     });
    for (size_t i = first; i < all.size(); ++i)
        all[i].interval = first ? all[first - 1].interval + 1 : 0;
}

// Counts what the warp has done since it began or waited.
void count_requests() {
    counts &counts = of(device.kernel);
    trace *const trace = find_trace(counts);
    const size_t first_traced = trace ? trace->requests.size() : 0;
    size_t &busy = cycles[warp.block % cycles.size()];
    for (access_kind kind : {LOAD, STORE})
        join_shared(kind);
    for (site &site : sites) {
        for (const request &request : site.requests) {
            traced_request traced = {site.place, site.kind, site.shared, request, 0,
                                     0,          0,         0,           0,       {}};
            if (site.shared) {
                const size_t passes = count_passes(request, trace ? &traced.by : nullptr);
                ++counts.shared_requests[site.kind];
                counts.passes[site.kind] += passes;
                counts.shared_words += site.kind == LOAD ? request.bytes / WORD : 0;
                busy += passes;
                traced.passes = passes;
            } else {
                ++counts.requests[site.kind];
                const size_t misses =
                    count_sectors(request, &traced.sectors, &counts.packed[site.kind], &busy);
                counts.sectors[site.kind] += traced.sectors;
                traced.misses = misses;
                counts.misses += site.kind == LOAD ? misses : 0;
            }
            if (trace) {
                traced.array = array_of(first_address(request), site.shared);
                trace->requests.push_back(traced);
            }
        }
        site.requests.clear();
        memset(site.done, 0, sizeof site.done);
    }
    memset(accesses, 0, sizeof accesses);
    if (trace)
        sort_requests(trace, first_traced);
}

// Adds a thread's access to the request that it belongs to.
void record(uintptr_t place, access_kind kind, bool shared, uintptr_t address, unsigned bytes) {
    const position now = running();
    const position its_warp = {now.block, now.thread / warpSize};
    if (its_warp.block != warp.block || its_warp.thread != warp.thread)
        count_requests();
    warp = its_warp;
    const size_t lane = now.thread % warpSize;
    site &site = find_site(place, kind, shared);
    const size_t n = site.done[lane]++;
    if (n == site.requests.size())
        site.requests.push_back({0, bytes, {}, 0});
    site.requests[n].lanes |= 1u << lane;
    site.requests[n].addresses[lane] = address;
    site.requests[n].order = max(site.requests[n].order, accesses[lane]++);
}

// ---- Order

// Who touched a word last, and how far its block was then. The numbers are those of the running
// launch: a thread's block, the barriers that the block has passed, the exchanges of values that
// the warp has, and the fences of the block. What is ASYNCHRONOUS has instead the block that it
// comes to, which of the block's barriers counts its bytes, and in which phase of that.
struct touch {
    unsigned phase, block, thread, interval, exchange, fence;
    enum { ONE, SEVERAL_LANES, SEVERAL_WARPS, ASYNCHRONOUS } by; // since the phase, interval, ...
    bool atomic;
    uintptr_t place;
};

struct word {
    touch store, load;
    touch other_load;  // of another block than the last
    list<touch> loads; // of shared memory: the last of each other warp, since the store
};

// Accesses that some thread's next access comes after, by block: those of a part of it whose
// interval, exchange, fence or phase is below the number. These are vector clocks that have only
// what fences and barriers that count bytes have handed over.
using numbers = map<list<unsigned>>;
enum part : size_t { WHOLE_BLOCK, WARPS, BARRIERS = 1 + MAX_THREADS / warpSize, THREADS = 64 };
constexpr size_t LAUNCH_IN_FRONT = SIZE_MAX; // in place of a block: all that it has done
struct past {
    numbers all, loads; // a message hands over loads, and no stores
};

unsigned number_in(const numbers &past, size_t block, size_t part) {
    const auto found = past.find(block);
    return found != past.end() && part < found->second.size() ? found->second[part] : 0;
}

void raise(numbers *to, size_t block, size_t part, unsigned number) {
    list<unsigned> &parts = (*to)[block];
    parts.resize(max(parts.size(), part + 1));
    parts[part] = max(parts[part], number);
}

void add(numbers *to, const numbers &from) {
    for (const auto &[block, parts] : from) {
        list<unsigned> &own = (*to)[block];
        own.resize(max(own.size(), parts.size()));
        for (size_t part = 0; part < parts.size(); ++part)
            own[part] = max(own[part], parts[part]);
    }
}

void add(past *to, const past &from) {
    add(&to->all, from.all);
    add(&to->loads, from.loads);
}

// A barrier that counts bytes.
struct mbarrier {
    const void *address;
    touch made;
    unsigned phases, waited; // that are complete, and that a thread has waited for
    past arriving, arrived;  // what is past for who waits for this phase, and for the last
};

// Blocks of the running launch.
struct progress {
    unsigned interval, fence;
    unsigned meetings; // of all blocks of the cluster
    unsigned exchanges[MAX_THREADS / warpSize];
    past known; // to all of its threads, since a barrier
    list<mbarrier> mbarriers;
};
list<progress> blocks;
list<bool> worked;     // each thread of the grid: has touched memory
list<unsigned> fenced; // each thread of the grid: its block's fences at its last fence_async()
size_t threads;        // of a block
size_t cluster;        // blocks
unsigned launched;     // the phase in which the running launch began

// A launch that may begin before the one in front has ended. Accesses since the phase `since` are
// in no order with what a thread does until cudaGridDependencySynchronize() has returned in it, or
// in a thread that it comes after.
struct {
    bool early;
    unsigned since;
    bool waited;    // a thread has
    bool all_know;  // as there was a barrier of the grid since then
    bool triggered; // by a thread that did not know, so the next launch may begin as early
} overlap;

// A thread hands over what came before its fence with the atomic words that it then stores to. Who
// loads such a word has it after a fence of its own. The key is the thread's number in the grid.
struct hand_over {
    past known, seen; // handed over to it, and not yet known for want of a fence
    past given;       // what was past at its last fence
    bool news;        // it knows what the others of its warp may not know
};
map<hand_over> hand_overs;
map<past> given; // with an atomic word, by its address

// A page has a `word` for each of its words, or for each byte once a thread has touched less than a
// word.
constexpr size_t PAGE = 4096;
map<list<word>> pages;

bool is_past(const touch &earlier, const past &known, bool loads) {
    const bool asynchronous = earlier.by == touch::ASYNCHRONOUS;
    const auto below = [&](size_t part, unsigned number) {
        return number < number_in(known.all, earlier.block, part) ||
               ((loads || asynchronous) && number < number_in(known.loads, earlier.block, part));
    };
    if (asynchronous)
        return below(BARRIERS + earlier.thread, earlier.interval);
    return below(WHOLE_BLOCK, earlier.interval) ||
           (earlier.by < touch::SEVERAL_WARPS &&
            below(WARPS + earlier.thread / warpSize, earlier.exchange)) ||
           (earlier.by == touch::ONE && below(THREADS + earlier.thread, earlier.fence));
}

// Whether the launch in front has ended, as far as a thread can know.
bool has_ended(const position &self) {
    const auto own = hand_overs.find(self.block * threads + self.thread);
    return !overlap.early || overlap.all_know ||
           blocks[self.block].known.all.count(LAUNCH_IN_FRONT) ||
           (own != hand_overs.end() && own->second.known.all.count(LAUNCH_IN_FRONT));
}

bool of_launch_in_front(const touch &earlier) {
    return earlier.phase >= overlap.since && earlier.phase < launched;
}

// Whether nothing puts the running thread's access behind the earlier one, which may be a load.
bool unordered(const touch &earlier, const touch &now, bool shared, bool loads = false) {
    if (of_launch_in_front(earlier))
        return !shared && !has_ended({now.block, now.thread});
    const bool asynchronous = earlier.by == touch::ASYNCHRONOUS;
    if (asynchronous ? earlier.phase < launched : earlier.phase != now.phase)
        return false;
    if (earlier.block == now.block && !asynchronous) {
        if (earlier.interval != now.interval)
            return false;
        if (earlier.thread / warpSize == now.thread / warpSize &&
            earlier.by != touch::SEVERAL_WARPS &&
            (earlier.exchange != now.exchange ||
             (earlier.thread == now.thread && earlier.by != touch::SEVERAL_LANES)))
            return false;
    } else if (shared && earlier.block / cluster != now.block / cluster) {
        return false; // a block had that memory before
    }
    const auto own = hand_overs.find(now.block * threads + now.thread);
    return !is_past(earlier, blocks[now.block].known, loads) &&
           (own == hand_overs.end() || !is_past(earlier, own->second.known, loads));
}

// The later of two loads, with the widest of the groups that have loaded in no order. Of an atomic
// load and one that is not, the latter stays alone.
void add_load(word *word, touch now, bool shared) {
    touch *const load = &word->load;
    const auto of_its_warp = [&](const touch &load) {
        return load.block == now.block && load.thread / warpSize == now.thread / warpSize;
    };
    if (shared && !of_its_warp(*load)) {
        auto own = std::find_if(word->loads.begin(), word->loads.end(), of_its_warp);
        if (own == word->loads.end())
            own = word->loads.insert(own, touch());
        std::swap(*load, *own);
    }
    if (unordered(*load, now, shared)) {
        if (now.atomic && !load->atomic)
            return;
        if (load->block != now.block)
            word->other_load = *load;
        else if (load->atomic != now.atomic)
            now.by = touch::ONE;
        else if (load->thread / warpSize != now.thread / warpSize)
            now.by = touch::SEVERAL_WARPS;
        else if (load->thread != now.thread)
            now.by = max(load->by, touch::SEVERAL_LANES);
        else
            now.by = load->by;
    }
    *load = now;
}

hand_over &hand_over_of(const position &self) {
    return hand_overs[self.block * threads + self.thread];
}

// Adds what n threads of a block know. Returns whether one knows what others may not know.
bool add_known(past *to, position first, size_t n) {
    bool news = false;
    for (size_t t = 0; !hand_overs.empty() && t < n; ++t) {
        hand_over &its = hand_over_of({first.block, first.thread + t});
        add(to, its.known);
        news = news || its.news;
        its.news = false;
    }
    return news;
}

// What is past for who comes after all that a thread has done.
past past_of(const position &self) {
    const size_t warp = self.thread / warpSize;
    progress &block = blocks[self.block];
    past all = hand_over_of(self).known;
    add(&all, block.known);
    raise(&all.all, self.block, WHOLE_BLOCK, block.interval);
    raise(&all.all, self.block, WARPS + warp, block.exchanges[warp]);
    raise(&all.all, self.block, THREADS + self.thread, ++block.fence);
    return all;
}

// All that has happened until now is past for all threads, but for what nobody has waited for.
void begin_phase() {
    ++phase;
    hand_overs.clear();
    given.clear();
    for (progress &block : blocks)
        block.known = {};
    for (size_t block = 0; block < blocks.size(); ++block)
        for (size_t i = 0; i < blocks[block].mbarriers.size(); ++i)
            for (size_t rank = 0; rank < cluster; ++rank)
                raise(&blocks[block / cluster * cluster + rank].known.all, block, BARRIERS + i,
                      blocks[block].mbarriers[i].waited);
}

[[noreturn]] void report(const touch &earlier, const touch &now, bool earlier_stores, bool stores,
                         const void *address, const char *what = "nothing orders the two") {
    give_memory_to_both();
    const text earlier_one = earlier.by == touch::ASYNCHRONOUS
                                 ? print("what comes to block %u", earlier.block)
                                 : print("thread %u of block %u", earlier.thread, earlier.block);
    die(print("%s %s %s at %s, and %s %s%s it at %s: %s", who().text,
              stores ? "stores to" : "loads", describe(address).text,
              line_of((void *)now.place).text, earlier_one.text,
              of_launch_in_front(earlier) ? "of a launch in front " : "",
              earlier_stores ? "stored to" : "loaded", line_of((void *)earlier.place).text, what));
}

// The first load of what no thread of the block had stored to its shared memory. Right programs
// copy padding like that, so only SIM_UNSET=1 reports it: at the end of the launch, because a race
// would say more.
struct {
    text thread, memory;
    uintptr_t place; // 0: none
} unset;

bool is_unset(const touch &store, const touch &now, const void *address) {
    return (store.phase < launched || store.block / cluster != now.block / cluster) &&
           *(const unsigned char *)address == UNINITIALISED;
}

touch touch_now(bool atomic, uintptr_t place) {
    const position self = running();
    const progress &progress = blocks[self.block];
    return {phase,
            (unsigned)self.block,
            (unsigned)self.thread,
            progress.interval,
            progress.exchanges[self.thread / warpSize],
            progress.fence,
            touch::ONE,
            atomic,
            place};
}

// A copy of the block that runs begins. Those who have touched a place of it have to have called
// fence_async() since.
void check_fences(bool stores, bool shared, uintptr_t address, const touch &now) {
    const list<word> &page = pages[address / PAGE];
    if (page.empty())
        return;
    const size_t unit = PAGE / page.size();
    const auto check = [&](const touch &earlier, bool stored) {
        if (earlier.phase >= launched && earlier.by != touch::ASYNCHRONOUS &&
            (!shared || earlier.block == now.block) &&
            earlier.fence >= fenced[earlier.block * threads + earlier.thread])
            report(earlier, now, stored, stores, (void *)address,
                   "no fence_async() is between the two");
    };
    for (size_t offset = 0; offset < LARGEST; offset += unit) {
        const word &word = page[(address + offset) % PAGE / unit];
        check(word.store, true);
        if (!stores)
            continue;
        check(word.load, false);
        for (const touch &load : word.loads)
            check(load, false);
    }
}

// What starts now, and will happen `later`, leaves that in place of the running thread's touch.
void check_order(access_kind kind, bool shared, uintptr_t address, size_t bytes, const touch &now,
                 const touch *later = nullptr) {
    list<word> &page = pages[address / PAGE];
    if (page.empty())
        page.resize(PAGE / WORD);
    if (bytes < WORD && page.size() < PAGE) {
        list<word> by_byte(PAGE);
        for (size_t byte = 0; byte < PAGE; ++byte)
            by_byte[byte] = page[byte / WORD];
        page.swap(by_byte);
    }
    const size_t unit = PAGE / page.size();
    for (size_t offset = 0; offset < bytes; offset += unit) {
        word &word = page[(address + offset) % PAGE / unit];
        const void *const part = (void *)(address + offset);
        if (kind == LOAD && shared && !unset.place && is_unset(word.store, now, part))
            unset = {who(), describe(part), now.place};
        if (unordered(word.store, now, shared) && !(word.store.atomic && now.atomic))
            report(word.store, now, true, kind != LOAD, part);
        const auto check_load = [&](const touch &load) {
            if (unordered(load, now, shared, true) && !(load.atomic && now.atomic))
                report(load, now, false, true, part);
        };
        if (kind != LOAD) {
            check_load(word.load);
            check_load(word.other_load);
            std::for_each(word.loads.begin(), word.loads.end(), check_load);
            word.loads.clear();
            word.store = later ? *later : now;
        } else if (later)
            word.other_load = *later;
        else
            add_load(&word, now, shared);
    }
}

// The first variable that is declared with __device__, and behind the last. NULL if there are none.
extern "C" char __start_device_variables[] __attribute__((weak));
extern "C" char __stop_device_variables[] __attribute__((weak));

bool is_variable(const volatile void *memory) {
    return memory >= __start_device_variables && memory < __stop_device_variables;
}

// The last access of another block to a block's shared memory.
struct visit {
    position visitor;
    uintptr_t place;
    unsigned meetings; // of the cluster, until then
};
map<visit> visits;

// A block's shared memory is there for others from the first meeting to the last. What comes to it
// asynchronously, somebody has to wait for.
void check_visit(const owner &owner, uintptr_t place, bool asynchronous = false) {
    const position self = running();
    const unsigned meetings = blocks[self.block].meetings;
    const char *const wrong = owner.who == owner::STRANGER ? "is not of its cluster"
                              : owner.returned             ? "has returned"
                              : meetings == 0              ? "may not have begun"
                                                           : nullptr;
    if (wrong) {
        give_memory_to_both();
        die(print("%s touches shared memory of block %zu, which %s, at %s", who().text, owner.block,
                  wrong, line_of((void *)place).text));
    }
    if (!asynchronous)
        visits[owner.block] = {self, place, meetings};
}

// A thread touches memory. Only a kernel's accesses to memory of the device, to its variables and
// to shared memory count.
void touch_memory(access_kind kind, bool atomic, const volatile void *memory, size_t bytes,
                  void *caller) {
    if (!device.in_kernel)
        return;
    const uintptr_t address = (uintptr_t)memory, place = (uintptr_t)caller;
    const owner owner = owner_of((void *)address);
    const bool shared = owner.who != owner::NOBODY;
    const enum kind where = kind_of((void *)address);
    if (!shared && where != DEVICE && where != MANAGED && !is_variable(memory))
        return;
    const position self = running();
    worked[self.block * threads + self.thread] = true;
    if (shared && owner.who != owner::SELF)
        check_visit(owner, place);
    // A thread that waits for such a word loads it any number of times.
    if (!atomic || kind != LOAD)
        record(place, atomic ? ATOMIC : kind, shared, address, (unsigned)bytes);
    check_order(kind, shared, address, bytes, touch_now(atomic, place));
    if (!atomic)
        return;
    // Blocks may have their shared memory at the same address.
    past &word = given[shared ? address + (owner.block << 48) : address];
    hand_over &own = hand_over_of(self);
    if (kind != STORE)
        add(&own.seen, word);
    if (kind == STORE)
        word = own.given;
    if (kind == ATOMIC)
        add(&word, own.given);
}

// The number of a barrier of a block. It has been made last of those at the address.
size_t find_mbarrier(size_t block, const void *address) {
    size_t i = blocks[block].mbarriers.size() - 1;
    while (blocks[block].mbarriers[i].address != address)
        --i;
    return i;
}

// The running thread needs a barrier, which must have been made before.
size_t use_mbarrier(const owner &owner, const void *address, const void *code) {
    const position self = running();
    const size_t i = find_mbarrier(owner.block, address);
    const touch now = touch_now(true, (uintptr_t)code),
                &made = blocks[owner.block].mbarriers[i].made;
    worked[self.block * threads + self.thread] = true;
    if (owner.who != owner::SELF)
        check_visit(owner, now.place, true);
    if (unordered(made, now, true))
        report(made, now, true, true, address);
    return i;
}

// What arrives in a phase must not be able to arrive before. So who has sent it knows that the
// phases before, `known` in number, are complete.
void check_phase(unsigned known, const mbarrier &barrier, const void *code) {
    if (known == barrier.phases)
        return;
    give_memory_to_both();
    die(print("%s: what %s sends may count in phase %u or %u of its barrier: nothing orders it and "
              "the end of phase %u",
              who().text, line_of(code).text, known, barrier.phases, known));
}

// The running thread arrives or sends.
mbarrier &enter_phase(const owner &owner, size_t i, const void *code) {
    const position self = running();
    mbarrier &barrier = blocks[owner.block].mbarriers[i];
    unsigned known = 0;
    for (const past *past : {&blocks[self.block].known, &hand_over_of(self).known})
        for (const numbers *numbers : {&past->all, &past->loads})
            known = max(known, number_in(*numbers, owner.block, BARRIERS + i));
    check_phase(known, barrier, code);
    return barrier;
}

} // namespace

void note_launch(const char *kernel, size_t grid_blocks, size_t block_threads,
                 size_t cluster_blocks, bool early) {
    counts &counts = of(kernel);
    ++(device.in_graph ? counts.nodes : counts.launches);
    counts.blocks += grid_blocks;
    counts.warps += grid_blocks * ((block_threads + warpSize - 1) / warpSize);
    counts.threads += grid_blocks * block_threads;
    threads = block_threads;
    cluster = cluster_blocks;
    visits.clear();
    blocks.assign(grid_blocks, {});
    begin_phase();
    const unsigned in_front = overlap.triggered ? overlap.since : launched;
    launched = phase;
    overlap = {early, early ? in_front : launched, false, false, false};
    worked.assign(grid_blocks * block_threads, false);
    fenced.assign(grid_blocks * block_threads, 0);
    cycles.assign(device.multiprocessors, 0);
    warp = {};
}

void note_turns_taken() {
    count_requests();
}

static void end_phase() {
    of(device.kernel).busiest += *std::max_element(cycles.begin(), cycles.end());
    std::fill(cycles.begin(), cycles.end(), 0);
}

void note_end() {
    if (overlap.early && !overlap.waited)
        die(print(
            "kernel %s may begin before the launch in front of it has ended, and no thread "
            "calls cudaGridDependencySynchronize: nothing orders what follows and that launch",
            device.kernel));
    if (unset.place && getenv("SIM_UNSET"))
        die(print("%s loads %s at %s: no thread of the block has stored to it", unset.thread.text,
                  unset.memory.text, line_of((void *)unset.place).text));
    of(device.kernel).threads_at_work += (size_t)std::count(worked.begin(), worked.end(), true);
    end_phase();
}

void note_barrier(size_t block) {
    ++of(device.kernel).barriers;
    ++blocks[block].interval;
    add_known(&blocks[block].known, {block, 0}, threads);
    for (size_t t = 0; !hand_overs.empty() && t < threads; ++t)
        hand_over_of({block, t}).known = {}; // all of its threads know it
}

void note_cluster_barrier(size_t first) {
    past known;
    for (size_t block = first; block < first + cluster; ++block) {
        note_barrier(block);
        ++blocks[block].meetings;
        add(&known, blocks[block].known);
        raise(&known.all, block, WHOLE_BLOCK, blocks[block].interval);
    }
    for (size_t block = first; block < first + cluster; ++block)
        blocks[block].known = known;
}

void note_return(size_t block) {
    const auto found = visits.find(block);
    if (found == visits.end() || found->second.meetings < blocks[block].meetings)
        return;
    const visit &last = found->second;
    give_memory_to_both();
    die(print("kernel %s, block %zu returns, and thread %zu of block %zu touches its shared memory "
              "at %s: nothing orders the two",
              device.kernel, block, last.visitor.thread, last.visitor.block,
              line_of((void *)last.place).text));
}

void note_grid_barrier() {
    ++of(device.kernel).grid_barriers;
    overlap.all_know = overlap.waited;
    for (progress &block : blocks)
        ++block.meetings;
    begin_phase();
    end_phase();
}

void note_exchange(size_t warp) {
    const position first = {running().block, warp * warpSize};
    const size_t n = min((size_t)warpSize, threads - first.thread);
    past known;
    ++blocks[first.block].exchanges[warp];
    const bool news = add_known(&known, first, n);
    for (size_t t = 0; news && t < n; ++t)
        hand_over_of({first.block, first.thread + t}).known = known;
}

void note_multiplication() {
    ++of(device.kernel).multiplications;
}

void note_barrier_made(const void *barrier, const void *code) {
    list<mbarrier> &all = blocks[running().block].mbarriers;
    all.push_back({barrier, touch_now(false, (uintptr_t)code), 0, 0, {}, {}});
    if (all.size() > THREADS - BARRIERS)
        die(print("%s initialises more than %zu barriers", who().text, THREADS - BARRIERS));
}

void note_arrival(const void *barrier, const void *code) {
    const owner owner = owner_of(barrier);
    record((uintptr_t)code, ATOMIC, true, (uintptr_t)barrier, sizeof(uint64_t));
    add(&enter_phase(owner, use_mbarrier(owner, barrier, code), code).arriving, past_of(running()));
}

void note_phase(const void *barrier) {
    const size_t block = running().block;
    mbarrier &completed = blocks[block].mbarriers[find_mbarrier(block, barrier)];
    ++completed.phases;
    add(&completed.arrived, completed.arriving);
    completed.arriving = {};
}

void note_wait(const void *barrier, const void *code) {
    const owner owner = owner_of(barrier);
    const size_t i = use_mbarrier(owner, barrier, code);
    mbarrier &complete = blocks[owner.block].mbarriers[i];
    hand_over &own = hand_over_of(running());
    record((uintptr_t)code, ATOMIC, true, (uintptr_t)barrier, sizeof(uint64_t));
    complete.waited = complete.phases;
    own.news = true;
    add(&own.known, complete.arrived);
    raise(&own.known.all, owner.block, BARRIERS + i, complete.phases);
}

void note_fence() {
    const position self = running();
    fenced[self.block * threads + self.thread] = ++blocks[self.block].fence;
}

void note_coming(const void *barrier, unsigned phase, const void *code) {
    const size_t block = running().block;
    check_phase(phase, blocks[block].mbarriers[find_mbarrier(block, barrier)], code);
}

unsigned note_start(const void *to, const void *from, size_t bytes, const void *barrier,
                    const void *code) {
    const owner owner = owner_of(barrier);
    const size_t i = use_mbarrier(owner, barrier, code);
    mbarrier &its = enter_phase(owner, i, code);
    const touch now = touch_now(false, (uintptr_t)code);
    touch later = now;
    later.by = touch::ASYNCHRONOUS;
    later.block = (unsigned)owner.block;
    later.thread = (unsigned)i;
    later.interval = its.phases;
    if (!from) {
        check_order(STORE, true, (uintptr_t)to, bytes, now, &later);
        record(now.place, STORE, true, (uintptr_t)to, (unsigned)bytes);
        const past &fenced = hand_over_of(running()).given, all = past_of(running());
        add(&its.arriving, fenced);
        add(&its.arriving.loads, all.all);
        add(&its.arriving.loads, all.loads);
        return its.phases;
    }
    for (size_t offset = 0; offset < bytes; offset += LARGEST) {
        check_fences(true, true, (uintptr_t)to + offset, now);
        check_fences(false, false, (uintptr_t)from + offset, now);
        check_order(STORE, true, (uintptr_t)to + offset, LARGEST, now, &later);
        check_order(LOAD, false, (uintptr_t)from + offset, LARGEST, now, &later);
    }
    // It takes no cycles of the load and store unit, and L1 has no part in it.
    counts &counts = of(device.kernel);
    const size_t sectors = ((uintptr_t)from % SECTOR + bytes + SECTOR - 1) / SECTOR;
    ++counts.requests[LOAD];
    counts.sectors[LOAD] += sectors;
    counts.misses += sectors;
    counts.packed[LOAD] += (bytes + SECTOR - 1) / SECTOR;
    return its.phases;
}

void note_wait_for_launch() {
    hand_over &own = hand_over_of(running());
    overlap.waited = own.news = true;
    if (overlap.early)
        raise(&own.known.all, LAUNCH_IN_FRONT, 0, 1);
}

void note_trigger() {
    overlap.triggered = overlap.triggered || !has_ended(running());
}

void note_copy(copy_direction direction, const void *from, size_t bytes) {
    const uintptr_t address = (uintptr_t)from;
    if (direction == TO_HOST && kind_of(from) == DEVICE && getenv("SIM_UNSET")) {
        const list<word> &page = pages[address / PAGE];
        if (*(const unsigned char *)from == UNINITIALISED &&
            (page.empty() || !page[address % PAGE * page.size() / PAGE].store.phase))
            die(print("the host copies %s: nothing has stored to it, so has its stream been waited "
                      "for?",
                      describe(from).text));
    }
    ++copies[direction];
    copied[direction] += bytes;
}

// A request as JSON. Each lane has its distance from where the array begins, or null if it takes no
// part. `start` is where in 128 bytes the array begins, which are four sectors or a word of each
// bank. `by` has the wavefront that serves each of a lane's words. `code` is an address of the
// program, in the call of what GCC calls before the access.
static void write_request(FILE *file, const traced_request &traced) {
    const char *const kind = traced.kind == LOAD    ? "load"
                             : traced.kind == STORE ? "store"
                                                    : "atomic";
    Dl_info program = {};
    dladdr((void *)traced.place, &program);
    fprintf(
        file,
        "{\"code\": %zu, \"space\": \"%s\", \"kind\": \"%s\", \"bytes\": %u, \"interval\": %zu, "
        "\"sectors\": %zu, \"misses\": %zu, \"wavefronts\": %zu, \"start\": %zu, \"lanes\": [",
        traced.place - 1 - (uintptr_t)program.dli_fbase, traced.shared ? "shared" : "global", kind,
        traced.made.bytes, traced.interval, traced.sectors, traced.misses, traced.passes,
        traced.array % (BANKS * WORD));
    for (size_t lane = 0; lane < warpSize; ++lane)
        fprintf(file, "%s%s", lane ? ", " : "",
                traced.made.lanes >> lane & 1
                    ? print("%td", (ptrdiff_t)(traced.made.addresses[lane] - traced.array)).text
                    : "null");
    fputs("], \"by\": [", file);
    for (size_t lane = 0; lane < warpSize; ++lane) {
        fputs(lane ? ", [" : "[", file);
        for (unsigned word = 0; word * WORD < traced.made.bytes; ++word)
            fprintf(file, "%s%zu", word ? ", " : "", traced.by[lane][word]);
        fputs("]", file);
    }
    fputs("]}", file);
}

// Each kernel's trace. Its requests are in the order in which the warp makes them.
static void write_traces(FILE *file) {
    fputs("[", file);
    for (const trace &trace : traces) {
        fprintf(file,
                "%s{\"kernel\": \"%s\", \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], "
                "\"requests\": [",
                &trace == &traces[0] ? "" : ",\n", trace.kernel, trace.grid.x, trace.grid.y,
                trace.grid.z, trace.block.x, trace.block.y, trace.block.z);
        for (const traced_request &traced : trace.requests) {
            fputs(&traced == &trace.requests[0] ? "\n" : ",\n", file);
            write_request(file, traced);
        }
        fputs("]}", file);
    }
    fputs("]\n", file);
}

// A line for each kernel. Few programs have the last column.
static void write_counts(FILE *file) {
    bool multiply = false;
    for (const auto &[kernel, c] : kernels)
        multiply = multiply || c.multiplications;
    fputs("kernel,launches,nodes,blocks,warps,threads,threads_at_work", file);
    for (const char *kind : {"load", "store", "atomic"})
        fprintf(file, ",%s_requests,%s_sectors,%s_packed,shared_%s_requests,shared_%s_passes", kind,
                kind, kind, kind, kind);
    fprintf(file, ",shared_words,barriers,grid_barriers,busiest,misses,bytes%s\n",
            multiply ? ",mma" : "");
    for (const auto &[kernel, c] : kernels) {
        fprintf(file, "\"%s\",%zu,%zu,%zu,%zu,%zu,%zu", kernel, c.launches, c.nodes, c.blocks,
                c.warps, c.threads, c.threads_at_work);
        for (access_kind kind : {LOAD, STORE, ATOMIC})
            fprintf(file, ",%zu,%zu,%zu,%zu,%zu", c.requests[kind], c.sectors[kind], c.packed[kind],
                    c.shared_requests[kind], c.passes[kind]);
        fprintf(file, ",%zu,%zu,%zu,%zu,%zu,", c.shared_words, c.barriers, c.grid_barriers,
                c.busiest, c.misses);
        fputs(multiply ? print(",%zu\n", c.multiplications).text : "\n", file);
    }
    const char *const DIRECTIONS[] = {"to the device", "to the host", "within the device",
                                      "memset"};
    for (copy_direction direction : {TO_DEVICE, TO_HOST, WITHIN_DEVICE, MEMSET})
        fprintf(file, "%s,%zu,,,,,,,,,,,,,,,,,,,,,,,,,,%zu\n", DIRECTIONS[direction],
                copies[direction], copied[direction]);
}

// To the file that a variable of the environment names.
static void write_to(const char *variable, void write(FILE *)) {
    const char *const path = getenv(variable);
    if (!path)
        return;
    FILE *const file = fopen(path, "w");
    if (file)
        write(file);
    if (!file || fclose(file))
        die(print("%s: cannot write %s", variable, path));
}

void write_counts() {
    write_to("SIM_COUNTS", write_counts);
    write_to("SIM_TRACE", write_traces);
}

} // namespace simulator

// ---- What GCC calls

using namespace simulator;

extern "C" {

#define ACCESS(name, kind, atomic, bytes)                                                          \
    void __tsan_##name(void *memory) {                                                             \
        touch_memory(kind, atomic, memory, bytes, __builtin_return_address(0));                    \
    }
#define ACCESSES(bytes)                                                                            \
    ACCESS(read##bytes, LOAD, false, bytes)                                                        \
    ACCESS(write##bytes, STORE, false, bytes)                                                      \
    ACCESS(unaligned_read##bytes, LOAD, false, bytes)                                              \
    ACCESS(unaligned_write##bytes, STORE, false, bytes)                                            \
    ACCESS(volatile_read##bytes, LOAD, true, bytes)                                                \
    ACCESS(volatile_write##bytes, STORE, true, bytes)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

uint32_t __tsan_atomic32_load(const volatile uint32_t *memory, int) {
    return __atomic_load_n(memory, __ATOMIC_RELAXED);
}

bool __tsan_atomic32_compare_exchange_weak(volatile uint32_t *memory, uint32_t *expected,
                                           uint32_t value, int, int) {
    touch_memory(ATOMIC, true, memory, sizeof *memory, __builtin_return_address(0));
    return __atomic_compare_exchange_n(memory, expected, value, false, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED);
}

void __tsan_atomic_thread_fence(int) {
    const position self = running();
    hand_over &own = hand_over_of(self);
    add(&own.known, own.seen);
    own.seen = {};
    own.news = true;
    own.given = past_of(self);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

// Structures that are larger: nvcc copies them by words.
void __tsan_read_range(void *memory, size_t bytes) {
    for (size_t byte = 0; byte < bytes; byte += WORD)
        touch_memory(LOAD, false, (char *)memory + byte, WORD, __builtin_return_address(0));
}
void __tsan_write_range(void *memory, size_t bytes) {
    for (size_t byte = 0; byte < bytes; byte += WORD)
        touch_memory(STORE, false, (char *)memory + byte, WORD, __builtin_return_address(0));
}

// A variable that is made at its first use asks whether it is.
uint8_t __tsan_atomic8_load(const volatile uint8_t *memory, int) {
    return __atomic_load_n(memory, __ATOMIC_ACQUIRE);
}

void __tsan_init() {
}
void __tsan_func_entry(void *) {
}
void __tsan_func_exit() {
}
}
