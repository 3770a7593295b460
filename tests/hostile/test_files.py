"""Hostile data files: each is refused in one sentence or read with stated counts, in limited memory."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import random
import shutil
import socket
import struct
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from bsc_core.config import Columns, CorpusColumns, DataConfig
from bsc_core.data.io import limits
from bsc_core.data.io.limits import FlatBuffer, check_parquet_size
from bsc_core.data.io.tables import read_table
from bsc_core.data.load import load_data
from bsc_core.errors import FileFormatError
from bsc_core.paths import sample_data_folder
from tests.hostile.outcomes import read_outcomes

READER = Path(__file__).with_name("read_files.py")
MAX_BYTES = 1 << 30
MAX_SECONDS = 10  # of processor time on the reference machine
HEADER = b"query\tdocument\n"
ROWS = HEADER + b"a\tb\n" * 3
MIB = 1 << 20

Make = Callable[[Path], object]


NESTED = b"".join(random.Random(0).choices([b"[],", b"{},", b"[0],", b"[[]],"], k=100_000))


def content(data: bytes) -> Make:
    return lambda path: path.write_bytes(data)


def gzipped(data: bytes, times: int = 1, level: int = 9) -> Make:
    """A gzip file whose `times` members each hold the data."""
    return lambda path: path.write_bytes(gzip.compress(data, level) * times)


def followed_by_zeros(path: Path) -> None:
    """A sparse file of 40 GiB."""
    path.write_bytes(gzip.compress(ROWS))
    os.truncate(path, 40 << 30)


def blank_lines(start: bytes, line: bytes = b"\n") -> bytes:
    """A text with a million blank lines."""
    return start + line * MIB


def parquet(columns: dict[str, object], **options: object) -> Make:
    return lambda path: pyarrow.parquet.write_table(pyarrow.table(columns), path, **options)


def repeated_json(path: Path) -> None:
    """1,000 rows that repeat a text of 1 MB in a column of JSON."""
    texts = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 1_000, pyarrow.int32()), [f'"{"x" * MIB}"'])
    column = pyarrow.ExtensionArray.from_storage(pyarrow.json_(), texts.cast(pyarrow.string()))
    pyarrow.parquet.write_table(pyarrow.table({"query": ["a"] * 1_000, "document": column}), path, compression="zstd")


def constant_decimals(path: Path) -> None:
    number = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0] * 2_000_000, pyarrow.int32()), pyarrow.array([1], pyarrow.decimal128(38))
    )
    column = number.cast(pyarrow.decimal128(38))
    pyarrow.parquet.write_table(pyarrow.table({"query": column, "document": column}), path)


def successive_numbers(path: Path) -> None:
    """Eight million different numbers in less than 100 kB."""
    column = pyarrow.array(np.arange(4_000_000))
    options = {"use_dictionary": False, "column_encoding": "DELTA_BINARY_PACKED", "compression": "zstd"}
    pyarrow.parquet.write_table(pyarrow.table({"query": column, "document": column}), path, **options)


def part_of_parquet(start: int, stop: int) -> Make:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"query": ["a"] * 100, "document": ["b"] * 100}), buffer)
    return content(buffer.getvalue()[start:stop])


def repeated_text(path: Path) -> None:
    """A million rows that repeat one text of a million characters: 1 TB, in a file of 1 MB or less."""
    indices = pyarrow.array([0] * 1_000_000, pyarrow.int32())
    texts = pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(["".join(map(chr, range(32, 126))) * 10_000]))
    pyarrow.parquet.write_table(pyarrow.table({"query": texts, "document": texts}), path)


def shared_names(fields: int, length: int) -> bytes:
    """Return the message of an Arrow schema whose fields share one long name."""
    names = ["x" * length, *map(str, range(1, fields))]
    stream = pyarrow.schema([(name, pyarrow.string()) for name in names]).serialize().to_pybytes()
    content = bytearray(stream[8:])
    buffer = FlatBuffer(bytes(content))
    first, *others = buffer.tables(buffer.part(buffer.part(buffer.target(0), 2), 1))
    for field in others:
        position = buffer.field(field, 0)
        content[position : position + 4] = struct.pack("<I", buffer.part(first, 0) - position)
    return stream[:8] + content


def shared_names_in_parquet(path: Path) -> None:
    """A file of 700 kB whose Arrow schema has 5,000 names of 500 kB, which are one text."""
    write_metadata(path, "ARROW:schema", base64.b64encode(shared_names(5_000, 500_000)).decode())


def long_classes(path: Path) -> None:
    """A file whose names of classes are JSON of 40 MB."""
    write_metadata(path, "huggingface", '{"info": {"features": {}}, "x": [%s[]]}' % ("[]," * 13_000_000))


def write_metadata(path: Path, key: str, value: str) -> None:
    """Write a Parquet file of one row with an entry of metadata in its footer."""
    table = pyarrow.table({"query": ["a"], "document": ["b"]})
    with pyarrow.parquet.ParquetWriter(path, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({key: value})


def wide_rows(path: Path) -> None:
    """Rows of a thousand cells that are empty, except a random one, so that the ratio of the bytes is not extreme."""
    numbers = random.Random(0)
    rows = (b"\t" * 999 + b"%08x\n" % numbers.getrandbits(32) for _ in range(12_000))
    path.write_bytes(gzip.compress(b"\t".join(b"c%d" % number for number in range(1_000)) + b"\n" + b"".join(rows)))


def many_rows(path: Path) -> None:
    """2 million equal rows in a file of 400 kB; random bytes keep the ratio of decompression below the limit."""
    numbers = random.Random(0)
    row = b'{"query":"a","document":"b"}\n'
    noise = (b'{"query":"%s","document":"b"}\n' % numbers.randbytes(140).hex().encode() for _ in range(800))
    path.write_bytes(gzip.compress(b"".join(row * 2_500 + one for one in noise), 9))


def constant_columns(path: Path) -> None:
    """80 million cells of 20 constant columns, in a file of 300 kB."""
    column = pyarrow.array(np.zeros(4_000_000, dtype=np.int64))
    table = pyarrow.table({f"c{number}": column for number in range(20)})
    pyarrow.parquet.write_table(table, path, compression="zstd", row_group_size=len(table))


def repeated_values(kind: pyarrow.DataType, name: str, other: str) -> Make:
    """20,000 rows that repeat a value of 60 kB in a column of lists, objects or bytes, and a column of short texts."""

    def make(path: Path) -> None:
        text = pyarrow.array(["x" * 60_000]).take(pyarrow.array([0] * 20_000))
        if pyarrow.types.is_struct(kind):
            column = pyarrow.StructArray.from_arrays([text], ["a"])
        elif pyarrow.types.is_list(kind):
            column = pyarrow.ListArray.from_arrays(pyarrow.array(range(20_001), pyarrow.int32()), text)
        else:
            column = text.cast(kind)
        pyarrow.parquet.write_table(pyarrow.table({name: column, other: ["a"] * 20_000}), path)

    return make


def not_utf8(path: Path) -> None:
    text = pyarrow.StringArray.from_buffers(1, pyarrow.py_buffer(struct.pack("<ii", 0, 1)), pyarrow.py_buffer(b"\xff"))
    pyarrow.parquet.write_table(pyarrow.table({"query": text}), path)


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("xl/workbook.xml", "<workbook/>")


def link(target: str) -> Make:
    return lambda path: path.symlink_to(target)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(path.parent, os.O_RDONLY)  # the address of a socket is limited to 108 bytes
        server.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)


def json_lines(*values: object) -> Make:
    return content("".join(f"{json.dumps(value)}\n" for value in values).encode())


def encoded(encoding: str) -> Make:
    return content("query\tdocument\ncafé\ttea\n".encode(encoding))


def thrift(value: Any) -> bytes:
    """A value in the compact protocol of Thrift: np.int64 has 64 bits, int 32, and a dict is a structure of fields."""
    kinds = {np.int64: 6, int: 5, bytes: 8, list: 9, dict: 12}
    if isinstance(value, bytes):
        return varint(len(value)) + value
    if isinstance(value, list):
        return bytes([len(value) << 4 | kinds[type(value[0])]]) + b"".join(map(thrift, value))
    if isinstance(value, dict):
        fields = zip(value.items(), [0, *value], strict=False)
        return (
            b"".join(bytes([number - last << 4 | kinds[type(one)]]) + thrift(one) for (number, one), last in fields)
            + b"\0"
        )
    return varint(int(value) << 1 if value >= 0 else ~(int(value) << 1))


def varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


TEXTS = struct.pack("<I", 1) + b"a" + struct.pack("<I", 1) + b"b" + struct.pack("<I", 1) + b"c"
ZSTD = pyarrow.compress(TEXTS, "zstd", asbytes=True)
INDICES = b"\x02\x03\x24\x00"  # width of 2 bits; 8 packed indices: 0, 1, 2 and zeros
GIBIBYTE = 80 * 16 * MIB  # one text, decompressed
LARGE = pyarrow.compress(struct.pack("<I", GIBIBYTE), "zstd", asbytes=True) + 80 * pyarrow.compress(
    b"a" * 16 * MIB, "zstd", asbytes=True
)


def page(
    packed: bytes = ZSTD,
    unpacked: int = len(TEXTS),
    *,
    stored: int | None = None,
    kind: int = 0,
    values: int = 3,
    encoding: int = 0,
) -> bytes:
    """A page of data (kind 0), a dictionary (2) or data of version 2 (3), whose header may contradict its content."""
    about = {
        0: {5: {1: values, 2: encoding, 3: 3, 4: 3}},
        2: {7: {1: values, 2: 0}},
        3: {8: {1: values, 2: 0, 3: values, 4: encoding, 5: 0, 6: 0}},
    }[kind]
    return thrift({1: kind, 2: unpacked, 3: len(packed) if stored is None else stored} | about) + packed


def dictionary(first: bytes) -> Make:
    """A file whose column has a dictionary and a page of indices."""
    indices = pyarrow.compress(INDICES, "zstd", asbytes=True)
    return forged(first, page(indices, len(INDICES), encoding=8), dictionary=True)


def forged(
    *pages: bytes,
    rows: int = 3,
    group_rows: int | None = None,
    values: int | None = None,
    unpacked: int = 1_000,
    stored: int = 1_000_000,
    offset: int = 4,
    dictionary: bool = False,
    histogram: int = 1,
    name: bytes = b"query",
    decimal: bool = False,
) -> Make:
    """A Parquet file of one column, whose footer may contradict its pages."""
    statistics = {16: {2: [np.int64(rows)] * histogram}}
    sizes = {6: np.int64(unpacked), 7: np.int64(min(stored, sum(map(len, pages))))}
    offsets = {9: np.int64(offset + len(pages[0])), 11: np.int64(offset)} if dictionary else {9: np.int64(offset)}
    group_rows = rows if group_rows is None else group_rows
    column = (
        {1: 6, 2: [0], 3: [name], 4: 6, 5: np.int64(group_rows if values is None else values)}
        | sizes
        | offsets
        | statistics
    )
    group = {1: [{2: np.int64(4), 3: column}], 2: np.int64(1_000), 3: np.int64(group_rows)}
    schema = [{4: b"schema", 5: 1}, {1: 6, 3: 0, 4: name} | ({6: 5, 7: 0, 8: 9} if decimal else {6: 0})]
    footer = thrift({1: 1, 2: schema, 3: np.int64(rows), 4: [group]})
    return content(b"PAR1" + b"".join(pages) + footer + struct.pack("<I", len(footer)) + b"PAR1")


def header_of_fields(path: Path) -> None:
    """A header with hundreds of fields that no version of the format has."""
    fields = dict.fromkeys(range(9, 400), 0)
    start = thrift({1: 0, 2: len(TEXTS), 3: len(ZSTD), 5: {1: 3, 2: 0, 3: 3, 4: 3}} | fields)
    forged(start + ZSTD)(path)


LARGEST = 2**31 - 1
SKIPPED = thrift({1: 9, 2: 20, 3: 20}) + bytes(20)  # a page of an unknown type, which pyarrow skips
SIZES = "other sizes than the footer"
PAIR = {"query": "a", "document": "b"}
CASES: dict[str, tuple[Make, str]] = {
    # more data than the file holds
    "zeros.tsv.gz": (gzipped(bytes(16 * MIB), 640), "of the file expand to at least"),
    "letters.tsv.gz": (gzipped(b"a" * 16 * MIB, 640), "of the file expand to at least"),
    "rows.tsv.gz": (gzipped(ROWS + b"a\tb\n" * 4 * MIB, 640), "of the file expand to at least"),
    "rows.csv.gz": (gzipped(b"query,document\n" + b"a,b\n" * 4 * MIB, 640), "of the file expand to at least"),
    "blank_lines.tsv.gz": (gzipped(b"\n" * 16 * MIB, 640), "lines are empty, most of the file"),
    "blank_lines.jsonl.gz": (gzipped(b"\n" * 16 * MIB, 640), "lines are empty, most of the file"),
    "blank.csv.gz": (gzipped(blank_lines(b"query,document\na,b\n"), 3), "lines are empty, most of the file"),
    "blank.jsonl.gz": (gzipped(blank_lines(b'{"query": "a"}\n'), 3), "lines are empty, most of the file"),
    "before.csv.gz": (gzipped(blank_lines(b""), 3), "lines are empty, most of the file"),
    "spaces.jsonl.gz": (gzipped(blank_lines(b'{"query": "a"}\n', b" \n"), 3), "lines are empty"),
    "digits.jsonl": (content(b'{"query": "a", "document": 1}\n{"query": ' + b"9" * 200 + b"}\n"), "1 rows, 1 rejected"),
    "lines.jsonl.gz": (
        gzipped(b'{"query": "a", "document": "b"}\n' * (MIB // 2), 640),
        "of the file expand to at least",
    ),
    "gzip_in_gzip.tsv.gz": (gzipped(gzip.compress(ROWS)), "contains gzip data"),
    "empty_members.tsv.gz": (gzipped(b"", 3 * MIB // 2), "consists of more than 10,000 gzip files of a few bytes"),
    "tiny_members.tsv.gz": (gzipped(b"a\tb\n", MIB), "consists of more than 10,000 gzip files of a few bytes"),
    "cut.tsv.gz": (content(gzip.compress(ROWS)[:-9]), "not a complete gzip file"),
    "sparse.tsv.gz": (followed_by_zeros, "has more than 1 MiB of zeros"),
    "trailing.tsv.gz": (content(gzip.compress(ROWS) + b"trailing"), "not a complete gzip file"),
    "not_gzip.tsv.gz": (content(ROWS), "not a complete gzip file"),
    "gzip.tsv": (gzipped(ROWS), "contains gzip data"),
    "missing_cells.jsonl": (
        content(json.dumps(dict.fromkeys(map(str, range(1_000)), "a")).encode() + b"\n{}" * 10_000_000),
        "may have",
    ),
    "shared_names.parquet": (shared_names_in_parquet, "its schema has too many fields, or too long names or metadata"),
    "long_classes.parquet": (long_classes, "1 rows, 0 rejected"),
    "repeated_text.parquet": (repeated_text, "of the file expand to at least"),
    "zeros.parquet": (
        parquet({"query": ["0" * 100 * MIB], "document": ["b"]}, use_dictionary=False, compression="zstd"),
        "of the file expand to at least",
    ),
    "nulls.parquet": (
        parquet({"query": pyarrow.nulls(50_000_000, pyarrow.string())}),
        "of the file expand to at least",
    ),
    # a footer that contradicts the pages
    "page.parquet": (forged(page()), "3 rows, 0 rejected"),
    "page_of_version_2.parquet": (forged(page(kind=3)), "3 rows, 0 rejected"),
    "dictionary.parquet": (dictionary(page(kind=2)), "3 rows, 0 rejected"),
    "unknown_page.parquet": (
        forged(thrift({1: 7, 2: 0, 3: 9, 12: {1: b"a"}}) + bytes(9), page()),
        "3 rows, 0 rejected",
    ),
    "page_after_the_rows.parquet": (forged(page(), page(LARGE, GIBIBYTE + 4, values=1)), "3 rows, 0 rejected"),
    "large_page.parquet": (forged(page(LARGE, GIBIBYTE + 4, values=1), rows=1), SIZES),
    "large_page_of_version_2.parquet": (forged(page(LARGE, GIBIBYTE + 4, values=1, kind=3), rows=1), SIZES),
    "large_dictionary.parquet": (dictionary(page(LARGE, GIBIBYTE + 4, values=1, kind=2)), SIZES),
    "large_unknown_page.parquet": (
        forged(thrift({1: 7, 2: GIBIBYTE, 3: 9}) + bytes(9), page()),
        SIZES,
    ),
    "large_column.parquet": (
        forged(page(LARGE, GIBIBYTE + 4, values=1), rows=1, unpacked=2 * GIBIBYTE),
        "of the file expand to at least",
    ),
    "large_pages.parquet": (
        forged(*[page(unpacked=4 * MIB, values=0)] * 100, page(), unpacked=400 * MIB),
        "of the file expand to at least",
    ),
    "largest_page.parquet": (forged(page(unpacked=LARGEST)), SIZES),
    "largest_dictionary.parquet": (dictionary(page(unpacked=LARGEST, kind=2)), SIZES),
    "largest_stored_page.parquet": (forged(page(stored=LARGEST)), SIZES),
    "values_of_a_page.parquet": (forged(page(values=LARGEST)), SIZES),
    "values_of_a_page_of_version_2.parquet": (forged(page(values=LARGEST, kind=3)), SIZES),
    "values_of_a_dictionary.parquet": (dictionary(page(values=LARGEST, kind=2)), SIZES),
    "values_of_a_column.parquet": (forged(page(), values=2**40), SIZES),
    "values_of_pages.parquet": (forged(page(values=1), page(values=3)), SIZES),
    "missing_values.parquet": (forged(page(values=2)), SIZES),
    "rows_of_a_group.parquet": (
        forged(page(values=10**9), group_rows=10**9),
        "the row groups have other sizes than the footer",
    ),
    "negative_page.parquet": (forged(page(unpacked=-1)), SIZES),
    "negative_stored_page.parquet": (forged(page(stored=-40)), SIZES),
    "negative_values.parquet": (forged(page(values=-1), page(values=4)), SIZES),
    "negative_dictionary.parquet": (dictionary(page(values=-1, kind=2)), SIZES),
    "negative_column.parquet": (forged(page(), unpacked=-1), SIZES),
    "negative_stored_column.parquet": (forged(page(), stored=-1), SIZES),
    "negative_values_of_a_column.parquet": (forged(page(), values=-3), SIZES),
    "negative_rows.parquet": (forged(page(), rows=-3), "the row groups have other sizes than the footer"),
    "negative_offset.parquet": (forged(page(), offset=-4), "cannot be read (Invalid argument)"),
    "offset_after_the_file.parquet": (forged(page(), offset=2**40), SIZES),
    "damaged_statistics.parquet": (forged(page(), histogram=2), "histogram size mismatch"),
    "name_not_utf8.parquet": (forged(page(), name=b"\xff"), "cannot be read ('utf-8' codec"),
    "cut_header.parquet": (forged(page()[:9]), SIZES),
    "header_at_the_end.parquet": (forged(page(), offset=len(page()) + 4 + 90), SIZES),
    "header_of_fields.parquet": (header_of_fields, SIZES),
    "skipped_page.parquet": (
        forged(page(), SKIPPED, page(), rows=6, stored=len(page()) + len(SKIPPED)),
        "3 of its 6 rows can be read",
    ),
    "decimals_as_bytes.parquet": (forged(page(), decimal=True), "stores its numbers as bytes of any length"),
    "header_with_a_list.parquet": (forged(thrift({1: [0]}) + page()), SIZES),
    "header_with_a_field_twice.parquet": (forged(thrift({1: 0})[:-1] + b"\x05\x02\x00" + page()), SIZES),
    "short_pages.parquet": (
        parquet({"query": ["a"] * 60_000, "document": ["b"] * 60_000}, max_rows_per_page=1),
        "more than 100,000 pages",
    ),
    # more cells than the file can need
    "keys.jsonl": (
        content(json.dumps({f"c{number}": "" for number in range(1_000)}).encode() + b"\n" + b"{}\n" * 150_000),
        "keep the columns of texts, labels and ids",
    ),
    "different_keys.jsonl": (json_lines(*({f"c{row % 1_000}": "a"} for row in range(1_900))), "1900 rows, 0 rejected"),
    "lines_in_quotes.csv.gz": (
        gzipped(b"query,document\n" + b'"%s",b\n' % (b"\n" * 4_000_000)),
        "keep the columns of texts, labels and ids",
    ),
    "deep_surrogate.jsonl": (  # how deep a value is read depends on the calls around
        content(b'{"a": ' + b"[" * 987 + b'"\\ud83d\\ude00"' + b"]" * 987 + b'}\n{"a": "b"}\n'),
        " rows, ",
    ),
    "rows_of_one_cell.csv.gz": (
        gzipped(b"a\n" + b"%x\n" % random.Random(0).getrandbits(400_000) + b"1\n" * 1_500_000),
        "keep the columns of texts, labels and ids",
    ),
    "many_rows.jsonl.gz": (many_rows, "keep the columns of texts, labels and ids"),
    "wide_rows.tsv.gz": (wide_rows, "keep the columns of texts, labels and ids"),
    "numbers.parquet": (successive_numbers, "keep the columns of texts, labels and ids"),
    "constant_columns.parquet": (constant_columns, "keep the columns of texts, labels and ids"),
    "repeated_json.parquet": (repeated_json, "of the file expand to at least"),
    "constant_decimals.parquet": (constant_decimals, "keep the columns of texts, labels and ids"),
    "objects.parquet": (
        repeated_values(pyarrow.struct({"a": pyarrow.string()}), "document", "query"),
        "20000 rows, 0 rejected",
    ),
    "lists.parquet": (
        repeated_values(pyarrow.list_(pyarrow.string()), "document", "query"),
        "20000 rows, 0 rejected",
    ),
    "bytes.parquet": (repeated_values(pyarrow.binary(), "document", "query"), "20000 rows, 0 rejected"),
    "path_of_an_object.parquet": (
        repeated_values(pyarrow.struct({"a": pyarrow.string()}), "document", "document.a"),
        "20000 rows, 0 rejected",
    ),
    # long lines, cells and headers
    "long_cell.tsv": (content(HEADER + b"a" * 12_000_000 + b"\tb\n"), "line 2 is longer than 10,000,000 bytes"),
    "long_cell.csv": (
        content(b'query,document\n"' + b"a\n" * 6_000_000 + b'",b\n'),
        "starts at line 2 has more than 10,000,000 characters",
    ),
    "long_line.jsonl": (json_lines(PAIR, PAIR | {"query": "a" * 12_000_000}), "line 2 is longer than 10,000,000"),
    "many_fields.csv": (
        content(b'query,document\n"' + b'a\n","' * 3_000_000 + b'"\n'),
        "starts at line 2 has more than 10,000,000 characters",
    ),
    "carriage_returns.jsonl.gz": (
        gzipped(b'{"query": [' + (NESTED + b"\r") * 60 + b"[]]}\n", level=1),
        "line 1 is longer than 10,000,000 bytes",
    ),
    "long_header.csv": (content(b"q" * 12_000_000 + b",d\na,b\n"), "line 1 is longer than 10,000,000 bytes"),
    "open_quote.csv": (content(b'query,document\n"a,b\n' + b"c,d\n" * 5), "unmatched quotation marks"),
    "open_quote_long.csv": (content(b'query,document\n"a,b\n' + b"c,d\n" * 3_000_000), "close its quotation mark"),
    "columns.csv": (content(b",".join(b"c%d" % n for n in range(100_000)) + b"\na,b\n"), "more than 1,000 columns"),
    "columns.parquet": (parquet({f"c{number}": ["a"] for number in range(1_001)}), "more than 1,000 columns"),
    "new_keys.jsonl": (json_lines(*({f"k{number}": "a"} for number in range(2_000))), "more than 1,000 columns"),
    "thousand_columns.csv": (
        content(b",".join(b"c%d" % n for n in range(1_000)) + b"\n" + b"," * 999 + b"\n"),
        "1 rows, 0 rejected",
    ),
    "thousand_lines.tsv": (content(HEADER + b"a\tb\n" * 1_000), "1000 rows, 0 rejected"),
    # JSON
    "deep.jsonl": (content(b"[" * 100_000 + b"\n"), "contains one JSON array"),
    "deep_object.jsonl": (content(b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n"), "no line is a JSON object"),
    "deep_and_good.jsonl": (
        content(b'{"a":' * 100_000 + b"\n" + b'{"query": "a", "document": "b"}\n'),
        "1 rows, 1 rejected",
    ),
    "long_number.jsonl": (content(b'{"query": ' + b"9" * 5_000 + b"}\n"), "no line is a JSON object"),
    "not_finite.jsonl": (content(b'{"query": NaN, "document": -Infinity}\n'), "1 rows, 0 rejected"),
    "surrogate.jsonl": (content(b'{"query": "\\ud800", "document": "b"}\n'), "no line is a JSON object"),
    "surrogate_name.jsonl": (content(b'{"a": "b", "\\uD800": 1}\n{"a": "b"}\n'), "1 rows, 1 rejected"),
    "surrogate_pair.jsonl": (content(b'{"query": "\\ud83d\\ude00"}\n'), "1 rows, 0 rejected"),
    "nested_bomb.jsonl.gz": (gzipped(b'{"query": [' + NESTED + b"[]]}\n", 5), "5 rows, 0 rejected"),
    "nested_parts.jsonl.gz": (
        gzipped(b'{"query": "a", "document": "b", "unused": ' + b"[" + b"[],{}," * 100_000 + b"1]}\n", 12),
        "may have 2,000,000 cells",
    ),
    "nested_repeated.jsonl.gz": (
        gzipped(b'{"query": [' + NESTED * 20 + b'[]], "query": "a", "document": "b"}\n', 5, level=1),
        "keep the columns of texts, labels and ids",
    ),
    "many_lists.jsonl": (
        content(b'{"query": [' + b"[]," * 1_000_001 + b'[]], "document": "b"}\n{"query": "a", "document": "b"}\n'),
        "1 rows, 1 rejected",
    ),
    "nested_in_text.jsonl": (json_lines({"query": "[[a], {b}]", "document": "{c}"}), "1 rows, 0 rejected"),
    "nested_rejected.jsonl.gz": (
        gzipped(b'{"query": "a", "document": "b"}\n' + (b"[" + b"[],{}," * 100_000 + b"1]\n") * 12),
        "may have 2,000,000 cells",
    ),
    "rejected_lines.jsonl.gz": (gzipped(b'{"a": 1}\n' + b"1\n" * 300_000), "more than 100,000 rows cannot be used"),
    "rejected_rows.csv.gz": (gzipped(b"a,b\n1,2\n" + b"1\n" * 300_000), "more than 100,000 rows cannot be used"),
    "repeated_key.jsonl": (content(b'{"query": "a", "query": "b", "document": "c"}\n'), "with each key once"),
    "repeated_keys.jsonl": (
        content(
            b'{"query": "a", "document": "b:c"}\n{"query": "a", "document": "b"}\n'
            b'{"query": "a", "query": "b", "document": "c"}\n{"query": "a", "x": {"y": 1, "y": 2}}\n'
        ),
        "2 rows, 2 rejected",
    ),
    "array.jsonl": (content(b'[{"query": "a"}]\n'), "one JSON array"),
    "scalars.jsonl": (content(b'1\n"a"\nnull\ntrue\n'), "no line is a JSON object"),
    "cut.jsonl": (content(b'{"query": "a", "document": "b"}\n{"query": "a", "docu'), "1 rows, 1 rejected"),
    "comments.jsonl": (content(b'// comment\n{"query": "a", "document": "b"}\n'), "1 rows, 1 rejected"),
    "python.jsonl": (content(b"{'query': 'a', 'document': 'b'}\n"), "no line is a JSON object"),
    "object.csv": (content(b'{"query": "a"}\n'), "contains JSON, not CSV"),
    "nested_values.jsonl": (json_lines({"query": ["a"], "document": {"b": 1}}), "1 rows, 0 rejected"),
    # encodings
    "utf16.tsv": (encoded("utf-16"), "contains UTF-16 text"),
    "utf16_le.tsv": (encoded("utf-16-le"), "line 2 (byte 36) is not UTF-8"),
    "utf16_be.tsv": (encoded("utf-16-be"), "line 2 (byte 37) is not UTF-8"),
    "utf16_ascii.tsv": (content("query\tdocument\na\tb\n".encode("utf-16-le")), "zero bytes"),
    "utf32.tsv": (encoded("utf-32"), "contains UTF-16 text"),
    "utf32_le.tsv": (encoded("utf-32-le"), "line 2 (byte 72) is not UTF-8"),
    "utf7.tsv": (encoded("utf-7"), "1 rows, 0 rejected"),  # is ASCII and read as such
    "utf8_bom.tsv": (encoded("utf-8-sig"), "1 rows, 0 rejected"),
    "latin1.tsv": (encoded("latin-1"), "line 2 (byte 18) is not UTF-8"),
    "windows.tsv": (content(HEADER + "“a”\tb\n".encode("cp1252")), "line 2 (byte 15) is not UTF-8"),
    "shift_jis.tsv": (content(HEADER + "日本\tb\n".encode("shift-jis")), "line 2 (byte 15) is not UTF-8"),
    "ebcdic.tsv": (encoded("cp500"), "is not UTF-8"),
    "mixed.tsv": (content(HEADER + "é\tb\n".encode() * 1000 + b"\xe9\tb\n"), "line 1002 (byte 5,015) is not UTF-8"),
    "mixed.tsv.gz": (gzipped(HEADER + "é\tb\n".encode() * 1000 + b"\xe9\tb\n"), "line 1002 (byte 5,015) is not UTF-8"),
    "cut_character.tsv": (content(HEADER + b"a\t\xe2\x82"), "line 2 (byte 17) is not UTF-8"),
    "overlong.tsv": (content(HEADER + b"\xc0\xaf\tb\n"), "line 2 (byte 15) is not UTF-8"),
    "encoded_surrogate.tsv": (content(HEADER + b"\xed\xa0\x80\tb\n"), "line 2 (byte 15) is not UTF-8"),
    "zero_in_header.tsv": (content(b"que\x00ry\tdocument\na\tb\n"), "zero bytes"),
    "zero_in_cell.tsv": (content(HEADER + b"a\x00\tb\n"), "1 rows, 0 rejected"),
    "controls.tsv": (content(HEADER + b"\x1b[2J\x07\tb\x08\x7f\n"), "1 rows, 0 rejected"),
    "right_to_left.tsv": (content(HEADER + "\u202eabc\t\u2066b\n".encode()), "1 rows, 0 rejected"),
    # other formats under the name of a table
    "workbook.csv": (zipped, "a zip archive or an Excel workbook"),
    "old_excel.csv": (content(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)), "an old Excel or Word file"),
    "database.csv": (content(b"SQLite format 3\x00" + bytes(100)), "an SQLite database"),
    "document.csv": (content(b"%PDF-1.7\n"), "a PDF"),
    "picture.csv": (content(b"\x89PNG\r\n\x1a\n"), "a picture"),
    "array.csv": (content(b"\x93NUMPY\x01\x00"), "a NumPy array"),
    "arrow.csv": (content(b"ARROW1\x00\x00"), "an Arrow file"),
    "xz.csv": (content(b"\xfd7zXZ\x00"), "xz data"),
    "bzip2.csv": (content(b"BZh91AY"), "bzip2 data"),
    "zstandard.csv": (content(b"(\xb5/\xfd\x04"), "zstandard data"),
    "page.csv": (content(b"<!DOCTYPE html><html></html>"), "an HTML or XML page"),
    "feed.csv": (content(b"<?xml version='1.0'?><a/>"), "an HTML or XML page"),
    "parquet.csv": (parquet({"query": ["a"]}), "contains a Parquet file"),
    "csv.parquet": (content(b"query,document\na,b\n"), "not a complete Parquet file"),
    "first_half.parquet": (part_of_parquet(0, 200), "not a complete Parquet file"),
    "last_half.parquet": (part_of_parquet(200, 100_000), "not a complete Parquet file"),
    "no_middle.parquet": (content(b"PAR1" + bytes(100) + b"PAR1"), "Parquet file cannot be read"),
    "long_footer.parquet": (content(b"PAR1" + b"\xff" * 100 + b"PAR1"), "Parquet file cannot be read"),
    "nested.parquet": (parquet({"query": [[[["a"]]]], "document": [{"a": {"b": 1}}]}), "1 rows, 0 rejected"),
    "typed.parquet": (
        parquet({"query": [1.5], "document": [b"\xff"], "when": pyarrow.array([0], pyarrow.timestamp("ns"))}),
        "1 rows, 0 rejected",
    ),
    "no_rows.parquet": (parquet({"query": pyarrow.array([], pyarrow.string())}), "it has no rows"),
    "not_utf8.parquet": (not_utf8, "its data are damaged"),
    "far_date.parquet": (parquet({"query": pyarrow.array([2**31 - 1], pyarrow.date32())}), "its data are damaged"),
    "pickle.parquet": (content(b"\x80\x04c__builtin__\nexec\n."), "not a complete Parquet file"),
    "pickle.jsonl": (content(b"\x80\x04\x95c__builtin__\nexec\n."), "is not UTF-8"),
    # shape
    "empty.tsv": (content(b""), "the file is empty"),
    "empty.tsv.gz": (content(b""), "the file is empty"),
    "empty_inside.tsv.gz": (gzipped(b""), "the file is empty"),
    "empty.parquet": (content(b""), "not a complete Parquet file"),
    "bom_only.tsv": (content(b"\xef\xbb\xbf"), "the file is empty"),
    "blank.tsv": (content(b"\n\n\n"), "the file is empty"),
    "header_only.tsv": (content(HEADER), "it has no rows"),
    "header_twice.tsv": (content(b"query\tquery\na\tb\n"), "names query more than once"),
    "no_names.tsv": (content(b"\t\na\tb\n"), "1 rows, 0 rejected"),
    "semicolons.csv": (content(b"query;document\na;b\n"), "1 rows, 0 rejected"),
    "semicolons.tsv": (content(b"query;document\na;b\n"), "the header has semicolons but no tabs"),
    "tabs.csv": (content(ROWS), "the header has tabs but no commas"),
    "ragged.tsv": (content(HEADER + b"a\na\tb\na\tb\tc\n"), "1 rows, 2 rejected"),
    "carriage_returns.tsv": (content(b"query\tdocument\ra\tb\r"), "1 rows, 0 rejected"),
    "mixed_ends.tsv": (content(b"query\tdocument\r\na\tb\nc\td\re\tf"), "3 rows, 0 rejected"),
    "formula.csv": (content(b'query,document\n=cmd|calc!A1,"@SUM(1+1)"\n'), "1 rows, 0 rejected"),
    "markup.csv": (content(b"query,document\n<script>alert(1)</script>,b\n"), "1 rows, 0 rejected"),
    # not a file
    "folder.csv": (lambda path: path.mkdir(), "not a regular file"),
    "pipe.csv": (lambda path: os.mkfifo(path), "not a regular file"),
    "pipe.parquet": (lambda path: os.mkfifo(path), "not a regular file"),
    "socket.csv": (unix_socket, "not a regular file"),
    "zero_device.csv": (link("/dev/zero"), "not a regular file"),
    "random_device.csv.gz": (link("/dev/urandom"), "not a regular file"),
    "terminal.csv": (link("/dev/tty"), "not a regular file"),
    "standard_input.csv": (link("/dev/stdin"), "not a regular file"),
    "kernel_messages.csv": (link("/proc/kmsg"), "the file is empty"),
    "environment.csv": (link("/proc/self/environ"), "the file is empty"),
    "memory.csv": (link("/proc/self/mem"), "the file is empty"),
    "loop.csv": (link("loop.csv"), "not a valid path"),
    "broken_link.csv": (link("missing.csv"), "there is no such file or folder"),
    "long_link.csv": (link("a" * 255), "there is no such file or folder"),
    "no_ending": (content(ROWS), "the name has no ending"),
    "other.ending": (content(ROWS), "the ending .ending is not that of a known format"),
    "table.parquet.gz": (gzipped(ROWS), "the ending .gz is not that of a known format"),
    "-rf.csv": (content(b"query,document\na,b\n"), "1 rows, 0 rejected"),
    "name\nwith line.csv": (content(b"query,document\na,b\n"), "1 rows, 0 rejected"),
    "\x1b[31mred.csv": (content(b"query,document\na,b\n"), "1 rows, 0 rejected"),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The outcome of every case, read in one separate process, whose standard input is a terminal's or a file's."""
    folder = tmp_path_factory.mktemp("files")
    for name, (make, _) in CASES.items():
        make(folder / name)
    return read_outcomes(READER, folder)


