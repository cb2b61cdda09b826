#!/usr/bin/env bats
# Tests the ladder as something to read and to add to. Adjacent stages differ only in what a README
# declares, `make step` shows a step, and a copy of a stage works as a stage.
bats_require_minimum_version 1.5.0

setup() {
    repository=$(cd "$BATS_TEST_DIRNAME/.." && pwd)
    stages=$repository/stages
    dir=$(mktemp -d -t "a b'c\$d(e#f:g=h[i].XXXXXX") # the commands work in any path
    unset MAKEFLAGS MAKELEVEL
}

teardown() {
    rm -rf "$dir"
}

# Prints the functions that a stage defines, in order.
functions() {
    ctags -x --sort=no --language-force=C++ --kinds-C++=f -D '__launch_bounds__(x)=' \
        "$stages/$1"/train.c* | awk '!/^__anon/ { print $1 }' # a lambda has no name
}

# declared STAGE WORDS: prints the functions that the README lists after these words.
declared() {
    tr '\n' ' ' <"$stages/$1/README.md" | sed -n "s/.*$2: \([^.]*\)\..*/\1/p" | grep -o '`[^`]*`' |
        tr -d '`'
}

# for_each NAMES COMMAND...: runs the command with each stage whose name matches, and its origin or
# the one before it. Numbers from 20 on are readers' copies, which may change anything.
for_each() {
    local stage origin before=''
    # shellcheck disable=SC2231 # the names are a pattern
    for stage in "$stages"/[01]$1/Makefile; do
        origin=$(sed -n 's/^ORIGIN = *//p' "$stage")
        stage=$(basename "${stage%/Makefile}")
        "${@:2}" "$stage" "${origin:-$before}" || {
            echo "$stage"
            return 1
        }
        before=$stage
    done
}

# Writes the functions of two stages to files. Fails where there is no stage before.
functions_of_both() {
    [[ $2 ]] && functions "$1" >"$dir/after" && functions "$2" >"$dir/before"
}

declares_the_functions() {
    functions_of_both "$@" || return 0
    diff <(declared "$1" 'New functions' | sort) <(sort "$dir/after" | comm -13 <(sort "$dir/before") -) &&
        diff <(declared "$1" Gone | sort) <(sort "$dir/after" | comm -23 <(sort "$dir/before") -)
}

# A stage that begins again from an earlier one may have another order.
keeps_the_order() {
    functions_of_both "$@" && ! grep -q '^ORIGIN' "$stages/$1/Makefile" || return 0
    diff <(grep -xFf "$dir/after" "$dir/before") <(grep -xFf "$dir/before" "$dir/after")
}

@test "functions keep their order, and a chapter's README declares which are new or gone" {
    command -v ctags >/dev/null || skip 'found no ctags (universal-ctags)'
    [[ $(functions 00_serial | tail -n 1) == main ]]
    for_each '*' keeps_the_order
    for_each '[0-9]_*' declares_the_functions
}

@test "a stage's number is in its title and its first comment, with its one idea" {
    cd "$repository"
    PYTHONPATH=harness python3 - <<'END'
import re
import ladders
for stage in (stage for ladder in ladders.ladders() for stage in ladder.stages):
    number = re.escape(stage.name.split("_")[0])
    first = stage.source.read_text().split("\n\n")[0].replace("\n// ", " ")
    title = (stage.folder / "README.md").read_text().split("\n")[0]
    assert re.match(rf"// Stage {number}(, from [^:]*)?: \w.*\.", first), (stage.name, first)
    # `make report` has what follows the colon in a column of its own.
    assert re.fullmatch(rf"# {re.escape(stage.name)}: .{{3,50}}", title), (stage.name, title)
END
}

# A ladder that has changed_lines in [tests] is made of steps. A copy, or what is compared with an
# earlier stage, may change more: its Makefile names an ORIGIN.
@test "adjacent stages differ in one idea: in as many lines as the ladder allows" {
    cd "$repository"
    PYTHONPATH=harness python3 - <<'END'
import subprocess
import ladders
with_steps = [each for each in ladders.ladders() if "changed_lines" in each.toml.get("tests", {})]
assert ladders.find_ladder("") in with_steps
too_long = []
for stage in (stage for ladder in with_steps for stage in ladder.stages):
    if stage.before and "ORIGIN" not in (stage.folder / "Makefile").read_text():
        counts = subprocess.run(["git", "diff", "--no-index", "--histogram", "--numstat",
                                 stage.before.source, stage.source], capture_output=True, text=True)
        lines = sum(map(int, (counts.stdout or "0 0").split()[:2]))
        if lines > stage.ladder.toml["tests"]["changed_lines"]:
            too_long.append(f"{stage.before.name} to {stage.name}: {lines} changed lines")
assert not too_long, too_long
END
}

