"""Diagnosis of a run: why it got worse, as a ranked list of findings with evidence."""

from bsc_core.diagnosis.diagnose import Diagnosis, diagnose
from bsc_core.diagnosis.findings import Evidence, Finding

__all__ = ["Diagnosis", "Evidence", "Finding", "diagnose"]
