#!/usr/bin/env bats
# Tests the simulated device. Right programs run, with the same result in every order. Wrong programs
# are found, and the message says what is wrong and where.

setup() {
    export OMP_WAIT_POLICY=passive
    cd "$BATS_TEST_DIRNAME" || exit
}

# finds PROGRAM BUILD PATTERN: the wrong program ends with 1 and one line that matches the pattern.
# (AddressSanitizer has more to say.)
finds() {
    local status=0 output
    output=$(timeout 60 build/broken."$2" "$1" 2>&1 >/dev/null) || status=$?
    if [[ $status != 1 ]] || ! grep -qE -- "$3" <<<"$output" ||
        [[ $2 == sim && $(wc -l <<<"$output") != 1 ]]; then
        echo "$1, $2: exit status $status, expected 1 and '$3':"
        echo "$output"
        return 1
    fi
}

# The same for both builds.
finds_always() {
    finds "$1" sim "^simulated device: $2"
    finds "$1" sanitized.sim "^simulated device: $2"
}

# What a program prints under a seed, without the first line.
result_of() {
    SIM_SEED=$2 timeout 60 build/broken.sim "$1" | tail -n +2
}

line_of() {
    grep -n -- "$1" programs/broken.cu | cut -d: -f1 | sed -n "${2:-1}p"
}

@test "right programs give the same result in every order, on one core and on four" {
    expected=$(SIM_SEED=0 OMP_NUM_THREADS=1 timeout 60 build/correct.sim)
    [[ $(wc -l <<<"$expected") == 13 ]]
    for seed in 0 1 2 3 4; do
        for threads in 1 4; do
            for program in build/correct.sim build/correct.sanitized.sim; do
                result=$(SIM_SEED=$seed OMP_NUM_THREADS=$threads timeout 60 "$program")
                [[ $result == "$expected" ]]
            done
        done
    done
}

@test "the first line says that it is simulated, and so does the device's name" {
    build/correct.sim | head -n 1 | grep -q '^simulated'
    build/correct.sim | sed -n 2p | grep -qx simulated
}

@test "a machine without a device" {
    status=0
    output=$(SIM_DEVICES=0 build/correct.sim) || status=$?
    [[ $status == 77 ]]
    grep -q '^cudaErrorNoDevice: no CUDA-capable device is detected' <<<"$output"
}

@test "a device with little memory" {
    status=0
    output=$(SIM_MEMORY=10000 build/correct.sim) || status=$?
    [[ $status == 1 ]]
    grep -q 'not so: .*cudaMalloc.* == cudaSuccess' <<<"$output"
}

@test "an environment variable that is not a number" {
    status=0
    output=$(SIM_SEED=x build/correct.sim 2>&1) || status=$?
    [[ $status == 1 ]]
    grep -q "SIM_SEED: found 'x', expected a whole number" <<<"$output"
}

# One side touches the memory of the other.

kernel='kernel [a-z_]*, block \([0-9,]*\), thread \([0-9,]*\)'

@test "the host touches device memory" {
    finds_always host_reads_device_memory \
        'the host touched device memory at 0x[0-9a-f]*, 12 bytes into the 1024 bytes of cudaMalloc'
    finds_always host_writes_device_memory 'the host touched device memory at .*, 4 bytes into'
}

@test "a kernel touches the host's heap" {
    finds_always kernel_reads_heap \
        'kernel copy, block \(0,0,0\), thread \(0,0,0\) touched host memory at 0x[0-9a-f]*, 0 bytes into the 1024 bytes of malloc'
    finds_always kernel_writes_heap "$kernel touched host memory at .*, 0 bytes into the 1024"
}

@test "a kernel touches the host's stack" {
    finds_always kernel_reads_stack "$kernel touched host memory at .*, on the host's stack"
    finds_always kernel_writes_stack_of_main \
        "$kernel touched host memory at .*, on the host's stack"
}

@test "a kernel touches no memory at all" {
    finds_always kernel_reads_null "$kernel touched no memory at "
}

