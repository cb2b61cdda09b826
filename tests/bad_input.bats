# Tests bad data and bad arguments: exit status 2, and one line that names the file or the option,
# what was found and what was expected.
load helpers

# Damages to the IDX files.

@test "a directory that is not there" {
    fails 2 "^$dir/nowhere: No such file or directory; expected a directory with MNIST" \
        --data "$dir/nowhere"
}

@test "a file where the directory should be" {
    fails 2 'train-images-idx3-ubyte: not a directory; expected the directory' \
        --data "$data/train-images-idx3-ubyte"
}

@test "a directory where a file should be" {
    rm "$data/train-images-idx3-ubyte"
    mkdir "$data/train-images-idx3-ubyte"
    fails 2 'train-images-idx3-ubyte: found a directory, expected a file'
}

@test "a pipe or a device where a file should be" {
    rm "$data/train-images-idx3-ubyte"
    mkfifo "$data/train-images-idx3-ubyte"
    fails 2 'train-images-idx3-ubyte: found a device or a pipe, expected a file'
    ln -sf /dev/zero "$data/train-images-idx3-ubyte"
    fails 2 'train-images-idx3-ubyte: found a device or a pipe, expected a file'
}

@test "a link that leads back to itself" {
    ln -sf train-images-idx3-ubyte "$data/train-images-idx3-ubyte"
    fails 2 'train-images-idx3-ubyte: cannot read: Too many levels of symbolic links'
}

