"""Where what a tile reads lies in memory, in rows and in panels."""

from report.picture import LOOKS, Picture, constant


def draw(stage):
    lanes, columns = constant(stage, "VECTOR_BYTES") // 4, constant(stage, "TILE_COLUMNS")
    hidden, pixels = stage.ladder.toml["step"]["hidden"], constant(stage, "PIXELS")
    vectors = hidden // lanes
    picture = Picture("Rows: the next row is a jump away")
    for packed in (False, True):
        y = picture.head("Panels: the next row is the next place") if packed else picture.height
        for column, v in enumerate((0, 1, 2, 3, None, vectors - 1)):
            x = 57 + column * 50
            picture.text(x + 24, y + 10, "…" if v is None else f"v = {v}", "small", "middle")
            for row, k in enumerate((0, 1, 2, None, pixels - 1)):
                if v == 0:
                    picture.text(52, y + 29 + row * 20, "…" if k is None else f"k = {k}", "small",
                                 "end")
                gap = k is None or v is None
                place = "…" if gap else str(v * pixels + k if packed else k * vectors + v)
                picture.rect(x, y + 16 + row * 20, 48, 18, LOOKS[not gap and v < columns], place)
        picture.notes(*([f"The tile reads {columns} panels of {pixels} vectors, each from",
                         "end to end.", "",
                         f"A cell is a vector of {lanes} floats, and its place in memory.",
                         "Stripes: what one tile reads, down from k = 0."] if packed else
                        [f"The tile reads places 0, 1, then {vectors}, {vectors + 1}: it jumps",
                         f"{hidden * 4} bytes for each k."]))
    return picture
