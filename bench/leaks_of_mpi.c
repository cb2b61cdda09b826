// Linked into a stage of several processes that is built with AddressSanitizer, which reports
// memory that nobody freed. MPI loses some when it begins, and more when it ends and unloads its
// libraries. So the first is left out, and leaks are looked for before MPI ends, but after main()
// has: until then, its variables point to all that they should have freed.
#include <sanitizer/lsan_interface.h>
#include <stdlib.h>

int PMPI_Init_thread(int *, char ***, int, int *);
int PMPI_Finalize(void);

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    __lsan_disable(); // for this thread
    int status = PMPI_Init_thread(argc, argv, required, provided);
    __lsan_enable();
    return status;
}

static void look_and_end(void) {
    __lsan_do_leak_check();
    PMPI_Finalize();
}

int MPI_Finalize(void) {
    return atexit(look_and_end);
}

// PMIx, with which Open MPI starts processes, has a thread of its own.
const char *__lsan_default_suppressions(void) {
    return "leak:libpmix\n";
}

const char *__lsan_default_options(void) {
    return "print_suppressions=0";
}
