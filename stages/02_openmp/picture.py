"""What a thread owns of the network, and exchanges, in three grids of four threads."""

from report.picture import LOOKS, Picture

THREADS = 4


def panel(picture, unit_parts, title, *beside):
    """W1 as U × P parts with their threads' numbers, and what thread 0 has and exchanges."""
    pixel_parts = THREADS // unit_parts
    top = picture.head(f"{unit_parts} × {pixel_parts}: {title}")
    width, height = 80 / unit_parts, 84 / pixel_parts
    picture.text(60, top + 14, "W1", "small", "middle")
    for thread in range(THREADS):
        picture.rect(20 + thread // pixel_parts * width, top + 20 + thread % pixel_parts * height,
                     width, height, LOOKS[thread == 0], str(thread))
    picture.text(60, top + 118, "units →, pixels ↓", "small", "middle")
    for line, text in enumerate(beside):
        picture.text(130, top + 32 + 18 * line, text)


def draw(stage):
    picture = Picture("Four threads: thread 0 has what is striped")
    panel(picture, 4, f"units divided, as in {stage.before.number}",
          "it reads whole images;", "it exchanges a share, its units'",
          "part of z, with all threads")
    panel(picture, 2, "units and pixels divided",
          "it reads half of each image;", "it exchanges sums, its pixels' part",
          "of a, and then a with thread 1,", "which has a copy of b1, W2, da;",
          "and a share with threads 2 and 3")
    panel(picture, 1, "pixels divided",
          "it reads a quarter of each image;", "it exchanges sums and a with all,",
          "each with a copy of b1, W2, da")
    picture.notes(f"Each has a part of the samples, too, as since {stage.before.number}.")
    return picture
