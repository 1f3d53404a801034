"""`make demo`: train a language model on real text with the entire platform, on this machine.

It starts the platform, signs up as its first owner, uploads the sources of Python's standard library (PSF licence),
starts a run, shows it live, downloads the checkpoint and prints text that the model generates. It uses only the client
that users install.

With ``--once`` it exits after the run, with an exit code that reports success; otherwise it serves until Ctrl-C.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import secrets
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from trainwright.client import Client, TeamClient
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.api.people import OneTimeLink
from trainwright.contracts.api.runs import Run
from trainwright.contracts.data_spec import DataSpec, TokenizerSpec
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.optimizer_spec import OptimizerSpec
from trainwright.contracts.parallelism_spec import Device, ResourcesSpec
from trainwright.contracts.precision_spec import FP8Level, FP8Spec, PrecisionKind, PrecisionSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import FINAL, RunState
from trainwright.contracts.training_spec import (
    BatchSpec,
    CheckpointSpec,
    ScheduleSpec,
    ValidationSpec,
)
from trainwright.transport.errors import ApiError
from trainwright_backend.core.broker import BrokerError
from trainwright_backend.local.data_folder import (
    DataFolder,
    FolderInUseError,
    PlatformError,
    write_private_file,
)
from trainwright_backend.local.platform import Platform, bind_socket, print_status
from trainwright_backend.local.restarts import Restarts

TEAM = "demo"
EMAIL = "demo@localhost"
DATASET = "python-standard-library"
RUN_NAME = "demo"
WANTED_PORT = 8000
PROMPT = "def "
NODE_TIMEOUT_SECONDS = 120
CANCEL_TIMEOUT_SECONDS = 60

console = Console(highlight=False)


class DemoError(Exception):
    """The demo cannot continue. The message gives the reason and the remedy."""


def main() -> int:
    options = _options()
    if sys.platform != "linux":
        print(
            "make demo needs Linux, because node agents do: use WSL2 on Windows or a Linux VM. SDK and CLI work here."
        )
        return 2
    # SIGINT too: a shell's background jobs start with it ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    options.json.unlink(missing_ok=True)
    try:
        with Platform(_take_folder(options.data), _listen()) as platform:
            return _demonstrate(platform, options)
    except KeyboardInterrupt:
        console.print("Stopped. The data is kept: the next demo uses the same dataset.")
        return 130
    except (PlatformError, BrokerError, DemoError, ApiError, httpx.TransportError) as error:
        console.print(f"\nThe demo failed. {error}", style="red", markup=False)
        _write_result(options, {"state": "error", "error": str(error)})
        return 1


def _demonstrate(platform: Platform, options: argparse.Namespace) -> int:
    with sign_up(platform) as client:
        team = client.team(TEAM)
        end_leftovers(team)
        try:
            dataset = _upload(team, platform.folder.path)
            run = team.submit(_spec(dataset, _wait_for_slots(client, team), options))
            console.print(f"\nRun page   [bold]{platform.url}/{TEAM}/runs/{run.id}[/bold]")
            console.print(
                f"Sign in    {_sign_in_link(platform)}   (works once, for 15 minutes)\n", soft_wrap=True
            )
            team, run = follow(platform, team, run)
        except KeyboardInterrupt:
            console.print("\nStopping: cancelling the run and waiting for its end.")
            end_leftovers(sign_up(platform).team(TEAM))
            raise
        _write_result(options, _result(platform, team, run))
        code = 0 if run.state is RunState.SUCCEEDED else 1
        if options.once:
            return code
        console.print(
            f"\nServing at {platform.url} until Ctrl-C. Another sign-in link: {_sign_in_link(platform)}",
            soft_wrap=True,
        )
        _serve(platform)
        return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--once", action="store_true", help="exit after the run")
    parser.add_argument("--steps", type=int, default=150, help="optimizer steps (default: 150)")
    parser.add_argument(
        "--precision",
        choices=["auto", *PrecisionKind],
        default="auto",
        help="number formats; auto (the default): bf16 on GPUs, fp32 on CPUs",
    )
    parser.add_argument("--data", type=Path, default=Path(".trainwright"), help="parent of the data folders")
    parser.add_argument("--json", type=Path, default=Path("demo.json"), help="file for the result")
    options = parser.parse_args()
    if options.steps < 1:
        parser.error(f"--steps {options.steps}: at least 1")
    return options


def _take_folder(parent: Path) -> DataFolder:
    """The first demo folder that no other demo uses."""
    for path in _folders(parent):
        try:
            folder = DataFolder.acquire(path)
        except FolderInUseError:
            console.print(f"{path} belongs to a demo that is running; taking the next folder.")
            continue
        console.print(f"Data folder {path}")
        return folder
    raise AssertionError("unreachable: folder names do not run out")


def _listen() -> socket.socket:
    try:
        return bind_socket("127.0.0.1", WANTED_PORT)
    except PlatformError:
        listener = bind_socket("127.0.0.1", 0)
        console.print(f"Port {WANTED_PORT} is taken; this demo uses {listener.getsockname()[1]}.")
        return listener


def _folders(parent: Path) -> Iterator[Path]:
    yield parent / "demo"
    number = 2
    while True:
        yield parent / f"demo-{number}"
        number += 1


def sign_up(platform: Platform) -> Client:
    """A client with the demo's API key. The first time, the account is created with the first owner's link.
    A person who signs in by link and sets a password revokes all keys: then the demo creates another one."""
    file = platform.folder.path / "demo-key"
    if not file.exists():
        link = platform.command("link", "first-owner").strip()
        password = secrets.token_urlsafe(24)  # not needed: people sign in by link
        account = {"name": "Demo", "email": EMAIL, "password": password, "team": TEAM}
        _create_key(platform.url, file, OneTimeLink(token=link.rsplit("/", 1)[-1], **account))
    client = Client(platform.url, file.read_text())
    try:
        client.me()
        return client
    except ApiError as error:
        if error.status != 401:
            raise
    _create_key(platform.url, file, OneTimeLink(token=_sign_in_link(platform).rsplit("/", 1)[-1]))
    return Client(platform.url, file.read_text())


def _create_key(url: str, file: Path, link: OneTimeLink) -> None:
    with Client(url) as person:
        person.use_link(link)
        write_private_file(file, person.create_key("demo").secret)


def _sign_in_link(platform: Platform) -> str:
    return platform.command("link", "sign-in", EMAIL).strip()


def end_leftovers(team: TeamClient) -> None:
    """Cancel runs that an interrupted demo left, and wait until they have ended."""
    leftovers = [run for run in team.runs() if run.name.startswith(RUN_NAME) and run.state not in FINAL]
    for run in leftovers:
        console.print(f"Cancelling {run.name}, which is {run.state}.")
        team.cancel(run.id)
    deadline = time.monotonic() + CANCEL_TIMEOUT_SECONDS
    while leftovers and time.monotonic() < deadline:
        time.sleep(0.2)
        leftovers = [run for run in leftovers if team.run(run.id).state not in FINAL]
    for run in leftovers:
        late = f"has not ended within {CANCEL_TIMEOUT_SECONDS} s; its supervisor continues to stop it."
        console.print(f"{run.name} {late}")


def _upload(team: TeamClient, folder: Path) -> Dataset:
    """The standard library as a dataset; an earlier upload is reused."""
    file = folder / f"{DATASET}.jsonl"
    documents = write_documents(file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    for dataset in team.datasets():
        if dataset.name == DATASET and [f.digest for f in dataset.versions[0].files] == [digest]:
            console.print(f"Dataset    {DATASET} is there already ({documents:,} documents)")
            return dataset
    size = f"{file.stat().st_size / 1e6:.1f} MB"
    console.print(f"Dataset    uploading {documents:,} files of Python's standard library, {size}")
    return team.upload(DATASET, [file])


def write_documents(file: Path) -> int:
    """Write one JSON document per source file of the standard library, without tests and generated tables."""
    library = Path(sysconfig.get_path("stdlib"))
    count = 0
    with file.open("w", encoding="utf-8") as out:
        for source in sorted(library.rglob("*.py")):
            parts = source.relative_to(library).parts
            if {"test", "tests", "site-packages", "idle_test", "encodings", "pydoc_data"} & set(parts):
                continue
            try:
                text = source.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # a few sources declare another encoding
            if text.strip():
                out.write(json.dumps({"text": text, "source": "/".join(parts)}, ensure_ascii=False) + "\n")
                count += 1
    return count


def _wait_for_slots(client: Client, team: TeamClient) -> tuple[Device, int]:
    """Device and number of slots to train on: all slots of this machine's node, within the quota."""
    deadline = time.monotonic() + NODE_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        for node in client.nodes():
            if node.online:
                device = Device.CUDA if node.slots.get("cuda") else Device.CPU
                quota = next(item for item in team.show().quota if item.device == device)
                return device, min(node.slots[device], quota.limit - quota.used)
        time.sleep(0.2)
    late = f"The node agent did not join within {NODE_TIMEOUT_SECONDS} s"
    raise DemoError(f"{late}: read logs/agent.log in the folder.")


