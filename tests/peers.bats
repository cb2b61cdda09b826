#!/usr/bin/env bats
# Tests bench/peers and `run_all.sh --peers`: a peer takes and writes what a stage does, and nothing
# depends on a peer. `make check-peers` compares the weights of all that are installed.
# shellcheck disable=SC2154 # helpers.bash sets them
load helpers

repository=$BATS_TEST_DIRNAME/..
peers=$repository/bench/peers

# Sets which peer run_train runs. Skips the test if it is not installed.
choose() {
    make -s -C "$peers" "$(basename "${1%.py}")" >/dev/null
    train=$peers/$1
    [[ -x $train ]] || skip "$1 is not built"
    status=0
    "$train" --data "$data" --train 6 --test 4 --epochs 0 >/dev/null 2>"$dir/why" || status=$?
    ((status != 77)) || skip "$1: $(cat "$dir/why")"
}

# Compares the weights after 50 batches with the float64 reference, for a selection of sizes.
# `stages` is what stages are asked for, and `builds` is a part of it.
threaded=${FULL:+stages}
threaded=${threaded:-builds}
check_weights() {
    make -s -C "$BATS_TEST_DIRNAME" build/stages/reference build/many_processors.so
    "$BATS_TEST_DIRNAME/stages.py" "$1" "$train"
}

@test "peer_openblas: its weights" {
    choose peer_openblas
    check_weights peers
}

@test "peer_openblas_pypi: its weights, from a library of its own" {
    choose peer_openblas_pypi
    ldd "$train" | grep -q '/scipy_openblas32/lib/libscipy_openblas'
    check_weights peers
}

@test "peer_libxsmm: its weights, on one thread and on several" {
    choose peer_libxsmm
    check_weights "$threaded"
}

@test "peer_onednn: its weights, on one thread and on several" {
    choose peer_onednn
    check_weights "$threaded"
}

@test "peer_onednn: its matmuls are compiled, with what comes after them" {
    choose peer_onednn
    grep -q avx512vl /proc/cpuinfo || skip 'oneDNN compiles matmuls for AVX-512 only'
    DNNL_VERBOSE=1 succeeds --hidden 33 --threads 2
    matmul='^onednn_verbose,(v1,primitive,)?exec,cpu,matmul' # of oneDNN 2, and of 3
    grep -qE "$matmul,brg(_matmul)?:avx512_core,.*eltwise_relu" "$dir/output"
    grep -qE "$matmul,brg(_matmul)?:avx512_core,.*sum" "$dir/output"
    run grep -E "$matmul,(gemm|ref)" "$dir/output"
    [ "$status" -eq 1 ]
}

