"""The trainer's command line. It needs no platform, only a folder with a ``job.json`` and data.

    python -m trainwright_trainer.main prepare FILE… --out FOLDER   text files → token shards
    python -m trainwright_trainer.main train JOB_JSON               train, or resume from resume/
    python -m trainwright_trainer.main export JOB_JSON              the last checkpoint in Hugging Face's layout
    python -m trainwright_trainer.main sample EXPORT_FOLDER         text from an export
    python -m trainwright_trainer.main selftest                     devices and their measured peaks, as JSON

Each command imports only what it needs, so that ``--help`` does not load torch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainwright_trainer.process.signals import die_with_parent
from trainwright_trainer.runtime.garbage_collection import collection_paused


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    die_with_parent()
    options = _parser().parse_args(arguments)
    code: int = options.command(options)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainwright_trainer", description="Train language models.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    prepare = commands.add_parser("prepare", help="convert text files into token shards")
    prepare.add_argument("files", nargs="+", type=Path, metavar="FILE")
    prepare.add_argument("--out", type=Path, required=True, help="folder for the shards, such as my-run/data")
    prepare.add_argument("--tokenizer", choices=("bpe", "bytes"), default="bpe")
    prepare.add_argument("--vocabulary", type=int, help="number of token ids (default: 4096 for bpe)")
    prepare.add_argument(
        "--validation-fraction", type=float, default=0.01, help="share of documents held out"
    )
    prepare.add_argument(
        "--rejected-limit", type=float, default=0.01, help="share of documents that may be unreadable"
    )
    prepare.set_defaults(command=_prepare)

    train = commands.add_parser("train", help="train JOB_JSON in its folder")
    train.add_argument("job", type=Path, metavar="JOB_JSON")
    train.set_defaults(command=_train)

    export = commands.add_parser("export", help="write out/export from the checkpoint at the last step")
    export.add_argument("job", type=Path, metavar="JOB_JSON")
    export.set_defaults(command=_export)

    sample = commands.add_parser("sample", help="continue a text")
    sample.add_argument("folder", type=Path, metavar="EXPORT_FOLDER")
    sample.add_argument("--prompt", default="", help="text to continue (default: a new document)")
    sample.add_argument("--tokens", type=int, default=100)
    sample.add_argument("--temperature", type=float, default=0.8)
    sample.add_argument("--seed", type=int, default=0)
    sample.set_defaults(command=_sample)

    selftest = commands.add_parser("selftest", help="list the devices and measure the CPU")
    selftest.add_argument(
        "--slots",
        type=int,
        default=min(2, os.cpu_count() or 1),
        help="CPU slots of this node; 0: do not measure",
    )
    selftest.add_argument(
        "--health", action="store_true", help="also check memory, matmuls and links of GPUs"
    )
    selftest.set_defaults(command=_selftest)
    return parser


def _prepare(options: argparse.Namespace) -> int:
    from trainwright.contracts.curation import CurationSpec
    from trainwright.contracts.data_spec import DataSpec, TokenizerSpec
    from trainwright.prepare.documents import Source
    from trainwright.prepare.token_shards import prepare_folder

    data = DataSpec(
        dataset="local",
        tokenizer=TokenizerSpec(kind=options.tokenizer, vocabulary=options.vocabulary),
        validation_fraction=options.validation_fraction,
    )
    sources = [Source(path.name, path) for path in options.files]
    manifest, rejected = prepare_folder(
        sources, data, options.out, CurationSpec(rejected_limit=options.rejected_limit)
    )
    for line in rejected:
        print(f"{line.file}:{line.line} {line.reason}", file=sys.stderr)
    for name, split in (("train", manifest.train), ("validation", manifest.validation)):
        print(f"{name}: {split.documents:,} documents, {split.tokens:,} tokens")
    return 0


def _train(options: argparse.Namespace) -> int:
    with collection_paused():
        from trainwright_trainer.process.launcher import launch

    return launch(options.job.resolve())


def _export(options: argparse.Namespace) -> int:
    from trainwright_trainer.process.export_job import export_job

    return export_job(options.job.resolve())


def _sample(options: argparse.Namespace) -> int:
    from trainwright_trainer.process.sample import sample

    print(sample(options.folder, options.prompt, options.tokens, options.temperature, options.seed))
    return 0


def _selftest(options: argparse.Namespace) -> int:
    from trainwright_trainer.process.device_measurement import measure_devices

    result = measure_devices(options.slots)
    if options.health:
        from trainwright_trainer.process.health import check_health

        result["health"] = check_health()
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
