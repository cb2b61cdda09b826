"""Prints the versions of the libraries that the peers use, in one line, for sweeps.csv."""

import ctypes
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path

found = []
# With the processor whose kernels peer_openblas and peer_openblas_pypi use.
wheels = Path(__file__).parent.glob("env/lib/python3*/site-packages/scipy_openblas32/lib/lib*.so")
for path, prefix, suffix in (("libopenblas.so.0", "", ""),
                             *((path, "scipy_", " from PyPI") for path in wheels)):
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(str(path))
        config = getattr(library, f"{prefix}openblas_get_config")
        corename = getattr(library, f"{prefix}openblas_get_corename")
        config.restype = corename.restype = ctypes.c_char_p
        version = b" ".join(config().split()[:2]).decode()
        found.append(f"{version}{suffix} ({corename().decode()})")
for name, header, macros in (  # of the peers in C
        ("LIBXSMM", "libxsmm.h", "LIBXSMM_VERSION"),
        ("oneDNN", "oneapi/dnnl/dnnl.h",
         "DNNL_VERSION_MAJOR DNNL_VERSION_MINOR DNNL_VERSION_PATCH")):
    with suppress(OSError, subprocess.CalledProcessError):
        text = subprocess.check_output(["gcc", "-E", "-P", "-include", header, "-"], text=True,
                                       input=macros, stderr=subprocess.DEVNULL)
        version = ".".join(text.splitlines()[-1].split()).strip('"')
        found.append(f"{name} {version}")
with suppress(OSError):  # it prints to standard error
    done = subprocess.run(["cython3", "--version"], capture_output=True, text=True, check=False)
    found.append((done.stdout + done.stderr).strip().replace(" version", ""))
for package in "numpy", "scipy", "numba", "torch", "jax", "jaxlib", "cupy-cuda13x":
    with suppress(metadata.PackageNotFoundError):
        found.append(f"{package} {metadata.version(package)}")
print("peers:", ", ".join(found) or "none")
