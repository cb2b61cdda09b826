"""Tests what only this study has."""

from programs import run, simulated

from bench import ladders


def test_more_triplets_than_a_grid_has_slices_for():
    """Each slice sums at most 4096 of them, and a grid has 65,535."""
    program = simulated(ladders.find_ladder("tensor_mean").find("04"))
    said = run([program, "--features", "1", "--triplets", "268431361"], 2).stderr
    assert said == "04_cuda_tiled: --triplets: found 268431361, expected at most 268431360\n"
