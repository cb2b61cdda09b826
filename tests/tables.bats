#!/usr/bin/env bats
# Tests the tables that harness/tables.py makes of rows, in a copy of the harness: those of the main
# ladder, and those of ladders that the tests make up.
# shellcheck disable=SC2016 # `code` in single quotes

setup() {
    repository=$(cd "$BATS_TEST_DIRNAME/.." && pwd)
    tree=$(mktemp -d)
    mkdir "$tree/stages"
    cp -r "$repository"/{Makefile,harness} "$tree"
    cp "$repository/stages/ladder.toml" "$tree/stages"
    cd "$tree" || return
    unset MAKEFLAGS
}

teardown() {
    rm -rf "$tree"
}

header=stage,device,threads,hidden,batch,epochs,learning_rate,seed,train_samples,test_samples,dataset,load_s,setup_s,train_s,forward_s,backward_s,final_loss,test_accuracy,gflops,peak_rss_mib,peak_vram_mib

# row STAGE THREADS HIDDEN BATCH TRAIN_S FORWARD_S BACKWARD_S ACCURACY [DATASET [EPOCHS [GFLOPS]]]
row() {
    echo "$1,cpu,$2,$3,$4,${10:-5},0.1,1,37800,4200,${9:-mnist},0.5,0.01,$5,$6,$7,0.3,$8,${11:-1.5},100.0,"
}

# Two stages; 01 has three runs at hidden 32 and none at batch 64.
write_runs() {
    {
        echo "$header"
        row 00_serial 1 32 32 4.0 2.5 1.5 0.91
        row 02_openmp 2 32 32 0.125 0.0625 0.0625 0.912
        row 02_openmp 2 32 32 0.1 0.06 0.04 0.912
        row 02_openmp 2 32 32 0.105 0.05 0.055 0.912
        row 00_serial 1 256 32 50 30 20 0.95
        row 02_openmp 2 256 32 0.4 0.15 0.25 0.95
        row 00_serial 1 256 64 60 30 30 0.94
    } >runs.csv
    echo 'cpu: An Example, 2 cores' >machine.txt
}

@test "tables: medians, spreads and speedups, worked out by hand" {
    write_runs
    run python3 harness/tables.py --note '03_cuda: did not run: no device' runs.csv
    [ "$status" -eq 0 ]
    # 02 at 32: median 0.105 of 0.1, 0.105, 0.125; 0.02 / 0.105 = 19 %; 4 / 0.105 = 38.1.
    diff - <(echo "$output") <<'END'
An Example, 2 cores

MNIST: 5 epochs of 37,800 images, accuracy on 4,200 others
medians of up to 3 runs (one run of 00_serial); ~: a run is more than 10 % from
the median; once: one run; in brackets: threads

Batch size 32
hidden units         32          256
Training time (s)
  00_serial        4.00 once    50.0 once
  02_openmp (2)   0.105 ~19%   0.400 once
Forward propagation time (s)
  00_serial        2.50         30.0
  02_openmp (2)  0.0600 ~      0.150
Backpropagation time (s)
  00_serial        1.50         20.0
  02_openmp (2)  0.0550 ~      0.250
Test accuracy
  00_serial      0.9100       0.9500
  02_openmp (2)  0.9120       0.9500
Speedup over 00_serial
  02_openmp (2)   38.1× ~       125×

Batch size 64
hidden units         32          256
Training time (s)
  00_serial           -         60.0 once
  02_openmp (2)       -            -
Forward propagation time (s)
  00_serial           -         30.0
  02_openmp (2)       -            -
Backpropagation time (s)
  00_serial           -         30.0
  02_openmp (2)       -            -
Test accuracy
  00_serial           -       0.9400
  02_openmp (2)       -            -
Speedup over 00_serial
  02_openmp (2)       -            -

03_cuda: did not run: no device
END
}

