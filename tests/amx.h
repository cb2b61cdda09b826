/* The instructions of AMX that stages/12_exact_digits uses, in C, for a processor without them. */
#include <cpuid.h>
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { SIM_TILES = 8, SIM_ROWS = 16, SIM_BYTES = 64 };
static _Thread_local uint8_t sim_tiles[SIM_TILES][SIM_ROWS][SIM_BYTES];

static inline void sim_load(int tile, const void *from, size_t stride) {
    for (size_t r = 0; r < SIM_ROWS; ++r)
        memcpy(sim_tiles[tile][r], (const uint8_t *)from + r * stride, SIM_BYTES);
}

static inline void sim_store(int tile, void *to, size_t stride) {
    for (size_t r = 0; r < SIM_ROWS; ++r)
        memcpy((uint8_t *)to + r * stride, sim_tiles[tile][r], SIM_BYTES);
}

/* Adds rows times columns to a tile of sums. Four bytes lie side by side in a column's lane. */
static inline void sim_multiply(int to, int rows, int columns) {
    for (size_t r = 0; r < SIM_ROWS; ++r)
        for (size_t lane = 0; lane < SIM_BYTES; lane += sizeof(int32_t)) {
            int32_t sum;
            memcpy(&sum, &sim_tiles[to][r][lane], sizeof sum);
            for (size_t i = 0; i < SIM_BYTES; ++i)
                sum += sim_tiles[rows][r][i] * (int8_t)sim_tiles[columns][i / 4][lane + i % 4];
            memcpy(&sim_tiles[to][r][lane], &sum, sizeof sum);
        }
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbusd
#define _tile_loadconfig(config) ((void)(config))
#define _tile_loadd sim_load
#define _tile_stored sim_store
#define _tile_zero(tile) memset(sim_tiles[tile], 0, sizeof sim_tiles[tile])
#define _tile_dpbusd sim_multiply
#define __get_cpuid_count(leaf, sub, a, b, c, d) (*(a) = *(b) = *(c) = 0, *(d) = 1U << 25, 1)
#define syscall(...) 0