@pytest.mark.parametrize("name", CASES, ids=ascii)
@pytest.mark.parametrize("reader", [0, 1], ids=["whole", "chunks"])
def test_a_hostile_file_has_its_stated_outcome(report: dict[str, object], name: str, reader: int) -> None:
    outcome, expected = report["outcomes"][name][reader], CASES[name][1]
    assert outcome == expected if expected.endswith("rejected") else expected in outcome
    assert "Traceback" not in outcome
    assert "\n" not in outcome.replace(name, "")


def test_no_file_needs_a_gibibyte_or_ten_seconds(report: dict[str, Any]) -> None:
    assert report["bytes"] < MAX_BYTES, report["log"]
    assert max(report["seconds"].values()) < MAX_SECONDS, report["seconds"]


@pytest.mark.parametrize("suffix", [".tsv", ".tsv.gz", ".parquet"])
def test_the_data_of_a_file_are_limited_in_a_shared_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    path, texts = tmp_path / f"pairs{suffix}", [f"text {number}" for number in range(20_000)]
    rows = "".join(f"{text}\t{text}\n" for text in ["query", *texts]).replace("query\tquery", "query\tdocument")
    if suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.table({"query": texts, "document": texts}), path)
    else:
        path.write_bytes(gzip.compress(rows.encode()) if suffix == ".tsv.gz" else rows.encode())
    assert len(read_table(path)) == len(texts)
    monkeypatch.setenv("BSC_MAX_DATA_MB", "0.1")
    with pytest.raises(FileFormatError, match=r"more than 0\.1 MB of data"):
        read_table(path)