@test "the threads of the peers in C that start their own are bound" {
    [[ $(env -u OMP_PLACES -u OMP_PROC_BIND -u GOMP_CPU_AFFINITY PYTHONPATH="$repository/harness" \
        /usr/bin/python3 -c 'import ladders
print(*(peer.name for peer in ladders.find_ladder("").peers
        if peer.source.suffix == ".c" and "OMP_PLACES" in peer.environment))') == \
        'peer_libxsmm peer_onednn' ]]
}

@test "a peer in C keeps the weights it has where the loss is not a number" {
    for peer in peer_libxsmm peer_openblas; do # one of the two that share slices.h
        choose $peer
        echo good >"$dir/weights"
        fails 1 'the loss became' --learning-rate 1e30 --epochs 5 --save-weights "$dir/weights"
        grep -qx good "$dir/weights"
    done
}

@test "peer_libxsmm says where LIBXSMM compiles no kernels, with status 77" {
    choose peer_libxsmm
    LIBXSMM_TARGET=generic fails 77 'peer_libxsmm: LIBXSMM has no kernels for this processor'
}

@test "make leaves out a library that is not installed, and names its package" {
    mkdir -p "$dir/bench/peers"
    cp -r "$repository/common" "$dir"
    cp "$peers"/{Makefile,*.c} "$dir/bench/peers"
    cd "$dir/bench/peers"
    # Without any library's headers.
    run make -s CC='gcc -nostdinc'
    echo "$output"
    [ "$status" -eq 0 ]
    diff <(echo "$output") - <<'END'
peer_libxsmm: left out, not installed: found no LIBXSMM (libxsmm-dev)
peer_onednn: left out, not installed: found no oneDNN for OpenMP (libdnnl-dev)
peer_openblas: left out, not installed: found no OpenBLAS (libopenblas-dev)
peer_openblas_pypi: left out, not installed: found no scipy-openblas32 in env (make peers)
END
    [[ -z $(find . -name 'peer_*' -perm /1) ]]
}

@test "nvcc is found where the stages find it, outside PATH too" {
    [[ -x /usr/local/cuda/bin/nvcc ]] || skip 'found no /usr/local/cuda/bin/nvcc'
    for peer in peer_cublas peer_cublaslt; do
        PATH=/usr/bin:/bin run make --dry-run --always-make -C "$peers" $peer
        [ "$status" -eq 0 ]
        grep -q "/usr/local/cuda/bin/nvcc .*-o $peer $peer.cu" <<<"$output"
    done
}

@test "nvcc compiles the peers with cuBLAS, warnings being errors" {
    nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) || skip 'found no nvcc'
    for peer in "$peers"/*.cu; do
        "$nvcc" -I"$repository" '-DSTAGE="peer"' -std=c++17 -arch=sm_75 -Xcompiler -Wall,-Wextra \
            -Werror all-warnings -c -o "$dir/peer.o" "$peer"
    done
}

# simulate PEER: builds a peer for the simulated device, as one file, with plain products in the place
# of cuBLAS's.
simulate() {
    sed -e '/^#include <cublas.*\.h>$/{' -e "r $BATS_TEST_DIRNAME/fake_cublas.cuh" -e 'd}' \
        -e '/^#include "cublas.cuh"$/{' -e "r $peers/cublas.cuh" -e 'd}' "$peers/$1.cu" >"$dir/$1.cu"
    make -s -C "$stages/03_cuda_unified" sim SOURCE="$dir/$1.cu" OUTPUT="$dir/$1"
    train=$dir/$1.sim
}

@test "the peers with cuBLAS: their weights, on the simulated device" {
    grep -q cudaGraphLaunch "$repository/sim/cuda_runtime.h" || skip 'it has no graphs'
    for peer in peer_cublas ${FULL:+peer_cublaslt}; do
        simulate "$peer"
        check_weights builds
    done
}

@test "make versions names those of the libraries for C" {
    make -s -C "$peers" versions >"$dir/versions"
    cat "$dir/versions"
    for peer in libxsmm onednn openblas openblas_pypi; do
        make -s -C "$peers" peer_$peer
        [[ -e $peers/peer_$peer ]] || continue
        case $peer in
        libxsmm) grep -E '[ ,]LIBXSMM [0-9]+(\.[0-9]+)+(,|$)' "$dir/versions" ;;
        onednn) grep -E '[ ,]oneDNN [0-9]+(\.[0-9]+){2}(,|$)' "$dir/versions" ;;
        openblas) grep -E '[ ,]OpenBLAS [0-9.]+ \([A-Za-z0-9]+\)' "$dir/versions" ;;
        openblas_pypi) grep -E '[ ,]OpenBLAS [0-9.]+ from PyPI \([A-Za-z0-9]+\)' "$dir/versions" ;;
        esac
    done
}

@test "peer_numpy: its weights" {
    choose peer_numpy.py
    check_weights peers
}

@test "the same weights from raw and gzipped files and from a CSV" {
    choose peer_numpy.py
    succeeds --save-weights "$dir/raw"
    make_csv "$data" "$dir/csv"
    gzip "$data"/*
    succeeds --save-weights "$dir/gzipped"
    cmp "$dir/raw" "$dir/gzipped"
    data=$dir/csv succeeds --save-weights "$dir/csv.weights" --csv "$dir/rows.csv"
    cmp "$dir/raw" "$dir/csv.weights"
    cut -d, -f11 "$dir/rows.csv" | grep -qx csv
    gzip "$dir/csv/train.csv"
    printf '\377\377\377\377' | dd of="$dir/csv/train.csv.gz" bs=1 seek=400 conv=notrunc status=none
    data=$dir/csv fails 2 "^$dir/csv/train.csv.gz: "
}

@test "a peer's rows go into a stage's file, and have no times of the phases" {
    choose peer_numpy.py
    make -s -C "$stages/00_serial"
    train=$stages/00_serial/train succeeds --csv "$dir/rows.csv"
    succeeds --csv "$dir/rows.csv" --threads 1
    expected='^peer_numpy,cpu,1,3,4,2,0\.1,1,6,4,mnist(,[0-9]+\.[0-9]{9}){4},,(,[0-9.]+){4},$'
    tail -n 1 "$dir/rows.csv" | grep -qE "$expected"
    train=$stages/00_serial/train succeeds --csv "$dir/rows.csv"
    [[ $(wc -l <"$dir/rows.csv") == 4 ]]
    succeeds --csv "$dir/new.csv"
    cmp <(head -n 1 "$dir/rows.csv") <(head -n 1 "$dir/new.csv")
}

# peer_fake DEVICE: peer_numpy with another device. It says how many epochs it trained.
peer_fake() {
    cat >"$dir/peer_numpy_fake.py" <<END
import peer, peer_numpy

class Fake(peer_numpy.NumPy):
    device, count = "$1", 0

    def epoch(self):
        Fake.count += 1
        return super().epoch()

peer.main(Fake)
print(Fake.count, "epochs")
END
    PYTHONPATH=$peers python3 "$dir/peer_numpy_fake.py" --data "$data" --train 6 --test 4 \
        --hidden 3 --batch 4 "${@:2}"
}

@test "before the clock, a peer trains an epoch, a GPU's two, and then goes back" {
    choose peer_numpy.py
    succeeds --save-weights "$dir/weights"
    [[ $(peer_fake cpu --epochs 2 | tail -n 1) == '3 epochs' ]]
    [[ $(peer_fake cpu --epochs 0 | tail -n 1) == '0 epochs' ]]
    [[ $(peer_fake GPU --epochs 2 --csv "$dir/rows.csv" --save-weights "$dir/gpu" | tail -n 1) == \
        '4 epochs' ]]
    cmp "$dir/weights" "$dir/gpu"
    python3 - "$dir/rows.csv" <<'END'
import csv, sys
row = next(csv.DictReader(open(sys.argv[1])))
assert float(row["warmup_s"]) > 0, row
END
}

# cnn [PROGRAM] [OPTION...]: runs a stage of studies/cnn, or else a peer that learns nothing.
cnn() {
    local program=$dir/peer_fake.py
    [[ ${1:-} != [0-9]* ]] || { program=$repository/studies/cnn/$1/train && shift; }
    status=0
    PYTHONPATH=$repository/studies/cnn/peers "$program" --data "$data" --train 6 --test 4 --batch 4 \
        --epochs 2 --quiet "$@" >"$dir/output" 2>"$dir/error" || status=$?
    cat "$dir/error"
}

@test "a peer's epochs go into a stage's file, one row for each" {
    cat >"$dir/peer_fake.py" <<'END'
#!/usr/bin/env python3
import peer

class Fake(peer.Peer):
    def __init__(self, options, images, labels):
        self.samples, self.rate = len(images), options.learning_rate

    def load(self, parameters):
        self.weights = parameters

    def epoch(self):
        return self.samples * (2.5 if self.rate < 1 else float("nan")), self.samples / 2

    def parameters(self):
        return self.weights

peer.main(Fake)
END
    chmod +x "$dir/peer_fake.py"
    files=(--csv "$dir/rows.csv" --epochs-csv "$dir/epochs.csv")
    cnn "${files[@]}"
    ((status != 77)) || skip "$(cat "$dir/error")"
    [ "$status" -eq 0 ]
    make -s -C "$repository/studies/cnn/00_serial"
    cnn 00_serial --csv "$dir/rows.csv" --epochs 0
    cnn 00_serial "${files[@]}"
    cnn "${files[@]}" --normalize
    cnn 00_serial --csv "$dir/rows.csv" --epochs 0 --normalize
    cnn "${files[@]}" --pad --epochs 3
    python3 - "$dir" <<'END'
import csv, sys
runs, epochs = ([*csv.DictReader(open(f"{sys.argv[1]}/{name}.csv"))] for name in ("rows", "epochs"))
peer, untrained, stage, normal, untrained_normal, padded = runs
assert [(row["stage"], row["epoch"]) for row in epochs] == [
    (row["stage"], str(epoch)) for row in runs for epoch in range(1, int(row["epochs"]) + 1)]
assert len({row["run"] for row in epochs}) == 4
for one, other, names in (
        (peer, stage, "device batch epochs learning_rate momentum normalize pad seed train_samples "
                      "test_samples dataset"),
        (peer, untrained, "test_accuracy"), (normal, untrained_normal, "test_accuracy normalize pad"),
        (epochs[0], epochs[2], "batch learning_rate momentum normalize pad seed train_samples "
                               "test_samples dataset epoch")):
    for name in names.split():
        assert one[name] == other[name] or float(one[name]) == float(other[name]), (name, one, other)
for run, samples in (peer, 6), (normal, 6), (padded, 8):
    times = [float(row["epoch_s"]) for row in epochs
             if (row["stage"], row["normalize"], row["pad"]) == ("peer_fake", run["normalize"], run["pad"])]
    assert len(times) == int(run["epochs"]) and abs(sum(times) - float(run["train_s"])) < 1e-8, run
    epoch_s, rate = float(run["epoch_s"]), float(run["samples_per_s"])
    assert abs(epoch_s - float(run["train_s"]) / len(times)) < 1e-8, run
    assert abs(rate * epoch_s / samples - 1) < 0.01, run
    assert abs(float(run["gflops"]) * 1e9 / rate / 1200768 - 1) < 0.01, run
    assert run["final_loss"] == "2.5" and run["train_accuracy"] == "0.5", run
    assert run["best_test_accuracy"] == run["test_accuracy"] and run["forward_s"] == "", run
for row in epochs:
    assert 1 < float(row["rss_mib"]) < 1000 and row["vram_mib"] == "" != row["threads"], row
END
    # Each of these errors ends the peer before it trains.
    cnn --csv "$dir/same" --epochs-csv "$dir/./same"
    [[ $status == 2 && $(<"$dir/error") == "--epochs-csv: found $dir/same, which is the file of --csv: expected another" ]]
    cnn --epochs-csv "$dir/same" --save-weights "$dir/same"
    [[ $status == 2 && $(<"$dir/error") == "--save-weights: found $dir/same, which is the file of --epochs-csv: expected another" ]]
    cnn --epochs-csv "$dir/rows.csv"
    [[ $status == 2 && $(<"$dir/error") == "--epochs-csv: $dir/rows.csv begins with other columns than a result row's" ]]
    truncate -s -1 "$dir/epochs.csv"
    cnn --epochs-csv "$dir/epochs.csv"
    [[ $status == 2 && $(<"$dir/error") == "--epochs-csv: $dir/epochs.csv ends within a row: complete or delete that row" ]]
    local name
    name=$dir/$(head -c 245 /dev/zero | tr '\0' x)
    mkfifo "$dir/pipe"
    ln -s no/file "$dir/astray"
    for option in csv save-weights; do
        cnn "--$option" "${name}yyyyyyyyyyy"
        [[ $status == 2 && $(<"$dir/error") == "--$option: cannot write '${name}yyyyyyyyyyy': File name too long; expected"* ]]
        cnn "--$option" "$dir/astray"
        [[ $status == 2 && $(<"$dir/error") == "--$option: cannot write '$dir/astray': No such file"* ]]
    done
    cnn --save-weights "$dir/pipe"
    [[ $status == 2 && $(<"$dir/error") == "--save-weights: cannot write '$dir/pipe': no regular file"* ]]
    cnn --save-weights "$name"
    [[ $status == 0 && -s $name && -z $(compgen -G "$dir/*.partial") ]]
    cnn --momentum 1
    [[ $status == 2 && $(<"$dir/error") == "--momentum: found '1', expected a number from 0 to below 1" ]]
    # The epoch in which the loss is no number has no row.
    cnn --learning-rate 2 --epochs-csv "$dir/new.csv" --csv "$dir/new.rows"
    [[ $status == 1 && $(<"$dir/error") == 'peer_fake: the loss became nan in epoch 1: try a --learning-rate below 2' ]]
    [[ ! -e $dir/new.csv && ! -e $dir/new.rows ]]
}

@test "an error is one line" {
    choose peer_numpy.py
    fails 2 "--hidden: found '0', expected a whole number" --hidden 0
    fails 2 "--hidden: found '4_0', expected a whole number" --hidden 4_0
    fails 2 "--learning-rate: found 'x', expected a number above 0" --learning-rate x
    fails 2 "--learning-rate: found ' 1', expected a number above 0" --learning-rate ' 1'
    fails 2 'unrecognized arguments: --hiden' --hiden 3
    fails 2 'found 6 images and 6 labels, --train expects at least 7' --train 7
    fails 2 'found no MNIST' --data "$dir"
    fails 1 'the loss became (nan|inf)' --learning-rate 1e30 --epochs 9
    echo other,columns >"$dir/other.csv"
    fails 2 'begins with other columns' --csv "$dir/other.csv"
    : >"$data/t10k-labels-idx1-ubyte"
    fails 2 'expected the header of an IDX file of labels'
    truncate -s -1 "$data/train-images-idx3-ubyte"
    fails 2 "^$data/train-images-idx3-ubyte: found 4719 bytes, expected 4720"
    gzip "$data"/*
    images=$data/train-images-idx3-ubyte.gz
    printf '\377\377\377\377' | dd of="$images" bs=1 seek=40 conv=notrunc status=none
    fails 2 "^$images: damaged or truncated gzip file: "
    truncate -s 100 "$images"
    fails 2 "^$images: damaged or truncated gzip file: "
    cp "$data/t10k-images-idx3-ubyte.gz" "$images"
    fails 2 'found 4 images and 6 labels, --train expects at least 6'
    rm "$data"/train-labels*
    fails 2 "No such file or directory: .$data/train-labels-idx1-ubyte"
}

@test "a peer that is not installed says so, with status 77" {
    choose peer_numpy.py
    mkdir "$dir/broken"
    echo 'raise ImportError("none here")' >"$dir/broken/jax.py"
    train=$peers/peer_jax.py PYTHONPATH=$dir/broken fails 77 '^not installed: none here;'
}

@test "run_all.sh --peers: the installed ones are in the tables, the others have a line each" {
    tree=$dir/tree
    mkdir -p "$tree"/{bench/peers,stages/00_one,report,data}
    cp "$repository"/{run_all.sh,deps.sh,packages.txt,Makefile} "$tree"
    cp -r "$repository/harness" "$tree"
    sed -i 's/^ROUNDING_S = .*/ROUNDING_S = 1e9/' "$tree/harness/running.py" # they take no time
    sed s/00_serial/00_one/ "$repository/stages/ladder.toml" >"$tree/stages/ladder.toml"
    cp -r "$repository"/report/{machine.sh,tables.py,view.py,templates} "$tree/report"
    # shellcheck disable=SC2016 # a script
    printf '#!/bin/sh\necho "$1"\n' >"$tree/data/locate.sh"
    cat >"$tree/stages/00_one/train" <<'END'
#!/bin/sh
while [ "$#" -gt 1 ]; do
    case $1 in
    --csv) csv=$2 ;;
    --hidden) hidden=$2 ;;
    --batch) batch=$2 ;;
    esac
    shift
