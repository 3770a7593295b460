"""Random files, configs and links: each ends with a value or an error of the project in one sentence."""

from __future__ import annotations

import gzip
import io
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bsc_core.config import RunConfig, flatten, make_config, read_config, read_sweep, to_toml
from bsc_core.config.reading import parse_value, put, resolve_paths
from bsc_core.data import read_pairs
from bsc_core.data.io.tables import read_chunks, read_table
from bsc_core.errors import BscError
from bsc_core.lab.link import lab_parameters, read_link
from bsc_core.presets.catalog import PRESETS
from tests.helpers.pages import open_page

ROWS = [("how do i bake", "use an oven", "1"), ('say "hi", twice', "héllo\tworld", "0"), ("", "x", "0.5")] * 3
FILE = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def delimited(separator: str) -> bytes:
    lines = [separator.join(("query", "document", "label"))]
    lines += [separator.join('"' + cell.replace('"', '""') + '"' for cell in row) for row in ROWS]
    return "\n".join(lines).encode()


def parquet() -> bytes:
    file = io.BytesIO()
    columns = {name: [row[number] for row in ROWS] for number, name in enumerate(("query", "document", "label"))}
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


JSONL = "\n".join(
    f'{{"query": "{number}", "document": "a \\u00e9", "label": {number}}}' for number in range(9)
).encode()
VALID = {
    "pairs.csv": delimited(","),
    "pairs.tsv": delimited("\t"),
    "pairs.jsonl": JSONL,
    "pairs.csv.gz": gzip.compress(delimited(","), mtime=0),
    "pairs.jsonl.gz": gzip.compress(JSONL, mtime=0),
    "pairs.parquet": parquet(),
}
NASTY = [
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b'"',
    b"\r",
    b"\n\n",
    b"{",
    b"[" * 50,
    b"\xed\xa0\x80",
    b"1e999",
    b"\t",
    b",",
]


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Valid content with bytes replaced, inserted, removed, repeated or cut off; or any bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.integers(0, 40)))
        part = draw(st.one_of(st.sampled_from(NASTY), st.binary(max_size=8), st.just(content[start:end] * 3)))
        content = content[:start] + part + content[end if draw(st.booleans()) else start :]
    return content[: draw(st.integers(0, len(content)))] if draw(st.integers(0, 4)) == 0 else content


def check_sentence(error: BscError) -> None:
    text = str(error)
    assert text
    assert "\n" not in text
    assert "Traceback" not in text
    assert len(text) < 2000


@pytest.mark.parametrize("name", VALID)
@given(data=st.data())
@FILE
def test_a_damaged_file_is_read_or_refused(name: str, data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(data.draw(damaged(VALID[name])))
    for read in (read_table, lambda path: list(read_chunks(path, rows=4)), read_pairs):
        try:
            read(path)
        except BscError as error:
            check_sentence(error)


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=12),
        st.sampled_from(
            ["none", "bundled", "bsc", "combined", "nearest", "-1", "1e999", "nan", "run:x", "../..", "\x00"]
        ),
    ),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=8), values, max_size=3),
    max_leaves=6,
)
START = make_config({"data": {"train": "pairs.tsv"}})
KEYS = sorted(
    {*flatten(START), "loss.losses", "loss.name", "encoder.lora.rank", "data.negatives.method", "data.nli", "x.y"}
)


@given(changes=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4))
@settings(max_examples=300)
def test_any_values_are_a_config_or_refused(changes: dict[str, Any]) -> None:
    values: dict[str, Any] = {"data": {"train": "pairs.tsv"}}
    try:
        for key, value in changes.items():
            put(values, key, value, "test")
        config = make_config(values)
    except BscError as error:
        check_sentence(error)
    else:
        assert isinstance(config, RunConfig)
        numbers = [value for value in flatten(config).values() if isinstance(value, float)]
        assert not any(math.isnan(number) for number in numbers)


TOML = to_toml(START)


@given(content=damaged(TOML.encode()), overrides=st.lists(st.text(max_size=30), max_size=2))
@example(content=b"", overrides=["\n"])
@FILE
def test_a_damaged_config_file_is_read_or_refused(content: bytes, overrides: list[str], tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    for read in (read_config, lambda path, overrides: read_sweep(path, overrides, overrides)):
        try:
            read(path, overrides)
        except BscError as error:
            check_sentence(error)


@given(changes=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=3))
@example(changes={"data.corpus": "0"})
@FILE
def test_a_valid_config_is_the_same_after_writing_and_reading(changes: dict[str, Any], tmp_path: Path) -> None:
    values: dict[str, Any] = {"data": {"train": "/pairs.tsv"}}
    try:
        for key, value in changes.items():
            put(values, key, value, "test")
        make_config(values)
        resolve_paths(values, tmp_path)  # those of a file are relative to its folder
        config = make_config(values)
    except BscError:
        return
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    assert read_config(path) == config


TEXT = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["", "none", "nan", "1e400", "-1", "[" * 200, '"', "[1, 2", "{}", "0x10", "true", "9" * 5000, "\ud7ff"]
    ),
)


@given(text=TEXT)
@settings(max_examples=300)
def test_any_value_of_a_link_is_parsed_or_refused(text: str) -> None:
    try:
        parse_value(text)
    except BscError as error:
        check_sentence(error)


LAB_NAMES = sorted(
    {*lab_parameters(dict.fromkeys(("source", "preset", "pairs", "seed", "spread", "angles", "first", "size"), ""))}
    | {"temperature", "b_temperature", "typed", "toy", "mask", "normalization", "compare", "cell"}
)


@given(query=st.dictionaries(st.one_of(st.sampled_from(LAB_NAMES), st.text(max_size=10)), TEXT, max_size=6))
@settings(max_examples=300)
def test_any_link_to_the_loss_lab_has_a_state_and_its_faults(query: dict[str, str]) -> None:
    state, faults = read_link(query)
    assert state is not None
    for fault in faults:
        check_sentence(BscError(fault))


PARAMETERS = {
    "learn": [*LAB_NAMES, "dataset"],
    "train": [
        "preset",
        "name",
        "sweep",
        "dataset",
        "loss.name",
        "loss.temperature",
        "sweep.loss.temperature",
        "data.train",
    ],
    "runs": ["run", "group", "compare", "filter", "runs.part.overview"],
    "batches": ["batches.strategies", "batches.batch_size", "batches.seed", "batches.batch", "batches.pin", "dataset"],
    "lessons": ["lesson", "done", "answer"],
    "findings": ["findings.claim", "findings.paper", "findings.verdict"],
}


@pytest.mark.parametrize("page", PARAMETERS)
@given(data=st.data())
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_link_opens_a_page(page: str, data: st.DataObject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BSC_RUNS", str(tmp_path / "runs"))
    values = st.one_of(TEXT, st.sampled_from([*PRESETS, "sample-nli", "combined", "nearest", "0.1"]))
    query = data.draw(st.dictionaries(st.sampled_from(PARAMETERS[page]), values, min_size=1, max_size=3))
    app = open_page(page, **query)
    assert not app.exception
