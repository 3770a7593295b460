"""Hash of a claim's settings: fixed at the first run, and reported if it changes."""

from pathlib import Path

from bsc_core.reproduction.catalog import CLAIMS
from bsc_core.reproduction.findings import first_settings_hash
from bsc_core.reproduction.report import settings_sentence

CLAIM = CLAIMS["mu_stsb"]


def test_the_hash_covers_hyperparameters_and_not_seeds_or_texts() -> None:
    digest = CLAIM.settings_hash()
    assert CLAIM.model_copy(update={"seeds": (0,), "note": "other"}).settings_hash() == digest
    assert CLAIM.model_copy(update={"values": {"training": {"max_steps": 1}}}).settings_hash() != digest


def test_the_hash_of_the_first_run_is_stored_and_a_change_is_reported(tmp_path: Path) -> None:
    first = first_settings_hash(CLAIM, "full", tmp_path)
    assert first == CLAIM.settings_hash()
    changed = CLAIM.model_copy(update={"values": {"training": {"max_steps": 1}}})
    assert first_settings_hash(changed, "full", tmp_path) == first
    finding = {"settings_sha256": changed.settings_hash(), "first_settings_sha256": first}
    assert "changed after the first run" in settings_sentence(finding)
    assert "unchanged since the first run" in settings_sentence(finding | {"settings_sha256": first})
    assert settings_sentence({}) == ""