@test "each of the four files missing" {
    for file in "$data"/*; do
        mv "$file" "$dir/away"
        fails 2 "^$file: not found, with or without .gz; expected the four files of MNIST in $data"
        mv "$dir/away" "$file"
    done
}

@test "each of the four files empty" {
    for file in "$data"/*; do
        mv "$file" "$dir/away"
        : >"$file"
        fails 2 "^$file: empty file, expected MNIST (images|labels)"
        mv "$dir/away" "$file"
    done
}

@test "a gzip file cut in half" {
    gzip "$data/train-images-idx3-ubyte"
    truncate -s 300 "$data/train-images-idx3-ubyte.gz"
    fails 2 'train-images-idx3-ubyte.gz: damaged or truncated gzip file: unexpected end of file'
}

@test "a gzip file without its last byte" {
    gzip "$data/train-images-idx3-ubyte"
    truncate -s -1 "$data/train-images-idx3-ubyte.gz"
    fails 2 'train-images-idx3-ubyte.gz: damaged or truncated gzip file'
}

@test "a gzip file with a wrong checksum" {
    gzip "$data/t10k-labels-idx1-ubyte"
    truncate -s -8 "$data/t10k-labels-idx1-ubyte.gz"
    printf 'checksum' >>"$data/t10k-labels-idx1-ubyte.gz"
    fails 2 't10k-labels-idx1-ubyte.gz: damaged or truncated gzip file: incorrect data check'
}

@test "a wrong checksum of a file that is inflated piece by piece" {
    { printf '\0\0\10\3\0\0\3\350\0\0\0\34\0\0\0\34'; head -c 784000 /dev/zero; } | gzip |
        head -c -8 >"$data/train-images-idx3-ubyte.gz"
    printf 'checksum' >>"$data/train-images-idx3-ubyte.gz"
    rm "$data/train-images-idx3-ubyte"
    { printf '\0\0\10\1\0\0\3\350'; head -c 1000 /dev/zero; } >"$data/train-labels-idx1-ubyte"
    fails 2 'train-images-idx3-ubyte.gz: damaged or truncated gzip file: incorrect data check'
}

@test "a gzip file cut in its own header" {
    gzip "$data/t10k-images-idx3-ubyte"
    truncate -s 5 "$data/t10k-images-idx3-ubyte.gz"
    fails 2 't10k-images-idx3-ubyte.gz: damaged or truncated gzip file: unexpected end of file'
}

@test "images cut in the header" {
    truncate -s 15 "$data/train-images-idx3-ubyte"
    fails 2 'train-images-idx3-ubyte: truncated: ends inside the header'
}

@test "labels cut in the header" {
    truncate -s 7 "$data/train-labels-idx1-ubyte"
    fails 2 'train-labels-idx1-ubyte: truncated: ends inside the header'
}

@test "images without their last byte" {
    truncate -s -1 "$data/t10k-images-idx3-ubyte"
    fails 2 't10k-images-idx3-ubyte: truncated: found 3151 bytes, expected 3152'
}

@test "labels without their last byte" {
    truncate -s -1 "$data/t10k-labels-idx1-ubyte"
    fails 2 't10k-labels-idx1-ubyte: truncated: found 11 bytes, expected 12'
}

@test "images cut behind the last one that is used" {
    truncate -s -1 "$data/train-images-idx3-ubyte"
    fails 2 'train-images-idx3-ubyte: truncated' --train 2
}

@test "one byte too many in each of the four files" {
    for file in "$data"/*; do
        cp "$file" "$dir/whole"
        printf x >>"$file"
        fails 2 "^$file: found more bytes than the (4|6) items its header announces"
        mv "$dir/whole" "$file"
    done
}

@test "labels where the images should be" {
    cp "$data/train-labels-idx1-ubyte" "$data/train-images-idx3-ubyte"
    fails 2 'train-images-idx3-ubyte: .*'
    { labels 1 2 3 4 5 6; images 1; } >"$data/train-images-idx3-ubyte"
    fails 2 'wrong magic number: found 0x00000801, expected 0x00000803 \(images\)'
}

@test "images where the labels should be" {
    cp "$data/train-images-idx3-ubyte" "$data/train-labels-idx1-ubyte"
    fails 2 'wrong magic number: found 0x00000803, expected 0x00000801 \(labels\)'
}

@test "images of other dimensions" {
    { printf '\0\0\10\3\0\0\0\6\0\0\0\40\0\0\0\34'; images 9; } >"$data/train-images-idx3-ubyte"
    fails 2 'wrong dimensions: found images of 32 x 28, expected 28 x 28'
}

@test "more labels than images" {
    labels 3 1 4 1 5 9 2 >"$data/train-labels-idx1-ubyte"
    fails 2 'train-labels-idx1-ubyte: found 7 labels, expected 6, one for each image of .*images'
}

@test "fewer labels than images" {
    labels 3 1 4 1 5 >"$data/train-labels-idx1-ubyte"
    fails 2 'train-labels-idx1-ubyte: found 5 labels, expected 6, one for each image of .*images'
}

@test "a label above 9" {
    labels 3 1 10 1 5 9 >"$data/train-labels-idx1-ubyte"
    fails 2 'train-labels-idx1-ubyte: label 3 is 10, expected 0 to 9'
}

@test "no images at all" {
    images 0 >"$data/train-images-idx3-ubyte"
    labels >"$data/train-labels-idx1-ubyte"
    fails 2 'train-images-idx3-ubyte: found 0 images, --train expects at least 6'
}

@test "more training or test images than there are" {
    fails 2 'train-images-idx3-ubyte: found 6 images, --train expects at least 7' --train 7
    fails 2 't10k-images-idx3-ubyte: found 4 images, --test expects at least 5' --test 5
}

@test "more images than memory" {
    printf '\0\0\10\3\4\0\0\0\0\0\0\34\0\0\0\34' >"$data/train-images-idx3-ubyte"
    printf '\0\0\10\1\4\0\0\0' >"$data/train-labels-idx1-ubyte"
    ulimit -v 1000000
    fails 2 'train-images-idx3-ubyte: out of memory: 60000000 images as floats need 179443.4 MiB' \
        --train 60000000
}

# Damages to a CSV file.

# Changes train.csv by a sed command, and expects the complaint.
csv_fails() {
    make_csv "$data" "$dir/csv"
    sed -i "$1" "$dir/csv/train.csv"
    data=$dir/csv fails 2 "^$dir/csv/train.csv: $2"
}

@test "CSV: a short row" {
    csv_fails '3s/,[0-9]*$//' 'line 3: found 784 numbers, expected a label and 784 pixels'
}

@test "CSV: a long row" {
    csv_fails '3s/$/,0/' 'line 3: found more than 785 numbers, expected a label and 784 pixels'
}

@test "CSV: a row that ends with a comma" {
    csv_fails '3s/$/,/' 'line 3: found more than 785 numbers, expected a label and 784 pixels'
}

@test "CSV: a letter" {
    csv_fails '4s/,[0-9]*/,x/2' "line 4, column 3: found 'x', expected a pixel, 0 to 255"
}