@test "tables: other data, epochs and threads stay apart" {
    {
        echo "$header"
        row 00_serial 1 32 32 4 2 2 0.99 synthetic
        row 00_serial 1 32 32 4 2 2 0.9 csv
        row 00_serial 1 32 32 1 0.5 0.5 0.91 mnist 1
        row 02_openmp 16 32 32 0.1 0.05 0.05 0.91 mnist 1
        row 02_openmp 4 32 32 0.2 0.1 0.1 0.91 mnist 1
        row 01_vectorized '' 32 32 0.5 0.2 0.3 0.91 mnist 5
    } >runs.csv
    run python3 harness/tables.py runs.csv
    [ "$status" -eq 0 ]
    [ "$(sed -n 's/ of 37,800 .*//p' <<<"$output")" = 'MNIST: 1 epoch
MNIST: 5 epochs
train.csv: 5 epochs
SYNTHETIC DIGITS, NOT MNIST: 5 epochs' ]
    [ "$(grep -A 2 '^Speedup' <<<"$output" | tr -s ' ')" = "Speedup over 00_serial
 02_openmp (4) 5.00×
 02_openmp (16) 10.0×" ]
}

@test "tables: runs of no epochs" {
    {
        echo "$header"
        for stage in 00_serial 01_vectorized peer_one; do
            row $stage 1 32 32 0.000000 0.000000 0.000000 0.1 mnist 0 0.000
            row $stage 1 32 32 0.000000 0.000000 0.000000 0.1 mnist 0 0.000
        done
    } >runs.csv
    run python3 harness/tables.py runs.csv
    [ "$status" -eq 0 ]
    grep -qx '  00_serial           0 +0%' <<<"$output"
    grep -qx '  01_vectorized       -' <<<"$output" # the speedup
    run python3 harness/tables.py --markdown runs.csv
    [ "$status" -eq 0 ]
    grep -qx '| 01_vectorized | 0 s |' <<<"$output"
}

@test "tables: a file that is not one of rows is refused in one line" {
    while IFS='|' read -r text message; do
        printf '%b' "$text" >runs.csv
        run python3 harness/tables.py runs.csv
        echo "$output"
        [ "$status" -eq 2 ]
        [ "$output" = "tables.py: runs.csv: $message" ]
    done <<END
a,b\n|line 1: found no column 'stage', expected the header of --csv
$header\n00_serial,cpu,1\n|line 2: found 3 columns, expected 21
$header\n$(row 00_serial 1 x 32 4 2 2 0.9)\n|line 2: hidden: found 'x', expected a whole number from 1
$header\n$(row 00_serial 1 0 32 4 2 2 0.9)\n|line 2: hidden: found '0', expected a whole number from 1
$header\n$(row 00_serial 1 32 32 4 2 2 0.9)\n$(row 00_serial 1 32 32 nan 2 2 0.9)\n|line 3: train_s: found 'nan', expected a number, not below 0
$header\n$(row 00_serial 1 32 32 inf 2 2 0.9)\n|line 2: train_s: found 'inf', expected a number, not below 0
$header\n$(row 00_serial 1 32 32 4 -2 2 0.9)\n|line 2: forward_s: found '-2', expected a number, not below 0
$header\n$(row 00_serial 1 32 32 4 2 2 0.9 mnist 5 -nan)\n|line 2: gflops: found '-nan', expected a number, not below 0
$header\n00_serial,c\xffpu\n|line 2: byte 12: found 0xff, expected UTF-8
$header\n"00_serial\n|line 2: found no row of --csv: unexpected end of data
END
    run python3 harness/tables.py missing.csv
    [ "$status" -eq 2 ]
    write_runs
    printf 'cpu: \xe4\n' >machine.txt
    run python3 harness/tables.py runs.csv
    [ "$status" -eq 0 ]
    [ "${lines[0]}" = 'tables.py: machine.txt: line 1: byte 6: found 0xe4, expected UTF-8' ]
    [ "${lines[1]}" = 'unknown machine' ]
}

@test "tables: a disk that is full is one line, exit status 1, and what was there stays" {
    write_runs
    run bash -c 'python3 harness/tables.py runs.csv >/dev/full'
    [ "$status" -eq 1 ]
    [ "$output" = 'tables.py: cannot write: No space left on device' ]
    {
        printf '%s\n' '<!-- table: begin -->' '<!-- table: end -->'
        printf '%01500d\n' 0
    } >README.md
    cp README.md before
    for option in --output --update; do
        run bash -c "ulimit -f 1; python3 harness/tables.py $option README.md runs.csv"
        [ "$status" -eq 1 ]
        [ "$output" = "tables.py: $tree/README.md: cannot write: File too large" ]
        cmp README.md before
    done
    [[ ! $(find . -name '*.new') ]]
}

@test "tables: a note that is no UTF-8 is shown all the same" {
    write_runs
    run python3 harness/tables.py --note $'00_one: \xff <int>' runs.csv
    [ "$status" -eq 0 ]
    [ "${lines[-1]}" = '00_one: � <int>' ]
}

@test "the headline is written between the markers, and only there" {
    write_runs
    printf '%s\n' above '<!-- table: begin -->' old '<!-- table: end -->' below >README.md
    mkdir shown && mv runs.csv machine.txt shown
    make headline RESULTS=shown
    diff - README.md <<'END'
above
<!-- table: begin -->
A cell has the training time and the speedup over 00_serial.

MNIST: 5 epochs of 37,800 images, accuracy on 4,200 others; medians of up to 3 runs (one run of 00_serial); \~: a run is more than 10 % from the median; on An Example, 2 cores.

| stage | 32 hidden, batch 32 | 256 hidden, batch 32 | 256 hidden, batch 64 |
| --- | ---: | ---: | ---: |
| 00_serial | 4.00 s | 50.0 s | 60.0 s |
| 02_openmp, 2 threads | ~0.105 s, ~38.1× | 0.400 s, 125× | - |

All stages, peers and cells are in [shown/tables.txt](shown/tables.txt).
<!-- table: end -->
below
END
    cp README.md once
    make headline RESULTS=shown
    cmp once README.md
}

@test "rows of steps are in the tables and in the ladder, but not in the headline" {
    write_runs
    row 01.1_loops 1 32 32 1.0 0.5 0.5 0.91 >>runs.csv
    run python3 harness/tables.py runs.csv
    grep -qxF '  01.1_loops       1.00 once       -' <<<"$output"
    grep -qxF '  01.1_loops      4.00×            -' <<<"$output"
    for stage in 00_serial 01.1_loops 02_openmp; do
        mkdir -p stages/$stage
        touch stages/$stage/{Makefile,train.c}
    done
    printf '%s\n' '<!-- table: begin -->' '<!-- table: end -->' >README.md
    python3 harness/tables.py --update README.md runs.csv
    [ "$(grep -c '^| 0' README.md)" -eq 2 ]
    run grep 01.1 README.md
    [ "$status" -eq 1 ]
    # The cell of `make step` has no runs here, so the last one of the headline is shown.
    printf '%s\n' '<!-- ladder: begin -->' '<!-- ladder: end -->' >>README.md
    python3 harness/tables.py --update README.md runs.csv
    grep -xF '| [01.1_loops](stages/01.1_loops) | - | - | - | - | 0 |  |' README.md
    sed -i '/,256,/d' runs.csv
    python3 harness/tables.py --update README.md runs.csv
    grep -xF '| [02_openmp](stages/02_openmp), 2 threads | 0.105 ~19% | ~9.52× | ~38.1× | - | 0 |  |' README.md
    # A sweep of a step alone is shown all the same.
    sed -i '/0[02]_/d' runs.csv
    python3 harness/tables.py --update README.md runs.csv
    grep -xF '| 01.1_loops | 1.00 s |' README.md
}

# ceilings THREADS FLOPS [...]: as bench/ceilings writes them.
ceilings() {
    mkdir -p bench
    {
        echo '{"benchmarks": ['
        while (($#)); do
            name="ceilings/multiply_add/real_time/threads:$1"
            echo "{\"name\": \"$name\", \"run_type\": \"iteration\", \"flops\": $2},"
            echo "{\"name\": \"${name}_mean\", \"run_type\": \"aggregate\", \"flops\": 1},"
            shift 2
        done
        echo '{"name": "other", "run_type": "iteration"}]}'
    } >bench/ceilings.json
}

@test "the headline: the part of the ceiling, and the fastest of the peers" {
    {
        echo "$header"
        for hidden in 32 64 256; do
            row 00_serial 1 $hidden 32 $((hidden / 8)) 0 0 0.9 mnist 5 $((hidden == 256 ? 1 : 2))
            row 02_openmp 2 $hidden 32 0.5 0 0 0.9 mnist 5 120
            row 03_cuda '' $hidden 32 0.25 0 0 0.9 mnist 5 999 | sed s/cpu/cuda/
            # Each of the two is the fastest in some cell. In the mean the second one is.
            row peer_a 2 $hidden 32 "$((hidden == 32 ? 1 : 4))" '' '' 0.9 mnist 5 15
            row peer_b 2 $hidden 32 "$((hidden == 32 ? 2 : 1))" '' '' 0.9 mnist 5 30
            row peer_c '' $hidden 32 0.1 '' '' 0.9 mnist 5 999 | sed s/cpu/cuda/
        done
    } >runs.csv
    echo 'cpu: An Example, 2 cores' >machine.txt
    ceilings 1 100e9 2 199e9 2 200e9 2 210e9
    diff - <(python3 harness/tables.py --markdown runs.csv) <<'END'
A cell has the training time, the speedup over 00_serial and the part of the ceiling. The ceiling is the rate of multiply-adds alone on as many threads as the line has: 100 GFLOP/s with 1 thread, 200 GFLOP/s with 2 threads. A GPU's line has no ceiling here. 00_serial reaches 1.0 % to 2.0 % of the ceiling.

MNIST: 5 epochs of 37,800 images, accuracy on 4,200 others; one run of each; on An Example, 2 cores.

| stage | 32 hidden, batch 32 | 64 hidden, batch 32 | 256 hidden, batch 32 |
| --- | ---: | ---: | ---: |
| 00_serial | 4.00 s, 2.0 % | 8.00 s, 2.0 % | 32.0 s, 1.0 % |
| 02_openmp, 2 threads | 0.500 s, 8.00×, 60 % | 0.500 s, 16.0×, 60 % | 0.500 s, 64.0×, 60 % |
| 03_cuda | 0.250 s, 16.0× | 0.250 s, 32.0× | 0.250 s, 128× |
| peer_b, 2 threads | 2.00 s, 2.00×, 15 % | 1.00 s, 8.00×, 15 % | 1.00 s, 32.0×, 15 % |

peer_b is the fastest CPU [peer](bench/peers) (geometric mean over 3 cells). A peer is a library or framework that you might use instead. On the CPU, the fastest stage is 1.98 times as fast as the fastest peer, setup counted (geometric mean over 3 cells: 1.98 to 1.98). In 3 cells, a run is more than 10 % from the median, or the only one. On the GPU, the fastest stage is 0.40 times as fast as the fastest peer, setup not counted (geometric mean over 3 cells: 0.40 to 0.40). In 3 cells, a run is more than 10 % from the median, or the only one. All stages, peers and cells are in [tables.txt](tables.txt).
END
    # The ceiling for so many threads was not measured.
    ceilings 1 100e9
    run python3 harness/tables.py --markdown runs.csv
    grep -qxF '| 02_openmp, 2 threads | 0.500 s, 8.00× | 0.500 s, 16.0× | 0.500 s, 64.0× |' <<<"$output"
    [[ $output == *'line has: 100 GFLOP/s with 1 thread. A GPU'* ]]
    # A file without the single runs.
    name=ceilings/multiply_add/real_time/threads:2
    echo '{"benchmarks": [' "{\"name\": \"${name}_median\", \"run_name\": \"$name\"," \
        '"run_type": "aggregate", "aggregate_name": "median", "flops": 200e9},' \
        "{\"name\": \"${name}_stddev\", \"run_name\": \"$name\"," \
        '"run_type": "aggregate", "aggregate_name": "stddev", "flops": 7}]}' >bench/ceilings.json
    python3 harness/tables.py --markdown runs.csv |
        grep -xF '| 02_openmp, 2 threads | 0.500 s, 8.00×, 60 % | 0.500 s, 16.0×, 60 % | 0.500 s, 64.0×, 60 % |'
    ceilings 1 100e9
    # The file of the ceilings is damaged.
    sed -i s/100e9/NaN/ bench/ceilings.json
    run python3 harness/tables.py --markdown runs.csv
    [ "$status" -eq 0 ]
    [ "${lines[0]}" = 'tables.py: bench/ceilings.json: expected the JSON of Google Benchmark; run `make bench` again' ]
    grep -qxF '| 02_openmp, 2 threads | 0.500 s, 8.00× | 0.500 s, 16.0× | 0.500 s, 64.0× |' <<<"$output"
}

@test "a stage or a peer that leaves out operations is marked where its rate is shown" {
    mkdir -p stages/{00_serial,02_fewer,03_fewer} bench/peers
    touch stages/00_serial/{Makefile,train.c} stages/0{2,3}_fewer/train.c
    echo 'SKIPS = products with 0' | tee stages/0{2,3}_fewer/Makefile
    echo 'peer_b_SKIPS := all that it can' >bench/peers/Makefile
    {
        echo "$header"
        row 00_serial 1 32 32 4 0 0 0.9 mnist 5 10
        row 02_fewer 1 32 32 0.25 0 0 0.9 mnist 5 160
        row peer_a 1 32 32 0.5 '' '' 0.9 mnist 5 80
        row peer_b 1 32 32 0.2 '' '' 0.9 mnist 5 200
    } >runs.csv
    run python3 harness/tables.py --markdown runs.csv
    (! grep † <<<"$output") # no rate is shown
    ceilings 1 100e9
    printf '%s\n' '<!-- '{table,ladder}': '{begin,end}' -->' >README.md
    python3 harness/tables.py --update README.md runs.csv
    grep -qxF '| 00_serial | 4.00 s, 10 % |' README.md
    grep -qxF '| 02_fewer | 0.250 s, 16.0×, 160 %† |' README.md
    grep -qxF '| peer_b | 0.200 s, 20.0×, 200 %† |' README.md
    grep -F '| [02_fewer](stages/02_fewer) | ' README.md | grep -qF ' | 16.0× | 160 %† | '
    said='† 02_fewer leaves out products with 0. A rate counts them, so it may pass the ceiling.'
    [[ $(grep -cF "$said" README.md) == 2 ]]
    [[ $(grep -cF "$said † peer_b leaves out all that it can." README.md) == 1 ]]
    row 03_fewer 1 32 32 0.25 0 0 0.9 mnist 5 160 >>runs.csv
    python3 harness/tables.py --markdown runs.csv |
        grep -qF '† 02_fewer and 03_fewer leave out products with 0. A rate'
}

@test "a list of threads: all are in the tables, and the most that a cell has in the headline" {
    {
        echo "$header"
        for hidden in 32 256; do
            row 00_serial 1 $hidden 32 8 0 0 0.9
            row 02_openmp 1 $hidden 32 4 0 0 0.9
            row 02_openmp 2 $hidden 32 1 0 0 0.9
            row peer_one 2 $hidden 32 2 '' '' 0.9
        done
        row 02_openmp 4 256 32 2 0 0 0.9
    } >runs.csv
    python3 harness/tables.py runs.csv >tables.txt
    [ "$(grep -A 4 '^Speedup' tables.txt | tr -s ' ')" = 'Speedup over 00_serial
 02_openmp 2.00× 2.00×
 02_openmp (2) 8.00× 8.00×
 02_openmp (4) - 4.00×
 peer_one (2) 4.00× 4.00×' ]
    python3 harness/tables.py --markdown runs.csv >headline.md
    [ "$(grep '^| [0-9]' headline.md)" = '| 00_serial | 8.00 s | 8.00 s |
| 02_openmp, 4 threads | 1.00 s, 8.00×, 2 threads | 2.00 s, 4.00× |' ]
    # As if no other number had been run: four threads, although two are faster.
    grep -qF 'geometric mean over 2 cells: 1.00 to 1.99' headline.md
}

@test "the headline has eight lines at most: the first stage, the last ones and a peer" {
    {
        echo "$header"
        for stage in {00..09}_stage peer_one; do
            row "$stage" 1 32 32 1 0 0 0.9
        done
    } >runs.csv
    run python3 harness/tables.py --markdown runs.csv
    [ "$(sed -n 's/^| \([0-9p][^ ]*\) .*/\1/p' <<<"$output" | paste -sd' ')" = \
        '00_stage 04_stage 05_stage 06_stage 07_stage 08_stage 09_stage peer_one' ]
    sed -i '$d' runs.csv
    run python3 harness/tables.py --markdown runs.csv
    [ "$(grep -c '^| [0-9]' <<<"$output")" -eq 8 ]
    [[ $output != *peer_* ]]
}

@test "the headline is not written where the markers are missing" {
    write_runs
    for text in '' '<!-- table: begin -->' '<!-- table: end --> <!-- table: begin -->'; do
        echo "$text" >README.md
        run python3 harness/tables.py --update README.md runs.csv
        [ "$status" -eq 2 ]
        [[ $output == "tables.py: README.md: expected '<!-- table: begin -->' and"* ]]
        [ "$(cat README.md)" = "$text" ]
    done
}

# --- other ladders ---

# make_ladder NAME: a ladder without axes, whose ladder.toml goes on with standard input.
make_ladder() {
    mkdir -p "studies/$1"
    {
        printf '%s\n' 'title = "An example"' 'program = "run"' 'time = "time_s"' \
            'baseline = "00_plain"'
        cat
        printf '%s\n' '[[measures]]' 'column = "time_s"' 'title = "Time of a pass"' 'unit = "s"'
    } >"studies/$1/ladder.toml"
}

@test "a ladder of one axis and three phases: one page, in milliseconds" {
    make_ladder waves <<'END'
phases = ["load", "turn", "store"]
[[axes]]
option = "points"
name = "Points"
values = [8, 64]
[settings]
seed = 1
[columns]
points = "n_points"
[results]
energy = ["600"]
[[measures]]
column = "turn_s"
title = "Time of the turn"
unit = "s"
better = "lower"
[[measures]]
column = "energy"
title = "Energy"
END
    cat >waves.csv <<'END'
stage,device,threads,n_points,seed,dataset,load_s,setup_s,time_s,turn_s,store_s,energy,gflops,peak_rss_mib
00_plain,cpu,1,8,1,drawn,,0.1,0.0008,0.0002,0.0001,-0.012345678,1,5
00_plain,cpu,1,64,1,drawn,,0.1,0.064,0.02,0.01,1.5,1,5
01_fast,cpu,4,8,1,drawn,,0.1,0.00005,0.00002,0.00001,-0.012345678,,5
01_fast,cpu,4,8,1,drawn,,0.1,0.00005,0.00002,0.00001,-0.012345678,,5
01_fast,cuda,,64,1,drawn,,0.1,0.004,,,519.5,1,5
02_simulated,simulated,,64,1,drawn,,0.1,0.004,,,1.5,1,5
END
    run python3 harness/tables.py --ladder waves waves.csv
    diff - <(echo "$output") <<'END'
unknown machine

random numbers: seed 1
medians of up to 2 runs (one run of 00_plain and 01_fast); +2%: the run farthest
from the median is 2 % above it; once: one run; in brackets: threads

Points                8             64
Time of a pass (ms)
  00_plain        0.800 once      64.0 once
  01_fast             -           4.00 once
  01_fast (4)    0.0500 +0%          -
Time of the turn (ms)
  00_plain        0.200           20.0
  01_fast (4)    0.0200              -
Energy
  00_plain     -0.01235         1.5000
  01_fast             -          519.5
  01_fast (4)  -0.01235              -
Speedup over 00_plain
  01_fast             -          16.0×
  01_fast (4)     16.0×              -
END
    # The folder of the rows is named after their ladder.
    mkdir waves
    cp waves.csv waves/runs.csv
    diff <(echo "$output") <(python3 harness/tables.py waves/runs.csv)
    # The settings and the columns of the main ladder are others.
    run python3 harness/tables.py waves.csv
    [ "$status" -eq 2 ]
    [ "$output" = "tables.py: waves.csv: line 1: found no column 'epochs', expected the header of --csv" ]
    run python3 harness/tables.py --ladder wave waves.csv
    [ "$status" -eq 2 ]
    [ "$output" = "tables.py: --ladder: found 'wave', expected one of: stages waves" ]
    # The headline has the smallest cell and the largest, and no page to name.
    run python3 harness/tables.py --markdown waves/runs.csv
    grep -xF '| stage | 8 points | 64 points |' <<<"$output"
    grep -xF '| 01_fast, 4 threads | 0.0500 ms, 16.0× | - |' <<<"$output"
}

@test "a ladder of no axes: one column without a name" {
    make_ladder still </dev/null
    cat >runs.csv <<'END'
stage,device,threads,dataset,time_s,gflops
00_plain,cpu,1,drawn,2,1
01_fast,cpu,1,drawn,0.25,1
END
    run python3 harness/tables.py --ladder still runs.csv
    diff - <(echo "$output") <<'END'
unknown machine

random numbers
one run of each

Time of a pass (s)
  00_plain   2.00
  01_fast   0.250
Speedup over 00_plain
  01_fast   8.00×
END
    run python3 harness/tables.py --ladder still --markdown runs.csv
    grep -xF '| stage | each run |' <<<"$output"
    grep -xF '| 01_fast | 0.250 s, 8.00× |' <<<"$output"
}

@test "a ladder of float64 has half the ceiling" {
    make_ladder doubles <<<'numbers = "float64"'
    cat >runs.csv <<'END'
stage,device,threads,dataset,time_s,gflops
00_plain,cpu,1,drawn,2,1
01_fast,cpu,1,drawn,0.25,40
END
    ceilings 1 100e9
    run python3 harness/tables.py --ladder doubles --markdown runs.csv
    [[ $output == *"the rate of multiply-adds of float64 alone on "*": 50.0 GFLOP/s with 1 thread."* ]]
    grep -xF '| 01_fast | 0.250 s, 8.00×, 80 % |' <<<"$output"
}

@test "a terminal has 80 columns: columns that do not fit stand below" {
    make_ladder wide <<'END'
[[axes]]
option = "samples"
name = "Samples"
values = [1]
END
    {
        echo stage,device,threads,samples,dataset,time_s,gflops
        for samples in 256 1024 4096 16384 65536 262144 1048576; do
            for factor in 0.0512 0.0612 0.0812; do
                echo "peer_pytorch_cuda,cpu,16,$samples,drawn,$factor,1"
                echo "00_plain,cpu,1,$samples,drawn,$factor,1"
            done
        done
    } >runs.csv
    python3 harness/tables.py --ladder wide runs.csv >tables.txt
    cat tables.txt
    python3 -c 'assert max(map(len, open("tables.txt", encoding="utf-8"))) <= 81'
    # Each column is there once.
    [ "$(sed -n 's/^Samples//p' tables.txt | xargs)" = '256 1024 4096 16384 65536 262144 1048576' ]
    [ "$(grep -c '^Samples' tables.txt)" -eq 2 ]
    [ "$(grep -o '0.0612 ~33%' tables.txt | wc -l)" -eq 14 ]
    # Five of them fit where the runs are close, and so do four hidden sizes.
    sed -i '/262144/d; /1048576/d; s/0.0512/0.0600/; s/0.0812/0.0620/; s/,16,/,,/' runs.csv
    python3 harness/tables.py --ladder wide runs.csv >tables.txt
    [ "$(grep -c '^Samples' tables.txt)" -eq 1 ]
    {
        echo "$header"
        for hidden in 32 64 128 256; do
            for time in 0.0512 0.0612 0.0812; do
                row peer_pytorch_compiled 2 $hidden 32 $time $time $time 0.9
            done
        done
    } >runs.csv
    python3 harness/tables.py runs.csv >tables.txt
    [ "$(grep -c '^hidden units' tables.txt)" -eq 1 ]
    python3 -c 'assert max(map(len, open("tables.txt", encoding="utf-8"))) <= 81'
}

@test "a sentence about the fastest says how many of its cells are marked" {
    {
        echo "$header"
        for hidden in 32 64 128; do
            for factor in 1 2 3; do
                # A run is 50 % from the median in one cell of the stage, 8 % in one of the peer.
                row 01_two 1 $hidden 32 "0.$((hidden == 32 ? factor : 2))" 0 0 0.9
                row peer_a 1 $hidden 32 "0.$((hidden == 64 ? 40 + 3 * (factor - 2) : 40))" 0 0 0.9
            done
        done
    } >runs.csv
    run python3 harness/tables.py --markdown runs.csv
    [[ $output == *'is 1.95 times as fast as the fastest peer, setup counted (geometric mean over 3 cells: 1.95 to 1.95). In 1 cell, a run is more than 10 % from the median, or the only one. All'* ]]
    sed -i '/^01_two,cpu,1,32/s/,0.01,0.[13],/,0.01,0.2,/' runs.csv
    run python3 harness/tables.py --markdown runs.csv
    [[ $output == *'1.95 to 1.95). All stages'* ]]
    sed -i '/,\(64\|128\),32,/d' runs.csv
    run python3 harness/tables.py --markdown runs.csv
    [[ $output == *'is 1.95 times as fast as the fastest peer, setup counted (one cell). All stages'* ]]
}

@test "what a stage does before the clock counts in the sentence about the fastest" {
    {
        echo "$header"
        # Before the clock, 01_early works 0.3 s at hidden 32, and all others 0.01 s.
        for hidden in 32 64; do
            row 01_early 1 $hidden 32 0.2 0 0 0.9
            row 02_two 1 $hidden 32 0.39 0 0 0.9
            row peer_a 1 $hidden 32 0.59 0 0 0.9
        done
    } >runs.csv
    sed -i '/^01_early,cpu,1,32/s/,0.01,/,0.3,/' runs.csv
    run python3 harness/tables.py --markdown runs.csv
    # 0.6 / 0.4 at hidden 32, where 02_two is the fastest then, and 0.6 / 0.21 at hidden 64
    [[ $output == *'is 2.07 times as fast as the fastest peer, setup counted (geometric mean over 2 cells: 1.50 to 2.86).'* ]]
    # The terminal says the same.
    python3 harness/tables.py runs.csv | tr '\n' ' ' |
        grep -qF 'is 2.07 times as fast as the fastest peer, setup counted (geometric mean over 2 cells: 1.50 to 2.86).'
}

@test "a reason that several stages share is said once" {
    write_runs
    run python3 harness/tables.py --note '03_a: did not run: no device' \
        --note '04_b: failed: at once' --note '05_c: did not run: no device' runs.csv
    [ "$(tail -n 3 <<<"$output")" = '
03_a, 05_c: did not run: no device
04_b: failed: at once' ]
}