@test "the host does not wait" {
    finds_always host_does_not_wait_for_managed_memory \
        'the host did not wait for kernel fill and touched managed memory'
    [[ $(result_of host_does_not_wait_for_pinned_memory 1) == 'not arrived, arrived' ]]
    [[ $(result_of host_does_not_wait_for_event 1) == cudaErrorNotReady ]]
}

@test "a copy in the wrong direction, and one of too much" {
    finds_always copy_in_the_wrong_direction \
        "cudaMemcpy expects device memory, found 0x[0-9a-f]*, on the host's stack"
    finds_always copy_of_too_much \
        'cudaMemcpy of 1025 bytes: too many at .*, 0 bytes into the 1024 bytes of cudaMalloc'
}

# Out of bounds.

@test "device memory out of bounds" {
    finds read_behind_device_memory sanitized.sim \
        "$kernel .* 0 bytes behind the 1024 bytes of cudaMalloc"
    finds write_in_front_of_device_memory sanitized.sim \
        "$kernel .* 4 bytes in front of the 1024 bytes of cudaMalloc"
    finds read_of_freed_device_memory sanitized.sim \
        "$kernel .* bytes into the 1024 bytes of cudaMalloc, freed since"
}

@test "shared memory out of bounds" {
    finds write_behind_shared_memory sanitized.sim \
        "$kernel .* 0 bytes behind the 128 bytes of __shared__"
    finds write_behind_dynamic_shared_memory sanitized.sim \
        "$kernel .* 0 bytes behind the 124 bytes of __shared__"
}

@test "a row of an array in shared memory, overrun into the next" {
    finds read_behind_row_of_shared_memory sanitized.sim \
        "^programs/broken.cu:$(line_of 'tile\[1\]\[threadIdx.x + n\]'):.*index 32 out of bounds for type 'float \[32\]'"
}

@test "a vector that is misaligned" {
    finds misaligned_vector sanitized.sim 'misaligned address'
}

@test "too much shared memory" {
    finds_always too_much_shared_memory \
        'kernel fill_much needs 65536 bytes of shared memory for a block, found 49152'
}

# Uninitialised.

@test "memory that nobody wrote to holds NaNs" {
    [[ $(result_of uninitialised_device_memory 1) == *nan ]]
    [[ $(result_of uninitialised_shared_memory 1) == *nan ]]
}

# Barriers. The first two programs would print these numbers if they had their barriers.

@test "a missing barrier changes the result, in every order" {
    for seed in 0 1 2 3; do
        [[ $(result_of missing_barrier "$seed") != 2796160 ]]
        [[ $(result_of missing_second_barrier "$seed") != 10885248 ]]
    done
}

@test "blocks or threads that need an order give another result in another order" {
    for program in blocks_in_need_of_an_order threads_in_need_of_an_order; do
        results=$(for seed in 0 1 2 3; do OMP_NUM_THREADS=1 result_of $program $seed; done)
        [[ $(sort -u <<<"$results" | wc -l) -ge 3 ]]
        [[ $(OMP_NUM_THREADS=1 result_of $program 1) == $(sed -n 2p <<<"$results") ]]
    done
}

# Order, in the programs that count.

unordered="simulated device: kernel .*: nothing orders the two"

@test "an update that another thread may lose" {
    finds blocks_lose_updates counted.sim \
        "^simulated device: kernel count_blocks, block \(1,0,0\), thread \(0,0,0\) loads 0x[0-9a-f]*, 0 bytes into the 1024 bytes of cudaMalloc at broken.cu:$(line_of 'blockDim.x; // no atomic').*, and thread 0 of block 0 stored to it at broken.cu:[0-9]+.*: nothing orders the two"
    finds warps_lose_updates counted.sim "thread \(32,0,0\) loads .*, and thread 0 of block 0 stored"
    finds lanes_lose_updates counted.sim "thread \(1,0,0\) loads .*, and thread 0 of block 0 stored"
}

