"""What the inner loop reads and adds to, before this step and after."""

from report.picture import LOOKS, Picture, constant


def draw(stage):
    line, rows = constant(stage, "ALIGNMENT") // 4, 6
    picture = Picture(f"{stage.before.number}: the inner loop runs down, over the pixels k")
    for along in (False, True):
        y = picture.head(f"{stage.number}: the inner loop runs along, over the units h") \
            if along else picture.height
        read = (lambda row, _: row == 2) if along else (lambda _, column: column == 4)
        picture.text(26, y + 10, "x[s]", "", "middle")
        picture.text(60, y + 10, f"W1: each row shown is a cache line of {line} floats")
        picture.grid(17, y + 16, rows, 1, 18, 17, lambda row, _, read=read: LOOKS[read(row, 4)])
        picture.grid(60, y + 16, rows, line, 18, 17, lambda *at, read=read: LOOKS[read(*at)])
        picture.arrow(*((64, y + 58.5, 344, y + 58.5) if along else (141, y + 20, 141, y + 114)))
        picture.text(26, y + 140, "a[s]", "", "middle")
        picture.grid(60, y + 127, 1, line, 18, 17,
                     lambda _, column, read=read: "sum" if read(2, column) else "rest")
        picture.notes(*([f"{line} sums, none waits for another: one vector.",
                         f"All {line} numbers of a cache line are used at once.", "",
                         "Stripes: what the inner loop reads. Blue: where it adds."] if along else
                        ["One sum. Each addition waits for the one before.",
                         "Each number of W1 is in another cache line."]))
    return picture
