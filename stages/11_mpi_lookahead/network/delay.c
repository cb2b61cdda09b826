// A simulated delay: lets no sum of MPI be there before DELAY_US microseconds are over. It is
// preloaded, and stands at MPI's profiling interface: it has the names that a program calls, and
// calls the same functions by their other names, PMPI_... A program has one sum on its way at a
// time.
#include <mpi.h>
#include <stdlib.h>

static double arrival; // of the sum that is on its way, in seconds

static void send(void) {
    const char *delay = getenv("DELAY_US");
    arrival = PMPI_Wtime() + (delay ? atof(delay) * 1e-6 : 0);
}

// Whether the sum may be there. If not, MPI goes on with it, as in any of its functions.
static int has_arrived(void) {
    if (PMPI_Wtime() >= arrival)
        return 1;
    PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &(int){0}, MPI_STATUS_IGNORE);
    return 0;
}

int MPI_Allreduce(const void *parts, void *sums, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm processes) {
    send();
    const int status = PMPI_Allreduce(parts, sums, count, type, op, processes);
    while (!has_arrived())
        ;
    return status;
}

int MPI_Iallreduce(const void *parts, void *sums, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm processes, MPI_Request *request) {
    send();
    return PMPI_Iallreduce(parts, sums, count, type, op, processes, request);
}

int MPI_Test(MPI_Request *request, int *is_done, MPI_Status *status) {
    *is_done = 0;
    return has_arrived() ? PMPI_Test(request, is_done, status) : MPI_SUCCESS;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status) {
    while (!has_arrived())
        ;
    return PMPI_Wait(request, status);
}
