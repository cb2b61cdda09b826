"""Prints the versions of the libraries that the peers use, in one line, for machine.txt."""

import ctypes
import subprocess
from contextlib import suppress
from importlib import metadata

found = []
with suppress(OSError, AttributeError):  # with the processor whose kernels peer_openblas uses
    library = ctypes.CDLL("libopenblas.so.0")
    library.openblas_get_config.restype = library.openblas_get_corename.restype = ctypes.c_char_p
    version = b" ".join(library.openblas_get_config().split()[:2]).decode()
    found.append(f"{version} ({library.openblas_get_corename().decode()})")
with suppress(OSError, subprocess.CalledProcessError):  # from the header of peer_libxsmm
    done = subprocess.run(["gcc", "-E", "-P", "-include", "libxsmm.h", "-"], check=True, text=True,
                          input="LIBXSMM_VERSION", capture_output=True)
    found.append(f"LIBXSMM {done.stdout.split()[-1].strip(chr(34))}")
for package in "numpy", "scipy", "numba", "torch", "jax", "jaxlib", "cupy-cuda13x":
    with suppress(metadata.PackageNotFoundError):
        found.append(f"{package} {metadata.version(package)}")
print("peers:", ", ".join(found) or "none")