def _spec(dataset: Dataset, slots: tuple[Device, int], options: argparse.Namespace) -> RunSpec:
    """A Llama-style model of 3.5 million parameters on sequences of 256 tokens."""
    device, count = slots
    steps: int = options.steps
    return RunSpec(
        name=f"{RUN_NAME} {time.strftime('%Y-%m-%d %H.%M.%S')}",
        data=DataSpec(
            dataset=dataset.id, tokenizer=TokenizerSpec(vocabulary=4_096), validation_fraction=0.02
        ),
        model=ModelSpec(layers=6, width=192, heads=6, kv_heads=2),
        batch=BatchSpec(sequence_tokens=256, micro_sequences=8, global_sequences=8 * count),
        optimizer=OptimizerSpec(learning_rate=3e-3),
        schedule=ScheduleSpec(steps=steps, warmup_steps=min(20, steps - 1)),
        validation=ValidationSpec(every_steps=50, sequences=32),
        precision=_precision(options.precision, device, count),
        checkpoint=CheckpointSpec(every_steps=50),
        resources=ResourcesSpec(device=device, slots_per_node=count),
    )


def _precision(wish: str, device: Device, slots: int) -> PrecisionSpec:
    """The requested precision, or the default for the device. FP8 uses the highest level that the slots allow."""
    if wish == "auto":
        return PrecisionSpec(kind=PrecisionKind.BF16 if device is Device.CUDA else PrecisionKind.FP32)
    kind = PrecisionKind(wish)
    if kind is not PrecisionKind.FP8:
        return PrecisionSpec(kind=kind)
    # O3 shards the state over the ranks, which needs more than one.
    level = FP8Level.O3 if slots > 1 else FP8Level.O2
    return PrecisionSpec(kind=kind, fp8=FP8Spec(level=level))