@test "CSV: a letter after digits" {
    csv_fails '4s/,[0-9]*/,12x/2' "line 4, column 3: found '12x', expected a pixel, 0 to 255"
}

@test "CSV: an empty cell" {
    csv_fails '4s/,[0-9]*/,/2' "line 4, column 3: found '', expected a pixel, 0 to 255"
}

@test "CSV: a negative pixel" {
    csv_fails '4s/,[0-9]*/,-1/2' "line 4, column 3: found '-1', expected a pixel, 0 to 255"
}

@test "CSV: a pixel of 256" {
    csv_fails '2s/,[0-9]*/,256/784' "line 2, column 785: found '256', expected a pixel, 0 to 255"
}

@test "CSV: a pixel that no integer holds" {
    csv_fails '2s/,[0-9]*/,4294967296/1' "line 2, column 2: found '4294967296', expected a pixel"
}

@test "CSV: a label of 10" {
    csv_fails '2s/^[0-9]*/10/' "line 2, column 1: found '10', expected a label, 0 to 9"
}

@test "CSV: a damaged row behind the last one that is used" {
    make_csv "$data" "$dir/csv"
    echo 'end of file' >>"$dir/csv/train.csv"
    data=$dir/csv fails 2 "train.csv: line 12, column 1: found 'end of file', expected a label"
}

@test "CSV: no header" {
    csv_fails 1d "line 1: found '3,49,.*', expected the header label,pixel0"
}

@test "CSV: an empty file" {
    csv_fails d 'empty file, expected the header label,pixel0'
}

@test "CSV: a header and nothing else" {
    csv_fails '2,$d' 'found 0 rows, --train and --test expect at least 6 \+ 4'
}

@test "CSV: a row too few" {
    csv_fails '$d' 'found 9 rows, --train and --test expect at least 6 \+ 4'
}

@test "CSV: a carriage return inside a row" {
    csv_fails '3s/,/\r,/9' 'line 3, column 9: found'
    csv_fails '3s/$/\rand more/' 'line 3, column 785: found'
}

@test "CSV: a line that never ends" {
    make_csv "$data" "$dir/csv"
    head -c 100000 /dev/zero | tr '\0' 7 >>"$dir/csv/train.csv"
    data=$dir/csv fails 2 'line 12: not text, or over 16382 characters'
}

@test "CSV: a byte of zero" {
    make_csv "$data" "$dir/csv"
    printf '1,\0,2\n' >>"$dir/csv/train.csv"
    data=$dir/csv fails 2 'line 12: not text, or over 16382 characters'
}

@test "CSV: blank lines without end" {
    make_csv "$data" "$dir/csv"
    { cat "$dir/csv/train.csv"; head -c 100000000 /dev/zero | tr '\0' '\n'; } |
        gzip -1 >"$dir/csv/train.csv.gz"
    rm "$dir/csv/train.csv"
    data=$dir/csv fails 2 'train.csv.gz: line 1012: over 1000 blank lines, expected rows'
}

@test "CSV: a gzip file without its last byte, and cut in half" {
    make_csv "$data" "$dir/csv"
    gzip "$dir/csv/train.csv"
    truncate -s -1 "$dir/csv/train.csv.gz"
    data=$dir/csv fails 2 'train.csv.gz: damaged or truncated gzip file: unexpected end of file'
    truncate -s 2000 "$dir/csv/train.csv.gz"
    data=$dir/csv fails 2 'train.csv.gz: damaged or truncated gzip file: unexpected end of file'
}

