"""Prints the versions of the libraries that the peers use, in one line, for machine.txt."""

import ctypes
import importlib.metadata
import subprocess

PACKAGES = "numpy", "scipy", "numba", "torch", "jax", "jaxlib", "cupy-cuda13x"


def openblas():
    """The version of the OpenBLAS that peer_openblas finds, and the processor whose kernels it
    uses."""
    try:
        library = ctypes.CDLL("libopenblas.so.0")
        texts = library.openblas_get_config, library.openblas_get_corename
    except (OSError, AttributeError):
        return None
    for text in texts:
        text.restype = ctypes.c_char_p
    config, core = (text().decode() for text in texts)
    return f"{' '.join(config.split()[:2])} ({core})"


def libxsmm():
    """The version of the library that peer_libxsmm is compiled with, from its header."""
    command = ["gcc", "-E", "-P", "-include", "libxsmm.h", "-"]
    try:
        done = subprocess.run(
            command, input="LIBXSMM_VERSION", capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"LIBXSMM {done.stdout.split()[-1].strip(chr(34))}"


def main():
    found = [openblas(), libxsmm()]
    for package in PACKAGES:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(None)
    print("peers:", ", ".join(filter(None, found)) or "none")


main()