@pytest.mark.parametrize("limit", ["UNCHECKED_CELLS", "UNCHECKED_BYTES"])
@pytest.mark.parametrize("role", ["mix", "corpus", "test"])
def test_the_files_of_a_config_have_the_limits_of_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, role: str
) -> None:
    monkeypatch.setattr(limits, limit, 120_000)
    monkeypatch.setattr(limits, "MAX_EXPANSION", 10)
    path, columns = str(tmp_path / "rows.parquet"), Columns(query="query", document="document")
    parquet({"query": ["a"] * 25_000 + ["c"] * 25_000, "document": ["b"] * 50_000})(Path(path))
    other = {"corpus": path, "corpus_columns": CorpusColumns(document="document")} if role == "corpus" else {}
    copy = shutil.copy(path, tmp_path / "other.parquet")
    other |= {"mix": (str(copy),)} if role == "mix" else {"test": path} if role == "test" else {}
    load_data(DataConfig(train=path, columns=columns, dev_size=0.5))
    with pytest.raises(FileFormatError, match=r"with the files before it, [0-9,]* bytes (may have|expand)"):
        load_data(DataConfig(train=path, columns=columns, **other))


def test_several_files_of_real_text_are_within_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("UNCHECKED_CELLS", "UNCHECKED_BYTES"):
        monkeypatch.setattr(limits, limit, 0)
    table = read_table(sample_data_folder() / "pairs.tsv")
    paths = [str(tmp_path / name) for name in ("a.parquet", "b.parquet", "d.parquet")]
    for path in paths:
        parquet(dict(table.columns))(Path(path))
    gz = tmp_path / "c.tsv.gz"
    gzipped((sample_data_folder() / "pairs.tsv").read_bytes())(gz)
    data = load_data(DataConfig(train=paths[0], mix=(paths[1], str(gz), paths[2])))
    assert len(data.mix_reports) == 3


