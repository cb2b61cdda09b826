"""How blocks share the pixels of one tile, and another kernel adds up their sums."""

from report.picture import Picture, constant


def draw(stage):
    count, tile, pixels = (constant(stage, name) for name in ("SLICES", "TILE", "PIXELS"))
    batch, hidden = stage.ladder.toml["headline"][0]
    tiles = (batch // tile) * (hidden // tile)
    width = 340 / count
    picture = Picture(f"{count} blocks for a tile, each with {pixels // count} pixels")
    picture.text(10, 38, f"{tile} rows of x, all {pixels} pixels, in {count} slices", "small")
    picture.text(10, 84, f"{tile} columns of W1, in the same slices", "small")
    for z in range(count):
        x, middle = 10 + z * width, 10 + (z + 0.5) * width
        picture.rect(x, 44, width, 20, "read")
        picture.rect(x, 44, width, 20, "round")
        picture.rect(middle - 9, 90, 18, 40, "read")
        picture.arrow(middle, 132, middle, 146)
        picture.rect(x + 2, 148, width - 4, 26, "pale", f"block {z}"[-7 if width > 44 else -1:])
        picture.arrow(middle, 175, middle, 189)
        picture.rect(middle - 10, 191, 20, 20, "sum")
        picture.arrow(middle, 212, 180 + (z - count // 2) * 6, 249)
    picture.text(10, 236, "sums", "small")
    picture.rect(160, 251, 40, 26, "sum", "a")
    picture.text(206, 262, "another kernel adds", "small")
    picture.text(206, 275, "them up, in this order", "small")
    picture.notes(f"At hidden {hidden}, batch {batch} the tiles are {tiles} in all: a block",
                  "for each would leave most of the GPU idle.")
    return picture
