"""In which banks the rows lie that a warp reads, without padding and with it."""

from report.picture import LOOKS, Picture, constant


def draw(stage):
    tile, rows, columns = (constant(stage, name) for name in ("TILE", "ROWS", "COLUMNS"))
    x, cell, banks, warp = 52, 9, 32, [r * rows for r in range(32 * columns // tile)]
    picture = Picture(f"Rows of {tile} floats, in {banks} banks")
    for more in (0, 4):
        y = picture.head(f"{stage.number}: rows of {tile + more} floats") if more else (
            picture.height)
        starts = [row * (tile + more) % banks for row in warp]
        for i, (row, start) in enumerate(zip(warp, starts)):
            picture.text(10, y + 16 + i * 14, f"row {row}", "small")
            picture.grid(x, y + 6 + i * 14, 1, banks, cell, 12,
                         lambda _, c, start=start: LOOKS[0 <= (c - start) % banks < 4])
        picture.notes(f"A warp reads four pixels of {len(warp)} rows at once.",
                      f"They lie in {4 * len({*starts})} banks: " + (
                          "no two rows share one." if more else "the rows take turns."), "")
    return picture
