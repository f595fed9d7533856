"""Results of the laboratory's `experiment run`, for notebooks."""

from __future__ import annotations

import base64
import html
import json
import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Union


class Picture:
    """A picture of a figure. A notebook shows it, as an image: nothing in it is run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"<tamis picture {self.path.name}>"

    @property
    def svg(self) -> str:
        """The picture."""
        return self.path.read_text(encoding="utf-8")

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.svg.encode()).decode()
        return f'<img alt="{html.escape(self.path.stem)}" src="data:image/svg+xml;base64,{data}">'


class Figure:
    """The results of one figure at one scale. A notebook shows its pictures."""

    def __init__(self, directory: Path) -> None:
        #: The directory with its files.
        self.directory = directory
        #: The figure's name.
        self.name = directory.parent.name
        #: The scale at which it was measured.
        self.scale = directory.name
        setup = _json(directory / "setup.json")
        if not isinstance(setup, dict):
            raise ValueError(f"{directory / 'setup.json'} is no object")
        #: The setting and the machine, as measured: `setting`, `scaled`, `seed`, `machine` and others.
        self.setup: dict[str, Any] = setup

    def __repr__(self) -> str:
        return f"<tamis.Figure {self.name}/{self.scale}, {len(self.pictures)} pictures>"

    @property
    def pictures(self) -> list[Picture]:
        """The pictures in their order; none before all steps of the figure are done."""
        return [Picture(path) for path in sorted(self.directory.glob("plot-*.svg"))]

    @property
    def verdicts(self) -> list[dict[str, Any]]:
        """What became of the paper's claims; empty before all steps are done."""
        path = self.directory / "verdicts.json"
        verdicts: list[dict[str, Any]] = _json(path) if path.exists() else []
        return verdicts

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of all finished steps."""
        rows: list[dict[str, Any]] = []
        step: list[dict[str, Any]] = []
        path = self.directory / "rows.jsonl"
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = json.loads(line)
                except ValueError:
                    # A run that was interrupted may have left half a line behind, at the end.
                    if line.endswith("\n"):
                        raise ValueError(f"{path}, line {number}: not JSON") from None
                    break
                if row.get("kind") == "done":
                    rows += step
                    step = []
                else:
                    step.append(row)
        return rows

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame. Raises ImportError without pandas."""
        pandas = import_module("pandas")
        return pandas.DataFrame(self.rows())

    def _repr_html_(self) -> str:
        title = f"<h4>{html.escape(self.name)}, {html.escape(self.scale)}</h4>"
        setting = f"<p>{html.escape(str(self.setup.get('setting', '')))}</p>"
        return title + setting + "".join(picture._repr_html_() for picture in self.pictures)


class Figures(Mapping[str, Figure]):
    """The results that `experiment run … --out PATH` has written, by figure and scale: ``figures["grf-fig10/small"]``."""

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        """Raises NotADirectoryError if there is no directory at ``path``."""
        self.path = Path(path)
        if not self.path.is_dir():
            raise NotADirectoryError(f"{self.path} is not a directory")
        setups = sorted(self.path.glob("*/*/setup.json"))
        self._directories = {f"{setup.parent.parent.name}/{setup.parent.name}": setup.parent for setup in setups}

    def __getitem__(self, name: str) -> Figure:
        """Return a figure. Raises KeyError if there is none of the name, and ValueError if its setup is damaged."""
        return Figure(self._directories[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._directories)

    def __len__(self) -> int:
        return len(self._directories)

    def __repr__(self) -> str:
        return f"<tamis.Figures {self.path}: {', '.join(self)}>"


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as damaged:
        raise ValueError(f"{path}: {damaged}") from None
