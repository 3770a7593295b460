"""Texts and pairs: read from files, checked, split, and held as integers that point into distinct texts."""

from bsc_core.data.audit import Finding, audit
from bsc_core.data.columns import guess_columns, guess_corpus_columns
from bsc_core.data.convert import convert_file
from bsc_core.data.experiment import SPLIT_SEED, ExperimentData, load_data, load_evaluation_data
from bsc_core.data.pairs import Corpus, PairDataset
from bsc_core.data.readers import read_corpus, read_pairs
from bsc_core.data.remedies import REMEDIES
from bsc_core.data.reports import ReadReport, Rejection
from bsc_core.data.splits import split_by_component, split_by_query
from bsc_core.data.tables import Table, read_table
from bsc_core.data.tally import audit_file
from bsc_core.data.texts import TextTable, unite

__all__ = [
    "REMEDIES",
    "SPLIT_SEED",
    "Corpus",
    "ExperimentData",
    "Finding",
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
    "read_corpus",
    "read_pairs",
    "read_table",
    "split_by_component",
    "split_by_query",
    "unite",
]