done
name=$(basename "${0%.py}")
phases=0.1,0.15
[ "$name" != train ] && phases=, || name=00_one
[ -s "$csv" ] || echo stage,device,threads,hidden,batch,epochs,learning_rate,seed,train_samples,test_samples,dataset,load_s,setup_s,train_s,forward_s,backward_s,final_loss,test_accuracy,gflops,peak_rss_mib,peak_vram_mib >"$csv"
echo "$name,cpu,1,$hidden,$batch,5,0.1,1,37800,4200,mnist,0.1,0.1,0.25,$phases,0.3,0.91,1.5,100.0," >>"$csv"
END
    printf 'all:\n' >"$tree/stages/00_one/Makefile"
    touch "$tree/stages/00_one/train.c"
    cp "$tree/stages/00_one/train" "$tree/bench/peers/peer_here.py"
    printf '#!/bin/sh\necho "not installed: nothing" >&2\nexit 77\n' >"$tree/bench/peers/peer_gone.py"
    touch "$tree/bench/peers/peer_library.c" "$tree/bench/peers/peer_data.txt"
    cat >"$tree/bench/peers/Makefile" <<'END'
peer_here peer_gone:
peer_library:
	@echo "$@: left out, not installed: no library"
versions:
	@echo peers: here 1.0