def follow(platform: Platform, team: TeamClient, run: Run) -> tuple[TeamClient, Run]:
    """Show the run in the terminal until it has ended. Returns its last state, with a client whose key is valid."""
    while True:
        try:
            return team, _show(team, run)
        except ApiError as error:
            if error.status != 401:
                raise
            team = sign_up(platform).team(TEAM)


def _show(team: TeamClient, run: Run) -> Run:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[numbers]}"),
    )
    with Progress(*columns, console=console, refresh_per_second=2) as progress:
        task = progress.add_task(run.sentence, total=run.spec.schedule.steps, numbers="")

        def show(current: Run) -> None:
            step, words = current.summary.step, f"{current.state:<10}"
            progress.update(task, completed=step, description=words, numbers=_numbers(current))

        return team.wait(run.id, show, poll_seconds=0.5)


def _numbers(run: Run) -> str:
    values = run.summary.values
    if not values:
        return run.sentence
    parts = [f"step {run.summary.step:,} of {run.spec.schedule.steps:,}"]
    if "loss" in values:
        parts.append(f"loss {values['loss']:.3f}")
    if "tokens_per_second" in values:
        parts.append(f"{values['tokens_per_second']:,.0f} tokens/s")
    if "mfu" in values:
        parts.append(f"MFU {100 * values['mfu']:.1f} %")
    if run.state is RunState.RUNNING and "eta_seconds" in values:
        parts.append(f"{values['eta_seconds']:.0f} s left")
    return "  ".join(parts)


def _result(platform: Platform, team: TeamClient, run: Run) -> dict[str, object]:
    """Print the results of the run, download its checkpoint and generate text with it."""
    console.print(f"{run.name}: {run.sentence}")
    found = team.metrics(run.id)
    series = {item.name: item for item in found.series}
    losses = series["loss"].values if "loss" in series else []
    result: dict[str, object] = {
        "run_id": run.id,
        "state": run.state,
        "precision": run.spec.precision.kind,
        "first_loss": losses[0] if losses else None,
        "last_loss": losses[-1] if losses else None,
        "steps": run.summary.step,
        "tokens_per_second": _median(series["tokens_per_second"].values if losses else []),
        "mfu": _median(series["mfu"].values if "mfu" in series else []),
        "checkpoint": None,
        "sample": None,
    }
    if run.state is RunState.SUCCEEDED:
        folder = platform.folder.path / "downloads" / run.id
        team.download(run.id, folder)
        sample = _sample(folder)
        result |= {"checkpoint": str(folder), "sample": sample}
        console.print(f"Loss       {losses[0]:.3f} → {losses[-1]:.3f} in {len(losses)} steps")
        console.print(f"Checkpoint {folder}", soft_wrap=True)
        console.print("Sample     written by the model that was just trained:\n")
        console.print(sample, markup=False, soft_wrap=True)
    return result


def _write_result(options: argparse.Namespace, result: Mapping[str, object]) -> None:
    options.json.write_text(json.dumps(result, indent=2) + "\n")


def _sample(export: Path) -> str:
    command = [sys.executable, "-m", "trainwright_trainer.main", "sample", str(export)]
    command += ["--prompt", PROMPT, "--tokens", "120", "--temperature", "0.7", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise DemoError(f"Sampling from {export} failed: {done.stderr.strip()[-1000:]}")
    return done.stdout


def _median(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None


def _serve(platform: Platform) -> None:
    """Serve until Ctrl-C, then stop what is still running."""
    restarts = Restarts(platform, print_status)
    try:
        while True:
            restarts.check()
            time.sleep(0.5)
    except KeyboardInterrupt:
        console.print("\nStopping.")
        end_leftovers(sign_up(platform).team(TEAM))


if __name__ == "__main__":
    sys.exit(main())
