"""What a block owns, before and now, and where the parts of its sums go."""

from report.picture import Picture, constant


def draw(stage):
    blocks = constant(stage, "MOST_BLOCKS")
    picture = Picture(f"{stage.before.number}: block 3 owns two units, and reads all pixels")
    y = picture.height
    picture.text(10, y + 14, "x: samples × pixels")
    picture.rect(10, y + 20, 200, 48, "read")
    picture.text(230, y + 14, "W1: pixels × units")
    picture.grid(230, y + 20, 1, blocks, 7, 48, lambda r, c: "sum" if c == 3 else "rest")
    y = picture.head(f"{stage.number}: block 3 owns {784 // blocks} pixels, for all units")
    picture.text(10, y + 14, "x")
    picture.grid(10, y + 20, 1, blocks, 12.5, 48, lambda r, c: "read" if c == 3 else "rest")
    picture.text(230, y + 14, "W1")
    picture.grid(230, y + 20, blocks, 1, 112, 3, lambda r, c: "sum" if r == 3 else "rest")
    y = picture.head("its parts of x·W1 go to the owners of the samples")
    picture.rect(10, y + 24, 100, 96, "round")
    picture.text(14, y + 18, "block 3: 32 samples")
    picture.grid(14, y + 28, 8, 1, 92, 11, lambda r, c: "sum")
    for owner in range(3):
        top = y + 6 + owner * 42
        picture.rect(190, top, 160, 34, "round")
        picture.grid(196, top + 4, 1, blocks, 9, 14, lambda r, c: "sum" if c == 3 else "pale")
        picture.text(196, top + 30, f"block {owner} gets 16 parts", "small")
        picture.arrow(112, y + 40 + owner * 30, 188, top + 14)
    picture.text(10, y + 146, "A part has all units. The owner adds up 16 of them:")
    picture.text(10, y + 160, "a = max(0, sum + b1).")
    return picture
