#!/usr/bin/env bats
# Tests what report/ writes about made-up results, in a copy of the repository.
# shellcheck disable=SC2016 # awk's $ in single quotes
load look

setup() {
    repository=$(cd "$BATS_TEST_DIRNAME/.." && pwd)
    export PATH=/usr/bin:$PATH # Debian's matplotlib is for Debian's python3
    python3 -c 'import matplotlib, pygments' 2>/dev/null || skip 'found no matplotlib or no pygments'
    for tool in pandoc git; do
        command -v $tool >/dev/null || skip "found no $tool (packages.txt)"
    done
    # This is done once for all tests.
    tree=$BATS_FILE_TMPDIR/tree
    if [[ -d $tree ]]; then
        cd "$tree" || return
        return
    fi
    mkdir -p "$tree/report/results"
    for part in "$repository"/*; do
        case ${part##*/} in
        report | harness | stages | studies | README.md) ;;
        *) ln -s "$part" "$tree" ;;
        esac
    done
    cp -r "$repository"/{harness,stages,README.md} "$tree" # two of which are written to
    cp "$repository"/report/*.{py,sh,html,css,js} "$tree/report"
    rm -f "$tree/report/index.html"
    cd "$tree" || return
    make_ladders
    make_results
    report/report.py
}

# make_ladder NAME STAGE...: a ladder, whose ladder.toml goes on with standard input.
make_ladder() {
    local stage
    for stage in "${@:2}"; do
        mkdir -p "studies/$1/$stage"
        echo 'int main(void) { return 0; }' >"studies/$1/$stage/run.c"
        printf '# %s\n\n<!-- table: begin -->\n<!-- table: end -->\n' "$stage" \
            >"studies/$1/$stage/README.md"
        echo 'include ../../../common/stage.mk' >"studies/$1/$stage/Makefile"
    done
    {
        printf '%s\n' "title = \"The ladder $1\"" 'program = "run"' 'time = "time_s"' \
            'baseline = "00_plain"'
        cat
        printf '%s\n' '[[measures]]' 'column = "time_s"' 'title = "Time of a pass"' 'unit = "s"'
    } >"studies/$1/ladder.toml"
}

# Makes a ladder of one axis with three phases and a paper, one of no axes, one with a file of epochs,
# and one without results.
make_ladders() {
    make_ladder deep 00_plain 01_fast 02_gpu <<'END'
epochs = "epochs-csv"
[settings]
epochs = 3
seed = 1
END
    mv studies/deep/02_gpu/run.c{,u}
    mkdir studies/deep/peers
    touch studies/deep/peers/peer_{one,two}.py
    printf '%s\n' '<!-- table: begin -->' '<!-- table: end -->' between '<!-- epochs: begin -->' \
        '<!-- epochs: end -->' >studies/deep/README.md
    make_ladder waves 00_plain 01_fast <<'END'
phases = ["load", "turn", "store"]
[paper]
cite = "*Waves*"
file = "paper.csv"
[[axes]]
option = "points"
name = "Points"
values = [8, 64]
END
    printf '%s\n' stage,points,time_s 00_plain,8,0.002 peer_paper,8,0.001 >studies/waves/paper.csv
    make_ladder still 00_plain 01_fast </dev/null
    make_ladder new 00_plain </dev/null
    # Steps: 01.2 has no runs, 02 no runs and another origin than the line above.
    make_ladder climb 00_plain 01.1_loops 01.2_tiles 01_fast 02_other <<'END'
[[axes]]
option = "points"
name = "Points"
values = [8, 64]
[step]
points = 8
END
    cd studies/climb || return
    sed -i '1s/$/: the loops | exchanged/; 1a ![Its loops](picture.svg)' 01.1_loops/README.md
    sed -i 's/ return 0;/\n    return 0;\n/' 01.1_loops/run.c
    echo 'ORIGIN = 01.1_loops' >>02_other/Makefile
    printf '%s\n' '<!-- ladder: begin -->' '<!-- ladder: end -->' above '<!-- table: begin -->' \
        '<!-- table: end -->' >README.md
    echo 'print("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"360\"><title>drawn</title></svg>",
        file=open("studies/climb/01.1_loops/picture.svg", "w"))' >pictures.py
    cd ../..
    make_ladder noted 00_plain 01_fast </dev/null
    make_notes
}

# Gives the ladder `noted` what the page shows at a diff: sources of several functions, a README with
# points, and two profiles. One is the reader's own. A line of 00_plain has moved since its profile.
make_notes() {
    cd studies/noted || return
    cat >00_plain/run.c <<'END'
// A program.
// Plain: nowhere in particular, in short.

static float add(const float *x, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i)
        sum += x[i];
    return sum;
}

static void show(float value) {
    printf("%f\n", value);
}

static void wait(void) {
    getchar();
}

int main(void) {
    show(add((float[]){1, 2}, 2));
    wait();
    return 0;
}
END
    sed -e 's/float sum = 0;/float lanes[2] = {0};/; s/sum += x\[i\]/lanes[0] += x[i]/' \
        -e 's/return sum;/return lanes[0] + lanes[1];/; s/show(add(/show(scale(add(/; s/, 2));/, 2)));/' \
        -e '2s/.*/\/\/ Fast: nowhere in particular, in short, as always./' \
        -e 's/^static void wait/static float scale(float value) {\n    return 2 * value;\n}\n\n&/' \
        00_plain/run.c >01_fast/run.c
    cat >01_fast/README.md <<'END'
# 01_fast: two sums

## What the diff shows

New function: `scale`.

- The sums are `lanes` in `add`.
- No place is named here, and no `thing` either.
- Nowhere in particular, in short: as always.
- `scale` is new.

A paragraph stays. A list with numbers keeps them:

1. `printf` stays.
2. `main` calls
   `scale` & `add`.
3. In `add`, there is no `value`.

## Measured

