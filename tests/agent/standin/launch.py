"""Starts one process per rank, each in its own session, and writes the exits of failed ranks."""

import os
import signal
import subprocess
import sys
import time

from tests.agent.standin.behaviour import Job, obey, write


def main() -> int:
    job = Job(sys.argv[1])
    obey(job)
    environment = os.environ | {"TRAINWRIGHT_PARENT": str(os.getpid())}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.agent.standin.rank", sys.argv[1], str(rank)],
            env=environment,
            start_new_session=True,
        )
        for rank in range(job.ranks)
    ]
    while True:
        codes = [rank.poll() for rank in ranks]
        failed = [rank for rank, code in enumerate(codes) if code]
        if failed:
            break
        if all(code == 0 for code in codes):
            return 0
        time.sleep(0.02)
    exits = [
        {
            "rank": rank,
            "exit_code": codes[rank] if codes[rank] > 0 else None,
            "signal": -codes[rank] if codes[rank] < 0 else None,
            "time": time.time(),
        }
        for rank in failed
    ]
    for rank in ranks:
        rank.send_signal(signal.SIGTERM)
    write(job.out / "ranks.json", {"exits": exits})
    return 1


if __name__ == "__main__":
    sys.exit(main())
