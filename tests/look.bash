# look_at PAGE COUNT: opens the page in a browser at three widths, with look.js and standard input as
# one more script. That calls answer(count), once. It must have found no faults and the right count.
look_at() {
    local browser width folder=$BATS_TEST_TMPDIR
    for browser in chromium chromium-browser google-chrome ''; do
        ! command -v "$browser" >/dev/null || break
    done
    [[ $browser ]] || skip 'found no chromium'
    {
        cat "$1"
        echo '<script>'
        cat "$BATS_TEST_DIRNAME/look.js" -
        echo '</script>'
    } >"$folder/looked_at.html"
    cat >"$folder/frames.html" <<'END'
<body><script>
addEventListener("message", ({data}) => document.body.append(Object.assign(
  document.createElement("pre"), {textContent: `FRAME ${JSON.stringify(data)}`})));
</script>
END
    for width in 1440 768 390; do
        echo "<iframe src=looked_at.html width=$width height=900></iframe>" >>"$folder/frames.html"
    done
    HOME=$folder timeout 100 "$browser" --headless --no-sandbox --disable-gpu \
        --disable-dev-shm-usage --enable-logging=stderr --user-data-dir="$folder/browser" \
        --virtual-time-budget=20000 --dump-dom "file://$folder/frames.html" >"$folder/dom" 2>"$folder/messages"
    grep CONSOLE "$folder/messages" || true
    grep -o 'FRAME.*' "$folder/dom"
    for width in 1440 768 390; do
        grep -qF "FRAME [$width,$2,[]]" "$folder/dom" || return
    done
    (! grep CONSOLE "$folder/messages")
}
