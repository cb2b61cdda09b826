"""What two processes do while the sum travels, before this stage and after."""

from report.picture import Picture


def draw(stage):
    looks = {"wait": "rest", "step": "pale", "x·W1": "mid", "x⁺·W1": "mid", "layer": "sum",
             "fix": "read"}
    widths = {"wait": 60, "step": 42, "x·W1": 42, "x⁺·W1": 42, "layer": 14, "fix": 12}
    origin = stage.ladder.find(f"{stage.number}.1").before
    picture = Picture(f"{origin.number}: all wait for the sum")
    for parts, leaves in (
            ("x·W1 layer wait layer step x⁺·W1 layer wait", (124, 282)),
            ("layer step x⁺·W1 layer fix layer step x⁺·W1 layer fix", (82, 206))):
        y = picture.height
        for process in range(2):
            x, row = 68, y + 5 + process * 48
            picture.text(10, row + 13, f"process {process}", "small")
            for part in parts.split():
                picture.rect(x, row, widths[part], 18, looks[part],
                             "" if part in ("layer", "fix") else part)
                x += widths[part]
        for x in leaves:
            picture.arrow(x, y + 25, x + 58, y + 51)
            picture.arrow(x, y + 51, x + 58, y + 25)
        if "wait" in parts:
            picture.head(f"{stage.number}: they compute while it travels")
    picture.notes("Arrows: the shares on their way. Blue: the second layer.",
                  f"Stripes: the correction of x⁺·W1. In {stage.number}, the step is",
                  "that of the batch before.", "",
                  "Time runs to the right, not to scale.")
    return picture
