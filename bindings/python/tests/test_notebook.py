"""Pictures for notebooks."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as xml

import pytest

import tamis


@pytest.fixture
def elastic(path):
    with tamis.open(path, filter="elastic") as db:
        db.update((b"%06d" % n, b"v") for n in range(20_000))
        db.flush()
        for n in range(2_000):
            db.get(b"%06dx" % (n * 3))
        yield db


def test_a_heat_map_is_a_picture_and_its_numbers(elastic: tamis.Database, tmp_path) -> None:
    picture = elastic.heatmap(by="key", what="asked", hex=True)
    assert xml.fromstring(picture._repr_svg_()).tag.endswith("svg") and picture.svg == picture._repr_svg_()
    assert sum(segment.keys for segment in picture.segments) == 20_000
    ends = [(segment.smallest, segment.end) for segment in picture.segments]
    assert ends[0][0] == b"000000" and ends == [(segment.smallest, segment.end) for segment in elastic.segments()]
    picture.save(tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").read_text(encoding="utf-8") == picture.svg
    assert "segments" in repr(elastic.heatmap(keyspace="default"))


def test_what_cannot_be_drawn_is_refused(elastic: tamis.Database, tmp_path) -> None:
    for wrong in ({"by": "perhaps"}, {"what": "perhaps"}):
        with pytest.raises(tamis.InvalidArgument, match="perhaps"):
            elastic.heatmap(**wrong)
    with pytest.raises(tamis.NotFound):
        elastic.heatmap(keyspace="none")
    with tamis.open(tmp_path / "plain") as db, pytest.raises(tamis.InvalidArgument, match="elastic"):
        db.heatmap()


def test_pandas_is_used_only_if_it_is_there(elastic: tamis.Database, monkeypatch) -> None:
    picture = elastic.heatmap()
    try:
        import pandas  # noqa: F401
    except ImportError:
        pass
    else:
        assert len(picture.to_pandas()) == len(picture.segments)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError):
        picture.to_pandas()


@pytest.fixture
def results(tmp_path):
    one = tmp_path / "grf-fig10" / "small"
    one.mkdir(parents=True)
    (one / "setup.json").write_text(json.dumps({"figure": "grf-fig10", "setting": "A <b>setting</b>.", "seed": 1}))
    rows = [{"kind": "row", "n": 1}, {"kind": "done"}, {"kind": "row", "n": 2}]
    (one / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"kind":')
    (one / "verdicts.json").write_text(json.dumps([{"finding": "holds"}]))
    (one / "plot-02-b.svg").write_text("<svg/>")
    (one / "plot-01-a.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>")
    (tmp_path / "notes").mkdir()
    return tmp_path


def test_results_of_experiments_are_found_and_shown(results) -> None:
    figures = tamis.Figures(results)
    assert list(figures) == ["grf-fig10/small"] and "grf-fig10" in repr(figures)
    figure = figures["grf-fig10/small"]
    assert (figure.name, figure.scale, figure.setup["seed"]) == ("grf-fig10", "small", 1)
    assert figure.rows() == [{"kind": "row", "n": 1}], "rows of unfinished steps do not count"
    assert figure.verdicts == [{"finding": "holds"}]
    assert [picture.path.name for picture in figure.pictures] == ["plot-01-a.svg", "plot-02-b.svg"]
    page = figure._repr_html_()
    assert page.count("<img ") == 2 and "<script" not in page and "<b>" not in page
    with pytest.raises(KeyError):
        figures["other/small"]
    with pytest.raises(NotADirectoryError):
        tamis.Figures(results / "none")


def test_damaged_results_are_errors_that_name_the_file(results) -> None:
    rows = results / "grf-fig10" / "small" / "rows.jsonl"
    rows.write_text("nonsense\n")
    with pytest.raises(ValueError, match="rows.jsonl, line 1"):
        tamis.Figures(results)["grf-fig10/small"].rows()
    (rows.parent / "setup.json").write_text("[]")
    with pytest.raises(ValueError, match="setup.json"):
        tamis.Figures(results)["grf-fig10/small"]