<!-- table: begin -->
<!-- table: end -->
END
    mkdir -p profiles/{00_plain,01_fast,mine/01_fast}
    echo 'not what is shown' >profiles/01_fast/cpu.txt
    printf '%s\n' '00_plain, points 8, epochs 2, drawn, threads 1' 'cpu: A <CPU>' 'compiler: gcc' \
        'samples: 1000 of 4.00 s of CPU time in 4.000 s; main thread 1000, other threads 0' \
        >profiles/00_plain/cpu.txt
    sed 's/00_plain/01_fast/; s/epochs 2/epochs 8/; s/threads 1/threads 2/; s/in 4/in 2/' \
        profiles/00_plain/cpu.txt >profiles/mine/01_fast/cpu.txt
    printf '%s\n' 'function: add, studies/noted/00_plain/run.c' '' 'samples   share   line' \
        '                      6      for (int i = 0; i < n; ++i)' \
        '    700   70.0%       9          sum += x[i];' >profiles/00_plain/lines.txt
    printf '%s\n' '    250   25.0%       7          lanes[0] += x[i];' \
        '      1    0.1%      16      return 2 * value;' >profiles/mine/01_fast/lines.txt
    tee profiles/{00_plain,mine/01_fast}/stacks.txt <<<$'main;add 700\nmain;show 300' >/dev/null
    cd ../..
}

# Makes a machine with everything, one with a single stage, a quick look, and earlier results.
make_results() {
    python3 - <<'END'
import json
from pathlib import Path

HEADER = ("stage,device,threads,hidden,batch,epochs,learning_rate,seed,train_samples,test_samples,"
          "dataset,load_s,setup_s,train_s,forward_s,backward_s,final_loss,test_accuracy,gflops,"
          "peak_rss_mib,peak_vram_mib")
SECONDS = {"00_serial": 4, "01_vectorized": 0.5, "02_openmp": 0.25, "peer_one": 1}

def row(stage, hidden=32, batch=32, epochs=5, images=37800, factor=1.0):
    time = SECONDS[stage] * factor * hidden / 32 * epochs / 5
    phases = "," if stage.startswith("peer") else f"{time / 4},{time * 3 / 4}"
    return (f"{stage},cpu,1,{hidden},{batch},{epochs},0.1,1,{images},4200,mnist,0.1,0.001,{time},"
            f"{phases},{1 / epochs},0.9,100,1,")

def write(name, rows, machine, header=HEADER):
    folder = Path("report/results", name)
    folder.mkdir(parents=True)
    (folder / "runs.csv").write_text("\n".join([header, *rows, ""]))
    (folder / "machine.txt").write_text(f"cpu: {machine}\ngpu: none\n")
    return folder

full = write("full/stages", [row(stage, hidden, batch, factor=factor) for stage in SECONDS
                      for hidden in (32, 256) for batch in (32, 128) for factor in (0.95, 1, 1.08)],
             "A & B <1>")
growth = [row(stage, epochs=1, **{axis: value}) for stage in SECONDS
          for axis, values in (("images", (1000, 37800, 60000)), ("hidden", (16, 32, 64)),
                               ("batch", (1, 32, 4096))) for value in values]
growth += [row(stage, epochs=epochs) for stage in SECONDS for epochs in (1, 2, 3)]
(full / "growth.csv").write_text("\n".join([HEADER, *growth, ""]))
(full.parent / "bench").mkdir()
benchmarks = [{"name": "ceilings/multiply_add/real_time/threads:1", "flops": 2e11},
              {"name": "ceilings/read/memory/real_time/threads:1", "bytes_read": 2e10}]
for run in benchmarks:
    run["run_type"] = "iteration"
(full.parent / "bench/all.json").write_text(json.dumps({"benchmarks": benchmarks}))
write("alone/stages", [row("01_vectorized")], "Alone")
write("full-quick/stages", [row("00_serial")], "QUICK")
write("full/stages/2026-01-01_000000", [row("00_serial")], "EARLIER")
# The time of 01_fast at 64 points differs from run to run.
write("full/waves", [f"{stage},cpu,1,{points},drawn,{time * points * factor},"
                     f"{time * points / 4},{time * points / 2},{time * points / 8},"
                     for stage, time in (("00_plain", 1e-4), ("01_fast", 1e-5))
                     for points in (8, 64)
                     for factor in ((0.5, 1, 1.5) if stage == "01_fast" and points == 64
                                    else (0.995, 1, 1.01))],
      "Waves' machine", "stage,device,threads,points,dataset,time_s,load_s,turn_s,store_s,gflops")
# 01_fast has run with one thread, too: it is in the tables, and in a plot.
write("full/climb", [f"{stage},cpu,{threads},{points},drawn,{points * time * factor},1"
                     for stage, threads, time in (("00_plain", 1, 1), ("01.1_loops", 1, 0.25),
                                                  ("01_fast", 1, 0.5), ("01_fast", 2, 0.125))
                     for points in (8, 64)
                     for factor in ((0.5, 1, 1.5) if stage == "01_fast" else (0.99, 1, 1.02))],
      "Climb's machine", "stage,device,threads,points,dataset,time_s,gflops")
write("full/still", ["00_plain,cpu,1,drawn,2,1", "01_fast,cpu,1,drawn,0.5,1"], "Still's machine",
      "stage,device,threads,dataset,time_s,gflops")
deep = write("full/deep", [f"{stage},{threads},3,1,drawn,{3 * time},{time},{60 / time},0.97,0.975,1,{memory},"
                           for stage, threads, time, memory in (
                               ("00_plain", "cpu,1", 10, 12), ("01_fast", "cpu,2", 1, 50.5),
                               ("peer_one", "cpu,2", 2.5, 612))],
             "Deep's machine", "stage,device,threads,epochs,seed,dataset,time_s,epoch_s,samples_per_s,"
             "test_accuracy,best_test_accuracy,gflops,peak_rss_mib,peak_vram_mib")
(deep / "tables.txt").write_text("peer_two: did not run: not installed: nothing\n")
# The last runs have another seed, were stopped, and are the simulated device's.
(deep / "epochs.csv").write_text("\n".join([
    "stage,device,threads,seed,dataset,run,epoch,epoch_s,test_accuracy,samples_per_s",
    *(f"{stage},1,drawn,{run},{epoch},{time + epoch / 8},{0.9 + epoch / 50},{60 / time}"
      for stage, run, time in (("00_plain,cpu,1", 1, 10), ("01_fast,cpu,2", 2, 1),
                               ("01_fast,cpu,2", 3, 2), ("peer_one,cpu,2", 4, 2))
      for epoch in (3, 1, 2)),
    *(f"01_fast,cpu,2,2,drawn,5,{epoch},100,0.1,1" for epoch in (1, 2, 3)),
    *(f"01_fast,cpu,2,1,drawn,6,{epoch},100,0.1,1" for epoch in (1, 2)),
    *(f"01_fast,simulated,2,1,drawn,7,{epoch},100,0.1,1" for epoch in (1, 2, 3)), ""]))
END
}

