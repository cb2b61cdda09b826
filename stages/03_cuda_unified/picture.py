"""Which sectors the lanes of a warp read, before this stage and after."""

from report.picture import LOOKS, Picture


def draw(stage):
    sector, lanes, cell, x = 8, 8, 16, 52  # a sector has 32 bytes
    picture = Picture(f"{stage.before.number}: the lanes of a warp have neighbouring rows")
    for along in (False, True):
        y = picture.head(f"{stage.number}: they have neighbouring columns") if along else (
            picture.height)
        rows = [2] if along else range(lanes)
        picture.text(10, y + 22, "W1" if along else "x")
        picture.grid(x, y + 8, 4 if along else lanes, 18, cell, cell,
                     lambda r, c, rows=rows, along=along:
                     LOOKS[False] if r not in rows or c >= sector else
                     "sum" if along or c == 3 else LOOKS[True])
        for row in rows:
            picture.rect(x, y + 8 + row * cell, sector * cell, cell, "round")
        picture.notes(*([f"{lanes} numbers in one sector: all of it is used."] if along else
                        [f"{lanes} numbers in {lanes} sectors of {sector} (a thick line).",
                         f"An {sector}th of what memory moves is used.", ""]))
    picture.notes("Blue: what a load wants. Stripes: what comes along.",
                  f"{lanes} of a warp's 32 lanes are shown.")
    return picture
