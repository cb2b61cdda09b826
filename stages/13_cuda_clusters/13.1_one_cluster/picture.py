"""Where the blocks with hidden units are on the GPU, and what a barrier's messages pass through."""

from report.picture import Picture, constant


def gpu(picture, y, style):
    """Eight GPCs around the L2 cache. The style is that of a multiprocessor in a GPC."""
    for gpc in range(8):
        x, top = 10 + gpc % 4 * 86, y + 6 + gpc // 4 * 106
        picture.rect(x, top, 80, 60)
        picture.grid(x + 6, top + 6, 4, 4, 17, 12, lambda r, c, gpc=gpc: style(gpc, 4 * r + c))
    picture.rect(10, y + 80, 338, 18, "rest", "L2 cache")


def draw(stage):
    blocks = constant(stage, "MOST_BLOCKS")
    picture = Picture(f"{stage.before.number}: a barrier of the grid")
    y = picture.height
    gpu(picture, y, lambda gpc, place: "sum" if place % 8 == gpc % 8 else "pale")
    for gpc in range(4):
        x = 50 + gpc * 86
        picture.arrow(x, y + 66, x, y + 79)
        picture.arrow(x, y + 112, x, y + 99)
    y = picture.head(f"{stage.number}: a barrier of the cluster")
    gpu(picture, y, lambda gpc, place: "sum" if gpc == 1 and place < blocks else "rest")
    picture.rect(96, y + 6, 80, 60, "round")
    picture.notes("Blue: blocks that have units at hidden 32. Pale: those",
                  "that wait with them. Empty: idle. 16 multiprocessors",
                  "of each GPC are shown.")
    return picture
