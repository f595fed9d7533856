"""The script that all bindings answer alike: `bindings/conformance`, whose README explains it."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional

import pytest

import tamis

SCRIPTS = Path(__file__).parents[2] / "conformance"
TOKEN = re.compile(r'"([^"]*)"(?:\*(\d+))?|(\S+)')


def parsed(text: str) -> list[Any]:
    """The tokens of a line: bytes, or words as str."""
    tokens: list[Any] = []
    for data, times, word in TOKEN.findall(text):
        if word:
            tokens.append(word)
        else:
            tokens.append(re.sub(rb"\\x(..)", lambda m: bytes([int(m[1], 16)]), data.encode("ascii")) * int(times or 1))
    return tokens


def scripts() -> Iterator[Any]:
    """Every test of every file: its lines with their numbers."""
    for file in sorted(SCRIPTS.glob("*.txt")):
        lines: Optional[list[tuple[int, str]]] = None
        name = ""
        for number, line in enumerate(file.read_text("ascii").splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            if line.startswith("test "):
                if lines is not None:
                    yield pytest.param(file, lines, id=f"{file.stem}-{name}")
                name, lines = line[5:].strip(), []
            else:
                assert lines is not None, f"{file.name}, line {number}: a command before the first test"
                lines.append((number, line))
        if lines is not None:
            yield pytest.param(file, lines, id=f"{file.stem}-{name}")


class Batch:
    """Batches of the script belong to no database: the writes are remembered until one is named."""

    def __init__(self) -> None:
        self.writes: list[Callable[[tamis.Batch], None]] = []


class Runner:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.handles: dict[str, Any] = {}

    def path(self, name: bytes) -> Path:
        return self.directory / name.decode()

    def place(self, name: str) -> Any:
        """A handle, or what it is concerning another keyspace."""
        name, _, keyspace = name.partition("@")
        handle = self.handles[name]
        if isinstance(handle, Batch):
            return handle, self.handles.get(keyspace)
        return handle.keyspace(self.handles[keyspace]) if keyspace else handle

    def run(self, command: str, arguments: list[Any]) -> Any:
        method = getattr(self, "do_" + command.replace("-", "_"), None)
        if method is None:
            raise NotImplementedError(f"no such command: {command}")
        return method(*arguments)

    # Databases.

    def do_open(self, name: str, path: bytes, *options: str, **flags: bool) -> None:
        self.handles.pop(name, None)
        self.handles[name] = tamis.open(self.path(path), **flags, **pairs(options))

    def do_open_read_only(self, name: str, path: bytes, *options: str) -> None:
        self.do_open(name, path, *options, read_only=True)

    def do_close(self, db: str) -> None:
        self.handles[db].close()

    def do_release(self, name: str) -> None:
        del self.handles[name]
        gc.collect()

    def do_sync(self, db: str) -> None:
        self.handles[db].sync()

    def do_checkpoint(self, db: str, path: bytes) -> None:
        self.handles[db].checkpoint(self.path(path))

    def do_verify(self, db: str) -> int:
        return len(self.handles[db].verify().problems)

    def do_stats(self, name: str, field: bytes) -> Any:
        return getattr(self.handles[name].stats(), field.decode())

    def do_explain(self, name: str, key: bytes, field: bytes) -> Any:
        return getattr(self.handles[name].explain(key), field.decode())

    # Writes.

    def write(self, name: str, method: str, *arguments: Any) -> Any:
        place = self.place(name)
        if isinstance(place, tuple):
            batch, keyspace = place
            batch.writes.append(
                lambda target: getattr(target, method)(*arguments, **({} if keyspace is None else {"keyspace": keyspace}))
            )
            return None
        return getattr(place, method)(*arguments)

    def do_put(self, name: str, key: bytes, value: bytes) -> None:
        self.write(name, "put", key, value)

    def do_delete(self, name: str, key: bytes) -> None:
        self.write(name, "delete", key)

    def do_merge(self, name: str, key: bytes, operand: bytes) -> None:
        self.write(name, "merge", key, operand)

    def do_delete_range(self, name: str, start: Any, stop: Any) -> None:
        self.write(name, "delete_range", end(start), end(stop))

    def do_delete_prefix(self, name: str, prefix: bytes) -> None:
        self.write(name, "delete_prefix", prefix)

    def do_clear(self, name: str) -> None:
        self.place(name).clear()

    def do_batch(self, name: str) -> None:
        self.handles[name] = Batch()

    def do_write(self, db: str, name: str, durability: Optional[str] = None) -> None:
        recorded = self.handles[name]
        writes, recorded.writes = recorded.writes, []
        with self.handles[db].batch(durability=durability) as batch:
            for write in writes:
                write(batch)

    def do_compare_and_swap(self, name: str, key: bytes, expected: Any, new: Any) -> bool:
        return bool(self.place(name).compare_and_swap(key, value(expected), value(new)))

    def do_insert_if_absent(self, name: str, key: bytes, new: bytes) -> Optional[bytes]:
        """Python's `setdefault` returns the value that the key has then; whether it is the new one shows by its absence before."""
        place = self.place(name)
        before = place.get(key)
        after = place.setdefault(key, new)
        assert after == (new if before is None else before)
        return before

    def do_take(self, name: str, key: bytes) -> Optional[bytes]:
        return self.place(name).take(key)

    def do_increment(self, name: str, key: bytes, by: str) -> int:
        return self.place(name).increment(key, int(by))

    # Reads.

    def do_get(self, name: str, key: bytes) -> Optional[bytes]:
        return self.place(name).get(key)

    def do_multi_get(self, name: str, *keys: bytes) -> list[Optional[bytes]]:
        return self.place(name).multi_get(keys)

    def do_contains(self, name: str, key: bytes) -> bool:
        return key in self.place(name)

    def do_is_empty(self, name: str) -> bool:
        return not self.place(name)

    def do_scan(self, name: str, start: Any, stop: Any, **flags: bool) -> list[bytes]:
        return flat(self.place(name).items(start=end(start), stop=end(stop), **flags))

    def do_scan_back(self, name: str, start: Any, stop: Any) -> list[bytes]:
        return self.do_scan(name, start, stop, reverse=True)

    def do_scan_prefix(self, name: str, prefix: bytes) -> list[bytes]:
        return flat(self.place(name).items(prefix=prefix))

    def do_scan_prefix_back(self, name: str, prefix: bytes) -> list[bytes]:
        return flat(self.place(name).items(prefix=prefix, reverse=True))

    def do_iter(self, name: str, place: str, start: Any, stop: Any) -> None:
        self.handles[name] = self.place(place).items(start=end(start), stop=end(stop))

    def do_iter_prefix(self, name: str, place: str, prefix: bytes) -> None:
        self.handles[name] = self.place(place).items(prefix=prefix)

    def do_next(self, name: str) -> Any:
        item = next(self.handles[name], None)
        return None if item is None else list(item)

    def do_prev(self, name: str) -> Any:
        item = self.handles[name].next_back()
        return None if item is None else list(item)

    def do_seek(self, name: str, key: bytes) -> None:
        self.handles[name].seek(key)

    def do_snapshot(self, name: str, db: str) -> None:
        self.handles[name] = self.handles[db].snapshot()

    def do_approximate_len(self, name: str, start: Any, stop: Any) -> int:
        return self.place(name).approximate_len(start=end(start), stop=end(stop))

    def do_approximate_size(self, name: str, start: Any, stop: Any) -> int:
        return self.place(name).approximate_size(start=end(start), stop=end(stop))

    # Transactions.

    def do_transaction(self, name: str, db: str, isolation: str = "serializable") -> None:
        self.handles[name] = self.handles[db].transaction(isolation=isolation)

    def do_lock_transaction(self, name: str, db: str, milliseconds: str) -> None:
        self.handles[name] = self.handles[db].lock_transaction(timeout=int(milliseconds) / 1000)

    def do_get_for_update(self, name: str, key: bytes) -> Optional[bytes]:
        name, _, keyspace = name.partition("@")
        return self.handles[name].get_for_update(key, keyspace=self.handles[keyspace] if keyspace else None)

    def do_commit(self, name: str) -> None:
        self.handles[name].commit()

    def do_rollback(self, name: str) -> None:
        self.handles[name].rollback()

    def do_savepoint(self, name: str, transaction: str) -> None:
        self.handles[name] = self.handles[transaction].savepoint()

    def do_rollback_to(self, transaction: str, name: str) -> None:
        self.handles[transaction].rollback_to(self.handles[name])

    def do_prepare(self, transaction: str, name: bytes) -> None:
        self.handles[transaction].prepare(name)

    def do_prepared(self, db: str) -> list[bytes]:
        return [prepared.name for prepared in self.handles[db].prepared_transactions()]

    def prepared(self, db: str, name: bytes) -> tamis.PreparedTransaction:
        for prepared in self.handles[db].prepared_transactions():
            if prepared.name == name:
                return prepared
        raise tamis.Error("there is no prepared transaction of that name", "not-prepared")

    def do_commit_prepared(self, db: str, name: bytes) -> None:
        self.prepared(db, name).commit()

    def do_abort_prepared(self, db: str, name: bytes) -> None:
        self.prepared(db, name).abort()

    # Keyspaces and maintenance.

    def do_keyspace(self, name: str, db: str, keyspace: bytes) -> None:
        self.handles[name] = self.handles[db].keyspace(keyspace.decode())

    def do_create_keyspace(self, name: str, db: str, keyspace: bytes, *options: str) -> None:
        self.handles[name] = self.handles[db].create_keyspace(keyspace.decode(), **pairs(options))

    def do_get_or_create_keyspace(self, name: str, db: str, keyspace: bytes, *options: str) -> None:
        self.handles[name] = self.handles[db].keyspace(keyspace.decode(), create=True, **pairs(options))

    def do_drop_keyspace(self, db: str, keyspace: bytes) -> None:
        self.handles[db].drop_keyspace(keyspace.decode())

    def do_rename_keyspace(self, db: str, old: bytes, new: bytes) -> None:
        self.handles[db].rename_keyspace(old.decode(), new.decode())

    def do_keyspaces(self, db: str) -> list[bytes]:
        return [name.encode() for name in self.handles[db].keyspaces()]

    def do_set_options(self, name: str, *options: str) -> None:
        self.handles[name].set_options(**pairs(options))

    def do_flush(self, name: str) -> None:
        self.handles[name].flush()

    def do_compact(self, name: str) -> None:
        self.handles[name].compact()

    def do_compact_range(self, name: str, start: Any, stop: Any) -> None:
        self.handles[name].compact_range(end(start), end(stop))

    def do_build_table(self, path: bytes, *entries: bytes) -> None:
        with tamis.TableBuilder(self.path(path)) as table:
            for key, new in zip(entries[::2], entries[1::2]):
                table.put(key, new)

    def do_ingest(self, name: str, *paths: bytes) -> int:
        return self.handles[name].ingest([self.path(path) for path in paths]).entries


