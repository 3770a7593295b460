"""The sample data as config sections."""

from pathlib import Path

from bsc_core.config import Columns, CorpusColumns, DataConfig
from bsc_core.paths import sample_data_folder


def sample_config(folder: Path | None = None) -> DataConfig:
    """Return the config of the sample questions and answers; a fifth of the questions is held out for dev."""
    folder = folder or sample_data_folder()
    return DataConfig(
        train=str(folder / "pairs.tsv"),
        corpus=str(folder / "corpus.tsv"),
        columns=Columns(query="query", document="document", label="label", query_id="query_id", document_id="doc_id"),
        corpus_columns=CorpusColumns(document="text", document_id="doc_id"),
        dev_size=0.2,
    )


def sample_nli_config(folder: Path | None = None) -> DataConfig:
    """Return the config of the sample premises and hypotheses; a fifth of the premises is held out for dev."""
    return DataConfig(
        train=str((folder or sample_data_folder()) / "nli.tsv"),
        columns=Columns(query="premise", document="hypothesis", class_label="label", query_id="premise_id"),
        dev_size=0.2,
    )