@test "stores that another block may not see yet" {
    finds missing_fence counted.sim "block \(19,0,0\), .*$(line_of 'of all blocks').*, and thread 0 of block 0 stored to"
    build/broken.counted.sim fence
    finds block_overwrites counted.sim "block \(2,0,0\), .* stores to .*:$(line_of 'of the others').*, and thread 0 of block 1 loaded it"
}

@test "whatever a missing barrier leaves to chance, and nothing in right programs" {
    for program in missing_barrier missing_second_barrier blocks_in_need_of_an_order \
        threads_in_need_of_an_order missing_grid_barrier; do
        finds "$program" counted.sim "^$unordered"
    done
    timeout 60 build/correct.counted.sim
    build/broken.counted.sim bytes
}

@test "a barrier that not all threads reach" {
    OMP_NUM_THREADS=1 finds_always barrier_not_reached_by_all \
        "kernel return_early, block \([01],[012],0\): of 64 threads 33 returned, 31 wait at __syncthreads in programs/broken.cu:$(line_of '^ *__syncthreads(); // not reached')\$"
}

@test "threads at different barriers" {
    finds_always different_barriers \
        "kernel part, block \(0,0,0\): of 64 threads 0 returned, 10 wait at __syncthreads in programs/broken.cu:$(line_of 'syncthreads(); // different' 1), 54 wait at __syncthreads in programs/broken.cu:$(line_of 'syncthreads(); // different' 2)\$"
}

@test "a shuffle that not all lanes of its mask reach" {
    finds_always lane_missing_in_shuffle \
        'kernel shuffle_with_all, block \(0,0,0\): of 64 threads 2 returned, 62 wait at __shfl_down_sync'
    finds_always lane_not_in_mask "$kernel called __syncwarp in .* with the mask 0x0000ffff"
}

# Graphs.

unsupported=cudaErrorStreamCaptureUnsupported
invalidated=cudaErrorStreamCaptureInvalidated

@test "calls that are illegal while a stream is captured" {
    [[ $(result_of allocation_in_capture 1) == "$unsupported, $invalidated" ]]
    [[ $(result_of wait_in_capture 1) == "$unsupported, $invalidated" ]]
    [[ $(result_of copy_in_capture 1) == "cudaErrorStreamCaptureImplicit, $invalidated" ]]
    [[ $(result_of launch_into_default_stream_in_capture 1) == \
        "cudaErrorStreamCaptureImplicit, $invalidated" ]]
    [[ $(result_of capture_of_default_stream 1) == "$unsupported" ]]
    [[ $(result_of capture_that_has_not_begun 1) == 'cudaSuccess, cudaErrorIllegalState' ]]
    [[ $(result_of time_of_captured_event 1) == $'cudaSuccess, cudaSuccess\ncudaErrorCapturedEvent' ]]
}

@test "what is captured is not done" {
    [[ $(result_of captured_work_is_not_done 1) == 0 ]]
}

@test "a graph that copies to freed memory" {
    finds_always graph_of_freed_memory \
        'cudaMemcpyAsync in a graph of 1024 bytes: too many at .* of cudaMalloc, freed since'
}

# A grid whose blocks wait for each other. With its barrier, the first program would print 130970.

@test "a missing barrier of the grid changes the result, in every order" {
    for seed in 0 1 2 3; do
        [[ $(result_of missing_grid_barrier "$seed") != 130970 ]]
    done
}

@test "a barrier of the grid that not all blocks reach, or not all threads of a block" {
    finds_always grid_barrier_not_reached_by_all_blocks \
        "kernel wait_in_some: of 20 blocks 1 returned, 19 wait at grid.sync in programs/broken.cu:$(line_of 'sync(); // not in all')\$"
    OMP_NUM_THREADS=1 finds_always grid_barrier_not_reached_by_all_threads \
        "kernel wait_in_some, block \([0-9]+,0,0\): of 64 threads 33 returned, 31 wait at grid.sync in programs/broken.cu:$(line_of 'sync(); // not in all')\$"
}

