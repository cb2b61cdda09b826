"""Finds the data of a ladder, and downloads them: data/locate.sh [DIR [FILE]]

FILE says what the data are: data/mnist.py, which is the default. Prints the first of these that is
there:

    DIR, or $MNIST_DIR    if given; then it must hold data
    mnist                 beside FILE, from an earlier download, or copied there by hand
    a download            into mnist, unless OFFLINE=1 is in the environment, or one has failed
    synthetic             beside FILE, a stand-in, drawn by synthesize

MNIST_MIRRORS replaces the mirrors: base URLs separated by spaces. Everything else goes to standard
error. Exit status: 0; 1 if even the stand-in cannot be made; 2 if a given directory holds no data.
"""

import importlib
import os
import sys
from pathlib import Path

from bench import process
from bench.base import ROOT, fail


def has_data(about, folder):
    """Whether a folder has the files, raw or gzipped, or the one that is enough."""
    def is_there(name):
        raw = folder / name.removesuffix(".gz")
        return raw.exists() or Path(f"{raw}.gz").exists()

    return any(map(is_there, about.ALONE)) or all(map(is_there, about.SHA256))


def check_given(about, what, folder):
    """The folder that somebody has named. Nothing else is taken instead."""
    if not folder.is_dir():
        fail(f"{what}: found no directory '{folder}', expected the one that holds {about.NAME}")
    if not has_data(about, folder):
        fail(f"{what}: found no data in '{folder}', expected "
             f"{' or '.join([about.FILES, *about.ALONE])}")
    return folder


def download(about, folder, mirrors):
    """Downloads the files. Returns why that failed, or ""."""
    try:
        import pooch  # only a download needs it
    except ImportError:
        return "found no pooch (python3-pooch)"
    for name, sha256 in about.SHA256.items():
        reasons = []
        for mirror in mirrors:
            try:
                # A file gets its name when it is whole and right.
                pooch.retrieve(f"{mirror.rstrip('/')}/{name}", sha256, name, folder,
                               downloader=pooch.HTTPDownloader(timeout=(8, 30)))
                break
            except OSError as error:  # requests' own, too, whose last words say what was wrong
                reasons.append(f"{mirror}: {str(error).rpartition('] ')[2]}".rstrip("')"))
            except ValueError:
                reasons.append(f"{mirror}: {name} has wrong content")
        else:
            return "; ".join(reasons)
    return ""


def draw(home):
    """The folder of the stand-in, which is drawn once."""
    folder = home / "synthetic"
    if not folder.exists():
        for command in (["make", "-s", "-C", home, "synthesize"], [home / "synthesize", folder]):
            if process.run(command, stdout=2, stderr=None).status:
                fail(f"{Path(command[0]).name} failed in {home}", 1)
    return folder


def about(file):
    """The module of a file such as data/mnist.py, which says what the data are."""
    return importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


def locate(file, given=""):
    """The folder of the data that such a file is about."""
    file = file.resolve()
    data = about(file)
    home = file.parent
    name = file.stem
    variable = f"{name.upper()}_DIR"
    for what, folder in (("DIR", given), (variable, os.environ.get(variable))):
        if folder:
            return check_given(data, what, Path(folder))
    folder = home / name
    failed = folder / "FAILED"
    if has_data(data, folder):
        return folder
    why = "OFFLINE is set"
    if os.environ.get("OFFLINE", "") in ("", "0"):
        why = f"the download failed ({failed} says why; delete it to try again)"
        if not failed.exists():
            mirrors = os.environ.get(f"{name.upper()}_MIRRORS", "").split() or data.MIRRORS
            reason = download(data, folder, mirrors)
            if not reason:
                return folder
            folder.mkdir(exist_ok=True)
            failed.write_text(f"{reason}\n", encoding="utf-8")  # the next command does not try
    print(f"Using the synthetic {data.IMAGES}: no {data.NAME} in {folder}, and {why}",
          file=sys.stderr)
    return draw(home)


def main():
    given, file, *_ = [*sys.argv[1:], "", ""]
    print(locate(Path(file or ROOT / "data/mnist.py"), given))
