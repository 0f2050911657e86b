"""Reads the structure of a pickle without executing it: every object becomes an inert record of its class name and contents.

Python's unpickler calls what the file names; even a restricted one can be made to hash or allocate without end. This one knows no
classes, calls nothing, hashes nothing, and takes time and memory in proportion to the file. Only the binary operations of protocols
2 to 5 exist.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MAX_OPERATIONS = 40_000_000
"""Enough for 500,000 shards of tensors."""
MEMORY_FACTOR = 48
"""Bytes of memory for each byte of a pickle, at most; torch's own metadata takes 14."""
_BYTES_PER_OBJECT = 4
"""A pickle has at least so many for each list, dict, tuple and object; torch's own metadata has ten."""
_FREE_OBJECTS = 1000
_MAX_NUMBER_BYTES = 16
_MEMOIZE, _LONG_BINGET, _BINGET, _BININT1, _TUPLE1, _MARK_CODE, _STOP = b"\x94jhK\x85(."
_MARK = object()


class BadPickle(ValueError):
    """The pickle is truncated, has operations that torch does not write, or names a class that is not allowed."""


@dataclass(slots=True)
class Record:
    """An object of the class `name` (`module.class`) that was not created: its arguments, and its attributes or items if known."""

    name: str
    args: object = None
    state: object = None


