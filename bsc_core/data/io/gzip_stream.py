"""Bytes of a gzip file; it may have several members, as concatenated files do, but not very many tiny ones."""

from __future__ import annotations

import io
import zlib

from bsc_core.errors import FileFormatError

GZIP = 31  # zlib's `wbits` for a member of a gzip file, whose checksum and length are verified
BLOCK_BYTES = 8_192
MAX_ZEROS = 2**20  # bytes between and behind members
MAX_TINY_MEMBERS, TINY_BYTES = 10_000, 1_024  # of each member on average; those of `bgzip` are larger


def decompressed(raw: io.BufferedReader, name: str) -> io.BufferedReader:
    """Return the decompressed bytes of an open file, buffered; see `GzipStream`."""
    return io.BufferedReader(GzipStream(raw, name), BLOCK_BYTES)


class GzipStream(io.RawIOBase):
    """Decompressed bytes of an open file.

    `gzip.GzipFile` has no limit on the number of members. Each takes Python time, and has as few as 20 bytes.
    """

    def __init__(self, raw: io.BufferedReader, name: str) -> None:
        """Wrap a file that is open for reading.

        Args:
            raw: The compressed file.
            name: Its name in error messages.
        """
        self._raw, self._name = raw, name
        self._member, self._members, self._zeros = zlib.decompressobj(GZIP), 1, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        """Read decompressed bytes into the buffer; return their number, 0 at the end of the file.

        Raises:
            EOFError: The file ends within a member.
            zlib.error: The file is damaged, or something else follows a member.
            FileFormatError: The file has very many tiny members.
        """
        while True:
            if self._member.eof:
                data = self._next_member()
            else:
                data = self._member.unconsumed_tail
                data += self._raw.read(BLOCK_BYTES - len(data))
            block = self._member.decompress(data, len(buffer))
            if block:
                buffer[: len(block)] = block
                return len(block)
            if not data:
                if self._member.eof:
                    return 0
                raise EOFError

    def _next_member(self) -> bytes:
        """Start the next member and return its first bytes; return no bytes at the end of the file."""
        data = self._member.unused_data.lstrip(b"\0")  # zeros may fill the last block of the file
        while not data and (block := self._raw.read(BLOCK_BYTES)):
            data = block.lstrip(b"\0")
            self._zeros += len(block) - len(data)
            if self._zeros > MAX_ZEROS:
                raise FileFormatError(
                    f"{self._name}: has more than {MAX_ZEROS // 2**20} MiB of zeros; compress it again"
                )
        if data:
            self._member = zlib.decompressobj(GZIP)
            self._members += 1
            if self._members > MAX_TINY_MEMBERS and self._raw.tell() < self._members * TINY_BYTES:
                raise FileFormatError(
                    f"{self._name}: consists of more than {MAX_TINY_MEMBERS:,} gzip files of a few bytes each; "
                    "decompress it and compress it as one file"
                )
        return data
