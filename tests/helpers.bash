# The .bats files that test a stage load this. It makes a tiny data set and runs a stage on it. The
# stage is 00_serial; TRAIN=path/to/train tries another.
stages=$(cd "$(dirname "${BASH_SOURCE[0]}")/../stages" && pwd)
train=${TRAIN:-$stages/00_serial/train}

# Prints a byte of the value $1.
byte() {
    printf "\\$(printf %o "$1")"
}

# Print an IDX file of $1 images, and one of the given labels.
images() {
    printf '\0\0\10\3\0\0\0'
    byte "$1"
    printf '\0\0\0\34\0\0\0\34'
    seq 100000 999999 | head -c $((784 * $1))
}
labels() {
    printf '\0\0\10\1\0\0\0'
    byte $#
    for label; do byte "$label"; done
}

# Writes the four files of MNIST, with six and four images, into the directory $1.
make_idx() {
    mkdir -p "$1"
    images 6 >"$1/train-images-idx3-ubyte"
    labels 3 1 4 1 5 9 >"$1/train-labels-idx1-ubyte"
    images 4 >"$1/t10k-images-idx3-ubyte"
    labels 2 7 1 8 >"$1/t10k-labels-idx1-ubyte"
}

# Prints the rows of the set $2 in $1 as Kaggle writes them: label, then 784 pixels.
rows() {
    paste -d, <(tail -c +9 "$1/$2-labels-idx1-ubyte" | od -An -v -tu1 -w1 | tr -d ' ') \
        <(tail -c +17 "$1/$2-images-idx3-ubyte" | od -An -v -tu1 -w784 |
            sed 's/^ *//; s/  */,/g')
}

# Writes the same ten images into train.csv in the directory $2.
make_csv() {
    mkdir -p "$2"
    {
        printf label
        printf ',pixel%d' {0..783}
        printf '\n'
        rows "$1" train
        rows "$1" t10k
    } >"$2/train.csv"
}

setup() {
    dir=$(mktemp -d)
    data=$dir/data
    make_idx "$data"
    unset MNIST_DIR MAKEFLAGS
}

teardown() {
    rm -rf "$dir"
}

# Runs the stage on the data set for at most a minute. Options that come later win.
run_train() {
    status=0
    timeout 60 "$train" --data "$data" --train 6 --test 4 --hidden 3 --batch 4 --epochs 2 "$@" \
        >"$dir/output" 2>"$dir/error" || status=$?
}

# fails STATUS PATTERN [OPTION...]: the run has to end with the status. It has to say why in exactly
# one line on standard error, which matches the pattern. Where a stage names an option (^--), its own
# name comes before it.
fails() {
    local expected=$1 pattern=$2 name=${train%/train}
    [[ $name == "$train" ]] || pattern=${pattern/#^--/^${name##*/}: --}
    run_train "${@:3}"
    if [[ $status != "$expected" || $(wc -l <"$dir/error") != 1 ]] ||
        ! grep -qE -- "$pattern" "$dir/error"; then
        echo "exit status $status, expected $expected; standard error, expected '$pattern':"
        cat "$dir/error"
        return 1
    fi
}

# The run has to succeed and print nothing on standard error.
succeeds() {
    run_train "$@"
    if [[ $status != 0 || -s $dir/error ]]; then
        echo "exit status $status; standard error:"
        cat "$dir/error"
        return 1
    fi
}
