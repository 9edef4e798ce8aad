"""The benchmark's BERT (scripts/workloads) as one of several ranks. bert.py FOLDER STEPS [SECONDS]

Every rank writes its losses and the digest of all weights and optimizer variables.
"""

import pathlib
import runpy
import sys

import model

WORKLOADS = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "workloads"
sys.path.insert(0, str(WORKLOADS))
import distributed  # noqa: E402
import steps  # noqa: E402

folder, count, pause = model.arguments()
found, losses = [], []


class Ranks(distributed.Ranks):
    def broadcast(self, trained, optimizer):
        found.extend([*trained.variables, *optimizer.variables])
        super().broadcast(trained, optimizer)


run = steps.run


def watched(step, batches, arguments, ranks, after_first):
    def watched_step(*batch):
        if len(losses) == 14:
            model.rest(pause)
        losses.append(float(step(*batch)))
        return losses[-1]

    run(watched_step, batches, arguments, ranks, after_first)
    model.finish(folder, ranks.rank, losses, [variable.numpy() for variable in found])


distributed.Ranks, steps.run = Ranks, watched
sys.argv = ["bert.py", "--horovod", "--steps", str(count)]
runpy.run_path(str(WORKLOADS / "bert.py"), run_name="__main__")
