"""How good is a run of mnist.py? The newest good checkpoint of it, on the digits that it was not trained with.

    python evaluate.py /checkpoints/mnist/main
    rankzero launch                                in a pod of the chart, with the same as launch.args

The folder of a run, of one of its checkpoints, or a file of weights; while the run trains or afterwards, and on any
number of ranks, however many wrote it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

# The script's own folder is first on Python's path.
from mnist import DEFAULT_DATA, accuracy, digits_model, load_digits  # type: ignore[import-not-found]

from rankzero.config import ResumeConfig
from rankzero.files import write_json
from rankzero.heartbeat import Phase
from rankzero.train import entry
from rankzero.train.checkpoint import Checkpoints
from rankzero.train.distributed import process_group
from rankzero.train.parallel.apply import parallelize
from rankzero.train.parallel.mesh import build
from rankzero.train.progress import phase, report_result


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Accuracy of a checkpoint of mnist.py.")
    parser.add_argument("source", help="folder of a run or of a checkpoint, or a file of weights")
    parser.add_argument("--result", type=Path, help="JSON file for the result; a run of the chart has its own as well")
    return parser.parse_args()


def main() -> None:
    """Load, judge, report."""
    options, config = parse_arguments(), entry.train_config()
    source = ResumeConfig(from_=options.source, parts=("model", "step"))
    with process_group(config) as ranks, tempfile.TemporaryDirectory() as own, phase(Phase.EVALUATION):
        _, test = load_digits(Path(config.data) if config.data else DEFAULT_DATA)
        mesh = build(config, ranks)
        model = parallelize(digits_model(), mesh, config)
        checkpoints = Checkpoints(Path(own), resume=source)  # own: this script writes none
        checkpoints.track(model=model)
        step = checkpoints.resume()
        share = accuracy(model, test, mesh)
        if ranks.is_first:
            print(f"test accuracy {share:.2%} on {len(test)} digits after step {step}", flush=True)
            report_result(test_accuracy=share, step=step)
            if options.result:
                write_json(options.result, {"test_accuracy": share, "step": step, "source": options.source})


if __name__ == "__main__":
    entry.run(main)
