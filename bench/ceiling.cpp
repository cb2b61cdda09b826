// Prints the ceiling of so many threads, in operations a second. `make check TARGET=50%` calls it:
//
//     ceiling THREADS
#include "bench/ceiling.h"

#include <cstdio>
#include <cstdlib>

int main(int, char **argv) {
    std::printf("%.6g\n", measure_ceiling(std::atoi(argv[1])));
    return 0;
}
