// Patterns of access, each on a line that says how many sectors of global memory or wavefronts of
// shared memory it takes, by the rules of the CUDA programming guide.
__global__ void patterns(const float *x, const float4 *vectors, const unsigned char *bytes,
                         float *y) {
    __shared__ float tile[2][32][32], padded[2][32][33];
    __shared__ float4 wide[2][32];
    const int t = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sum = x[t];                 // global load 4: neighbouring numbers
    sum += x[32 * t];                 // global load 32: a sector each
    sum += x[t + 1];                  // global load 5: not aligned
    sum += x[0];                      // global load 1: all want the same
    sum += bytes[t];                  // global load 1: 32 bytes
    const float4 vector = vectors[t]; // global load 16: 512 bytes
    if (t >= 24)
        sum += x[t + 64];     // global load 1: eight lanes
    tile[warp][t][0] = sum;   // shared store 32: one bank
    padded[warp][t][0] = sum; // shared store 1: all banks
    wide[warp][t] = vector;   // shared store 4: 128 bytes each
    __syncthreads();
    sum += tile[warp][t][0];                  // shared load 32
    sum += padded[warp][t][0];                // shared load 1
    sum += tile[warp][7][0];                  // shared load 1: all want the same
    sum += (&tile[warp][0][0])[32 * (t / 2)]; // shared load 16: two lanes want the same
    const float4 mine = wide[warp][t];        // shared load 4
    const float4 half = wide[warp][t / 2];    // shared load 2: neighbours want the same
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum + mine.x + half.x; // global store 4
}

int main() {
    float *x, *y;
    const size_t bytes = 64 << 10;
    if (cudaMalloc(&x, bytes) != cudaSuccess || cudaMalloc(&y, bytes) != cudaSuccess)
        return 3;
    cudaMemset(x, 0, bytes);
    for (int launch = 0; launch < 2; ++launch) // the first is traced
        patterns<<<2, 64>>>(x, (const float4 *)x, (const unsigned char *)x, y);
    cudaDeviceSynchronize();
    cudaFree(x);
    cudaFree(y);
}
