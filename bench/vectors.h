// The widest vectors of the machine that is compiled for, as in stages/01_vectorized.
#ifndef BENCH_VECTORS_H
#define BENCH_VECTORS_H

// VECTOR_REGISTER is the inline assembler's name for any register that holds one.
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, REGISTERS = 32, TILE_ROWS = 8, TILE_COLUMNS = 2 };
#define VECTOR_REGISTER "v"
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, REGISTERS = 16, TILE_ROWS = 4, TILE_COLUMNS = 2 };
#define VECTOR_REGISTER "x"
#elif defined(__aarch64__)
enum { VECTOR_BYTES = 16, REGISTERS = 32, TILE_ROWS = 8, TILE_COLUMNS = 2 };
#define VECTOR_REGISTER "w"
#else
enum { VECTOR_BYTES = 16, REGISTERS = 16, TILE_ROWS = 4, TILE_COLUMNS = 2 };
#define VECTOR_REGISTER "x"
#endif
enum { LANES = VECTOR_BYTES / sizeof(float) };
typedef float vec __attribute__((vector_size(VECTOR_BYTES)));

#endif
