"""What each thread does in a batch, where thread 0 has all samples and where each has its own."""

from report.picture import Picture


def panel(picture, y, width, others):
    """Each thread's forward, what it does between the two barriers, and backward."""
    for thread in range(4):
        top, style = y + 5 + thread * 20, others if thread else "sum"
        picture.text(10, top + 13, f"thread {thread}", "small")
        picture.rect(64, top, 106, 18, "mid", "forward")
        picture.rect(174, top, width, 18, style, "wait" if style == "rest" else "")
        picture.rect(178 + width, top, 66, 18, "pale", "backward")
    for x in (172, 176 + width):
        picture.arrow(x, y - 2, x, y + 90, "line")


def draw(stage):
    picture = Picture(f"{stage.before.number}: thread 0 has all samples")
    panel(picture, picture.height, 100, "rest")
    panel(picture, picture.head(f"{stage.number}: each has its own"), 25, "sum")
    picture.notes("Blue: z, p and dz. Time runs to the right, not to",
                  "scale. A vertical line is a barrier.")
    return picture
