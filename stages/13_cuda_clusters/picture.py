"""Which part of W1 each block of each cluster has, and what goes between them in a batch."""

from report.picture import Picture, constant

CLUSTERS = 8  # that the picture has, of 32 of 256 units


def draw(stage):
    blocks = constant(stage, "MOST_BLOCKS")
    picture = Picture("hidden 256: W1, 784 pixels × 256 units")
    y = picture.height
    for cluster in range(CLUSTERS):
        x = 10 + cluster * 43
        picture.text(x + 19, y + 14, f"{cluster}", "small", "middle")
        picture.grid(x, y + 20, blocks, 1, 38, 8,
                     lambda r, c, cluster=cluster: "sum" if cluster == 2 and r == 3 else "rest")
        picture.rect(x, y + 20, 38, 8 * blocks, "round")
    picture.notes("A column: a cluster, 32 units. A row: a block of each,",
                  "49 pixels. Blue: block 3 of cluster 2.")
    y = picture.head("what goes from block to block in a batch")
    for place, (what, within) in enumerate((("parts of x·W1, to samples' owners", True),
                                            ("scores: a·W2 over 8 units each", False),
                                            ("da and dz, to all blocks", True),
                                            ("W2 and b1, to all blocks", True))):
        top = y + 6 + place * 30
        for cluster in range(CLUSTERS):
            picture.rect(10 + cluster * 14, top, 11, 20, "pale" if within else "read")
        if not within:
            picture.rect(8, top - 2, 14 * CLUSTERS + 1, 24, "round")
        picture.text(134, top + 14, what)
    picture.notes("Pale: within each cluster, by stores to shared memory.",
                  "Striped: between all clusters, by the L2 cache and a",
                  "barrier of the grid.")
    return picture