# Arguments.

@test "--hidden 0, --batch -1, --epochs abc, --threads 0" {
    fails 2 "^--hidden: found '0', expected a whole number from 1 to" --hidden 0
    fails 2 "^--batch: found '-1', expected a whole number from 1 to" --batch -1
    fails 2 "^--epochs: found 'abc', expected a whole number from 0 to" --epochs abc
    fails 2 "^--threads: found '0', expected 1: it has one thread" --threads 0
}

@test "numbers that are almost right" {
    fails 2 "^--hidden: found '8x'" --hidden 8x
    fails 2 "^--hidden: found ''" --hidden ''
    fails 2 "^--hidden: found '99999999999999999999'" --hidden 99999999999999999999
    fails 2 "^--hidden: found '2147483648'" --hidden 2147483648
    fails 2 "^--epochs: found '-1'" --epochs -1
    fails 2 "^--train: found '0'" --train 0
    fails 2 "^--test: found '0'" --test 0
    fails 2 "^--threads: found '2', expected 1: it has one thread" --threads 2
    fails 2 "^--seed: found '-1', expected a whole number from 0 to" --seed -1
    fails 2 "^--seed: found '18446744073709551616'" --seed 18446744073709551616
}

@test "learning rates" {
    for rate in nan inf -0.1 0 1e99 0.1x ''; do
        fails 2 "^--learning-rate: found '$rate', expected a number above 0" --learning-rate="$rate"
    done
}

@test "an option that there is not" {
    run_train --nonsense
    [[ $status == 2 ]]
    grep -q "unrecognized option '--nonsense'" "$dir/error"
    grep -q -- '--help' "$dir/error"
    [[ $(wc -l <"$dir/error") == 2 ]]
}

@test "an argument that is no option" {
    fails 2 "^[a-z0-9_]+: found 'stray', expected options only: see --help" stray
}

@test "a result file that cannot be written" {
    fails 2 "^--csv: cannot write $dir: Is a directory; expected a file" --csv "$dir"
    fails 2 "^--csv: cannot write $dir/no/rows.csv: No such file" --csv "$dir/no/rows.csv"
}

@test "a result file that is something else" {
    echo 'name,age' >"$dir/people.csv"
    fails 2 "^--csv: $dir/people.csv begins with other columns than a result row has" --csv "$dir/people.csv"
    [[ $(cat "$dir/people.csv") == 'name,age' ]]
}

@test "a result file with the line ends of Windows" {
    succeeds --csv "$dir/rows.csv"
    sed -i 's/$/\r/' "$dir/rows.csv"
    cp "$dir/rows.csv" "$dir/before"
    fails 2 "^--csv: $dir/rows.csv has the line ends of Windows; expected those of Linux" \
        --csv "$dir/rows.csv"
    cmp "$dir/rows.csv" "$dir/before"
}

@test "a result file that ends within a row is left as it is" {
    succeeds --csv "$dir/rows.csv"
    truncate -s -1 "$dir/rows.csv"
    cp "$dir/rows.csv" "$dir/before"
    fails 2 "^--csv: $dir/rows.csv ends within a row: complete or delete that row" \
        --csv "$dir/rows.csv"
    cmp "$dir/rows.csv" "$dir/before"
}

@test "a weights file that cannot be written" {
    fails 2 "^--save-weights: cannot write $dir: Is a directory" --save-weights "$dir"
    fails 2 "^--save-weights: cannot write $dir/no/w: No such file" --save-weights "$dir/no/w"
}

@test "output files without a name, or with a slash behind it" {
    for option in csv save-weights; do
        fails 2 "^--$option: cannot write '': No such file" "--$option" ''
        fails 2 "^--$option: cannot write $dir/new/: No such file" "--$option" "$dir/new/"
    done
}

