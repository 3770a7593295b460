"""Fixtures of the data tests."""

import pytest


@pytest.fixture
def write(tmp_path):
    """Write a file of text or bytes and return its path."""

    def written(name, content):
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return str(tmp_path / name)

    return written
