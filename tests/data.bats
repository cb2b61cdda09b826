# Tests fetch.sh, synthesize and locate.sh, in a copy of data/.

bats_require_minimum_version 1.5.0

FILES=(train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte)

# The checksum of the four files of --seed 1, one after another in the order above.
SYNTHETIC_SHA256=bb88c25c6b68bc058fb2f079b49867ef8d46619ea264858e4acba52a377d6a30
SMALL_SHA256=08f9b84ef0496c36e9529081c49495a732acbbcaa14eaeafb138392a2292ccb7 # --train 500 --test 100

source_dir=$BATS_TEST_DIRNAME/../data

copy_folder() { # to
    mkdir -p "$1"
    cp "$source_dir"/{Makefile,glyphs.h,synthesize.c,fetch.sh,locate.sh,mnist.set} "$1"
}

setup_file() {
    unset MAKEFLAGS
    copy_folder "$BATS_FILE_TMPDIR/data"
    make -s -C "$BATS_FILE_TMPDIR/data" synthesize
    "$BATS_FILE_TMPDIR/data/synthesize" "$BATS_FILE_TMPDIR/full"
}

setup() {
    given=${MNIST_DIR-}
    unset MNIST_DIR MNIST_MIRRORS OFFLINE MAKEFLAGS
    data=$BATS_FILE_TMPDIR/data
    full=$BATS_FILE_TMPDIR/full
    cd "$BATS_TEST_TMPDIR" || return
}

# Makes a mirror whose files are a pipe, so that no download ends. The descriptor $pipe keeps it open.
mirror_pipe() { # directory
    local name
    mkdir "$1"
    mkfifo "$1/pipe"
    for name in "${FILES[@]}"; do
        ln -s pipe "$1/$name.gz"
    done
    exec {pipe}<>"$1/pipe"
}

# Starts a download into `out` from that mirror, and waits for its first bytes. Sets $fetching.
start_fetching() { # mirror
    head -c 30000 /dev/zero >&"$pipe"
    # nohup has the tests ignore SIGHUP, and what they start would ignore it too.
    MNIST_MIRRORS=file://$PWD/$1 env --default-signal=HUP "$data/fetch.sh" out \
        &>/dev/null 3>&- {pipe}>&- &
    fetching=$!
    for _ in {1..100}; do
        [[ -z $(find out -name '*.gz' -size +0 2>/dev/null) ]] || return 0
        sleep 0.05
    done
    false
}

# Makes a mirror out of the real MNIST, or skips the test.
mirror_real() { # directory
    local name real=${given:-$source_dir/mnist}
    if [[ -e $real/SYNTHETIC || -z $(find -L "$real" -name "${FILES[0]}*" 2>/dev/null) ]]; then
        skip "needs the real MNIST, in \$MNIST_DIR or data/mnist"
    fi
    mkdir "$1"
    for name in "${FILES[@]}"; do
        cp "$real/$name.gz" "$1" 2>/dev/null || gzip -1 <"$real/$name" >"$1/$name.gz"
    done
}

# Makes a mirror whose files are sound, but not MNIST.
mirror_wrong() { # directory
    local name
    mkdir "$1"
    for name in "${FILES[@]}"; do
        echo "not MNIST" | gzip >"$1/$name.gz"
    done
}

assert_empty() { # directory
    [[ -z $(ls -A "$1") ]]
}

