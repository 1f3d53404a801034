"""A sequence whose items are loaded when they are accessed."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, overload

Key = TypeVar("Key")
Item = TypeVar("Item")


class LazySequence(Sequence[Item], Generic[Key, Item]):
    """The items of ``keys``. Each access calls ``load``, so a long sequence takes no memory."""

    def __init__(self, keys: Sequence[Key], load: Callable[[Key], Item]) -> None:
        self._keys = keys
        self._load = load

    def __len__(self) -> int:
        return len(self._keys)

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> "LazySequence[Key, Item]": ...

    def __getitem__(self, index: int | slice) -> "Item | LazySequence[Key, Item]":
        if isinstance(index, slice):
            return LazySequence(self._keys[index], self._load)
        return self._load(self._keys[index])
