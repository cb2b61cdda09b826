"""The notebook of the course, on the simulated device, from a clone as on a hosted machine."""

import pytest
from programs import LIMIT_S, ROOT, commit, copy, needs_full, told

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")


@needs_full
def test_the_notebook(tmp_path, monkeypatch):
    """A cell whose command fails ends it."""
    origin = copy(tmp_path / "origin")
    made = commit(origin)
    for name, value in {"REPOSITORY": origin.as_uri(), "NVCC": "no-nvcc", **told()}.items():
        monkeypatch.setenv(name, value)
    book = nbformat.read(ROOT / "course/notebook.ipynb", 4)
    (tmp_path / "work").mkdir()
    nbclient.NotebookClient(book, timeout=10 * LIMIT_S, kernel_name="python3", resources={
        "metadata": {"path": tmp_path / "work"}}).execute()
    said = "".join(each.get("text", "") for cell in book.cells if cell.cell_type == "code"
                   for each in cell.outputs)
    for words in (f"commit {made} of ", "Speedup over 00_serial", "## What the diff shows",
                  "Your guess: 5 times", "20_mine: right", "03_cuda_unified: right"):
        assert words in said, words
