"""The trainer's command line. It needs no platform: a folder with a ``job.json`` and data in it is enough.

    python -m trainwright_trainer.main prepare FILE… --out FOLDER   text files → token shards
    python -m trainwright_trainer.main train JOB_JSON               train, or go on from resume/
    python -m trainwright_trainer.main export JOB_JSON              the last checkpoint in Hugging Face's layout
    python -m trainwright_trainer.main sample EXPORT_FOLDER         text from an export
    python -m trainwright_trainer.main selftest                     devices and their measured peaks, as JSON

Each verb imports what it needs, so that asking for help does not load torch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainwright_trainer.garbage import importing
from trainwright_trainer.stop import die_with_parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit code."""
    die_with_parent()
    given = _parser().parse_args(arguments)
    code: int = given.verb(given)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainwright_trainer", description="Train language models.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    prepare = verbs.add_parser("prepare", help="turn files of text into token shards")
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
    prepare.set_defaults(verb=_prepare)

    train = verbs.add_parser("train", help="train as JOB_JSON says, in its folder")
    train.add_argument("job", type=Path, metavar="JOB_JSON")
    train.set_defaults(verb=_train)

    export = verbs.add_parser("export", help="write out/export from the checkpoint at the last step")
    export.add_argument("job", type=Path, metavar="JOB_JSON")
    export.set_defaults(verb=_export)

    sample = verbs.add_parser("sample", help="continue a text")
    sample.add_argument("folder", type=Path, metavar="EXPORT_FOLDER")
    sample.add_argument("--prompt", default="", help="text to continue (default: a new document)")
    sample.add_argument("--tokens", type=int, default=100)
    sample.add_argument("--temperature", type=float, default=0.8)
    sample.add_argument("--seed", type=int, default=0)
    sample.set_defaults(verb=_sample)

    selftest = verbs.add_parser("selftest", help="name the devices and measure the CPU")
    selftest.add_argument(
        "--slots", type=int, default=min(2, os.cpu_count() or 1), help="CPU slots of this node"
    )
    selftest.set_defaults(verb=_selftest)
    return parser


def _prepare(given: argparse.Namespace) -> int:
    from trainwright.contracts.data_spec import DataSpec, TokenizerSpec
    from trainwright.contracts.recipe import Recipe
    from trainwright.prepare.documents import Source
    from trainwright.prepare.shards import prepare_folder

    data = DataSpec(
        dataset="local",
        tokenizer=TokenizerSpec(kind=given.tokenizer, vocabulary=given.vocabulary),
        validation_fraction=given.validation_fraction,
    )
    sources = [Source(path.name, path) for path in given.files]
    manifest, rejected = prepare_folder(sources, data, given.out, Recipe(rejected_limit=given.rejected_limit))
    for line in rejected:
        print(f"{line.file}:{line.line} {line.reason}", file=sys.stderr)
    for name, split in (("train", manifest.train), ("validation", manifest.validation)):
        print(f"{name}: {split.documents:,} documents, {split.tokens:,} tokens")
    return 0


def _train(given: argparse.Namespace) -> int:
    with importing():
        from trainwright_trainer.elastic import launch

    return launch(given.job.resolve())


def _export(given: argparse.Namespace) -> int:
    from trainwright_trainer.finish import export_job

    return export_job(given.job.resolve())


def _sample(given: argparse.Namespace) -> int:
    from trainwright_trainer.sample import sample

    print(sample(given.folder, given.prompt, given.tokens, given.temperature, given.seed))
    return 0


def _selftest(given: argparse.Namespace) -> int:
    from trainwright_trainer.selftest import selftest

    print(json.dumps(selftest(given.slots), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
