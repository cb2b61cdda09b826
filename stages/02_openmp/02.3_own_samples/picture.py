"""What each thread does in a batch, with two barriers and with one."""

from report.picture import Picture


def draw(stage):
    picture = Picture(f"{stage.before.number}: two barriers a batch")
    for barriers in (2, 1):
        y = picture.height if barriers == 2 else \
            picture.head(f"{stage.number}: one barrier a batch")
        for thread in range(4):
            picture.text(10, y + 18 + thread * 20, f"thread {thread}", "small")
            waits = barriers == 2 and thread > 0
            for x, width, look, text in (
                    (64, 106, "mid", "forward"), (244, 106, "pale", "backward"),
                    (174, 66, *(("rest", "wait") if waits else ("sum", "z, p, dz")))):
                picture.rect(x, y + 5 + thread * 20, width, 18, look, text)
        for x in (172, 242)[:barriers]:
            picture.arrow(x, y - 2, x, y + 90, "line")
        picture.notes(*(["All threads wait twice: until all shares are there,",
                         "and until thread 0 has dz."] if barriers == 2 else
                        ["Each thread computes the same dz, for itself.",
                         "It takes no longer than to wait for it.", "",
                         "Time runs to the right, not to scale. A vertical",
                         "line is a barrier."]))
    return picture