END
    chmod +x "$tree"/{data/locate.sh,stages/00_one/train,bench/peers/*.py}
    touch "$data/train-images-idx3-ubyte"
    cd "$tree"
    run ./run_all.sh --peers --data "$data" --output out --hidden 3,4 --batch 5 --repeats 2
    echo "$output"
    [ "$status" -eq 0 ]
    # They run in turn, in each cell.
    diff <(printf '%s\n' 00_one,3 peer_here,3 00_one,4 peer_here,4) \
        <(tail -n +2 out/runs.csv | head -4 | cut -d, -f1,4)
    [[ $(wc -l <out/runs.csv) == 9 ]]
    grep -q '^  peer_here  *0.250 .*0.250' out/tables.txt
    # It does not tell the phases apart, so it is not in their tables.
    [[ $(grep -c '^  peer_here ' out/tables.txt) == 3 ]]
    grep -q '^peer_gone: left out: not installed: nothing$' out/tables.txt
    grep -q '^peer_library: left out: not installed: no library$' out/tables.txt
    grep -qx '1,peers,here 1.0' out/sweeps.csv
    # Without the option, no peer runs.
    run ./run_all.sh --data "$data" --output without --hidden 3 --batch 5 --repeats 1
    [ "$status" -eq 0 ]
    run grep -r peer without
    [ "$status" -eq 1 ]
}
