"""What a block of x·W1 has in shared memory at once, and what a thread adds up."""

from report.picture import Picture, constant


def draw(stage):
    tile, pixels, slices = (constant(stage, name) for name in ("TILE", "PIXELS", "SLICES"))
    high, wide = (stage.ladder.toml["step"][option] // tile for option in ("batch", "hidden"))
    x, y, side, long, row, column, current = 10, 38, 8, 196 / slices, 1, 3, 2
    right, below = x + 208, y + 208
    picture = Picture(f"One block: {tile} × {tile} sums over {pixels // slices} pixels")
    picture.text(right + wide * side / 2, y - 5, "W1", "", "middle")
    picture.grid(right, y, slices, wide, side, long,
                 lambda r, c: ("pale", "read")[r == current] if c == column else "rest")
    picture.grid(x, below, high, slices, long, side,
                 lambda r, c: ("pale", "read")[c == current] if r == row else "rest")
    picture.grid(right, below, high, wide, side, side,
                 lambda r, c: "sum" if (r, c) == (row, column) else "rest")
    picture.rect(right + column * side, y + current * long, side, long, "round")
    picture.rect(x + current * long, below + row * side, long, side, "round")
    picture.text(x, below - 5, "x")
    picture.text(right + wide * side + 6, below + high * side / 2 + 4, "sums")
    # The block's three tiles, larger. A small square stands for some numbers.
    picture.grid(140, y + 14, 8, 8, 5, 14, lambda _, c: "read" if c == 5 else "pale")
    picture.grid(20, y + 136, 8, 8, 14, 5, lambda r, _: "read" if r == 2 else "pale")
    picture.grid(140, y + 136, 8, 8, 5, 5, lambda r, c: "sum" if (r, c) == (2, 5) else "rest")
    picture.text(20, y + 108, "shared memory")
    picture.text(136, y + 194, "sums")
    middle = (current + .5) * long
    picture.arrow(x + middle, below + row * side, x + middle, y + 180)
    picture.arrow(right + column * side, y + middle, 184, y + middle)
    picture.notes(f"The block fetches its slice of x and of W1 at once: {tile} ×",
                  f"{pixels // slices} numbers each. Its threads wait for memory once.",
                  f"Each number then serves {tile} sums (blue). {slices - 1} other blocks",
                  "have the same sums over the other pixels (pale).")
    return picture