# in_section LADDER/MACHINE LINE: the page has the line there.
in_section() {
    python3 "$BATS_TEST_DIRNAME/page_lines.py" "$1" | grep -xF -- "$2"
}

@test "the tables: medians, spread, speedup, the paper's figures, why a stage is missing" {
    in_section stages/full '| 00_serial | 4.00 +8% | 32.0 +8% |'
    in_section stages/full '| paper: 00_serial | 53.8 | 641 |'
    in_section stages/full '| 02_openmp | 0.0625 +8% | 0.500 +8% |' # forward
    # A peer that cannot tell the phases apart is not in the tables of the phases.
    in_section stages/full '| peer_one | 1.00 +8% | 8.00 +8% |'
    run in_section stages/full '| peer_one | - | - |'
    [ "$status" -ne 0 ]
    in_section stages/full '| 01_vectorized | 8.00× | 8.00× |'
    in_section stages/full "On the CPU, the fastest stage is 3.99 times as fast as the fastest peer, setup counted (geometric mean over 4 cells: 3.99 to 4.00)."
    in_section stages/full '| paper: 05_cuda_shared_tiling | 55.5× | 221× |' # its 640.037 / 2.89612
    # Lines without numbers share one line of text.
    run in_section stages/full '| 03_cuda_unified | - | - |'
    [ "$status" -ne 0 ]
    in_section stages/full '03_cuda_unified, 04_cuda_device_mem, 05_cuda_shared_tiling, 08_cuda_graphs, 09_cuda_bytes, 10_cuda_persistent: no GPU in this machine'
    # That machine has no serial run, so it has no ratio, not even with another machine's run.
    in_section stages/alone '| 01_vectorized | 0.500 |'
    run in_section stages/alone 'Speedup over 00_serial'
    [ "$status" -ne 0 ]
    # A quick look says what it is.
    grep -F '<div data-machine="full-quick">' -A 2 report/index.html | grep -F 'QUICK <b class=badge>a quick look</b>'
    grep -F '<div data-machine="full-quick">' -A 12 report/index.html | grep '00_serial.*>50 %<' # of the machine's ceiling
    run grep EARLIER report/index.html
    [ "$status" -eq 1 ]
}

@test "other ladders: a section for each, from its own columns" {
    grep -xF '<h2>The ladder waves</h2>' report/index.html
    grep -F '<p>The paper is <cite>Waves</cite>. ' report/index.html
    in_section waves/full 'Time of a pass (ms)'
    in_section waves/full '| Points | 8 | 64 |'
    in_section waves/full '| 00_plain | 0.800 +1% | 6.40 +1% |'
    in_section waves/full '| paper: 00_plain | 2.00 | - |'
    in_section waves/full '| paper: peer_paper | 1.00 | - |'
    in_section waves/full '| 01_fast | 0.0800 +1% | 0.640 ~50% |'
    in_section waves/full '| 01_fast | 10.0× | 10.0× ~ |'
    in_section waves/full 'random numbers; medians of 3 runs; +2%: the run farthest from the median is 2 % above it; ~: a run is more than 10 % from the median.'
    diff - <(cd report/results/full/waves/plots && ls) <<<$'ladder-dark.svg\nladder.svg'
    in_section still/full '| 01_fast | 0.500 |'
    section still | grep -xF '<p>random numbers; one run of each.</p>' # there is no cell to name
    in_section still/full '| 01_fast | 4.00× |'
    ls report/results/full/still/plots/ladder.svg
    # The stages' own READMEs, and a ladder that nobody has run.
    grep -xF '| points 64 | ~0.640 ms, ~10.0× |' studies/waves/01_fast/README.md
    grep -F "Still's machine" studies/still/01_fast/README.md
    grep -A 2 -F '<h2>The ladder new</h2>' report/index.html |
        grep -F '<p>No results of Alone: <code>./run_all.sh --study new</code> writes some.</p>'
    grep -xF 'No results yet.' studies/new/00_plain/README.md
    for stage in waves-01_fast still-00_plain new-00_plain stages-00_serial; do
        grep -qF "<section class=\"stage\" id=\"$stage\">" report/index.html
    done
}

# block FILE NAME: what stands between its markers.
block() {
    sed -n "/^<!-- $2: begin -->/,/^<!-- $2: end -->/p" "$1"
}