# Allows the C library of C11, OpenMP, common/ and the ladder's headers. CUDA comes with them.
includes_little() {
    local allowed='<(assert|ctype|errno|float|inttypes|limits|math|stdbool|stddef|stdint|stdio'
    allowed+='|stdlib|string|time|omp|cooperative_groups)\.h>|"(common|stages)/[a-z_]+\.h"'
    ! grep -h '#include' "$stages/$1"/train.c* | grep -vE "^#include ($allowed)\$"
}

@test "a stage includes the C library, common/, its ladder's headers and its own technology, and nothing else" {
    for_each '*' includes_little
}

has_sections() {
    diff - <(sed -n 's/^## //p' "$stages/$1/README.md") <<END
The idea
Predict before you measure
${2:+What the diff shows
}The arithmetic
The prediction
What the profile shows
Measured
What limits it
Exercises
Pitfalls
END
}

has_sections_of_a_step() {
    diff - <(sed -n 's/^## //p' "$stages/$1/README.md") <<END
The idea
Predict before you measure
What the diff shows
The prediction
Measured
Exercise
END
}

@test "every README has the same sections" {
    for_each '[0-9]_*' has_sections
    for_each '[0-9].*' has_sections_of_a_step
}

# Goes to a copy that a test may change.
clean_copy() {
    "$repository/tests/clean_copy.sh" "$dir"
    cd "$dir" || return
    MNIST_DIR=$(OFFLINE=1 "$repository/data/locate.sh" 2>/dev/null)
    export MNIST_DIR
}

@test "make step prints the README and the diff, and measures" {
    clean_copy
    make -s step STAGE=02 RUNS=8 TRAIN=640 >output 2>errors
    for text in '02_openmp: all cores' 'The idea' '+// Stage 02: ' 'The prediction' \
        'ratio   99 % interval' 'What the profile shows'; do
        grep -qF -- "$text" output
    done
    # The README speaks of all of 02's steps, so the time before them is shown, too.
    grep -q '^median  *02\.._[a-z_]*  *02_openmp' output
    grep -q '^median  *01_vectorized  *02_openmp' output
    # It prints the prediction beside the measured ratio, but not the whole README.
    [[ $(grep -c 'Pitfalls' output) == 0 ]]
    make -s step STAGE=00 TRAIN=640 >output
    grep -q '^00_serial: hidden 256, batch 128, .* GFLOP/s' output
    run make -s step STAGE=77
    [[ $status != 0 && $output == *"STAGE: found '77', expected one of: 00_serial "* ]]
}

@test "make step waits for a key on a terminal, and shows no links" {
    command -v script >/dev/null || skip 'found no script (bsdutils)'
    clean_copy
    export TRAIN=64
    sed -i 's|^This stage.*|![a](b.svg)\n[`c` d](e.md) <!-- f -->|' stages/00_serial/README.md
    mkfifo keys
    script -qec 'harness/step.py step stages 00' /dev/null <keys >output 2>&1 3>&- &
    exec 9>keys
    for ((i = 0; i < 300; i++)); do
        ! grep -q 'Press Enter to go on: $' output || break
        sleep 0.1
    done
    sleep 0.5
    (! grep 'The prediction' output)
    echo >&9
    wait $!
    grep -q 'The prediction' output
    grep -q '^00_serial: hidden 256' output
    # There is no terminal here, so it does not ask, although keys are there.
    echo | make -s step STAGE=00 TRAIN=640 >output
    (! grep 'Press Enter\|](\|<!--' output)
    grep -q '^`c` d ' output
    rm stages/00_serial/README.md # which your own stage need not have
    make -s step STAGE=00 TRAIN=640 | grep -q '^00_serial: hidden 256'
}