@test "a barrier of the grid in a launch that is not cooperative" {
    finds_always grid_barrier_without_cooperative_launch \
        "kernel add_all, block \([0-9]+,0,0\), thread \(0,0,0\) called grid.sync in programs/broken.cu:$(line_of 'sync(); // of the sum'), and cudaLaunchCooperativeKernel has not launched it"
}

@test "more blocks that wait for each other than fit" {
    for multiprocessors in 1 16; do
        [[ $(SIM_MULTIPROCESSORS=$multiprocessors result_of more_blocks_than_fit 1) == \
            cudaErrorCooperativeLaunchTooLarge ]]
    done
    finds_always too_much_shared_memory_for_all_blocks \
        'kernel share_much needs 40000 bytes of shared memory for a block, found 32768'
}

# Threads that wait in a loop. Every order has some that wait for those that come later.

@test "a wait for a number that another block hands over, without one of its fences" {
    for wrong in fences fence_before fence_behind; do
        [[ $(result_of hand_over_without_$wrong 1) == $(result_of hand_over_with_fences 1) ]]
        finds hand_over_without_$wrong counted.sim "^simulated device: kernel hand_over, block \(0,0,0\), thread \(0,0,0\) loads .* at broken.cu:$(line_of '// handed over'), and thread 0 of block 1 stored to it at broken.cu:$(line_of '// to hand over'): nothing orders the two"
    done
    timeout 60 build/broken.counted.sim hand_over_with_fences
    finds threads_without_fence counted.sim "thread \(1,0,0\) loads .* at broken.cu:$(line_of '// under the lock'), and thread 0 of block 0"
}

@test "the same with a volatile word" {
    for build in sim sanitized.sim counted.sim; do
        [[ $(timeout 60 build/volatile.$build 1 1 1 | tail -n 1) == 599 ]]
    done
    status=0
    output=$(timeout 60 build/volatile.sim 1 1 0 2>&1) || status=$?
    [[ $status == 1 && $output =~ "kernel hand_over: of 2 blocks 1 returned, 1 wait at a loop in volatile.cu:$(grep -n 'nobody has' programs/volatile.cu | cut -d: -f1)"$ ]]
    for fences in '0 0' '0 1' '1 0'; do
        status=0
        # shellcheck disable=SC2086 # two words
        output=$(timeout 60 build/volatile.counted.sim $fences 1 2>&1) || status=$?
        [[ $status == 1 && $output =~ "block (0,0,0), thread (1,0,0) loads".*"of block 1 stored to it".*"nothing orders the two" ]]
    done
}

@test "a wait that never ends" {
    line="programs/broken.cu:$(line_of ' // blocks')"
    finds_always wait_that_never_ends \
        "kernel wait_for_blocks: of 2 blocks 0 returned, 2 wait at atomicAdd in $line\$"
    finds_always wait_in_one_block \
        "kernel wait_for_blocks, block \(0,0,0\): of 32 threads 0 returned, 1 wait at atomicAdd in $line, 31 wait at __syncthreads in programs/broken.cu:$(line_of '// behind the loop')\$"
}

@test "a wait for more blocks than there is room for" {
    finds_always wait_for_blocks_without_room \
        "kernel wait_for_blocks: of 20 blocks 0 returned, 16 wait at atomicAdd in .*, 4 find no room before others return"
    SIM_MULTIPROCESSORS=20 timeout 60 build/broken.sim wait_for_blocks_without_room
}

# Left behind.

@test "device memory that is never freed" {
    finds_always leaked_device_memory '1024 bytes of cudaMalloc were never freed'
}

@test "a graph that is never destroyed" {
    finds_always graph_never_destroyed '1 graphs were never destroyed'
}

@test "a launch that fails, and nobody asks" {
    finds_always launch_error_nobody_asked_for \
        'a launch failed and nobody asked: invalid configuration argument'
}
