"""What the study's Python peers share: options, galaxies, initial weights, SciPy's minimizer, the
clock and the result row.

Import it before NumPy. It switches to the environment that `make peers` made, if there is one, and
sets how many threads the libraries start.
"""

import math
import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "bench/peers"))
import program
from program import BAD_INPUT, NAME, NOT_HERE, RUN_FAILED, leave, require  # noqa: F401

PIXELS, CLASSES = 1024, 3
LADDER = "galaxy"


def load(option, count):
    """The first galaxies of a file: images / 255 and labels."""
    path = next(iter(sorted(Path(OPTIONS.data).glob(f"{option}.csv*"))), None)
    if path is None:
        raise ValueError(f"{OPTIONS.data}: found no {option}.csv; see studies/galaxy/README.md")
    rows = program.read_csv(path)
    if len(rows) < count or rows.shape[1] != PIXELS + 1 or rows[:, 0].max() >= CLASSES:
        raise ValueError(f"{path}: found {len(rows)} rows of {rows.shape[1]} numbers, --{option} "
                         f"expects at least {count} of a label from 0 to 2 and {PIXELS} pixels")
    return rows[:count, 1:] / 255.0, rows[:count, 0].astype(np.int64)


def draw(stream, *shape):
    """Draws weights, uniform in ±0.2."""
    bits = program.draw_bits(OPTIONS.seed, stream, math.prod(shape))
    unit = (bits >> np.uint32(8)).astype(np.float32) * np.float32(2**-23) - np.float32(1)
    return (unit * np.float32(0.2)).astype(np.float64).reshape(shape)


def split(theta):
    """Θ1, H × 1025, and Θ2, 3 × (H + 1), as views of θ. A row begins with its bias."""
    cut = OPTIONS.hidden * (PIXELS + 1)
    return (theta[:cut].reshape(OPTIONS.hidden, PIXELS + 1),
            theta[cut:].reshape(CLASSES, OPTIONS.hidden + 1))


class Peer:
    """What a peer defines. x is m × 1024, float64, y is m labels, lambda_ is λ."""
    device = "cpu"

    def __init__(self, x, y, lambda_):
        """Allocates, and puts the data where the training reads them."""

    def evaluate(self, theta):
        """The cost at θ, and its gradient."""

    def minimize(self, theta, iterations):
        """SciPy's conjugate gradients, as fmin_cg, for a cost and a gradient that are computed
        together. Returns the last θ, its cost, and how often both were evaluated."""
        found = optimize.minimize(self.evaluate, theta, jac=True, method="CG",
                                  options={"maxiter": iterations, "gtol": 1e-5})
        return found.x, found.fun, found.nfev, found.njev

    def peak_vram_mib(self):
        """The most device memory in use, or None without a device."""


def accuracy(theta, x, y):
    """The fraction of samples whose largest output is that of their label."""
    theta1, theta2 = split(theta)
    hidden = 1 / (1 + np.exp(-(x @ theta1[:, 1:].T + theta1[:, 0])))
    return float(((hidden @ theta2[:, 1:].T + theta2[:, 0]).argmax(axis=1) == y).mean())


def report(peer, values):
    """Prints the result line and appends the row. It has no times of the phases: most compute the
    cost and the gradient in one call."""
    cost, train_s = values["final_cost"], values["train_s"]
    if not math.isfinite(cost):
        leave(RUN_FAILED, f"{NAME}: the cost became {cost}: try a smaller --lambda")
    flops = (4 * PIXELS + 6 * CLASSES) * OPTIONS.hidden * OPTIONS.train
    gflops = flops * values["gradient_evaluations"] / train_s / 1e9
    if OPTIONS.csv:
        program.append_row(LADDER, OPTIONS.csv, peer.device, THREADS, peer.peak_vram_mib(), {
            **vars(OPTIONS), "lambda": OPTIONS.lambda_, "train_samples": OPTIONS.train,
            "test_samples": OPTIONS.test, **values, "gflops": gflops})
    print(f"{NAME}: hidden {OPTIONS.hidden}, iterations {OPTIONS.iterations}, "
          f"{values['dataset']}: train {train_s:.3f} s, {gflops:.1f} GFLOP/s, "
          f"{values['gradient_evaluations']} evaluations, cost {cost:.6g}, "
          f"accuracy {values['test_accuracy']:.4f}")


def main(peer_class):
    """Runs the peer, from the command line to the row."""
    program.check_files(LADDER, OPTIONS)
    clock = time.perf_counter()
    try:
        (x, y), (test_x, test_y) = load("train", OPTIONS.train), load("test", OPTIONS.test)
    except program.BAD_DATA as error:
        leave(BAD_INPUT, f"{OPTIONS.data}: {error}")
    load_s = time.perf_counter() - clock

    # The first evaluation compiles. It is not measured.
    clock = time.perf_counter()
    theta = np.concatenate([draw(1, OPTIONS.hidden * (PIXELS + 1)),
                            draw(2, CLASSES * (OPTIONS.hidden + 1))])
    peer = peer_class(x, y, OPTIONS.lambda_)
    peer.evaluate(theta)
    setup_s = time.perf_counter() - clock

    clock = time.perf_counter()
    if OPTIONS.iterations:
        theta, cost, costs, gradients = peer.minimize(theta, OPTIONS.iterations)
    else:
        cost, costs, gradients = float(peer.evaluate(theta)[0]), 1, 1
    train_s = time.perf_counter() - clock
    theta1, theta2 = split(theta)
    if OPTIONS.save_weights and math.isfinite(cost):
        parts = theta1[:, 1:].T, theta1[:, 0], theta2[:, 1:], theta2[:, 0]
        program.save(OPTIONS.save_weights,
                     *(np.ascontiguousarray(part, "<f4") for part in parts))
    is_drawn = (Path(OPTIONS.data) / "SYNTHETIC").exists()
    report(peer, {
        "dataset": "synthetic" if is_drawn else "galaxy", "load_s": load_s, "setup_s": setup_s,
        "train_s": train_s, "final_cost": float(cost), "cost_evaluations": costs,
        "gradient_evaluations": gradients, "test_accuracy": accuracy(theta, test_x, test_y)})


OPTIONS = program.parse_options(
    data=os.environ.get("GALAXY_DIR") or str(Path(__file__).resolve().parents[1] / "data/galaxy"),
    hidden=8, train=2700, test=675, iterations=300, lambda_=1.0, save_weights="")
THREADS = program.set_threads(OPTIONS.threads)
np = require("numpy")
optimize = require("scipy.optimize")
np.seterr(all="ignore")  # report() says in one line if the cost is not finite