@test "a weights file that is a pipe or a device, or a link to one" {
    mkfifo "$dir/pipe"
    mknod "$dir/device" c 1 3 2>/dev/null || rm -f "$dir/device" # root alone makes one
    for file in "$dir"/{pipe,device}; do
        [[ -e $file ]] || continue
        ln -s "$file" "$file.link"
        for name in "$file" "$file.link"; do
            fails 2 "^--save-weights: $name is not a regular file; expected a new file" --save-weights "$name"
            [[ -e $name && ! -f $name ]]
        done
    done
}

@test "what can be known of an output file is known before the training" {
    local long
    printf -v long '%0256d' 0
    # A file that can be written, in a folder where no other can be.
    fails 2 "^--save-weights: cannot write /proc/$$/comm: " --save-weights "/proc/$$/comm"
    ln -s no/file "$dir/astray"
    mkdir "$dir/removed"
    for option in csv save-weights; do
        fails 2 "^--$option: cannot write $dir/$long: File name too long" "--$option" "$dir/$long"
        fails 2 "^--$option: cannot write $dir/astray: No such file" "--$option" "$dir/astray"
        (cd "$dir/removed" && rmdir "$dir/removed" &&
            fails 2 "^--$option: cannot write new: No such file" "--$option" new)
        mkdir "$dir/removed"
        run bash -c 'ulimit -f 0; exec "$@"' bash "$train" --data "$data" "--$option" "$dir/new"
        [[ $status == 2 && $output == "00_serial: --$option: cannot write $dir/new: File too large; "* ]]
    done
    [[ ! -e $dir/new && -z $(compgen -G "$dir/*.partial") ]]
}

@test "output files with long names, and links to files that are not there yet" {
    local name
    mkdir "$dir/folder"
    for option in csv save-weights; do
        name=$dir/folder/$option$(head -c "$((245 - ${#option}))" /dev/zero | tr '\0' x)
        ln -s "folder/$option" "$dir/$option.link"
        for file in "$name" "$dir/$option.link"; do
            succeeds "--$option" "$file"
            [[ -s $file ]]
        done
        [[ -L $dir/$option.link && -f $dir/folder/$option ]]
    done
    ln -s folder/new "$dir/new"
    fails 2 '^--save-weights: found .*, the same file' --csv "$dir/folder/new" --save-weights "$dir/new"
}

@test "one file for the row and the weights" {
    cd "$dir"
    fails 2 '^--save-weights: found new, the same file as --csv; expected another file' \
        --csv new --save-weights new
    fails 2 '^--save-weights: found ./new, the same file' --csv "$dir/new" --save-weights ./new
    touch new
    ln -s new link
    fails 2 '^--save-weights: found link, the same file' --csv new --save-weights link
}

@test "a run that fails leaves no empty files" {
    fails 2 'No such file' --data "$dir/nowhere" --csv "$dir/rows.csv" --save-weights "$dir/weights"
    fails 1 'the loss became' --learning-rate 1e30 --csv "$dir/rows.csv" \
        --save-weights "$dir/weights"
    [[ ! -e $dir/rows.csv && ! -e $dir/weights ]]
}

# Runs that fail for another reason than their input: exit status 1.

@test "more hidden units than memory" {
    ulimit -v 1000000
    fails 1 '^00_serial: out of memory: asked for 2990.7 MiB; try a smaller run$' \
        --hidden 1000000
}

@test "a learning rate that makes the loss infinite" {
    fails 1 '^00_serial: the loss became -?(nan|inf): try a --learning-rate below' \
        --learning-rate 1e30 --epochs 5
}

@test "a disk that is full when the weights are written: the earlier ones stay" {
    succeeds --save-weights "$dir/weights"
    cp "$dir/weights" "$dir/before"
    ulimit -f 1 # KiB, which is less than the weights
    fails 1 "^--save-weights: cannot write $dir/weights: File too large" --save-weights "$dir/weights"
    cmp "$dir/weights" "$dir/before"
    [[ -z $(compgen -G "$dir/*.partial") ]]
}

