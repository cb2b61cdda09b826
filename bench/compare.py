"""Which of two stages or peers is faster, and by how much?

    make compare A=01_vectorized B=02_openmp [STUDY=name] [RUNS=30] [HIDDEN=128] ...
"""

from bench import ladders, measuring, rounds
from bench.options import given


def main():
    ladder = ladders.find_ladder(given("STUDY"))
    among = ladder.stages + ladder.peers
    stages = [ladder.find(given(option), option, among) for option in "AB"]
    rounds.compare_in_cell(stages, measuring.read_options(ladder, "compare"))
