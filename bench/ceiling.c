// Prints the ceiling of so many threads, in operations a second. A sweep and
// `make compare` call it before each run, `make check TARGET=50%` after it:
//
//     ceiling THREADS
#include "bench/ceiling.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    (void)argc;
    printf("%.6g\n", measure_ceiling(atoi(argv[1])));
    return 0;
}
