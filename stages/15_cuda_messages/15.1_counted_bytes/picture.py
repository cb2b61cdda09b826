"""What a block waits for in a batch, with barriers and with messages."""

from report.picture import Picture

PARTS = [("sums", "sum", 60), ("a, z, da", "pale", 90), ("update", "read", 80)]


def row(picture, x, y, gap):
    for number, (name, style, width) in enumerate(PARTS):
        picture.rect(x, y, width, 18, style, name)
        x += width + (gap if number < 2 else 0)
    return x


def draw(stage):
    picture = Picture(f"{stage.before.number}: all blocks wait for all, twice")
    y = picture.height
    for block in range(3):
        picture.text(10, y + 19 + block * 26, f"{block}", "small")
        row(picture, 24, y + 6 + block * 26, 40)
    for x in (85, 215):
        picture.rect(x + 8, y + 2, 22, 78, "round")
    picture.text(24, y + 98, "Frames: a barrier of the cluster, 0.185 µs.")
    y = picture.head(f"{stage.number}: a block waits for bytes")
    for block in range(3):
        picture.text(10, y + 21 + block * 34, f"{block}", "small")
        row(picture, 24, y + 8 + block * 34, 18)
    for first, second in ((0, 1), (2, 1)):
        for x in (84, 192):
            picture.arrow(x, y + 17 + first * 34, x + 17, y + 17 + second * 34)
    picture.notes("Arrows: messages to block 1, parts of sums and then da.",
                  "Its mbarriers count the bytes. All others get as many.")
    return picture
