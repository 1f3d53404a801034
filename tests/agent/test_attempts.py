"""The agent and its supervisors as processes: claims, orders, kills, restarts, outages, and accepted ends."""

import os
import signal
import stat
import time
from pathlib import Path

import pytest

from tests.agent.api import NODE_TOKEN, ScriptedApi
from tests.agent.machine import Machine, is_alive, wait_for
from trainwright.contracts.agent_protocol import Timers
from trainwright_agent import processes
from trainwright_agent.daemon.attempts import start_supervisor


def test_a_placed_run_is_trained_exported_shipped_and_reported(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(steps=25)
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    machine.wait_until_idle()
    assert run.end["code"] == "finished"
    assert run.phases == ["starting", "running", "completing", "ended"]
    assert run.steps == list(range(1, 26))
    assert [(commit["kind"], commit["step"]) for commit in run.commits] == [
        ("state", 10),
        ("state", 20),
        ("state", 25),
        ("export", 25),
    ]
    assert run.logs["rank-0.log"].endswith(b"step 25\n")
    assert len(run.claims) == 1


def test_an_export_attempt_trains_nothing(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(kind="export")
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "finished"
    wait_for(lambda: "ended" in run.phases, "its renewal")
    assert run.phases == ["starting", "completing", "ended"]
    assert run.steps == []


def test_a_link_that_expired_before_its_file_was_fetched_is_requested_again(
    api: ScriptedApi, machine: Machine
) -> None:
    run = api.place(steps=5)
    api.expired_links = {"store/data/train-0.bin"}
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "finished"
    assert len(run.claims) == 2
    assert len(set(run.claims)) == 1


@pytest.mark.slow(target="faults")
def test_lost_replies_are_harmless(api: ScriptedApi, machine: Machine) -> None:
    api.lose_replies.update(
        {"claim": 2, "batches": 2, "rank-0.log": 1, "uploads": 1, "checkpoints": 1, "end": 1}
    )
    run = api.place(steps=25)
    machine.start_agent()
    wait_for(lambda: len(run.ends) > 1, "the end repeated")
    machine.wait_until_idle()
    assert len(set(run.claims)) == 1
    assert len(run.claims) == 3
    assert run.steps == list(range(1, 26))
    assert {commit["step"] for commit in run.commits} == {10, 20, 25}


def test_nothing_starts_before_go(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(steps=3)
    run.order = "wait"
    machine.start_agent()
    wait_for(lambda: len(run.renewals) > 3, "renewals")
    assert not machine.processes()
    assert not (machine.attempt().path / "job.json").exists()
    run.order = "go"
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "finished"


@pytest.mark.parametrize("name", ["plain", "stubborn"])
def test_kill_is_obeyed_within_renewal_and_grace(api: ScriptedApi, machine: Machine, name: str) -> None:
    run = api.place(name=name, steps=10_000)
    machine.start_agent()
    machine.rank_pids()
    wait_for(lambda: run.steps, "steps")
    run.order = "kill"
    ordered = time.monotonic()
    wait_for(lambda: not machine.processes(), "no process left")
    allowance = 1.5  # start-up and scheduling on a busy machine; the protocol itself takes 25 s
    assert time.monotonic() - ordered < api.timers.renewal_seconds + api.timers.grace_seconds + allowance
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "stopped"
    machine.wait_until_idle()


def test_a_rank_that_fails_is_named(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(name="crash")
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert (run.end["code"], run.end["rank"], run.end["sequences_read"]) == ("diverged", 1, 40)
    machine.wait_until_idle()


def test_a_rank_that_is_killed_is_named_with_its_signal(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(steps=10_000)
    machine.start_agent()
    os.kill(machine.rank_pids()[0], signal.SIGKILL)
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "crashed"
    assert "SIGKILL" in run.end["message"]
    machine.wait_until_idle()


@pytest.mark.slow(target="faults")
def test_killing_the_launcher_ends_its_ranks_and_the_attempt(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(steps=10_000)
    machine.start_agent()
    machine.rank_pids()
    os.kill(machine.launcher_pid(), signal.SIGKILL)
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "crashed"
    assert "launcher was killed by SIGKILL" in run.end["message"]
    machine.wait_until_idle()


@pytest.mark.parametrize("name", ["plain", "orphan"])
def test_killing_the_supervisor_ends_everything_and_is_reported(
    api: ScriptedApi, machine: Machine, name: str
) -> None:
    """``orphan`` is a trainer that does not die with its parent; the agent's sweep still finds it."""
    run = api.place(name=name, steps=10_000)
    machine.start_agent()
    machine.rank_pids()
    wait_for(lambda: run.steps, "steps")
    os.kill(machine.supervisor_pid(), signal.SIGKILL)
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "supervisor_lost"
    assert not machine.processes()
    assert run.steps == list(range(1, len(run.steps) + 1))
    machine.wait_until_idle()


@pytest.mark.slow(target="faults")
def test_without_the_kernel_and_the_sweep_a_trainer_outlives_its_supervisor(
    api: ScriptedApi, machine: Machine
) -> None:
    """The negative control of the test above: without both guards, "no process left" fails."""
    run = api.place(name="orphan", steps=10_000)
    machine.start_agent()
    machine.rank_pids()
    supervisor = machine.supervisor_pid()
    machine.kill_agent()  # no sweep
    os.kill(supervisor, signal.SIGKILL)
    wait_for(lambda: not machine.attempt().is_locked(), "the supervisor gone")
    with pytest.raises(AssertionError, match="no process left"):
        wait_for(lambda: not machine.processes(), "no process left", seconds=2.0)
    processes.sweep(machine.attempt().marker)
    assert not machine.processes()
    assert not run.ends


def test_an_agent_started_after_a_kill_re_attaches(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(steps=120)
    machine.start_agent()
    ranks = machine.rank_pids()
    for _ in range(2):
        known = len(run.steps)
        wait_for(lambda known=known: len(run.steps) > known, "steps")
        machine.kill_agent()
        machine.start_agent()
    assert sorted(machine.rank_pids()) == sorted(ranks)
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "finished"
    assert run.steps == list(range(1, 121))
    assert len(run.claims) == 1
    assert {commit["step"] for commit in run.commits} == set(range(10, 121, 10))
    machine.wait_until_idle()


def test_an_agent_stopped_by_sigterm_leaves_supervisors_running(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(steps=60)
    agent = machine.start_agent()
    machine.rank_pids()
    machine.kill_agent(signal.SIGTERM)
    assert agent.returncode == 0
    folder = machine.attempt()
    wait_for(lambda: folder.exit(), "the attempt ends without an agent")
    assert not run.ends
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "finished"
    assert run.steps == list(range(1, 61))


def test_an_agent_stopped_right_after_its_report_leaves_no_supervisor_behind(
    api: ScriptedApi, machine: Machine
) -> None:
    api.timers = Timers()  # the standard timers: 10 s between renewals
    run = api.place(name="crash")
    machine.start_agent()
    supervisor = machine.supervisor_pid()
    wait_for(lambda: run.ends, "an end")
    machine.kill_agent()
    wait_for(
        lambda: not Path(f"/proc/{supervisor}").exists(),
        "the supervisor gone, sooner than after an interval between renewals",
        api.timers.renewal_seconds - 1,
    )


def test_during_an_outage_of_the_api_a_run_fences_itself_before_its_lease_expires(
    api: ScriptedApi, machine: Machine
) -> None:
    run = api.place(name="stubborn", steps=10_000)
    machine.start_agent()
    machine.rank_pids()
    wait_for(lambda: run.steps, "steps")
    api.away = True
    last = run.renewals[-1]["at"]
    wait_for(lambda: not machine.processes(), "no process left")
    assert time.monotonic() - last < api.timers.lease_seconds
    assert time.monotonic() - last > api.timers.lease_seconds - api.timers.margin_seconds - 0.5
    api.away = False
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "self_fenced"
    assert run.steps == list(range(1, len(run.steps) + 1))
    machine.wait_until_idle()


@pytest.mark.slow(target="faults")
def test_a_short_outage_stops_nothing(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(steps=80)
    machine.start_agent()
    ranks = machine.rank_pids()
    api.away = True
    time.sleep(2.0)  # the length of the outage: less than lease - margin
    api.away = False
    assert sorted(machine.rank_pids()) == sorted(ranks)
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "finished"
    assert run.steps == list(range(1, 81))


@pytest.mark.slow(target="faults")
def test_a_stopped_supervisor_is_killed_by_the_agent(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(steps=10_000)
    machine.start_agent()
    machine.rank_pids()
    wait_for(lambda: run.steps, "steps")
    os.kill(machine.supervisor_pid(), signal.SIGSTOP)
    last = run.renewals[-1]["at"]
    wait_for(lambda: not machine.processes(), "no process left")
    assert time.monotonic() - last < api.timers.lease_seconds
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "supervisor_lost"
    machine.wait_until_idle()


@pytest.mark.slow(target="faults")
def test_a_supervisor_suspended_together_with_its_agent_fences_itself(
    api: ScriptedApi, machine: Machine
) -> None:
    """As after a suspend: when both wake, the deadline has long passed, and the supervisor is healthy."""
    run = api.place(steps=10_000)
    agent = machine.start_agent()
    machine.rank_pids()
    wait_for(lambda: run.steps, "steps")
    supervisor, folder = machine.supervisor_pid(), machine.attempt()
    agent.send_signal(signal.SIGSTOP)
    guard = machine.guard_pid()
    for pid in (supervisor, guard):
        os.kill(pid, signal.SIGSTOP)
    deadline = folder.deadline()
    assert deadline is not None
    wait_for(lambda: processes.boottime() > deadline.kill_at + 0.5, "the deadline has long passed")
    agent.send_signal(signal.SIGCONT)
    for pid in (supervisor, guard):
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "self_fenced"


@pytest.mark.slow(target="faults")
def test_a_second_supervisor_exits_immediately(api: ScriptedApi, machine: Machine) -> None:
    api.place(steps=10_000)
    machine.start_agent()
    ranks = machine.rank_pids()
    supervisor = machine.supervisor_pid()
    second = start_supervisor(machine.attempt())
    assert second.wait(10) == 0
    assert machine.supervisor_pid() == supervisor
    assert sorted(machine.rank_pids()) == sorted(ranks)


def test_a_stale_fence_ends_the_trainer_and_the_folder(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(steps=10_000)
    machine.start_agent()
    machine.rank_pids()
    run.fence, run.closed = 2, True
    machine.wait_until_idle()
    assert not run.ends


def test_a_deleted_run_leaves_nothing_on_the_node(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(steps=10_000)
    machine.start_agent()
    machine.rank_pids()
    run.deleted = True
    machine.wait_until_idle()


@pytest.mark.slow(target="faults")
def test_starting_without_progress_ends_the_attempt(api: ScriptedApi, machine: Machine) -> None:
    api.timers = api.timers.model_copy(update={"start_seconds": 1.0})
    run = api.place(name="silent")
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "start_timeout"
    machine.wait_until_idle()


def test_a_failed_export_is_reported(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(name="badexport", steps=3)
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "export_failed"
    assert "code 4" in run.end["message"]
    assert run.logs["export.log"] == b"exporting\n"


@pytest.mark.slow(target="faults")
def test_damaged_shards_and_damaged_checkpoints_have_different_end_codes(
    api: ScriptedApi, machine: Machine
) -> None:
    for path in ("data/train-1.bin", "resume/model.safetensors"):
        run = api.place(ranks=1)
        stored = api.store(path, b"right")
        api.objects[stored["object_key"]] = b"wrong"
        run.downloads.append(stored)
    machine.start_agent()
    runs = list(api.runs.values())
    wait_for(lambda: all(run.ends for run in runs), "ends")
    assert [run.end["code"] for run in runs] == ["fetch_failed", "checkpoint_invalid"]
    assert not any(run.steps for run in runs)


@pytest.mark.slow(target="faults")
def test_busy_slots_are_those_of_marked_processes(api: ScriptedApi, machine: Machine) -> None:
    run = api.place(steps=10_000)
    machine.start_agent()
    machine.rank_pids()
    wait_for(lambda: api.heartbeats[-1]["busy_slots"] == {"cpu": [0, 1]}, "busy slots")
    run.order = "kill"
    wait_for(lambda: api.heartbeats[-1]["busy_slots"] == {}, "free slots")


def test_only_agent_and_supervisor_have_the_node_token(api: ScriptedApi, machine: Machine) -> None:
    api.place(steps=10_000)
    machine.start_agent()  # with a canary in its environment, like an operator's settings
    pids = [*machine.rank_pids(), machine.launcher_pid()]
    for pid in pids:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert NODE_TOKEN.encode() not in environment + command
    for pid in machine.rank_pids():
        names = [
            name for name in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if b"TRAINWRIGHT" in name
        ]
        assert sorted(name.partition(b"=")[0] for name in names) == [
            b"TRAINWRIGHT_ATTEMPT",
            b"TRAINWRIGHT_PARENT",
        ]
    assert stat.S_IMODE((machine.data / "agent.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(machine.data.stat().st_mode) == 0o700


@pytest.mark.slow(target="faults")
def test_a_supervisor_needs_little_memory(api: ScriptedApi, machine: Machine) -> None:
    api.place(steps=10_000)
    machine.start_agent()
    machine.rank_pids()
    status = Path(f"/proc/{machine.supervisor_pid()}/status").read_text()
    (resident,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    assert int(resident.split()[1]) < 64 * 1024


@pytest.mark.slow(target="faults")
def test_stop_with_runs_ends_supervisors_and_the_next_agent_reports(
    api: ScriptedApi, machine: Machine
) -> None:
    run = api.place(steps=10_000)
    machine.start_agent()
    machine.rank_pids()
    machine.supervisor_pid()
    machine.command("stop", "--with-runs")
    assert not machine.processes()
    assert not machine.attempt().is_locked()
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "stopped"
    machine.wait_until_idle()


def test_a_second_agent_on_the_folder_is_refused(api: ScriptedApi, machine: Machine) -> None:
    machine.start_agent()
    wait_for(lambda: api.heartbeats, "a heartbeat")
    second = machine.start_agent()
    assert second.wait(20) == 1
    assert "Another agent uses" in machine.log.read_text()


def test_an_agent_on_the_store_s_machine_uses_no_http_and_shares_no_file_with_it(
    api: ScriptedApi, machine: Machine, tmp_path: Path
) -> None:
    store = api.object_store = tmp_path / "objects"
    run = api.place(steps=10)
    for key, content in api.objects.items():
        (store / key).parent.mkdir(parents=True, exist_ok=True)
        (store / key).write_bytes(content)
    api.objects.clear()  # nothing can be downloaded
    machine.start_agent("--object-store", str(store))
    shard = store / "store/data/train-0.bin"
    fetched = machine.attempt().path / "data/train-0.bin"
    wait_for(fetched.exists, "the shard in the attempt's folder")
    assert fetched.read_bytes() == shard.read_bytes() and not fetched.samefile(shard)
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "finished"
    assert not api.objects, "something was sent by HTTP"
    weights = store / run.run_id / "f1/state-10/model.safetensors"
    assert weights.read_bytes() == b"weights of step 10"
    assert not list(store.rglob("*.tmp"))
    assert {path.stat().st_nlink for path in store.rglob("*") if path.is_file()} == {1}


def test_shards_are_fetched_once_per_node(api: ScriptedApi, machine: Machine) -> None:
    first = api.place(steps=2)
    machine.start_agent()
    wait_for(lambda: first.ends, "an end")
    api.objects = {key: content for key, content in api.objects.items() if not key.startswith("store/")}
    second = api.place(steps=2)
    api.objects = {key: content for key, content in api.objects.items() if not key.startswith("store/")}
    wait_for(lambda: second.ends, "the second end")
    assert second.end["code"] == "finished"


@pytest.mark.slow(target="faults")
def test_a_stopped_supervisor_of_a_dead_agent_ends_with_its_ranks_after_the_lease(
    api: ScriptedApi, machine: Machine
) -> None:
    """The run may have been started elsewhere, and two trainers must not work on one run."""
    run = api.place(steps=10_000)
    machine.start_agent()
    ranks = machine.rank_pids()
    supervisor, guard = machine.supervisor_pid(), machine.guard_pid()
    machine.kill_agent()
    short = {"renewal_seconds": 0.2, "lease_seconds": 1.5, "margin_seconds": 0.6, "grace_seconds": 0.1}
    api.timers = api.timers.model_copy(update=short)
    known = len(run.renewals)
    wait_for(lambda: len(run.renewals) > known + 1, "renewals under the new timers")
    os.kill(supervisor, signal.SIGSTOP)
    stopped = time.monotonic()
    wait_for(lambda: not machine.processes(), f"ranks {ranks} are gone")
    assert time.monotonic() - stopped > 0.5, "the deadline had not passed"
    wait_for(lambda: not machine.attempt().is_locked(), "the supervisor is gone")
    wait_for(lambda: not is_alive(guard), "its guard is gone")
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "supervisor_lost"


@pytest.mark.slow(target="faults")
def test_a_supervisor_that_waits_for_its_end_to_be_reported_uses_no_cpu_and_exits(
    api: ScriptedApi, machine: Machine
) -> None:
    run = api.place(steps=10_000)
    machine.start_agent()
    machine.rank_pids()
    supervisor = machine.supervisor_pid()
    folder = machine.attempt()
    machine.kill_agent()
    short = {"renewal_seconds": 0.2, "lease_seconds": 1.5, "margin_seconds": 0.6, "grace_seconds": 0.1}
    api.timers = api.timers.model_copy(update=short)
    known = len(run.renewals)
    wait_for(lambda: len(run.renewals) > known + 1, "renewals under the new timers")
    api.away = True
    wait_for(folder.exit, "the attempt ended")
    began, spent = time.monotonic(), cpu_seconds(supervisor)
    wait_for(lambda: time.monotonic() > began + 2, "a while")
    assert cpu_seconds(supervisor) - spent < 0.5
    wait_for(lambda: not folder.is_locked(), "the supervisor gone after ten leases", 60)
    api.away = False
    machine.start_agent()
    wait_for(lambda: run.ends, "an end")
    assert run.end["code"] == "self_fenced"


def cpu_seconds(pid: int) -> float:
    """Processor time that the process has used."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def test_older_checkpoints_are_deleted_once_shipped_and_the_newest_remains(
    api: ScriptedApi, machine: Machine
) -> None:
    run = api.place(steps=10_000)
    machine.start_agent()
    wait_for(lambda: {20, 30} <= {commit["step"] for commit in run.commits}, "commits")
    checkpoints = machine.attempt().path / "out" / "checkpoints"
    wait_for(lambda: not (checkpoints / "step-10").exists(), "the first one deleted")
    assert any(checkpoints.iterdir())