@test "steps: the whole ladder in one table and one plot" {
    block studies/climb/README.md ladder >ladder.md
    diff - ladder.md <<'END'
<!-- ladder: begin -->
<picture>
<source media="(prefers-color-scheme: dark)" srcset="../../report/results/full/climb/plots/ladder-dark.svg">
<img alt="The time of each stage and step, beside the ceiling" src="../../report/results/full/climb/plots/ladder.svg">
</picture>

A line has the time of a pass. The first ratio says how many times as fast it is as the nearest line above that has a time. Changed lines are those added and those removed. 02_other is compared with 01.1_loops instead. The ceiling is the rate of multiply-adds alone on as many threads as the line has: 200 GFLOP/s with 1 thread.

8 points; random numbers; medians of 3 runs; +2%: the run farthest from the median is 2 % above it; \~: a run is more than 10 % from the median; on Climb's machine.

|  | Time of a pass (s) | over the line above | over 00_plain | part of the ceiling | changed lines | the move |
| --- | ---: | ---: | ---: | ---: | ---: | --- |
| [00_plain](00_plain) | 8.00 +2% |  |  | 0.5 % |  |  |
| [01.1_loops](01.1_loops) | 2.00 +2% | 4.00× | 4.00× | 0.5 % | 4 | the loops \| exchanged |
| [01.2_tiles](01.2_tiles) | - | - | - | - | 4 |  |
| [01_fast](01_fast), 2 threads | 1.00 ~50% | ~2.00× | ~8.00× | - | 0 |  |
| [02_other](02_other) | - | - | - | - | 4 |  |

- 01.2_tiles, 02_other: not run
<!-- ladder: end -->
END
    in_section climb/full '| 01.1_loops | 2.00 +2% | 4.00× | 4.00× | 0.5 % | 4 | the loops | exchanged |'
    for name in ladder ladder-dark; do
        grep -qF '>01.1_loops</text>' report/results/full/climb/plots/$name.svg
        grep -qF '>~1.00 s, ~2.00×</text>' report/results/full/climb/plots/$name.svg
    done
    run grep '01.2_tiles' report/results/full/climb/plots/ladder.svg
    [ "$status" -eq 1 ]
    # The other tables and plots have the stages only.
    in_section climb/full '| 01_fast, 2 threads | 8.00× ~ | 8.00× ~ |'
    run in_section climb/full '| 01.1_loops | 4.00× | 4.00× |'
    [ "$status" -ne 0 ]
    in_section climb/full '02_other: not run'
    run grep 01.1_loops <(block studies/climb/README.md table)
    [ "$status" -eq 1 ]
    grep -xF '| 01_fast, 2 threads | ~1.00 s, ~8.00× | ~8.00 s, ~8.00× |' studies/climb/README.md
    in_section climb/full '| 01_fast | 2.00× ~ | 2.00× ~ |'
    run grep -E '^\| 01_fast( \||, 2 threads \| - )' studies/climb/README.md studies/climb/01_fast/README.md
    [ "$status" -eq 1 ]
    # The main ladder has them in two READMEs, about the same machine.
    report/report.py
    for file in README.md stages/README.md; do
        block "$file" ladder | grep -F 'one run of each; on Alone.'
    done
}

@test "epochs: a run in a line, with those that did not run, and a picture" {
    block studies/deep/README.md epochs >epochs.md
    cat epochs.md
    diff - epochs.md <<'END'
<!-- epochs: begin -->
![Time, throughput and test accuracy of each epoch, and the average throughput](../../report/results/full/deep/plots/epochs.svg)

A line has the averages over the epochs of a run. The test comes after each epoch, and is not in the time. The line of a program that did not run is empty, and the reason stands below the table.

random numbers: epochs 3, seed 1; one run of each; on Deep's machine.

| platform | average time of an epoch (s) | total training time (s) | average throughput (1000 samples/s) | final test accuracy (%) | best test accuracy (%) | peak memory (MiB) |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
| 00_plain | 10.0 | 30.0 | 0.00600 | 97.00 | 97.50 | 12.0 |
| 01_fast, 2 threads | 1.00 | 3.00 | 0.0600 | 97.00 | 97.50 | 50.5 |
| 02_gpu |  |  |  |  |  |  |
| peer_one, 2 threads | 2.50 | 7.50 | 0.0240 | 97.00 | 97.50 | 612 |
| peer_two |  |  |  |  |  |  |

- 02_gpu: no GPU in this machine
- peer_two: did not run: not installed: nothing
<!-- epochs: end -->
END
    # The report has the same, for this ladder only. Its picture has the finished runs.
    [ "$(grep -c '>Epoch by epoch</h4>' report/index.html)" -eq 1 ]
    in_section deep/full '| 01_fast, 2 threads | 1.00 | 3.00 | 0.0600 | 97.00 | 97.50 | 50.5 |'
    [ "$(ls report/results/*/*/plots/epochs.svg)" = report/results/full/deep/plots/epochs.svg ]
    for text in '01_fast, 2 threads' 'peer_one (2)' 'test accuracy (%)' 0.0600; do
        grep -qF ">$text</text>" report/results/full/deep/plots/epochs.svg
    done
    python3 - <<'END'
import sys
from pathlib import Path
sys.path.insert(0, "harness")
import ladders, tables
group, = tables.read_groups(Path("report/results/full/deep/runs.csv"), ladders.find_ladder("deep"))
found = {line[0]: [[row["epoch_s"] for row in run] for run in runs]
         for (line, _), runs in group.epochs.items()}
assert found == {"00_plain": [[10.125, 10.25, 10.375]], "peer_one": [[2.125, 2.25, 2.375]],
                 "01_fast": [[1.125, 1.25, 1.375], [2.125, 2.25, 2.375]]}, found
END
    # `make headline` writes it too.
    cp studies/deep/README.md "$BATS_TEST_TMPDIR"
    cd "$BATS_TEST_TMPDIR"
    sed -i "/^| 01_fast/d" README.md
    python3 "$tree/harness/tables.py" --update README.md "$tree/report/results/full/deep/runs.csv"
    diff <(block README.md epochs | grep "^|") <(grep "^|" "$tree/epochs.md")
    # A column of GPUs is there as soon as a program has a number for it.
    cp -r "$tree/report/results/full/deep" .
    sed -i '/^01_fast/s/$/99/' deep/runs.csv
    python3 "$tree/harness/tables.py" --update README.md deep/runs.csv
    block README.md epochs | grep '| peak memory (MiB) | peak device memory (MiB) |$'
    block README.md epochs | grep '^| 01_fast, 2 threads |.*| 50.5 | 99.0 |$'
}

@test "a step's README has the cells of the headline, beside the stage before" {
    block studies/climb/01.1_loops/README.md table | grep -A 9 '^| '
    diff - <(block studies/climb/01.1_loops/README.md table | grep '^| ') <<'END'
|  | 8 points | 64 points |
| --- | ---: | ---: |
| 00_plain | 8.00 s, 0.5 % | 64.0 s, 0.5 % |
| 01.1_loops | 2.00 s, 4.00×, 0.5 % | 16.0 s, 4.00×, 0.5 % |
| times as fast | 4.00× | 4.00× |
END
    block studies/climb/01.2_tiles/README.md table | grep -xF 'No machine has run it.'
    # The picture of its move is drawn, and is in the page.
    grep -F '<title>drawn' studies/climb/01.1_loops/picture.svg
    grep -F "alt=\"Its loops\"" report/index.html |
        grep -F "data:image/svg+xml;base64,$(base64 -w 0 studies/climb/01.1_loops/picture.svg)"
    copy_tree
    echo 'import sys; sys.exit("no constant")' >studies/climb/pictures.py
    run report/report.py
    [ "$status" -eq 1 ]
    [ "$output" = $'no constant\nreport.py: studies/climb/pictures.py failed' ]
}