class Pairs:
    """A pickled dict, as a list of keys and values: keys of others are not hashed."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[tuple[object, object]] = []

    def get(self, key: str) -> object:
        """Return the last value of a text key, or None."""
        return next((value for found, value in reversed(self.items) if isinstance(found, str) and found == key), None)


def read_pickle(content: bytes, is_allowed: Callable[[str], bool], *, max_operations: int = MAX_OPERATIONS) -> object:
    """Return the pickled object: texts, numbers, None, lists, tuples, `Pairs` for dicts, and a `Record` for anything else.

    Raises BadPickle, also for a class whose `module.name` is not allowed.
    """
    machine = _Machine(content, is_allowed)
    try:
        return machine.run(max_operations)
    except BadPickle:  # it says what is wrong
        raise
    except (IndexError, KeyError, ValueError, struct.error, TypeError, AttributeError) as error:
        raise BadPickle(f"it is truncated or corrupt near byte {machine.position}") from error


class _Machine:
    def __init__(self, content: bytes, is_allowed: Callable[[str], bool]) -> None:
        self.content, self.position, self.is_allowed = content, 0, is_allowed
        self.stack: list[Any] = []
        self.memo: list[object] = []
        self.numbered: dict[int, object] = {}
        """What protocols 2 and 3 remember, which name the index."""
        self.objects_left = len(content) // _BYTES_PER_OBJECT + _FREE_OBJECTS
        self.classes: dict[str, Record] = {}

    def run(self, max_operations: int) -> object:
        """Execute all operations. The most frequent ones are here, for speed: a checkpoint of 1000 ranks has millions."""
        content, position, stack, memo = self.content, self.position, self.stack, self.memo
        for _ in range(max_operations):
            code = content[position]
            position += 1
            if code == _MEMOIZE:
                memo.append(stack[-1])
            elif code == _LONG_BINGET:
                index = int.from_bytes(content[position : position + 4], "little")
                stack.append(memo[index] if index < len(memo) else self.numbered[index])
                position += 4
            elif code == _BINGET:
                index = content[position]
                stack.append(memo[index] if index < len(memo) else self.numbered[index])
                position += 1
            elif code == _BININT1:
                stack.append(content[position])
                position += 1
            elif code == _TUPLE1:
                stack[-1] = (stack[-1],)
                self.count_object()
            elif code == _MARK_CODE:
                stack.append(_MARK)
            elif code == _STOP:
                return stack.pop()
            else:
                operation = _OPERATIONS[code]
                if operation is None:
                    raise BadPickle(f"it has an operation {bytes([code])!r} at byte {position - 1} that torch does not write")
                self.position = position
                operation(self)
                position = self.position
        raise BadPickle(f"it has more than {max_operations} operations")

    def count_object(self) -> None:
        self.objects_left -= 1
        if self.objects_left < 0:
            raise BadPickle("it has more objects than its size allows")

    def take(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self.content):
            raise BadPickle("it is truncated")
        taken, self.position = self.content[self.position : end], end
        return taken

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "little")

    def line(self) -> str:
        end = self.content.index(b"\n", self.position) if b"\n" in self.content[self.position : self.position + 512] else -1
        if end < 0:
            raise BadPickle("it is truncated")
        return self.take(end + 1 - self.position)[:-1].decode()

    def text(self, count: int) -> str:
        return self.take(count).decode("utf-8", "surrogatepass")

    def push(self, value: object) -> None:
        self.stack.append(value)

    def pop_to_mark(self) -> list[Any]:
        self.count_object()  # of which a list or a tuple is made
        stack = self.stack
        for index in range(len(stack) - 1, -1, -1):
            if stack[index] is _MARK:
                found = stack[index + 1 :]
                del stack[index:]
                return found
        raise BadPickle("it is corrupt")

    def push_class(self, module: object, name: object) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise BadPickle("it is corrupt")
        full = f"{module}.{name}"
        if full not in self.classes:
            if not self.is_allowed(full):
                raise BadPickle(f"it refers to {full[:100]!r}, which is not allowed there")
            self.classes[full] = Record(full)
        self.stack.append(self.classes[full])

    def long(self, count: int) -> None:
        if count > _MAX_NUMBER_BYTES:
            raise BadPickle("it has a number that is too large")
        self.push(int.from_bytes(self.take(count), "little", signed=True))

    def remember(self, index: int) -> None:
        self.numbered[index] = self.stack[-1]

    def tuple_of(self, count: int) -> None:
        stack = self.stack
        if len(stack) < count:
            raise BadPickle("it is corrupt")
        stack[-count:] = [tuple(stack[-count:])]
        self.count_object()

    def create(self, arguments: int = 1) -> None:
        """REDUCE, NEWOBJ: replace a class and its arguments by a record. Copied, since attributes are set later."""
        taken = [self.stack.pop() for _ in range(arguments)]
        called = self.stack.pop()
        if not isinstance(called, Record):
            raise BadPickle("it is corrupt")
        self.push(Record(called.name, taken[-1]))
        self.count_object()

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, Record) and self.classes.get(target.name) is not target:
            target.state = state

    def add_pairs(self, flat: list[Any]) -> None:
        target, pairs = self.stack[-1], zip(flat[::2], flat[1::2], strict=True)
        if isinstance(target, Pairs):
            target.items.extend(pairs)
        elif isinstance(target, Record):  # an OrderedDict
            if not isinstance(target.state, Pairs):
                target.state = Pairs()
                self.count_object()
            target.state.items.extend(pairs)
        else:
            raise BadPickle("it is corrupt")

    def add_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(items)
        elif not isinstance(target, Record):
            raise BadPickle("it is corrupt")

    def new_pairs(self) -> None:
        self.push(Pairs())
        self.count_object()

    def new_list(self) -> None:
        self.push([])
        self.count_object()

    def pairs_from(self, flat: list[Any]) -> None:
        self.new_pairs()
        self.add_pairs(flat)

    def one(self) -> list[Any]:
        return [self.stack.pop()]

    def two(self) -> list[Any]:
        value = self.stack.pop()
        return [self.stack.pop(), value]

    def float(self) -> None:
        self.push(struct.unpack(">d", self.take(8))[0])

    def integer(self) -> None:
        self.push(struct.unpack("<i", self.take(4))[0])

    def stack_class(self) -> None:
        name = self.stack.pop()
        self.push_class(self.stack.pop(), name)

    def persistent(self) -> None:
        self.stack[-1] = Record("persistent", self.stack[-1])
        self.count_object()


_NAMED: dict[bytes, Callable[[_Machine], object]] = {
    b"\x80": lambda m: m.take(1),  # protocol
    b"\x95": lambda m: m.take(8),  # frame
    b"0": lambda m: m.stack.pop(),
    b"1": lambda m: m.pop_to_mark(),
    b"2": lambda m: m.push(m.stack[-1]),
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"J": _Machine.integer,
    b"M": lambda m: m.push(m.number(2)),
    b"\x8a": lambda m: m.long(m.number(1)),
    b"\x8b": lambda m: m.long(m.number(4)),
    b"G": _Machine.float,
    b"X": lambda m: m.push(m.text(m.number(4))),
    b"\x8c": lambda m: m.push(m.text(m.number(1))),
    b"\x8d": lambda m: m.push(m.text(m.number(8))),
    b"T": lambda m: m.push(m.take(m.number(4))),
    b"U": lambda m: m.push(m.take(m.number(1))),
    b"B": lambda m: m.push(m.take(m.number(4))),
    b"C": lambda m: m.push(m.take(m.number(1))),
    b"\x8e": lambda m: m.push(m.take(m.number(8))),
    b"\x96": lambda m: m.push(m.take(m.number(8))),
    b"]": _Machine.new_list,
    b"a": lambda m: m.add_items(m.one()),
    b"e": lambda m: m.add_items(m.pop_to_mark()),
    b"l": lambda m: m.push(m.pop_to_mark()),
    b")": lambda m: m.push(()),
    b"t": lambda m: m.push(tuple(m.pop_to_mark())),
    b"\x86": lambda m: m.tuple_of(2),
    b"\x87": lambda m: m.tuple_of(3),
    b"}": _Machine.new_pairs,
    b"d": lambda m: m.pairs_from(m.pop_to_mark()),
    b"s": lambda m: m.add_pairs(m.two()),
    b"u": lambda m: m.add_pairs(m.pop_to_mark()),
    b"\x8f": _Machine.new_list,  # a set, as a list
    b"\x90": lambda m: m.add_items(m.pop_to_mark()),
    b"\x91": lambda m: m.push(m.pop_to_mark()),  # a frozenset
    b"c": lambda m: m.push_class(m.line(), m.line()),
    b"\x93": _Machine.stack_class,
    b"R": _Machine.create,
    b"\x81": _Machine.create,
    b"\x92": lambda m: m.create(2),
    b"b": _Machine.build,
    b"q": lambda m: m.remember(m.number(1)),
    b"r": lambda m: m.remember(m.number(4)),
    b"Q": _Machine.persistent,
}
_OPERATIONS: list[Callable[[_Machine], object] | None] = [_NAMED.get(bytes([code])) for code in range(256)]
