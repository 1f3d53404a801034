"""The rules of scheduling, written once more and as plainly as possible, on whole lists of runs, to compare with the platform.

A list of dictionaries and loops over everything: slow, and without any structure of the platform.
"""

from collections.abc import Iterable
from math import inf

from tests.backend.scheduling.simulated_cluster import MIN_RUN_MINUTES, Cluster, Decisions, Job, Team
from trainwright_backend.scheduling.fair_share import REMEMBERED_SECONDS

SLACK_SECONDS = 120.0


def reference(cluster: Cluster) -> Decisions:
    """The decisions of one round."""
    return _Round(cluster).decide()


class _Round:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.free = cluster.free()
        self.used = {team.name: cluster.held(team) for team in cluster.teams}
        self.awaited = {team.name: 0 for team in cluster.teams}
        self.reserved: dict[int, tuple[float, int]] = {}
        """For each node, when the run that waits for it is expected, and its number."""
        self.sizes: set[int] = set()
        """Slots of the runs on one node that reserve all nodes of that size."""
        self.promised = [0] * len(cluster.sizes)
        """Slots that leaving runs will free, and that were already given to a waiting run."""
        self.at_limit: dict[str, tuple[float, int]] = {}
        """For each team, when the first of its runs that waits for its limit is expected, and its number."""
        self.found = Decisions({}, {}, {})

    def decide(self) -> Decisions:
        left = {team.name: self._in_order(team) for team in self.cluster.teams}
        while any(left.values()):
            team = min(
                (team for team in self.cluster.teams if left[team.name]),
                key=lambda team: self._turn(team, left[team.name][0]),
            )
            job = left[team.name].pop(0)
            if self.used[team.name] + job.all_slots > team.limit or not self._ends_before_the_head(job):
                self._wait_for_limit(job)
            elif not self._start(job):
                if team.name in self.at_limit:
                    self._wait_for_limit(job)
                else:
                    self._wait(job)
        return self.found

    def _ends_before_the_head(self, job: Job) -> bool:
        """Whether it ends before the run that waits for the team's limit is expected."""
        if job.team.name not in self.at_limit:
            return True
        return job.left is not None and job.left + SLACK_SECONDS <= self.at_limit[job.team.name][0]

    def _wait_for_limit(self, job: Job) -> None:
        team = job.team
        if team.name in self.at_limit or job.all_slots > team.limit:
            return
        mine = [one for one in self.cluster.running if one.team == team]
        over = self.used[team.name] + job.all_slots - team.limit
        over -= sum(one.all_slots for one in mine if self._leaves(one))
        stay = [one for one in mine if not self._leaves(one)]
        lefts = [one.left_at(self.cluster.time) for one in stay]
        expected = 0.0
        for time in sorted((left for left in lefts if left is not None), reverse=True):
            if (
                over > 0
                and sum(one.all_slots for one in stay if _ends_by(one, self.cluster.time, time)) >= over
            ):
                expected = time
        self.at_limit[team.name] = (expected, job.number)
        late = [one for one in self._candidates() if self._is_late(one) and one.ahead_of == job.number]
        for count in range(len(late) + 1):
            gone = sorted(late, key=lambda one: one.number)[:count]
            if sum(one.all_slots for one in gone) >= over:
                self.found.preempted.update({one.number: job.number for one in gone})
                return

    def _in_order(self, team: Team) -> list[Job]:
        jobs = [job for job in self.cluster.waiting if job.team == team]
        return sorted(jobs, key=lambda job: (-job.priority, job.number))

    def _turn(self, team: Team, job: Job) -> tuple[bool, float, int]:
        use = self.cluster.usage(team) + self.used[team.name] * REMEMBERED_SECONDS
        return not self._covers(job), use, job.number

    def _covers(self, job: Job) -> bool:
        team = job.team
        return self.used[team.name] + self.awaited[team.name] + job.all_slots <= team.share

    def _start(self, job: Job) -> bool:
        nodes = self._pick(job, [node for node in self._large_enough(job) if node not in self.reserved])
        if not nodes and job.left is not None:
            end = job.left + SLACK_SECONDS
            nodes = self._pick(
                job,
                [node for node in self._large_enough(job) if self.reserved.get(node, (inf, 0))[0] >= end],
            )
            kept = [self.reserved[node] for node in sorted(nodes) if node in self.reserved]
            if kept:
                expected, number = min(kept, key=lambda one: one[0])
                self.found.early[job.number] = (number, self.cluster.time + expected)
        if nodes and job.team.name in self.at_limit:
            expected, number = self.at_limit[job.team.name]
            already = self.found.early.get(job.number, (number, inf))
            if self.cluster.time + expected < already[1]:
                self.found.early[job.number] = (number, self.cluster.time + expected)
        for node in nodes:
            self.free[node] -= job.slots
        if nodes:
            self.found.placed[job.number] = tuple(sorted(nodes))
            self.used[job.team.name] += job.all_slots
        return bool(nodes)

    def _pick(self, job: Job, nodes: Iterable[int]) -> list[int]:
        """The fullest nodes with enough free slots."""
        able = sorted(
            (node for node in nodes if self.free[node] >= job.slots), key=lambda n: (self.free[n], n)
        )
        return able[: job.nodes] if len(able) >= job.nodes else []

    def _large_enough(self, job: Job) -> list[int]:
        return [node for node, size in enumerate(self.cluster.sizes) if size >= job.slots]

    def _wait(self, job: Job) -> None:
        covered = self._covers(job)
        self.awaited[job.team.name] += job.all_slots
        if job.nodes == 1 and job.slots in self.sizes:  # an earlier run waits for the same nodes
            return
        if self._make_room(job, covered):
            return
        if job.nodes == 1:
            self.sizes.add(job.slots)
        able = self._large_enough(job)
        expected = 0.0
        if not covered and any(self.free[node] for node in able):
            times = sorted(self._expected_on(job, node) for node in able)
            expected = times[job.nodes - 1] if len(times) >= job.nodes else inf
            expected = 0.0 if expected == inf else expected
        if job.nodes > 1:
            able = [node for node in able if node not in self.reserved] if len(able) >= job.nodes else []
            able = sorted(able, key=lambda node: (-self.free[node], node))[: job.nodes]
        for node in able:
            if expected < self.reserved.get(node, (inf, 0))[0]:
                self.reserved[node] = (expected, job.number)

    def _expected_on(self, job: Job, node: int) -> float:
        """Seconds until the node has enough free slots."""
        not_before = self.reserved.get(node, (0.0, 0))[0]
        stay = [one for one in self._running_on(node) if not self._leaves(one)]
        lefts = [one.left_at(self.cluster.time) for one in stay]
        for time in [0.0, *sorted(left for left in lefts if left is not None)]:
            gone = [one for one in stay if time and _ends_by(one, self.cluster.time, time)]
            if self._room(node, []) + sum(one.slots for one in gone) >= job.slots:
                return max(time, not_before)
        return inf

    def _running_on(self, node: int) -> list[Job]:
        return [job for job in self.cluster.running if node in job.on]

    def _make_room(self, job: Job, covered: bool) -> bool:
        nodes = [node for node in self._large_enough(job) if node not in self.reserved]
        late = [one for one in self._candidates() if self._is_late(one) and one.ahead_of == job.number]
        late.sort(key=lambda one: one.number)
        old = [one for one in self._candidates() if self._is_old(one) and one not in late] if covered else []
        old.sort(key=lambda one: (one.priority, -one.started, one.number))
        gone: list[Job] = []
        for one in late + old:
            if self._fits(job, nodes, gone):
                break
            useful = any(node in nodes for node in one.on)
            if useful and (one in late or self._kept(one, gone) >= one.team.share):
                gone.append(one)
        if not self._fits(job, nodes, gone):
            return False
        for one in gone[::-1]:
            others = [other for other in gone if other is not one]
            if self._fits(job, nodes, others):
                gone = others
        for one in gone:
            self.found.preempted[one.number] = job.number
        chosen = sorted(
            (node for node in nodes if self._room(node, []) >= job.slots),
            key=lambda node: (self._room(node, []), f"node-{node}"),
        )
        for node in chosen[: job.nodes]:
            coming = self._room(node, []) - self.free[node]
            self.promised[node] += min(coming, job.slots)
            self.free[node] -= max(job.slots - coming, 0)
        return True

    def _fits(self, job: Job, nodes: list[int], gone: list[Job]) -> bool:
        return sum(self._room(node, gone) >= job.slots for node in nodes) >= job.nodes

    def _room(self, node: int, gone: list[Job]) -> int:
        """Free slots of a node once these and all others that leave have left."""
        leaving = [one for one in self._running_on(node) if self._leaves(one) or one in gone]
        return self.free[node] + sum(one.slots for one in leaving) - self.promised[node]

    def _leaves(self, job: Job) -> bool:
        return job.leaving or job.number in self.found.preempted

    def _kept(self, job: Job, gone: list[Job]) -> int:
        """Slots of a run's team without it."""
        away = [one for one in self.cluster.running if one.team == job.team]
        away = [one for one in away if self._leaves(one) or one in gone or one is job]
        return self.used[job.team.name] - sum(one.all_slots for one in away)

    def _candidates(self) -> list[Job]:
        return [job for job in self.cluster.running if not self._leaves(job)]

    def _is_late(self, job: Job) -> bool:
        return job.until is not None and job.until <= self.cluster.time

    def _is_old(self, job: Job) -> bool:
        return self.cluster.time - job.started >= MIN_RUN_MINUTES * 60


def _ends_by(job: Job, now: float, time: float) -> bool:
    left = job.left_at(now)
    return left is not None and left <= time
