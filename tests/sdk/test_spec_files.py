"""Spec files: YAML as the page of a new run reads and writes it, and JSON; mistakes name their line."""

import sys
from pathlib import Path
from typing import Any

import pytest

from trainwright.commands.spec_files import read_object

FROM_THE_PAGE = """# Fields that are left out keep their defaults.
name: pilot
data:
  dataset: ds_1
optimizer:
  learning_rate: 3e-4 # without a point
  clip_norm: null
validation:
  prompts:
    - "def "
    - |
      two
      lines
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_yaml_of_the_page_is_read(tmp_path: Path) -> None:
    expected = {
        "name": "pilot",
        "data": {"dataset": "ds_1"},
        "optimizer": {"learning_rate": 3e-4, "clip_norm": None},
        "validation": {"prompts": ["def ", "two\nlines\n"]},
    }
    for name in ("form.yaml", "form.yml", "form", "form.txt"):
        assert read_object(written(tmp_path, name, FROM_THE_PAGE)) == expected
    for name in ("form.json", "form", "form.yaml"):
        assert read_object(written(tmp_path, name, '{"a": {"b": [1, null]}}')) == {"a": {"b": [1, None]}}
    assert read_object(written(tmp_path, "tabs", '{\n\t"a": 1\n}')) == {"a": 1}
    assert read_object(written(tmp_path, "empty.yaml", "# nothing\n")) == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("'3'", "3"),
        ("", None),
        ("~", None),
        ("True", True),
        ("010", 10),
        ("0o10", 8),
        ("0x1f", 31),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        (".inf", float("inf")),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2026-11-29", "2026-11-29"),
    ],
)
def test_plain_values_are_those_of_yaml_1_2(text: str, value: Any, tmp_path: Path) -> None:
    [found] = read_object(written(tmp_path, "spec.yaml", f"key: {text}\n")).values()
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.yaml", "name: a\ndata:\n  x: 1\n  x: 2\n", "line 4: the key 'x' appears twice"),
        ("s.yaml", "name: a: b\n", "line 1: this is not valid YAML: this line has a second colon"),
        ("s.yaml", "data:\n\tx: 1\n", "line 2: this is not valid YAML: indent with spaces"),
        ("s.yaml", "a: 1\nb\nc: 2\n", "line 3: this is not valid YAML: write `name: value`"),
        ("s.yaml", "a: 1\n---\nb: 2\n", "line 2: this is not valid YAML: but found another document"),
        ("s.yaml", "a: &x [1]\nb: *x\n", "line 2: aliases"),
        ("s.yaml", "a: &x\n  - *x\n", "line 2: aliases"),
        ("s.yaml", "a: !!python/name:os.system x\n", "line 1: tags are not accepted"),
        ("s.yaml", "a: 1\nb: !!str 123\n", "line 2: tags are not accepted. Remove !!str"),
        ("s.yaml", "a: ! 123\n", "line 1: tags are not accepted. Remove !,"),
        ("s.yaml", "a: !!map {}\n", "line 1: tags are not accepted. Remove !!map"),
        ("s.yaml", "a: " + "[" * 1_000 + "]" * 1_000, "its sections are nested too deeply"),
        ("s.json", '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "its sections are nested too deeply"),
        ("s.yaml", "? [a]\n: 1\n", "line 1: a key must be text"),
        ("s.yaml", "- a\n", "there are no fields"),
        ("s.json", '{"a": 1,\n"b": }', "line 2: this is not valid JSON: Expecting value"),
        ("s.json", '{"a": {"x": 1, "x": 2}}', "the key 'x' appears twice"),
        ("s.json", "name: a\n", "line 1: this is not valid JSON"),
        ("s", "[1]", "there are no fields"),
    ],
)
def test_a_mistake_names_its_line(name: str, text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, name, text)
    with pytest.raises(ValueError) as caught:
        read_object(path)
    assert str(caught.value).startswith(f"{path}: {message}"), caught.value


def test_without_pyyaml_json_is_read_and_yaml_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert read_object(written(tmp_path, "spec.json", '{"a": 1}')) == {"a": 1}
    with pytest.raises(ValueError, match=r"pip install pyyaml"):
        read_object(written(tmp_path, "spec.yaml", "a: 1\n"))
