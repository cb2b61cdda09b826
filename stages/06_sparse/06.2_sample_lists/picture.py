"""Which rows the lists of a sample and of a pixel name."""

from report.picture import LOOKS, Picture


def draw(stage):
    samples, pixels, sample, pixel = 6, 12, 2, 7
    listed = {(s, k) for s in range(samples) for k in range(pixels) if (5 * s + 3 * k) % 7 < 2}
    picture = Picture(f"{samples} samples, {pixels} pixels: x, and what is not zero in it")
    picture.grid(76, 60, samples, pixels, 20, 18, lambda s, k: LOOKS[(s, k) in listed])
    picture.rect(76, 60 + sample * 18, pixels * 20, 18, "round")
    picture.rect(76 + pixel * 20, 60, 20, samples * 18, "round")
    picture.text(70, 73 + sample * 18, f"s = {sample}", "", "end")
    picture.text(86 + pixel * 20, 54, f"k = {pixel}", "", "middle")
    rows, columns = ([str(place[1 - axis]) for place in sorted(listed) if place[axis] == mine]
                     for axis, mine in ((0, sample), (1, pixel)))
    picture.notes(f"The list of sample {sample} names pixels {', '.join(rows)}. Its a",
                  f"is the sum of these rows of W1. {stage.before.number} has the others:",
                  f"the list of pixel {pixel} names samples {', '.join(columns)}. Its row",
                  "of dW1 is the sum of these rows of da.")
    return picture
