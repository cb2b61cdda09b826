"""Who stores what to whom in a batch, from one block."""

from report.picture import Picture, constant

ROWS = [("x·W1: parts of sums", "the samples' owners", "each its own", "sum"),
        ("a: of its two samples", "the rows' owners", "each its units", "sum"),
        ("dz, da: of its two samples", "all", "the same", "read"),
        ("W2, b1: its two rows", "all", "the same", "read")]


def draw(stage):
    blocks = constant(stage, "MOST_BLOCKS")
    picture = Picture("what a block stores to the others in a batch")
    y = picture.height
    for number, (what, whom, how, style) in enumerate(ROWS):
        top = y + 4 + number * 62 + (number > 0) * 14 + (number > 2) * 14
        picture.text(10, top + 12, f"{what} → {whom}")
        picture.rect(10, top + 18, 40, 30, style)
        picture.arrow(52, top + 33, 72, top + 33)
        picture.grid(76, top + 18, 1, blocks, 17, 30, lambda r, c, style=style: style)
        picture.text(80, top + 37, how, f"small in_{style}")
        if number in (0, 2):
            picture.rect(10, top + 56, 340, 2, "round")
            picture.text(348, top + 70, "a barrier of the cluster", "small", "end")
    picture.text(10, picture.height + 12, f"Right: the shared memory of {blocks} blocks.")
    return picture
