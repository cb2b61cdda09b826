"""The record of a ladder's results, which only this file writes: see report/results/README.md."""

import csv
import fcntl
import io
import os
import shutil
import time

from bench import rows
from bench.base import fail


def csv_lines(*lines):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


class Record:
    def __init__(self, folder):
        self.folder = folder

    def lock(self):
        """Keeps others from writing, until the file descriptor that it returns is closed."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fail(f"{self.folder}: another run_all.sh is writing there")
        except OSError:
            fail(f"{self.folder}: cannot write there; name another directory with --output")
        return lock

    def files(self):
        names = "runs.csv", "epochs.csv", "sweeps.csv", "programs.csv"
        return [self.folder / name for name in names if (self.folder / name).exists()]

    @property
    def sweeps(self):
        """{sweep: {key: value}}: how the sweeps were made."""
        found = {}
        for row in rows.read_record(self.folder / "sweeps.csv", rows.SWEEPS):
            found.setdefault(row["sweep"], {})[row["key"]] = row["value"]
        return found

    @property
    def programs(self):
        return rows.read_record(self.folder / "programs.csv", rows.PROGRAMS)

    def add(self, name, columns, *lines):
        """Appends lines to a file that has these columns, and may be new: all of them, or none."""
        path = self.folder / name
        head = csv_lines(columns).encode()
        text = csv_lines(*lines).encode()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with open(path, "a+b", 0) as file:
                size = file.tell()
                file.seek(0)
                if size == 0:
                    text = head + text
                elif file.read(len(head)) != head:
                    fail(f"{path}: line 1: found other columns than these rows have; name another "
                         "folder for the results")
                try:
                    while text:
                        text = text[file.write(text):]
                except OSError:
                    file.truncate(size)
                    if size == 0:  # it is new, and without its rows it says nothing
                        path.unlink()
                    raise
        except OSError as error:
            fail(f"{path}: cannot write: {error.strerror}", 1)

    def begin(self, known):
        """Begins a sweep with what is known of it, {key: value}. Returns its number."""
        number = max(self.sweeps, default=0) + 1
        self.add("sweeps.csv", rows.SWEEPS, *((number, *item) for item in known.items()))
        return number

    def add_runs(self, texts, noted):
        """Adds the text of each file that a program has written, and what was noted of its runs."""
        for name, text in texts.items():
            columns, *lines = csv.reader(io.StringIO(text, newline=""))
            if name == "runs.csv":
                columns += rows.RECORD
                lines = [[*line, *(run[column] for column in rows.RECORD)]
                         for line, run in zip(lines, noted)]
            self.add(name, columns, *lines)

    def note_programs(self, sweep, lines):
        self.add("programs.csv", rows.PROGRAMS, *((sweep, *line) for line in lines))

    def remove(self, column, values):
        """Takes out the lines that have one of these values, of the files that have the column."""
        for path in self.files() if values else ():
            frame = rows.read_texts(path, [])
            if column in frame:
                kept = frame[~frame[column].isin({*map(str, values)})]
                if kept.empty:  # new rows may have other columns
                    path.unlink()
                else:
                    rows.write(path, kept.to_csv(index=False))

    def move_aside(self, sweeps):
        """Moves the rows of these sweeps to a copy of all. Epochs are the grid's."""
        aside = self.folder / time.strftime("%F_%H%M%S")
        aside.mkdir()
        for path in self.files():
            shutil.copy2(path, aside)
        self.remove("sweep", sweeps)
        if any(known.get("kind", "grid") == "grid" for known in sweeps.values()):
            (self.folder / "epochs.csv").unlink(missing_ok=True)
        return aside