@test "a run that is killed while it writes the weights: the earlier ones stay" {
    succeeds --save-weights "$dir/weights"
    cp "$dir/weights" "$dir/before"
    echo 'int rename(void) { __builtin_trap(); }' | gcc -w -shared -fPIC -x c - -o "$dir/kill.so"
    LD_PRELOAD=$dir/kill.so run_train --save-weights "$dir/weights"
    [[ $status -gt 128 ]]
    cmp "$dir/weights" "$dir/before"
}

@test "a run whose loss is not finite: the earlier weights stay" {
    succeeds --save-weights "$dir/weights"
    cp "$dir/weights" "$dir/before"
    fails 1 'the loss became' --learning-rate 1e30 --epochs 5 --save-weights "$dir/weights"
    cmp "$dir/weights" "$dir/before"
}

@test "a standard output that cannot be written" {
    for options in --epochs=2 --quiet --help; do
        status=0
        "$train" --data "$data" --train 6 --test 4 "$options" >/dev/full 2>"$dir/error" || status=$?
        [[ $status == 1 ]]
        grep -qx 'standard output: cannot write: No space left on device' "$dir/error"
        [[ $(wc -l <"$dir/error") == 1 ]]
    done
    status=0
    "$train" --data "$data" --train 6 --test 4 --quiet >&- 2>"$dir/error" || status=$?
    [[ $status == 1 && $(cat "$dir/error") == 'standard output: cannot write: Bad file descriptor' ]]
}

@test "a closed standard error: its line does not land in the results" {
    status=0
    "$train" --data "$data" --train 6 --test 4 --learning-rate 1e30 --epochs 5 \
        --csv "$dir/rows.csv" --save-weights "$dir/weights" >"$dir/output" 2>&- || status=$?
    [[ $status == 1 && ! -s $dir/rows.csv && ! -s $dir/weights ]]
    run_train --csv "$dir/rows.csv"
    "$train" --data "$data" --train 7 --csv "$dir/rows.csv" >"$dir/output" 2>&- || status=$?
    [[ $(wc -l <"$dir/rows.csv") == 2 ]]
}

@test "a disk that is full when the row is written" {
    fails 1 "^--csv: cannot write /dev/full: No space left.*; this run's row is not saved" \
        --csv /dev/full
}

@test "a disk that is full in the middle of the row: its beginning is taken back" {
    succeeds --csv "$dir/rows.csv"
    # The limit on a file is a whole number of KiB, and this file is 100 bytes below it.
    head -c $((1024 * 2 - 101 - $(wc -c <"$dir/rows.csv"))) /dev/zero >>"$dir/rows.csv"
    echo >>"$dir/rows.csv"
    cp "$dir/rows.csv" "$dir/before"
    ulimit -f 2
    fails 1 "^--csv: cannot write $dir/rows.csv: the disk is full; this run's row is not saved" \
        --csv "$dir/rows.csv"
    cmp "$dir/rows.csv" "$dir/before"
}

# Every stage must call the checks in common/ and return their answer, not only the first.

@test "every stage refuses bad data and arguments" {
    mkfifo "$dir/pipe"
    for train in "$stages"/[0-9][0-9]_*/train; do
        [[ -x $train ]] || continue
        run_train
        [[ $status == 77 ]] && continue
        echo "$train"
        fails 2 'No such file or directory' --data "$dir/nowhere"
        fails 2 '^--hidden: found' --hidden 0
        fails 2 '^--threads: found' --threads 0
        fails 2 '^--csv: cannot write' --csv "$dir/no/rows.csv"
        fails 2 'found 6 images, --train expects at least 7' --train 7
        fails 2 '^--save-weights: .*/pipe is not a regular file' --save-weights "$dir/pipe"
        echo 'good weights' >"$dir/weights"
        fails 1 'the loss became' --learning-rate 1e30 --epochs 5 --save-weights "$dir/weights"
        [[ $(cat "$dir/weights") == 'good weights' ]]
        labels 3 1 10 1 5 9 >"$data/train-labels-idx1-ubyte"
        fails 2 'label 3 is 10, expected 0 to 9'
        labels 3 1 4 1 5 9 >"$data/train-labels-idx1-ubyte"
    done
}
