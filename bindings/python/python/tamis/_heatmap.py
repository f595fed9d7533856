"""Pictures for notebooks."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from ._reports import SegmentStats


@dataclasses.dataclass(frozen=True, repr=False)
class Heatmap:
    """Where gets of absent keys go, and where the memory of elastic filters follows them. A notebook shows it as a picture."""

    #: The picture.
    svg: str
    #: What it shows, by keyspace, level, run and key.
    segments: Sequence[SegmentStats]

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<tamis.Heatmap of {len(self.segments)} segments>"

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Write the picture to a file, as SVG."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg)

    def to_pandas(self) -> Any:
        """Return the segments as a pandas DataFrame. Raises ImportError without pandas."""
        pandas = import_module("pandas")
        return pandas.DataFrame([dataclasses.asdict(segment) for segment in self.segments])
