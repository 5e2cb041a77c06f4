"""A list whose items live in a temporary file: for sets of a million sentences that memory need not hold.

Eight bytes an item stay in memory. The file has no name, holds a line of JSON an item, and ends with the process.
"""
import json
import tempfile
from array import array
from collections.abc import Callable, Sequence


class DiskList(Sequence):
    """encode: item -> what JSON can write; decode: that -> item.

    An item that was taken out is a copy, and has to be put back (`items[i] = item`) to be changed.
    """

    def __init__(self, encode: Callable, decode: Callable):
        self.encode, self.decode = encode, decode
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (it is open for as long as the list lives)
        self._starts = array("q")  # of each item; one that was replaced leaves its old line behind
        self._end = 0
        self._writing = True  # the file's position is its end

    def _write(self, item) -> int:
        if not self._writing:
            self._file.seek(self._end)
            self._writing = True
        start = self._end
        self._end += self._file.write(json.dumps(self.encode(item)).encode("ascii") + b"\n")
        return start

    def append(self, item):
        """Add an item at the end."""
        self._starts.append(self._write(item))

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int | slice):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        self._writing = False
        self._file.seek(self._starts[index])
        return self.decode(json.loads(self._file.readline()))

    def __setitem__(self, index: int | slice, value):
        if not isinstance(index, slice):
            self._starts[index] = self._write(value)
            return
        for i, item in zip(range(*index.indices(len(self))), value, strict=True):
            self[i] = item
