// The memory of host and device: who may touch it when, and the message if the other one does.
#include "simulator.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

// These exist if the program is built with AddressSanitizer. The simulator itself never is, because
// it does what the sanitizer forbids.
extern "C" {
__attribute__((weak)) void __asan_poison_memory_region(const volatile void *memory, size_t bytes);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void *memory, size_t bytes);
__attribute__((weak)) void *__asan_get_report_address();
}

// The linker turns the program's calls of malloc() into calls of __wrap_malloc(), and so on (see
// common/cuda.mk). The calls of libraries, such as OpenMP's, still go to the C library.
extern "C" {
void *__real_realloc(void *memory, size_t bytes);
int __real_main(int argc, char **argv, char **environment);
}

namespace simulator {

struct device device;
__attribute__((weak)) size_t compiled_for = CAPABILITIES[0].number;

namespace {

// Each kind has its own piece of address space, which is handed out from one end to the other and
// never twice. So a pointer tells its kind, a freed one never becomes valid again, and one
// mprotect() keeps the host or the device away from all memory of a kind.
struct {
    char *base;
    size_t used; // bytes, the gaps between allocations included
    size_t count;
    allocation *allocations; // by address
} arenas[KINDS];
const char *const FUNCTIONS[] = {"malloc", "cudaMallocHost", "cudaMallocManaged", "cudaMalloc"};

constexpr size_t ARENA_BYTES = (size_t)256 << 30, MAX_ALLOCATIONS = 1 << 20;
// With the machine's large pages mprotect() takes microseconds, otherwise milliseconds.
constexpr size_t PAGE = 4096, LARGE_PAGE = 2 << 20;
// Poisoned bytes between allocations: AddressSanitizer finds an access that lands in them.
constexpr size_t GAP = 4096;

// The stack of the host's thread, from the page of its innermost frame to that of main().
struct {
    char *start, *end;
} host_stack;

char *page_of(const void *address) {
    return (char *)((size_t)address / PAGE * PAGE);
}

bool on_host_stack(const void *address) {
    return address >= host_stack.start && address < host_stack.end;
}

void set_accessible(char *start, size_t bytes, bool accessible) {
    if (bytes && mprotect(start, bytes, accessible ? PROT_READ | PROT_WRITE : PROT_NONE) < 0)
        die(print("mprotect of %zu bytes: %s", bytes, strerror(errno)));
}

void set_accessible(kind kind, bool accessible) {
    set_accessible(arenas[kind].base, round_up(arenas[kind].used, LARGE_PAGE), accessible);
    if (kind == HOST) // and its stack
        set_accessible(host_stack.start, (size_t)(host_stack.end - host_stack.start), accessible);
}

bool in_arena(const void *address, int kind) {
    return arenas[kind].base && (size_t)((char *)address - arenas[kind].base) < ARENA_BYTES;
}

} // namespace

size_t round_up(size_t n, size_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

void poison(const void *memory, size_t bytes) {
    if (__asan_poison_memory_region)
        __asan_poison_memory_region(memory, bytes);
}

void unpoison(const void *memory, size_t bytes) {
    if (__asan_unpoison_memory_region)
        __asan_unpoison_memory_region(memory, bytes);
}

char *reserve(size_t bytes, bool accessible) {
    // Not all memory that is accessible here will be used, so the system must not refuse it. Memory
    // that becomes accessible later will be used, and the system may refuse it.
    void *memory = accessible ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                              : mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        die(print("cannot reserve %zu bytes of address space: %s", bytes, strerror(errno)));
    return (char *)memory;
}

void give_memory_to_host() {
    device.in_kernel = false;
    set_accessible(HOST, true);
    set_accessible(DEVICE, false);
    // As far as the host can know, the last kernel is still working on it.
    set_accessible(MANAGED, device.pending == 0);
}

void give_memory_to_kernel() {
    device.in_kernel = true;
    set_accessible(DEVICE, true);
    set_accessible(MANAGED, true);
    set_accessible(HOST, false);
}

void give_memory_to_both() {
    for (kind kind : {HOST, MANAGED, DEVICE})
        set_accessible(kind, true);
}

void set_innermost_frame(const void *innermost) {
    host_stack.start = page_of(innermost);
}

void *allocate(kind kind, size_t bytes, size_t alignment, int byte) {
    auto &arena = arenas[kind];
    if (!arena.base) {
        arena.base = (char *)round_up((size_t)reserve(ARENA_BYTES + LARGE_PAGE, false), LARGE_PAGE);
        madvise(arena.base, ARENA_BYTES, MADV_HUGEPAGE);
        arena.allocations = (allocation *)reserve(MAX_ALLOCATIONS * sizeof(allocation), true);
    }
    const size_t start = round_up(arena.used + GAP, alignment);
    if (bytes > ARENA_BYTES || start + bytes + GAP > ARENA_BYTES || arena.count == MAX_ALLOCATIONS)
        return nullptr;
    char *const memory = arena.base + start;
    if (mprotect(arena.base, round_up(start + bytes, LARGE_PAGE), PROT_READ | PROT_WRITE) < 0)
        return nullptr;
    poison(arena.base + arena.used, start + bytes + GAP - arena.used);
    unpoison(memory, bytes);
    arena.allocations[arena.count++] = {memory, bytes, FUNCTIONS[kind], true};
    arena.used = start + bytes;
    memset(memory, byte, bytes);
    return memory;
}

const allocation *release(kind kind, void *memory) {
    allocation *const found = in_arena(memory, kind) ? find_allocation(memory) : nullptr;
    if (!found || found->start != memory || !found->live)
        return nullptr;
    set_accessible(kind, true);
    memset(memory, UNINITIALISED, found->bytes);
    poison(memory, found->bytes);
    found->live = false;
    return found;
}

kind kind_of(const void *memory) {
    for (kind kind : {PINNED, MANAGED, DEVICE})
        if (in_arena(memory, kind))
            return kind;
    return HOST;
}

allocation *find_allocation(const void *memory) {
    const auto &arena = arenas[kind_of(memory)];
    allocation *const next = std::upper_bound(
        arena.allocations, arena.allocations + arena.count, memory,
        [](const void *memory, const allocation &later) { return memory < later.start; });
    return next == arena.allocations || !in_arena(memory, kind_of(memory)) ? nullptr : next - 1;
}

// ---- Reports

// Other cores may be about to report the same.
static void silence_others() {
    static bool taken;
    static __thread bool mine;
    if (!mine && __atomic_exchange_n(&taken, true, __ATOMIC_RELAXED))
        for (;;)
            pause();
    mine = true;
}

text print(const char *format, ...) {
    text result;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(result.text, sizeof result.text, format, arguments);
    va_end(arguments);
    return result;
}

void complain(const text &line) {
    dprintf(STDERR_FILENO, "simulated device: %s\n", line.text);
}

void die(const text &line) {
    silence_others();
    complain(line);
    _exit(EXIT_FAILURE);
}

cudaError_t fail(cudaError_t error) {
    return device.last_error = error;
}

static const allocation *nearest_allocation(const char *address) {
    const auto &arena = arenas[kind_of(address)];
    const allocation *const before = find_allocation(address);
    const allocation *const next = before ? before + 1 : arena.allocations;
    if (!in_arena(address, kind_of(address)) || next == arena.allocations + arena.count)
        return before;
    const bool nearer =
        !before || next->start - address < address - before->start - (ptrdiff_t)before->bytes;
    return nearer ? next : before;
}

text describe(const void *memory) {
    const char *const address = (const char *)memory;
    if (on_host_stack(address))
        return print("%p, on the host's stack", memory);
    const allocation *found = find_shared_memory(address);
    if (!found)
        found = nearest_allocation(address);
    if (!found)
        return print("%p", memory);
    const char *const end = found->start + found->bytes;
    const char *const where = address < found->start ? "in front of"
                              : address < end        ? "into"
                                                     : "behind";
    const ptrdiff_t distance = address < found->start ? found->start - address
                               : address < end        ? address - found->start
                                                      : address - end;
    return print("%p, %td bytes %s the %zu bytes of %s%s", memory, distance, where, found->bytes,
                 found->function, found->live ? "" : ", freed since");
}

text line_of(const void *code) {
    Dl_info found;
    char line[256] = "?";
    if (dladdr(code, &found)) {
        FILE *const tool = popen(print("addr2line -s -e /proc/%d/exe %#tx", (int)getpid(),
                                       (const char *)code - 1 - (const char *)found.dli_fbase)
                                     .text,
                                 "r");
        if (tool && fgets(line, sizeof line, tool))
            line[strcspn(line, " \n")] = 0; // not which part of the line
    }
    return print("%s", line);
}

// ---- What the hardware and AddressSanitizer find

namespace {

struct sigaction previous_action;
bool fault_reported;

void on_fault(int signal, siginfo_t *found, void *context) {
    silence_others();
    const void *const address = found->si_addr;
    const text toucher = who(), where = describe(address);
    const bool hosts = on_host_stack(address) || in_arena(address, HOST);
    fault_reported = true;
    if (found->si_code == SI_KERNEL) // the processor does not say where
        complain(print("%s touched memory that is misaligned, or nobody's", toucher.text));
    else if (device.in_kernel)
        complain(print("%s touched %s at %s", toucher.text, hosts ? "host memory" : "no memory",
                       where.text));
    else if (in_arena(address, DEVICE))
        complain(print("%s touched device memory at %s", toucher.text, where.text));
    else if (in_arena(address, MANAGED))
        complain(print("%s did not wait for kernel %s and touched managed memory at %s",
                       toucher.text, device.kernel, where.text));
    else
        fault_reported = false;
    give_memory_to_both(); // AddressSanitizer, if it is there, shows the line
    if (previous_action.sa_flags & SA_SIGINFO)
        previous_action.sa_sigaction(signal, found, context);
    if (fault_reported)
        _exit(EXIT_FAILURE);
    sigaction(signal, &previous_action, nullptr); // then the fault happens again
}

size_t from_environment(const char *name, size_t otherwise) {
    const char *const text = getenv(name);
    if (!text)
        return otherwise;
    char *end;
    errno = 0;
    const size_t value = strtoull(text, &end, 10);
    if (end == text || *end || errno || *text == '-')
        die(print("%s: found '%s', expected a whole number", name, text));
    return value;
}

// A run that ends well has freed its memory, and has checked whether its launches failed.
void at_exit(int status, void *) {
    bool bad = device.launch_failed;
    if (status)
        return;
    if (device.launch_failed)
        complain(
            print("a launch failed and nobody asked: %s", cudaGetErrorString(device.last_error)));
    for (kind kind : {PINNED, MANAGED, DEVICE}) {
        size_t bytes = 0;
        for (size_t i = 0; i < arenas[kind].count; ++i)
            bytes += arenas[kind].allocations[i].live ? arenas[kind].allocations[i].bytes : 0;
        if (bytes)
            complain(print("%zu bytes of %s were never freed", bytes, FUNCTIONS[kind]));
        bad |= bytes > 0;
    }
    if (device.graphs)
        complain(print("%zu graphs were never destroyed", device.graphs));
    bad |= device.graphs > 0;
    if (bad) {
        fflush(nullptr);
        _exit(EXIT_FAILURE);
    }
    if (write_counts)
        write_counts();
}

void *allocate_for_host(size_t bytes, size_t alignment, int byte) {
    void *const memory = allocate(HOST, bytes, alignment > 64 ? alignment : 64, byte);
    if (!memory)
        errno = ENOMEM;
    return memory;
}

} // namespace
} // namespace simulator

using namespace simulator;
using simulator::device;

extern "C" {

void __asan_on_error() {
    if (fault_reported)
        return;
    give_memory_to_both();
    complain(print("%s touched what it must not at %s", who().text,
                   describe(__asan_get_report_address()).text));
}

const char *__asan_default_options() {
    return "detect_stack_use_after_return=0"; // it takes fibres for one thread's calls
}

void *__wrap_malloc(size_t bytes) {
    return allocate_for_host(bytes, 1, UNINITIALISED);
}

void *__wrap_calloc(size_t count, size_t size) {
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? nullptr : allocate_for_host(bytes, 1, 0);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    return allocate_for_host(bytes, alignment, UNINITIALISED);
}

void __wrap_free(void *memory) {
    if (!in_arena(memory, HOST))
        __real_free(memory); // the C library's, for example from strdup()
    else if (!release(HOST, memory))
        die(print("free: nothing to free at %s", describe(memory).text));
}

void *__wrap_realloc(void *memory, size_t bytes) {
    if (memory && !in_arena(memory, HOST))
        return __real_realloc(memory, bytes);
    void *const moved = __wrap_malloc(bytes);
    if (memory && moved) {
        const size_t before = find_allocation(memory)->bytes;
        memcpy(moved, memory, before < bytes ? before : bytes);
        __wrap_free(memory);
    }
    return moved;
}

int __wrap_main(int argc, char **argv, char **environment) {
    // OpenMP's threads would wait in a loop. That takes minutes instead of seconds if another
    // program wants the processors. OpenMP reads this variable before main(), so the program starts
    // again.
    char self[4096] = "";
    if (!getenv("OMP_WAIT_POLICY") && readlink("/proc/self/exe", self, sizeof self - 1) > 0) {
        setenv("OMP_WAIT_POLICY", "passive", 0);
        execv(self, argv);
    }
    puts("simulated: CUDA on the CPU, to find errors; no time below means anything");
    fflush(stdout);
    device.present = from_environment("SIM_DEVICES", 1) > 0;
    device.name = getenv("SIM_NAME") ? getenv("SIM_NAME") : "simulated";
    device.multiprocessors = from_environment("SIM_MULTIPROCESSORS", 16);
    if (device.multiprocessors < 1 || device.multiprocessors > MAX_MULTIPROCESSORS)
        die(print("SIM_MULTIPROCESSORS: found %zu, expected 1 to %zu", device.multiprocessors,
                  MAX_MULTIPROCESSORS));
    const size_t capability = from_environment("SIM_CAPABILITY", compiled_for);
    for (const struct capability &each : CAPABILITIES)
        if (each.number == capability)
            device.capability = each;
    if (!device.capability.number)
        die(print("SIM_CAPABILITY: found %zu, expected 75 or 90", capability));
    device.memory = from_environment("SIM_MEMORY", (size_t)4 << 30);
    device.seed = note_launch ? 0 : from_environment("SIM_SEED", 1);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous_action);
    on_exit(at_exit, nullptr);

    // The arguments and the environment, at the stack's end, stay accessible to both sides: the
    // sanitizers and OpenMP read them. With a page between them and the frame of main(), that whole
    // frame is out of a kernel's reach.
    volatile char between[PAGE] = {};
    host_stack.start = host_stack.end = page_of(__builtin_frame_address(0));
    const int status = __real_main(argc, argv, environment);
    return status + between[0];
}
}

void *operator new(size_t bytes) {
    void *const memory = __wrap_malloc(bytes);
    if (!memory)
        die(print("no memory for %zu bytes", bytes));
    return memory;
}

void *operator new[](size_t bytes) {
    return operator new(bytes);
}

void operator delete(void *memory) noexcept {
    __wrap_free(memory);
}

void operator delete[](void *memory) noexcept {
    __wrap_free(memory);
}

void operator delete(void *memory, size_t) noexcept {
    __wrap_free(memory);
}

void operator delete[](void *memory, size_t) noexcept {
    __wrap_free(memory);
}