@test "make asm shows the instructions of a function under their lines, also where it is inlined" {
    clean_copy
    line=$(grep -n 'sum\[r\]\[c\] += x' stages/01_vectorized/train.c)
    make -s asm STAGE=01 FUNCTION=forward >output
    # The tile is inlined into what forward() calls.
    grep -A 9 "^forward_tile, ${line%%:*}: sum" output | grep -q 'fma\|mul'
    (! grep '^evaluate, ' output)
    make -s asm STAGE=00 >output
    grep -q '^backward, ' output
    run harness/step.py asm '' 00 nothing
    [[ $status == 2 && ${#lines[@]} == 1 && $output == "step.py: FUNCTION: found 'nothing', expected one of: "*forward* ]]
}

@test "make asm of a CUDA stage shows its kernels, or says what is missing" {
    clean_copy
    local tools=$BATS_TEST_TMPDIR
    printf '#!/bin/sh\n' >stages/04_cuda_device_mem/train
    printf 'train:\n' >stages/04_cuda_device_mem/Makefile
    chmod +x stages/04_cuda_device_mem/train
    NVCC=true PATH=/usr/bin:/bin run harness/step.py asm '' 04
    [[ $status == 77 && ${#lines[@]} == 1 && $output == *'found no cuobjdump'* ]]
    cat >"$tools/cuobjdump" <<'END'
#!/bin/sh
printf '\tcode for sm_75\n\t\tFunction : _Z%s\n        /*0000*/  %s ; /* 0x00 */\n' 4sumsPKf ADD 3oneILi4EEvPf MOV
END
    chmod +x "$tools/cuobjdump"
    NVCC=true PATH=$tools:/usr/bin:/bin harness/step.py asm '' 04 one >output
    diff output - <<<$'one<4>\n        /*0000*/  MOV ;\n'
}

@test "make step of a stage that cannot run here says why and goes on" {
    [[ $(nvidia-smi -L 2>/dev/null) != GPU* ]] || skip 'found a GPU'
    clean_copy
    for stage in 03_cuda_unified 04_cuda_device_mem; do
        printf '#!/bin/sh\necho "%s: no usable CUDA device: none" >&2\nexit 77\n' $stage \
            >stages/$stage/train
        chmod +x stages/$stage/train
    done
    for nvcc in true no-such-nvcc; do
        [[ $nvcc != true ]] || printf 'train:\n' | tee stages/0[34]_*/Makefile
        [[ $nvcc == true ]] || rm stages/0[34]_*/train
        # Two jobs, so that a make within would have jobs to warn of.
        make -j2 step STAGE=04 NVCC=$nvcc >output 2>&1
        grep -qE "found no $nvcc|compare.py: 03_cuda_unified: exit status 77: no usable CUDA device: none" output
        grep -qx 'What the profile shows' output
        [[ $(tail -n 2 output | paste -sd' ') == '04_cuda_device_mem cannot run here. `make check STAGE=04_cuda_device_mem` tests it on a simulated device, and `make sim` builds it for one.' ]]
        run ! grep -i '^make\|^gcc\|jobserver' output
    done
    make -s all STAGES=stages/03_cuda_unified NVCC=no-such-nvcc >output 2>&1
    [[ $(tail -n 2 output | paste -sd' ') == 'Without nvcc: `make sim` builds the CUDA stages for a simulated device, and `make check STAGE=NAME` tests one of them on it.' ]]
}

@test "every command works on a copy of a step, and make check finds a mistake in it" {
    clean_copy
    cp -r stages/01_vectorized stages/01.0_first
    sed -i '1s/Stage 01/Stage 01.0/' stages/01.0_first/train.c
    RUNS=8 TRAIN=640 make -s new-stage FROM=01.0 NAME=20_mine >output
    grep -qx '20_mine: right, [0-9]* tests' output
    grep -q '^No difference\|^The difference\|^Undecided' output
    grep -q '^// Stage 20, from 01.0_first:' stages/20_mine/train.c

    make -s diff STAGE=20 >output
    grep -q '^-// Stage 01.0' output
    make -s diff STAGE=01.0 | grep -q '^+// Stage 01.0'
    ./run_all.sh --stages 01.0,20 --quick --hidden 32 --batch 32 --repeats 1 --output results >output
    grep -q '^  20_mine ' output
    RUNS=8 HIDDEN=32 harness/compare.py 20_mine 01 | grep -q 'times as'
    make -s step STAGE=20 RUNS=8 TRAIN=640 | grep -q '^20_mine: mine'
    if [[ ${FULL:-} ]] && command -v pandoc && PATH=/usr/bin:$PATH python3 -c 'import matplotlib, pygments' 2>/dev/null; then
        make -s report
        grep -q '<section class="stage" id="stages-20_mine">' report/index.html
    fi

    # Now a batch's gradient is a hundredth too large.
    sed -i 's|dz\[s\] /= (float)n;|dz[s] /= 0.99f * (float)n;|' stages/20_mine/train.c
    run make -s check STAGE=20_mine
    [[ $status != 0 && $output == *'20_mine: WRONG'* ]]
    [[ $output == *'All steps are 1.0101 times the right ones'* ]]
}

@test "TERMS.md: each word is in the file that it names" {
    cd "$repository"
    python3 - <<'PYTHON'
import re
from pathlib import Path

found = re.findall(r"((?:`[^`]+`[^`|[]*)+)\[[^]]+\]\(([^)#]+\.\w+)\)", Path("TERMS.md").read_text())
assert len(found) > 30
for words, path in found:
    for word in re.findall("`([^`]+)`", words):
        assert word.split("...")[0] in Path(path).read_text(), (word, path)
PYTHON
}