def pairs(options: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(options[::2], options[1::2]))


def end(token: Any) -> Optional[bytes]:
    return None if token == "-" else token


def value(token: Any) -> Optional[bytes]:
    return None if token == "none" else token


def flat(items: Any) -> list[bytes]:
    return [part for item in items for part in item]


def expected(tokens: list[Any]) -> Any:
    """What an answer of the script is in Python."""
    if tokens[0] == "list":
        return [value(token) for token in tokens[1:]]
    (token,) = tokens
    if isinstance(token, bytes):
        return token
    return {"none": None, "true": True, "false": False}[token] if not token.lstrip("-").isdigit() else int(token)


@pytest.mark.parametrize("file, lines", list(scripts()))
def test_script(file: Path, lines: list[tuple[int, str]], tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    try:
        for number, line in lines:
            # The arrow may not occur in tokens: they have their spaces inside quotes.
            command, _, answer = re.sub(r'("[^"]*")|( => )', lambda m: m[1] or "\0", line).partition("\0")
            name, *arguments = parsed(command)
            wanted = parsed(answer)
            where = f"{file.name}, line {number}: {line}"
            try:
                given: Any = runner.run(name, arguments)
            except tamis.Error as error:
                assert wanted == ["error", error.code], f"{where}\n{error}"
                continue
            except (TypeError, ValueError, AttributeError, KeyError) as error:
                raise AssertionError(f"{where}\n{error!r}") from error
            assert wanted[:1] != ["error"], f"{where}\nsucceeded with {given!r:.200}"
            if wanted and wanted != ["any"]:
                assert given == expected(wanted) and type(given) is type(expected(wanted)), f"{where}\n{given!r:.200}"
    finally:
        runner.handles.clear()
        gc.collect()


def test_there_are_scripts() -> None:
    assert len(list(scripts())) > 30
