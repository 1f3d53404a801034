"""Replacing modules of a built model. Every pass over the model that changes a computation uses this.

A module is replaced by a new object of another class, which takes over its children and parameters. Names of parameters
do not change, and tied weights stay tied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)

Replacements = Mapping[type[nn.Module], Callable[[Any], nn.Module]]
"""What makes the new module, by the exact class of the module that it replaces."""


def recreate(module: nn.Module, into: type[M]) -> M:
    """A module of class ``into`` with everything that ``module`` has, without calling a constructor."""
    made = into.__new__(into)
    made.__dict__.update(module.__dict__)
    return made


def replace_modules(
    model: nn.Module, replacements: Replacements, where: Callable[[str], bool] = lambda path: True
) -> None:
    """Replace the modules of ``model`` whose class is one of ``replacements``, children after parents.

    Args:
        where: whether to replace the module at a path.

    Raises:
        TypeError: a module is of a subclass of one of them, for example because another pass replaced it.
            Its computation would be lost.
    """
    for path, module in list(model.named_modules()):
        make = replacements.get(type(module))
        if make is not None:
            if where(path):
                model.set_submodule(path, make(module))
        elif isinstance(module, tuple(replacements)):
            raise TypeError(
                f"{path} is a {type(module).__name__}, which this pass does not know: it replaces "
                + ", ".join(sorted(known.__name__ for known in replacements))
            )