# The last `run --separate-stderr` printed one line on standard error, with this text in it.
assert_one_line() { # text
    [[ ${#stderr_lines[@]} -eq 1 && $stderr == *"$1"* ]]
}

sum_of() { # directory
    cat "${FILES[@]/#/$1/}" | sha256sum | cut -d ' ' -f 1
}

# --- fetch.sh ---

@test "fetch: a mirror with other content is refused, and nothing is left" {
    mirror_wrong mirror
    MNIST_MIRRORS=file://$PWD/mirror run --separate-stderr -1 "$data/fetch.sh" out
    assert_one_line "wrong content"
    assert_one_line "data/synthesize"
    assert_empty out
}

@test "fetch: without any mirror it fails with one line that names what failed" {
    MNIST_MIRRORS="file:///nowhere http://127.0.0.1:1" run --separate-stderr -1 "$data/fetch.sh" out
    assert_one_line "file:///nowhere"
    assert_one_line "http://127.0.0.1:1"
    assert_empty out
}

@test "fetch: interrupted in mid-download, nothing is left and the status says so" {
    mirror_pipe mirror
    for signal in TERM HUP; do
        start_fetching mirror
        kill -"$signal" "$fetching"
        status=0
        wait "$fetching" || status=$?
        [[ $status -eq $((128 + $(kill -l "$signal"))) ]]
        assert_empty out
    done
}

@test "fetch: what a killed download has left is removed by the next one, not by one beside it" {
    mirror_pipe mirror
    mirror_wrong wrong
    start_fetching mirror
    # The other download is interrupted. It ends at once and removes nothing.
    MNIST_MIRRORS=file://$PWD/wrong timeout 1 "$data/fetch.sh" out >log 3>&- || [[ $? -eq 124 ]]
    grep -q "waiting for another download into out" log
    [[ $(find out -name '*.gz' | wc -l) -eq 1 ]]
    kill -KILL "$fetching"
    wait "$fetching" || true
    [[ $(find out -name '*.gz' | wc -l) -eq 1 ]]
    MNIST_MIRRORS=file://$PWD/wrong run --separate-stderr -1 timeout 20 "$data/fetch.sh" out
    assert_one_line "wrong content"
    assert_empty out
}

@test "fetch: a file without end is cut off, whether its length was announced or not" {
    command -v python3 >/dev/null || skip "needs python3, for a server"
    # Sends a megabyte, 1,000 times.
    cat >server.py <<'END'
import http.server
import sys

class Endless(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        if "announced" in self.path:
            self.send_header("Content-Length", str(1000 << 20))
        self.end_headers()
        try:
            for _ in range(1000):
                self.wfile.write(bytes(1 << 20))
                with open("sent", "ab") as file:
                    file.write(b"x")
        except OSError:
            pass

server = http.server.HTTPServer(("127.0.0.1", 0), Endless)
print(server.server_port, flush=True)
server.serve_forever()
END
    timeout 60 python3 server.py >port 2>/dev/null 3>&- &
    server=$!
    for _ in {1..100}; do
        [[ ! -s port ]] || break
        sleep 0.05
    done
    url=http://127.0.0.1:$(cat port)
    for kind in announced unannounced; do
        : >sent
        MNIST_MIRRORS=$url/$kind run --separate-stderr -1 "$data/fetch.sh" out
        echo "$stderr"
        assert_one_line "$kind"
        # A few more megabytes may have been on their way.
        [[ $(stat -c %s sent) -lt 100 ]]
        assert_empty out
    done
    kill "$server"
    [[ $stderr == *"Maximum file size exceeded"* || $stderr == *"more than 48 MiB"* ]]
}

@test "fetch: a small file that becomes a huge one is refused soon" {
    mkdir mirror
    # 40 GB, compressed to 40 MB.
    head -c 10000000 /dev/zero | gzip -9 >part
    for _ in {1..4000}; do echo part; done | xargs cat >mirror/bomb
    for name in "${FILES[@]}"; do
        ln -s bomb "mirror/$name.gz"
    done
    MNIST_MIRRORS=file://$PWD/mirror run --separate-stderr -1 timeout 30 "$data/fetch.sh" out
    assert_one_line "wrong content"
}

@test "fetch: a raw file that is not MNIST's is reported, and stays" {
    mirror_wrong mirror
    mkdir out
    echo mine >out/t10k-labels-idx1-ubyte
    MNIST_MIRRORS=file://$PWD/mirror run --separate-stderr -1 "$data/fetch.sh" out
    assert_one_line "out/t10k-labels-idx1-ubyte"
    [[ $(ls -A out) == t10k-labels-idx1-ubyte && $(cat out/*) == mine ]]
}

@test "fetch: where it cannot write, or has nothing to download with, it says so in one line" {
    touch file
    run --separate-stderr -1 "$data/fetch.sh" file/out
    assert_one_line "file/out: cannot write there"

    mkdir bin
    for tool in bash dirname gzip head sha256sum; do
        ln -s "$(command -v $tool)" bin
    done
    run --separate-stderr -1 env PATH="$PWD/bin" "$BASH" "$data/fetch.sh" out
    assert_one_line "found no curl"
    [[ ! -e out ]]
}

@test "fetch: --help, and arguments it does not know" {
    run --separate-stderr -0 "$data/fetch.sh" --help
    [[ $output == Usage:*MNIST_MIRRORS* && -z $stderr ]]
    run --separate-stderr -1 "$data/fetch.sh" --force
    assert_one_line "'--force'"
    run --separate-stderr -1 "$data/fetch.sh" one two
    assert_one_line "'two'"
}

@test "fetch: the real files, past mirrors that fail or are wrong; then they are kept" {
    mirror_real real
    mirror_wrong wrong
    MNIST_MIRRORS="file:///nowhere file://$PWD/wrong file://$PWD/real/" run -0 "$data/fetch.sh" out
    [[ $(ls -A out | wc -l) -eq 4 ]]
    cmp "real/${FILES[0]}.gz" "out/${FILES[0]}.gz"

    # A raw file is accepted, a damaged one is not.
    gunzip "out/${FILES[3]}.gz"
    truncate -s -4 "out/${FILES[2]}.gz"
    before=$(stat -c %i "out/${FILES[0]}.gz")
    MNIST_MIRRORS=file://$PWD/real run --separate-stderr -0 "$data/fetch.sh" out
    [[ ${#lines[@]} -eq 1 && $output == *"${FILES[2]}"* ]]
    cmp "real/${FILES[2]}.gz" "out/${FILES[2]}.gz"
    [[ $(stat -c %i "out/${FILES[0]}.gz") == "$before" && ! -e out/${FILES[3]}.gz ]]
}

# --- synthesize ---

@test "synthesize: the same bytes as on every other machine" {
    [[ $(sum_of "$full") == "$SYNTHETIC_SHA256" ]]
    [[ $(ls -A "$full" | wc -l) -eq 5 ]]
}

@test "synthesize: the same bytes from every compiler" {
    for compiler in "gcc -O0" "gcc -O3 -march=native" "clang -O2"; do
        command -v "${compiler%% *}" >/dev/null || continue
        $compiler -ffp-contract=off -o other "$data/synthesize.c" -lm
        ./other --train 500 --test 100 out
        [[ $(sum_of out) == "$SMALL_SHA256" ]]
    done
}

@test "synthesize: another seed gives other bytes; the test set does not depend on --train" {
    "$data/synthesize" --seed 2 --train 500 --test 100 two
    [[ $(sum_of two) != "$SMALL_SHA256" ]]
    "$data/synthesize" --train 500 one
    run -1 cmp -s {one,two}/train-labels-idx1-ubyte
    cmp one/t10k-images-idx3-ubyte "$full/t10k-images-idx3-ubyte"
}

@test "synthesize: no directory given: synthetic, beside the program, wherever that has been moved" {
    mkdir moved
    cp "$data/synthesize" moved
    moved/synthesize --train 500 --test 100
    [[ $(sum_of moved/synthetic) == "$SMALL_SHA256" ]]
}

@test "synthesize: headers, labels and ink are as in MNIST" {
    header() { od -An -tx1 -v -N "$2" "$full/$1" | tr -d ' \n'; }
    [[ $(header train-images-idx3-ubyte 16) == 000008030000ea600000001c0000001c ]]
    [[ $(header train-labels-idx1-ubyte 8) == 000008010000ea60 ]]
    [[ $(header t10k-images-idx3-ubyte 16) == 00000803000027100000001c0000001c ]]
    [[ $(header t10k-labels-idx1-ubyte 8) == 0000080100002710 ]]
    [[ $(stat -c %s "$full/train-images-idx3-ubyte") -eq $((16 + 60000 * 784)) ]]
    [[ $(stat -c %s "$full/t10k-labels-idx1-ubyte") -eq 10008 ]]

    # Each digit is about a tenth, and they have no order: one in ten equals the one before it.
    labels=$(od -An -tu1 -v -w1 -j 8 "$full/train-labels-idx1-ubyte")
    [[ $(sort -n <<<"$labels" | uniq -c | awk '$1 > 5700 && $1 < 6300 { printf $2 }') == 0123456789 ]]
    repeats=$(uniq -d <<<"$labels" | wc -l)
    [[ $repeats -gt 5000 && $repeats -lt 6000 ]]

    # 19 % of the pixels are not black.
    ink=$(tail -c +17 "$full/t10k-images-idx3-ubyte" | tr -d '\0' | wc -c)
    [[ $ink -gt $((7840000 * 18 / 100)) && $ink -lt $((7840000 * 20 / 100)) ]]
    grep -q "not MNIST" "$full/SYNTHETIC"
}

@test "synthesize: interrupted at any time, it leaves a whole set or none" {
    for delay in 0.01 0.3 0.5 0.6 0.7 0.8 0.9 1.0; do
        rm -rf out
        timeout -s TERM "$delay" "$data/synthesize" out || [[ $? -eq 124 ]]
        [[ ! -e out/${FILES[0]} || $(sum_of out) == "$SYNTHETIC_SHA256" ]]
        [[ -z $(find out -name '.*' -type f 2>/dev/null) ]]
    done
}

@test "synthesize: a disk that is full leaves what was there, and no partial file" {
    "$data/synthesize" --train 10 --test 10 out
    before=$(sum_of out)
    run --separate-stderr -1 bash -c "ulimit -f 100; exec '$data/synthesize' --train 500 out"
    assert_one_line "out/train-images-idx3-ubyte: File too large"
    [[ $(sum_of out) == "$before" && -z $(find out -name '.*' -type f) ]]
}

@test "synthesize: a pipe stays a pipe" {
    mkdir out
    mkfifo out/SYNTHETIC
    run --separate-stderr -2 "$data/synthesize" --train 1 --test 1 out
    assert_one_line "out/SYNTHETIC: is not a regular file; expected a new file"
    [[ -p out/SYNTHETIC && $(ls -A out) == SYNTHETIC ]]
}

@test "synthesize: does not draw over another data set" {
    mkdir out
    touch out/t10k-images-idx3-ubyte.gz
    run --separate-stderr -2 "$data/synthesize" --train 1 --test 1 out
    assert_one_line "out: holds another data set"
    [[ $(ls -A out) == t10k-images-idx3-ubyte.gz ]]
    # It may draw over its own.
    "$data/synthesize" --train 10 --test 10 own
    "$data/synthesize" --train 1 --test 1 own
    [[ $(stat -c %s own/train-labels-idx1-ubyte) -eq 9 ]]
}

@test "synthesize: wrong arguments" {
    for wrong in --train=0 --train=-1 --test=1000001 --test=ten --seed=-1 --seed=1x --seed=; do
        run --separate-stderr -2 "$data/synthesize" "$wrong" out
        assert_one_line "${wrong%%=*}: found '${wrong#*=}', expected a whole number"
    done
    run -2 "$data/synthesize" --sed 1 out
    run --separate-stderr -2 "$data/synthesize" out two
    assert_one_line "two: expected one directory at most"
    run --separate-stderr -1 "$data/synthesize" no/such/out
    assert_one_line "no/such/out: No such file or directory"
    [[ ! -e out ]]
}

# --- locate.sh ---

# Makes a copy of the folder. No download can succeed there, and data/mnist is empty.
fresh_copy() {
    copy_folder copy
    export MNIST_MIRRORS=file:///nowhere
}

fake_data() { # directory
    mkdir -p "$1"
    touch "${FILES[@]/#/$1/}"
}

@test "locate: the directory that was given, then \$MNIST_DIR, then data/mnist" {
    fresh_copy
    fake_data given
    fake_data environment
    fake_data copy/mnist
    MNIST_DIR=environment run --separate-stderr -0 copy/locate.sh given
    [[ $output == given && -z $stderr ]]
    MNIST_DIR=environment run --separate-stderr -0 copy/locate.sh
    [[ $output == environment && -z $stderr ]]
    MNIST_DIR="" run --separate-stderr -0 copy/locate.sh
    [[ $output == "$PWD/copy/mnist" && -z $stderr ]]
}

@test "locate: gzipped files and Kaggle's train.csv are data too" {
    fresh_copy
    fake_data zipped
    gzip zipped/*
    run --separate-stderr -0 copy/locate.sh zipped
    mkdir kaggle
    touch kaggle/train.csv
    run --separate-stderr -0 copy/locate.sh kaggle
}

@test "locate: a directory that was given and has no data is an error" {
    fresh_copy
    fake_data copy/mnist
    run --separate-stderr -2 copy/locate.sh nowhere
    assert_one_line "'nowhere'"
    [[ -z $output ]]
    MNIST_DIR=nowhere run --separate-stderr -2 copy/locate.sh
    assert_one_line "MNIST_DIR: found no directory 'nowhere'"
    fake_data half
    rm half/t10k-labels-idx1-ubyte
    run --separate-stderr -2 copy/locate.sh half
    assert_one_line "no data in 'half'"
    run --separate-stderr -2 copy/locate.sh --dir
    assert_one_line "'--dir'"
    run --separate-stderr -2 copy/locate.sh half two
    assert_one_line "'two'"
}

@test "locate: downloads when there is nothing" {
    fresh_copy
    mirror_real real
    MNIST_MIRRORS=file://$PWD/real run --separate-stderr -0 copy/locate.sh
    [[ $output == "$PWD/copy/mnist" ]]
    cmp "real/${FILES[0]}.gz" "copy/mnist/${FILES[0]}.gz"
}

@test "locate: draws the synthetic set when the download fails, once" {
    fresh_copy
    run --separate-stderr -0 copy/locate.sh
    [[ $output == "$PWD/copy/synthetic" ]]
    [[ ${stderr_lines[-1]} == *"synthetic digits"*"the download failed" ]]
    [[ $(sum_of copy/synthetic) == "$SYNTHETIC_SHA256" ]]
    before=$(stat -c %i copy/synthetic/*)
    OFFLINE=1 run --separate-stderr -0 copy/locate.sh
    [[ $output == "$PWD/copy/synthetic" && $(stat -c %i copy/synthetic/*) == "$before" ]]
    assert_one_line "OFFLINE is set"
}

@test "locate: OFFLINE keeps it from the network" {
    fresh_copy
    fake_data copy/synthetic
    echo 'touch "${0%/*}/called"' >copy/fetch.sh
    OFFLINE=1 run --separate-stderr -0 copy/locate.sh
    [[ $output == "$PWD/copy/synthetic" && ! -e copy/called ]]
    OFFLINE=0 run --separate-stderr -0 copy/locate.sh
    [[ -e copy/called ]]
}

@test "locate: interrupted in the download, it does not go on to other data" {
    fresh_copy
    fake_data copy/synthetic
    echo 'exit 143' >copy/fetch.sh
    run --separate-stderr -143 copy/locate.sh
    [[ -z $output ]]
}

@test "locate: without a compiler it says so" {
    fresh_copy
    echo '#error no compiler' >copy/synthesize.c
    OFFLINE=1 run --separate-stderr -1 copy/locate.sh
    [[ ${stderr_lines[-1]} == *"/copy/synthesize does not build" && -z $output ]]
}
