// Prints the ceiling of so many threads, in operations a second. The harness calls it after each
// run:
//
//     ceiling THREADS
#include "bench/machine/ceiling.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    printf("%.6g\n", measure_ceiling(argc > 1 ? atoi(argv[1]) : 1));
    return 0;
}