@test "a stage's README has its numbers, of the machines that have any" {
    grep -F 'A & B &lt;1>; MNIST: 5 epochs' stages/02_openmp/README.md
    grep -F '| hidden 256 | 2.00 s, 100 GFLOP/s, 16.0×, 50 % | 2.00 s, 100 GFLOP/s, 16.0×, 50 % |' \
        stages/02_openmp/README.md
    # Of a machine without results of a stage there is a line only if no machine has any.
    [[ $(block stages/02_openmp/README.md table) != *Alone* ]]
    grep -xF 'No machine has run it: no GPU in this machine.' stages/03_cuda_unified/README.md
    # The headline stays about the same machine. If it has none, it is about the first.
    grep -F '; on Alone.' README.md
    grep -F '[report/results/alone/stages/tables.txt](report/results/alone/stages/tables.txt)' README.md
    grep -xF '| 01_vectorized | 0.500 s |' README.md
    sed -i 's|(report/results/alone/|(report/results/full/|' README.md
    report/report.py
    grep -xF '| 02_openmp | 0.250 s, 16.0×, 50 % | 0.250 s, 16.0×, 50 % | 2.00 s, 16.0×, 50 % |' README.md
    # It has a picture where the ceilings were measured.
    for plot in ladder ladder-dark; do
        grep -qF "\"report/results/full/stages/plots/$plot.svg\"" README.md
        grep -qF "\"../report/results/full/stages/plots/$plot.svg\"" stages/README.md
        [[ -s report/results/full/stages/plots/$plot.svg && ! -e report/results/alone/stages/plots/$plot.svg ]]
    done
}

# Changes results in a copy of the tree, for a test of its own.
copy_tree() {
    cp -a "$tree" "$BATS_TEST_TMPDIR/copy"
    cd "$BATS_TEST_TMPDIR/copy" || return
}

@test "threads: a plot of how many times as fast as one thread, where there are several numbers" {
    python3 - <<'END'
import sys
sys.path[:0] = "harness", "report"
import ladders
import plots
import tables

ladder = ladders.find_ladder("")
def group(times):
    """Of {(stage, threads): {hidden: train_s}}."""
    return tables.Group(ladder, {}, [
        {"stage": stage, "threads": threads, "device": "cpu", "hidden": hidden, "batch": 32,
         "train_s": time} for (stage, threads), cells in times.items()
        for hidden, time in cells.items()])

times = {("00_serial", 1): {32: 9, 256: 99}, ("02_openmp", 1): {32: 4, 256: 8},
         ("02_openmp", 2): {32: 2.5, 256: 4}, ("02_openmp", 16): {256: 1}, ("peer_one", 2): {32: 5}}
found = {panel.get_title(): {line.get_label(): [*zip(*line.get_data())] for line in panel.lines}
         for panel in plots.threads(group(times)).axes}
ideal = "as many times as there are threads", [(1, 1), (16, 16)]
assert found == {
    "32 hidden, batch 32": dict([ideal, ("02_openmp", [(1, 1), (2, 1.6)])]),
    "256 hidden, batch 32": dict([ideal, ("02_openmp", [(1, 1), (2, 2), (16, 8)])])}, found
del times["02_openmp", 1]
assert plots.threads(group(times)) is None
END
}

@test "names, notes and data sets are shown as they are, whatever characters they have" {
    copy_tree
    mv report/results/alone 'report/results/a <b> (1)'
    cd 'report/results/a <b> (1)/stages'
    sed -i 's/,mnist,/,<script>alert(1)<\/script>,/; $p; $s/^[^,]*/07_<b>|`x`/' runs.csv
    echo 'cpu: <img src=x onerror=alert(2)> | &lt; `code` __init__ $1$' >machine.txt
    cat >tables.txt <<'END'
03_cuda_unified: does not build: no match for 'f<int>(const float*, T*)' | in `f` &amp; [g](javascript:h)
END
    cd "$OLDPWD"
    sed -i 's|(report/results/[^/)]*|(report/results/a%20%3Cb%3E%20%281%29|' README.md
    # On another place, the page's links lead to the repository.
    LINKS=https://example.org/x report/report.py
    grep -qF 'href="https://example.org/x/report/results/a%20%3Cb%3E%20%281%29/stages/runs.csv"' report/index.html
    grep -qF 'href="https://example.org/x/stages/01_vectorized/train.c"' report/index.html
    run grep -o 'href="[^#dh][^"]*"' report/index.html
    [ "$output" = '' ]
    for markdown in README.md stages/0{1_vectorized,3_cuda_unified}/README.md; do
        pandoc --from=gfm --to=html "$markdown" >"$(dirname "$markdown")/shown.html"
    done
    python3 - <<'END'
from html.parser import HTMLParser
from pathlib import Path

class Page(HTMLParser):
    text = ""

    def handle_data(self, data):
        self.text += data

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        assert tag not in ("b", "i", "u", "script", "int")[4 * (path == "report/index.html"):], tag
        assert attributes.get("src") != "x" and "onerror" not in attributes, attributes
        assert not attributes.get("href", "").startswith("javascript:"), attributes

MACHINE = "<img src=x onerror=alert(2)> | &lt; `code` __init__ $1$"
NOTE = "does not build: no match for 'f<int>(const float*, T*)' | in `f` &amp; [g](javascript:h)"
STAGE, DATA = "07_<b>|`x`", "<script>alert(1)</script>: 5 epochs"
for path, expected in {
        "shown.html": (MACHINE, STAGE, DATA, "report/results/a <b> (1)"),
        "stages/01_vectorized/shown.html": (MACHINE, DATA),
        "stages/03_cuda_unified/shown.html": (NOTE,),
        "report/index.html": (MACHINE, STAGE, DATA, NOTE)}.items():
    page = Page()
    page.feed(Path(path).read_text(encoding="utf-8"))
    page.close()
    for text in expected:
        assert text in " ".join(page.text.split()), (path, text)
END
    # All pictures are in the page.
    run grep -E '<img[^>]*src="[^d]' report/index.html
    [ "$status" -eq 1 ]
}

