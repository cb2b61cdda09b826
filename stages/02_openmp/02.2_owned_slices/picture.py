"""Which thread owns which hidden units, and what they share."""

from itertools import pairwise

from report.picture import Picture, constant


def draw(stage):
    threads, lanes = 4, constant(stage, "VECTOR_BYTES") // 4
    vectors = stage.ladder.toml["step"]["hidden"] // lanes
    looks, width = ["rest", "pale", "mid", "deep"], 312 / vectors
    bounds = [vectors * thread // threads for thread in range(threads + 1)]
    owner = [thread for thread in range(threads) for _ in range(*bounds[thread:thread + 2])]
    picture = Picture(f"{vectors} vectors of hidden units, {threads} threads")
    for name, y in (("x", 43), ("W1", 99), ("a, da", 135), ("W2", 157)):
        picture.text(36, y, name, "", "end")
    picture.rect(40, 30, 312, 18, "read", "all threads read all of x")
    for y, height in ((70, 50), (120, 22), (142, 22)):
        picture.grid(40, y, 1, vectors, width, height, lambda _, v: looks[owner[v]])
    for thread, (first, last) in enumerate(pairwise(bounds)):
        x, middle = 40 + first * width, 40 + (first + last) * width / 2
        picture.arrow(middle, 49, middle, 68)
        picture.rect(x, 70, (last - first) * width, 94, "round")
        picture.text(middle, 180, f"thread {thread}", "", "middle")
        picture.arrow(middle, 184, middle, 198)
        picture.rect(middle - 30, 200, 60, 18, looks[thread], "share")
        picture.arrow(middle, 220, 79, 250, "thin")
    picture.rect(49, 251, 60, 18, looks[0], "z, p, dz")
    picture.text(116, 264, "for all samples, by thread 0")
    picture.notes("Only its owner reads or writes a slice: it stays in",
                  "the caches of one core. All hidden units add to z.",
                  "So each thread writes the share of its own.")
    return picture