def test_a_long_file_of_few_distinct_texts_is_within_the_limits(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).integers(3_000, size=4_000_000, dtype=np.int32)
    texts = pyarrow.array([f"a text with the number {number}" for number in range(3_000)])
    columns = {
        name: pyarrow.DictionaryArray.from_arrays(pyarrow.array(order), texts)
        for name, order in {"query": np.sort(numbers), "document": numbers}.items()
    }
    path = tmp_path / "long.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), path, compression="zstd")
    check_parquet_size(path, list(columns), str(path))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_parquet_files_of_every_option_are_read(tmp_path: Path, compression: str, version: str) -> None:
    path, count = tmp_path / "pairs.parquet", 3_000
    texts = [f"text {number % 700}" if number % 5 else None for number in range(count)]
    columns = {
        "query": texts,
        "document": [f"document {number}" for number in range(count)],
        "label": range(count),
        "score": np.linspace(0, 1, count),
        "good": [True, False, None] * (count // 3),
        "date": pyarrow.array(range(count), pyarrow.date32()),
        "price": pyarrow.array([Decimal(number) for number in range(count)], pyarrow.decimal128(6, 1)),
        "none": pyarrow.nulls(count),
        "class": pyarrow.array(texts).dictionary_encode(),
        "tags": [["a", "b"]] * count,
    }
    several: list[dict[str, Any]] = [
        {},
        {"use_dictionary": False},
        {"use_dictionary": False, "column_encoding": {"label": "DELTA_BINARY_PACKED", "score": "BYTE_STREAM_SPLIT"}},
        {"dictionary_pagesize_limit": 1_000, "data_page_size": 1},
        {"max_rows_per_page": 7, "row_group_size": 1_000, "store_schema": False},
        {"write_page_index": True, "write_page_checksum": True, "bloom_filter_options": {"query": True}},
        {"version": "1.0", "write_statistics": False},
    ]
    for options in several:
        table = pyarrow.table(columns)
        pyarrow.parquet.write_table(table, path, compression=compression, data_page_version=version, **options)
        cells = read_table(path).columns
        assert cells["query"] == cells["class"] == [text or "" for text in texts], options
        assert cells["label"] == [str(number) for number in range(count)], options


@pytest.mark.parametrize("compression", ["uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_parquet_files_of_other_libraries_are_read(tmp_path: Path, compression: str) -> None:
    datasets, pandas, polars = map(pytest.importorskip, ("datasets", "pandas", "polars"))
    path, columns = tmp_path / "pairs.parquet", {"query": ["a", None] * 1_500, "label": [*range(3_000)]}
    long = {"query": ["a" * 200_000, "b" * 100_000], "label": [0, 1]}  # the statistics of polars are as long
    name = None if compression == "uncompressed" else compression
    for values in (columns, long):
        for write in (
            lambda values: pandas.DataFrame(values).to_parquet(path, compression=name),
            lambda values: polars.DataFrame(values).write_parquet(
                path, compression=compression, statistics="full", row_group_size=700, data_page_size=100
            ),
            lambda values: datasets.Dataset.from_dict(values).to_parquet(path, batch_size=700),
        ):
            write(values)
            assert read_table(path).columns["query"] == [text or "" for text in values["query"]]


def test_the_values_of_a_footer_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pairs.parquet"
    parquet({"query": ["a"] * 100, "document": ["b"] * 100}, row_group_size=1)(path)
    assert len(read_table(path)) == 100
    monkeypatch.setattr(limits, "MAX_FOOTER_VALUES", 2_000)
    with pytest.raises(FileFormatError, match="the footer of the Parquet file has more than 2,000 values"):
        read_table(path)


def test_a_column_of_a_row_group_without_rows_is_read(tmp_path: Path) -> None:
    path, table = tmp_path / "pairs.parquet", pyarrow.table({"query": ["a"], "document": ["b"]})
    with pyarrow.parquet.ParquetWriter(path, table.schema) as writer:
        for count in (0, 1, 0):
            writer.write_table(table.slice(0, count))
    assert read_table(path).columns == {"query": ["a"], "document": ["b"]}


@pytest.mark.parametrize("plaintext", [True, False], ids=["encrypted columns", "encrypted footer"])
def test_encrypted_parquet_files_are_refused(tmp_path: Path, plaintext: bool) -> None:
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Keys(encryption.KmsClient):  # type: ignore[misc, name-defined]
        def __init__(self, config: object) -> None:
            super().__init__()

        def wrap_key(self, key: bytes, name: str) -> bytes:
            return base64.b64encode(key)

        def unwrap_key(self, key: bytes, name: str) -> bytes:
            return base64.b64decode(key)

    config = encryption.EncryptionConfiguration(
        footer_key="footer", column_keys={"columns": ["query"]}, plaintext_footer=plaintext
    )
    properties = encryption.CryptoFactory(Keys).file_encryption_properties(encryption.KmsConnectionConfig(), config)
    table = pyarrow.table({"query": ["a"] * 100, "document": ["b"] * 100})
    with pyarrow.parquet.ParquetWriter(
        tmp_path / "pairs.parquet", table.schema, encryption_properties=properties
    ) as writer:
        writer.write_table(table)
    with pytest.raises(FileFormatError, match=r"not a complete Parquet file|are damaged; write it again"):
        read_table(tmp_path / "pairs.parquet")


def test_nested_columns_are_not_read_but_reported(tmp_path: Path) -> None:
    path = tmp_path / "nested.parquet"
    columns = {"list": [["a"]], "object": [{"a": "b"}], "bytes": [b"a"], "query": ["a"]}
    pyarrow.parquet.write_table(pyarrow.table(columns | {"none": pyarrow.array([None], pyarrow.binary())}), path)
    table = read_table(path)
    assert table.nested == {"list", "object", "bytes", "none"}
    assert table.columns == {name: [""] for name in table.nested} | {"query": ["a"]}
