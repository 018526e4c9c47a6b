"""One life again, told step by step."""

import sys

from tests.plans.jobs.simulation.run import Life

if __name__ == "__main__":
    life = Life(sys.argv[1], int(sys.argv[2]), tell=print)
    life.live()
    print(f"{life.ends} after {life.steps} events")
