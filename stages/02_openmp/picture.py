"""What a thread owns of the network, where units are divided and where pixels are."""

from report.picture import LOOKS, Picture


def panel(picture, title, rows, columns, is_first, *beside):
    """W1 with thread 0's part in stripes, and what each thread has and exchanges."""
    top = picture.head(title)
    picture.text(60, top + 14, "W1", "small", "middle")
    picture.grid(20, top + 20, rows, columns, 80 / columns, 84 / rows,
                 lambda row, column: LOOKS[is_first(row, column)])
    picture.text(60, top + 118, "units →, pixels ↓", "small", "middle")
    for line, text in enumerate(beside):
        picture.text(130, top + 32 + 18 * line, text)


def draw(stage):
    picture = Picture("Two threads: thread 0 has what is striped")
    panel(picture, "Units divided: a slice of them, all pixels", 1, 4,
          lambda row, column: column < 2,
          "each has b1, W2 and a of its slice,", "from slice.first to slice.last;",
          "they exchange shares: its slice's", "part of z, 10 numbers a sample")
    panel(picture, "Pixels divided: own.first_pixel to last_pixel", 4, 1,
          lambda row, column: row < 2,
          "each has a copy of b1, W2 and da,", "to which own.bias1 and so on point;",
          "they exchange sums: its pixels'", "part of a, and then a itself")
    picture.notes(f"Each has a part of the samples, too, as since {stage.before.number}.")
    return picture
