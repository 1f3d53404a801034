"""``export`` and ``selftest``, like the trainer's command line."""

import json
import os
import sys
import time

from tests.agent.standin.behaviour import Job, obey
from tests.agent.standin.rank import save


def main() -> int:
    if sys.argv[1] == "selftest":
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        gpus = [
            {"index": index, "name": f"GPU {bus} by {os.environ['CUDA_DEVICE_ORDER']}", "memory_bytes": 1}
            for index, bus in enumerate(filter(None, visible))
        ]
        print(json.dumps({"cpu": {"flops_per_second": {"fp32": 2e9, "bf16": 1e9, "fp8": 3e9}}, "cuda": gpus}))
        return 0
    job = Job(sys.argv[2])
    obey(job)
    print("exporting")
    if "slow" in job.words:
        time.sleep(600)
    if "badexport" in job.words:
        return 4
    save(job.out / "export", "export", job.steps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
