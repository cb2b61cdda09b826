// The reference: the same series, from its small end.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    long terms = 1000;
    for (int i = 1; i + 1 < argc; ++i)
        if (strcmp(argv[i], "--terms") == 0)
            terms = strtol(argv[i + 1], NULL, 10);
    double sum = 0;
    for (long k = terms - 1; k >= 0; --k)
        sum += (k % 2 ? -4.0 : 4.0) / (2.0 * (double)k + 1);
    printf("result pi %.17g 1e-12 0\n", sum);
    return 0;
}
