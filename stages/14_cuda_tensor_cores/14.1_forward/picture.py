"""Which lane of a warp has which numbers of a tile."""

from report.picture import Picture, constant

LANE = 5  # the one that is blue


def words(picture, x, y, rows, columns, width, lane):
    """A matrix of words, each with the lane that has it."""
    for row in range(rows):
        for column in range(columns):
            style = "sum" if lane(row, column) == LANE else "pale"
            picture.rect(x + column * width, y + row * 11, width, 11, style,
                         str(lane(row, column)))


def draw(stage):
    samples = depth = constant(stage, "TILE")
    units = samples // 2
    picture = Picture("One mma, and the lane that has each word")
    top = picture.height + 16
    picture.text(190, top - 4, f"W1: {depth} pixels × {units} units")
    words(picture, 190, top, depth // 2, units, 20, lambda row, column: column * 4 + row % 4)
    below = top + depth // 2 * 11 + 24
    picture.text(10, below - 4, f"x: {samples} samples × {depth} pixels")
    words(picture, 10, below, samples, depth // 2, 20, lambda row, column: row % 8 * 4 + column % 4)
    picture.text(190, below - 4, f"sums: {samples} samples × {units} units")
    words(picture, 190, below, samples, units // 2, 40,
          lambda row, column: row % 8 * 4 + column % 4)
    picture.notes("A cell is a lane's: two pixels of a sample, two pixels of",
                  "a unit, or two units' sums of a sample. Blue: lane 5.")
    return picture
