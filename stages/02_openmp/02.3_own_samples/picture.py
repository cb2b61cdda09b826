"""What each thread does in a batch, where thread 0 has all samples and where each has its own."""

from report.picture import Picture


def row(picture, y, name, style, text, width):
    """A thread's forward, what lies between the two barriers, and backward."""
    picture.text(10, y + 13, name, "small")
    picture.rect(64, y, 106, 18, "mid", "forward")
    picture.rect(174, y, width, 18, style, text)
    picture.rect(178 + width, y, 66, 18, "pale", "backward")


def draw(stage):
    picture = Picture(f"{stage.before.number}: thread 0 has all samples")
    for width in (100, 25):
        y = picture.height if width == 100 else picture.head(f"{stage.number}: each has its own")
        for thread in range(4):
            is_idle = width == 100 and thread > 0
            row(picture, y + 5 + thread * 20, f"thread {thread}", "rest" if is_idle else "sum",
                "wait" if is_idle else "", width)
        for x in (172, 176 + width):
            picture.arrow(x, y - 2, x, y + 90, "line")
    picture.notes("Dark: z, p and dz. Time runs to the right, not to",
                  "scale. A vertical line is a barrier.")
    return picture
