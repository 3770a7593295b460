"""Texts and pairs: reading, validation, splits, filters, and datasets as integers that index distinct texts."""

from bsc_core.data.dataset import Corpus, PairDataset, TextTable, merge_text_tables
from bsc_core.data.io.convert import convert_file
from bsc_core.data.io.read_pairs import read_corpus, read_pairs
from bsc_core.data.io.tables import Table, read_table
from bsc_core.data.load import DatasetSplits, load_data, load_evaluation_data
from bsc_core.data.quality.audit import AuditFinding, audit
from bsc_core.data.quality.filters import FILTERS
from bsc_core.data.quality.streaming_audit import audit_file
from bsc_core.data.read_report import ReadReport, Rejection
from bsc_core.data.schema.columns import guess_columns, guess_corpus_columns
from bsc_core.data.splits import split_by_component, split_by_query

__all__ = [
    "FILTERS",
    "AuditFinding",
    "Corpus",
    "DatasetSplits",
    "PairDataset",
    "ReadReport",
    "Rejection",
    "Table",
    "TextTable",
    "audit",
    "audit_file",
    "convert_file",
    "guess_columns",
    "guess_corpus_columns",
    "load_data",
    "load_evaluation_data",
    "merge_text_tables",
    "read_corpus",
    "read_pairs",
    "read_table",
    "split_by_component",
    "split_by_query",
]