@test "the pictures are what their script draws from the sizes in the sources" {
    copy_tree
    rm stages/*/picture.svg
    stages/pictures.py
    for picture in "$repository"/stages/*/picture.svg; do
        diff "$picture" "${picture#"$repository"/}"
    done
    [ "$(ls stages/*/picture.svg)" = "$(cd "$repository" && ls stages/*/picture.svg)" ]
    # A page on a telephone is 360 pixels wide, and so is a picture.
    [ "$(grep -ohE 'font(-size)?: [0-9]+' stages/*/picture.svg | grep -o '[0-9]*' | sort -n | head -n 1)" -ge 11 ]
    while read -r stage size; do
        source=$(ls stages/*_"$stage"/train.c*)
        sed -Ei "s/\b$size = [0-9]+/$size = PIXELS/" "$source"
        run stages/pictures.py
        [ "$output" = "pictures.py: $source: found no number for $size, expected '$size = ...'" ]
        [ "$status" -eq 2 ]
        cp "$repository/$source" "$source"
    done <<<$'split_sum SLICES\nregister_tile TILE_ROWS'
}

@test "runs of no epochs and of no time are shown as well" {
    copy_tree
    rm report/results/full/deep/epochs.csv
    for file in runs.csv growth.csv; do
        awk -F, -v OFS=, 'NR > 1 { $6 = 0; $14 = "0.000000"; $17 = ""; $19 = "0.000"
            if ($15 != "") $15 = $16 = "0.000000" } { print }' "report/results/full/stages/$file" >new
        mv new "report/results/full/stages/$file"
    done
    run report/report.py
    echo "$output"
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 1 ]
    in_section stages/full '| 00_serial | 0 +0% | 0 +0% |'
    # Without a file of epochs, their table has no picture.
    [ ! -e report/results/full/deep/plots/epochs.svg ]
    run grep -F '![Time, throughput' studies/deep/README.md
    [ "$status" -eq 1 ]
    grep -F '| 01_fast, 2 threads | 1.00 |' studies/deep/README.md
}

@test "a full disk: one line, and the pages stay" {
    copy_tree
    sed -i 's/A & B/Another/' report/results/full/stages/machine.txt
    cp report/index.html before
    run bash -c 'ulimit -f 100; report/report.py'
    echo "$output"
    [ "$status" -eq 1 ]
    [[ $output == 'report.py: '*': cannot write: File too large' && ${#lines[@]} == 1 ]]
    cmp report/index.html before
    [[ ! $(find . -name '*.new') ]]
}

@test "a second run changes nothing" {
    find report stages studies -type f -not -path '*__pycache__*' -exec cksum {} + | sort >before
    report/report.py
    find report stages studies -type f -not -path '*__pycache__*' -exec cksum {} + | sort | diff before -
}

@test "every link leads somewhere, and the page needs no other file" {
    python3 - <<'END'
import re
from html.parser import HTMLParser
from pathlib import Path

class Page(HTMLParser):
    links, ids = [], []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes["href"]] if "href" in attributes else []
        assert attributes.get("src", "data:").startswith("data:"), attributes
        assert "srcset" not in attributes, attributes
        assert tag not in ("iframe", "object"), tag
        assert tag != "link" or attributes["href"].startswith("data:"), attributes

page = Page()
page.feed(Path("report/index.html").read_text(encoding="utf-8"))
twice = {name for name in page.ids if page.ids.count(name) > 1}
assert not twice, twice
links = [link for link in page.links if not link.startswith(("http", "data:"))]
assert len(links) > 20
for link in links:
    assert link[1:] in page.ids if link[0] == "#" else Path("report", link).exists(), link
END
}

# section ID: what the page has about a stage or a ladder.
section() {
    awk -v id="id=\"$1\"" 'index($0, id) { inside = 1 }
        inside { print } inside && /<\/section>/ { exit }' report/index.html
}

@test "each point of a README stands at the lines that it speaks of, and none is lost" {
    section noted-01_fast >section
    # A note is above its lines: those of the function, or of the variable that it names.
    while IFS='|' read -r note line; do
        grep -F -A 2 "<tr class=note><td colspan=4>$note" section | grep -F -- "$line"
    done <<'END'
The sums are <code>lanes</code> in <code>add</code>.|<td>5<td class=old>
<code>scale</code> is new.|<td>15<td class=new>
2. <code>main</code> calls|<td>20<td class=old>
3. In <code>add</code>|<td>5<td class=old>
END
    [ "$(grep -c '<tr class=note>' section)" -eq 4 ]
    # The list has all points. It shows those without a place also while the diff is open.
    [ "$(grep -cE '^<li' section)" -eq 7 ]
    [ "$(grep -c '^<li class=noted>' section)" -eq 4 ]
    grep -F '<li>No place is named here' section
    grep -F '<li>Nowhere in particular' section # the first comment is no place
    grep -F '<p>A paragraph stays.' section

    python3 - <<'END'
import html
import re
import sys
from pathlib import Path
sys.path.insert(0, "harness")
import ladders

def words(text):
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", text)).split())

page, in_all, noted = Path("report/index.html").read_text(encoding="utf-8"), 0, 0
for stage in (stage for ladder in ladders.ladders() for stage in ladder.stages):
    text = (stage.folder / "README.md").read_text(encoding="utf-8") + "\n## "
    part = re.search(r"^## What the diff shows\n(.*?)^## ", text, re.M | re.S)
    written = len(re.findall(r"^(?:- |[1-9]\. )", part[1], re.M)) if part else 0
    name = re.escape(f"{stage.ladder.name}-{stage.name}")
    section = re.search(rf'<section class="stage" id="{name}">(.*?)</section>', page, re.S)[1]
    _, _, after = section.partition("<h3>What the diff shows</h3>")
    points = re.findall(r"<li( class=noted)?>(.*?)</li>", after.partition("<details id=")[0], re.S)
    assert len(points) == written, (stage.name, len(points), written)
    notes = re.findall(r"<tr class=note><td colspan=4>(.*?)(?=\n<tr)", section, re.S)
    assert sorted(re.sub(r"^\d\. ", "", words(note)) for note in notes) == sorted(
        words(point) for at, point in points if at), stage.name
    if stage.before:
        lines = stage.before.source.read_text(encoding="utf-8").split("\n")
        for heading in re.findall(r"scope=colgroup>(.*?)&nbsp;", section):
            assert not heading or html.unescape(heading) in lines, (stage.name, heading)
    in_all, noted = in_all + written, noted + len(notes)
assert in_all > 80 and noted > in_all / 2, (in_all, noted)
END
}

@test "a diff has the samples of each line where there is a profile of its code" {
    section noted-01_fast >section
    grep -F '<table class="diff heated">' section
    [ "$(grep -c '^<col class=heat><col>' section)" -eq 2 ]
    # The line is the nearest of the same text, because its number was another one.
    grep -F '<td style="--heat:0.700" data-heat="70.0 %" data-tip="700 samples">7<td class=old>' section
    grep -F '<td style="--heat:0.250" data-heat="25.0 %" data-tip="250 samples">7<td class=new>' section
    grep -F '<td style="--heat:0.001" data-heat="0.1 %" data-tip="1 samples">16<td class=new>' section
    [ "$(grep -o 'data-heat' section | wc -l)" -eq 3 ]
    grep -F 'the profile of 00_plain</a> and' section
    # Without a profile, there is no column.
    section waves-01_fast >section
    grep -F '<table class=diff>' section
    run grep heat section
    [ "$status" -eq 1 ]
    # Nor with one of other code.
    copy_tree
    sed -i 's/lanes\[0\] += x/lanes[1] += x/' studies/noted/profiles/mine/01_fast/lines.txt
    python3 - <<'END'
import sys
sys.path[:0] = "harness", "report"
import ladders
import samples
plain, fast = ladders.find_ladder("noted").stages
assert samples.of_lines(plain) == {7: (0.7, "700 samples")}, samples.of_lines(plain)
assert samples.of_lines(fast) is None, samples.of_lines(fast)
END
}

@test "flame graphs: those of a ladder together, and what they are on one scale" {
    section noted >section
    # An epoch takes 2 s in 00_plain, and 0.5 s of two threads in 01_fast.
    grep -F '>01_fast</a></span><span>0.5 s CPU, 0.25 s on the clock</span><div><i style="width:25.00%;' section
    grep -F '<figure class=flame data-part=1.00000><figcaption><a href="#noted-00_plain">' section
    grep -F '<figure class=flame data-part=0.25000><figcaption><a href="#noted-01_fast">' section
    grep -F 'points 8, drawn; A &lt;CPU&gt;.' section
    section noted-01_fast >section
    grep -F 'This profile is your own. <a href="#noted-profiles">The flame graph</a>' section
    grep -F 'speedscope</a>' section
    # Profiles of other options have another scale.
    copy_tree
    sed -i 's/points 8/points 9/' studies/noted/profiles/mine/01_fast/cpu.txt
    PYTHONPATH=harness:report python3 -c '
import ladders, samples
html = samples.flames(ladders.find_ladder("noted"), "h3", lambda *words: "", lambda stage: "")
assert html.count("<div class=flames>") == 2 and "data-part" not in html and "bars" not in html, html'
}

@test "a browser: three widths, no message, no overlap, no sideways scrolling; the plots answer" {
    # What is not a diff or a picture for readers without scripts is read at once.
    python3 - <<'END'
import re
from pathlib import Path
page = Path("report/index.html").read_bytes()
read = re.sub(rb"<noscript>.*?</noscript>", b"", page, flags=re.DOTALL)
print(len(page), len(read))
assert len(page) < 2e6 and len(read) < 6e5
END
    [ "$(wc -l <report/plots.js)" -lt 200 ]
    look_at report/index.html "$(harness/ladders.py stages | wc -l)" <<'END'
function hover(mark) {
  mark.dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
  return document.getElementById("tip");
}

function choose(machine) {
  const select = document.getElementById("machine");
  select.value = machine;
  select.dispatchEvent(new Event("input"));
}

addEventListener("load", () => {
  expect(`${all("*").length} elements`, all("*").length < 20000);
  expect("needs no other file", performance.getEntriesByType("resource").every(
    ({name}) => name.startsWith("data:")));
  for (const {value} of document.getElementById("machine").options) {
    choose(value);
    expect(`only ${value}`, all("[data-machine]").filter(isSeen).every(
      (part) => part.dataset.machine === value));
    look(value);
  }
  choose("full");
  const place = all("#stages [data-machine=full] .plots")[0], panel = () => all(".panel svg", place)[0];
  const titles = all("h4", place).map((title) => title.textContent).join();
  expect(`all plots: ${titles}`, titles === "The ladder: batch 128, hidden 256,Training time,"
    + "Phases,Roofline,How the cost grows,How it learns");
  const captions = () => all("figcaption", place).map((caption) => caption.textContent);
  expect(`panels: ${captions()}`, captions().slice(0, 2).join() === "hidden 256,batch 128");
  const roofs = all(".roof", place).map((name) => name.textContent).join();
  expect(`roofs: ${roofs}`, roofs === "memory,1 thread" && /sends to 1 thread\./.test(place.textContent));
  // As on a machine whose stages are near its roofs.
  const near = structuredClone(sets[place.dataset.set]), other = place.parentNode.appendChild(html("div"));
  near.roofs = [["memory, 2 threads", [[0.3, 9], [7, 230]]], ["multiply-adds, 1 thread", [[0.3, 117],
    [120, 117]]], ["multiply-adds, 2 threads", [[7, 230], [120, 230]]]];
  near.lines.forEach(({runs}, i) => Object.values(runs).forEach((run) => { run.gflops = [135, 265][i % 2]; }));
  plots(other, near);
  look("near the roofs");
  other.remove();

  const colour = (part) => getComputedStyle(part).backgroundColor.match(/\d+/g);
  const ofStages = all("table.ladder .key", place.parentNode).map(colour);
  const ofPhases = all(".bars", place)[1].querySelectorAll("i");
  expect("no phase has a stage's colour", ofPhases.length && ofStages.length === 3 && ![...ofPhases].map(colour)
    .some((one) => ofStages.some((each) => each.reduce((sum, part, i) => sum + Math.abs(part - one[i]), 0) < 60)));

  const tip = hover(all("path[data-tip]", panel())[0]);
  expect(`hover: ${tip.textContent}`, isSeen(tip) && tip.textContent ===
    "00_serial\nbatch 32, hidden 256\ntraining time: 32.0 s\n3 runs: 30.4, 32.0, 34.6\n100 GFLOP/s");
  const bars = () => all(".bars", place)[0].textContent;
  expect(`bars: ${bars()}`, bars().startsWith("00_serial32.0 s01_vectorized4.00 s, 8.00×"));
  const slider = all("input[type=range]", place)[1];
  slider.value = 0;
  slider.dispatchEvent(new Event("input"));
  expect(`slider: ${bars()}`, bars().startsWith("00_serial4.00 s01_vectorized0.500 s, 8.00×")
    && slider.nextSibling.value === "32" && /hidden 32$/.test(all("h4", place)[0].textContent));
  expect("slider: panels", captions()[0] === "hidden 32");

  const count = () => all("path[data-tip]", panel()).length, before = count();
  const key = all(".legend button", place)[0];
  key.click();
  expect("legend hides", count() === before - 2 && !bars().includes("00_serial")
    && key.getAttribute("aria-pressed") === "false");
  key.click();
  expect("legend shows", count() === before && bars().includes("00_serial"));
  const colours = all(".legend svg path", place).map((path) => path.getAttribute("stroke"));
  expect("no colour twice", new Set(colours).size === colours.length && colours.length === 4);

  const numbers = () => all("text", panel()).map((text) => text.textContent).join();
  const logarithmic = numbers();
  all("input[type=checkbox]", place)[0].click();
  expect(`linear: ${numbers()}`, numbers() !== logarithmic && /^0,/.test(numbers()));
  look("linear");

  const folded = all("#stages-01_vectorized details.folded");
  expect("folded until asked for", folded.length === 2 && folded.every((each) => !each.open));
  expect("a picture without scripts", /<svg/.test(place.nextElementSibling.textContent));
  for (const name of ["01_vectorized", "02_openmp"]) {
    const diff = document.getElementById(`diff-stages-${name}`);
    expect("the diff waits", !all("table", diff).length && /<table/.test(diff.textContent));
    diff.open = true;
    diff.dispatchEvent(new Event("toggle"));
  }
  const row = all("#stages-01_vectorized .diff tr").find((each) => all("mark", each).length);
  expect("a diff with numbers, colours and marks", row && all("td", row).length === 4
    && /^\d+$/.test(row.cells[0].textContent) && all("#stages-01_vectorized .diff .k").length);
  expect("all tables have a caption and heads", all("table:not(.diff)").every((table) =>
    table.caption && all("th:not([scope])", table).length === 0));
  expect("all pictures have a label", all("svg").every((picture) => picture.closest("[aria-hidden]")
    || picture.getAttribute("aria-label")));
  expect("all images are shown", all("img").every((image) => image.complete && image.naturalWidth > 300));
  for (const figure of all(".flame")) {
    const [lowest, box] = all("g", figure), rect = box.querySelector("rect"), share = / [\d.]+ %$/;
    const [field, scale] = all("input", figure.parentNode), part = Number(figure.dataset.part);
    expect("flame: shares", [lowest, box].every((each) => share.test(each.querySelector("text").textContent)));
    field.value = box.querySelector("title").textContent.split(": ")[0];
    field.dispatchEvent(new Event("input"));
    expect("flame: search", rect.matches(".found") && /^[1-9][\d.]* % of/.test(figure.querySelector("output").value));
    const width = () => rect.getAttribute("width"), narrow = width();
    box.dispatchEvent(new Event("click"));
    expect("flame: zoom", Number(width()) === Number(lowest.querySelector("rect").getAttribute("width")));
    lowest.dispatchEvent(new Event("click"));
    expect("flame: zoom out", Math.abs(width() - narrow) < 0.01);
    if (!part) continue;
    scale.click();
    expect("flame: one scale", Math.abs(width() - part * narrow) < 0.01);
    scale.click();
    expect("flame: own scale", Math.abs(width() - narrow) < 0.01);
  }
  const parts = all("#noted .flame").map((figure) => Number(figure.dataset.part));
  expect(`flame: together: ${parts}`, parts.join() === "1,0.25");
  const noteworthy = document.getElementById("diff-noted-01_fast"), noted = all("#noted-01_fast .noted");
  expect("points in the list", noted.length === 4 && noted.every(isSeen));
  noteworthy.open = true;
  noteworthy.dispatchEvent(new Event("toggle"));
  expect("points in the diff", !noted.some(isSeen) && all(".note", noteworthy).every(isSeen));
  expect("heat", getComputedStyle(all("[data-heat]", noteworthy)[0], "::before").content === '"70.0 %"');
  look("a diff");
  dispatchEvent(new Event("beforeprint"));
  expect("printing unfolds", folded.every((each) => each.open));
  if (innerWidth === 768) inMedium("print", (name) => { // as wide as a sheet of A4
    look(name);
    for (const each of all("h1, h2, h3, h4, summary, figcaption").filter(isSeen))
      expect(`${each.textContent} stays with what follows`, getComputedStyle(each).breakAfter === "avoid");
  });
  dispatchEvent(new Event("afterprint"));
  look("unfolded");
  const readable = (name) => ["full-quick", "full"].forEach((machine) => {
    choose(machine);
    contrast(name);
  });
  if (innerWidth === 1440) readable("light");
  if (innerWidth === 1440) inMedium("dark", readable);
  answer(all("section.stage").length);
});
END
}
