"""Run every benchmark, one line each; exit code 1 if a target is missed."""

import sys

from benchmarks import (
    oracle,
    planner,
    pooled,
    prefill,
    published,
    serving,
    simulator,
    testbed,
    training,
    transport,
    wan,
)


def main() -> None:
    """All benchmarks, in order."""
    missed = 0
    for subject in (simulator, oracle, published, planner, prefill, testbed, transport, pooled, wan, training, serving):
        for row in subject.run():
            target = ""
            if row.target is not None:
                target = f"{'at least' if row.more_is_better else 'at most'} {row.target:g}"
                target += "" if row.met else "  MISSED"
                missed += not row.met
            print(f"{row.name:<56} {row.value:8.4g} {row.unit:<8} {target}", flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
