"""Which banks each quarter of a warp reads of W1's tile at once, in the step before and here."""

from report.picture import LOOKS, Picture, constant


def draw(stage):
    across = constant(stage, "TILE") // constant(stage, "COLUMNS")
    picture = Picture(f"{stage.before.number}: the banks of a load of 16 bytes")
    draw_quarters(picture, [thread % across for thread in range(32)])
    picture.notes("A quarter fills all banks: four wavefronts.", "")
    picture.head(f"{stage.number}: pairs of threads want the same bytes")
    draw_quarters(picture, [thread // 2 % across for thread in range(32)])
    picture.notes("Two quarters fill all banks: two wavefronts.")
    return picture


def draw_quarters(picture, wanted):
    """`wanted` has the four banks that each thread reads, of eight fours."""
    y = picture.height + 6
    for quarter in range(4):
        first = 8 * quarter
        banks = {*wanted[first:first + 8]}
        picture.text(10, y + 11, f"threads {first}–{first + 7}", "small")
        picture.grid(114, y, 1, 32, 7, 12, lambda _, bank, banks=banks: LOOKS[bank // 4 in banks])
        y += 15
