"""What a tile of sums loads for one pixel."""

from report.picture import Picture, constant


def draw(stage):
    rows, columns = constant(stage, "TILE_ROWS"), constant(stage, "TILE_COLUMNS")
    lanes, pixels = constant(stage, "VECTOR_BYTES") // 4, constant(stage, "PIXELS")
    picture = Picture(f"For a pixel k: {rows + columns} loads, {rows * columns} multiply-adds")
    picture.text(76, 40, f"row k of W1: {columns} vectors of {lanes} hidden units")
    picture.text(70, 60, "x[s][k]", "", "end")
    for row in range(rows):
        picture.text(48, 86 + row * 20, f"s + {row}", "small", "end")
        picture.rect(54, 74 + row * 20, 16, 16, "read")
    width = 274 / columns
    for x in (78 + column * (width + 4) for column in range(columns)):
        for y, look in ((48, "read"), *((74 + row * 20, "sum") for row in range(rows))):
            picture.grid(x, y, 1, lanes, (width - 4) / lanes, 16, lambda *_, look=look: look)
            picture.rect(x, y, width - 4, 16, "round")
    picture.notes("Stripes: loaded for this k.",
                  f"Blue: {rows} × {columns} vectors of sums. They stay in registers",
                  f"for all {pixels} pixels, and are stored once, at the end.",
                  "A single sum would need 2 loads for 1 multiply-add.")
    return picture
