"""Check what a column of a Parquet file unpacks to, by the headers of its pages.

The sizes in the file's footer are not checked by anything; a page is unpacked to exactly the size in its
header. Headers are structs of Thrift's compact protocol:

    page    1 kind   2 bytes unpacked   3 bytes packed   5 data page {2 encoding}   8 data page {4 encoding}
"""

from pathlib import Path
from typing import IO, Any

from prolip.io.reading import MEGABYTE, TooLarge, Unreadable

LIMIT = 512 * MEGABYTE  # bytes of a group of rows, unpacked
_HEADER = MEGABYTE
_DELTA_BYTE_ARRAY = 7  # texts by their difference to the one before: a few bytes may become gigabytes


def check_pages(file: IO[bytes], table: Path, columns: list[Any]) -> None:
    """Reject columns (their metadata of pyarrow) that unpack to more than the limit."""
    total = 0
    for column in columns:
        if not column.num_values:
            continue
        offsets = (column.dictionary_page_offset, column.data_page_offset)
        place = min(offset for offset in offsets if offset is not None)
        end = place + column.total_compressed_size
        while 0 <= place < end:
            file.seek(place)
            header = _Compact(file.read(_HEADER))
            try:
                page = header.struct()
                unpacked, packed = page[2], page[3]
            except (IndexError, KeyError, RecursionError) as error:
                raise Unreadable(table, "the header of a page is damaged") from error
            encoding = page.get(5, {}).get(2) if 5 in page else page.get(8, {}).get(4)
            if encoding == _DELTA_BYTE_ARRAY:
                raise Unreadable(table, "it is encoded as DELTA_BYTE_ARRAY: write it with plain encoding")
            total += max(0, unpacked)
            if total > LIMIT:
                raise TooLarge(
                    table, f"it has a group of rows of more than {LIMIT >> 20} MB: write smaller groups"
                )
            if packed < 0:
                raise Unreadable(table, "the header of a page is damaged")
            place += header.place + packed


class _Compact:
    """A partial reader of Thrift's compact protocol: structs as dictionaries by field number."""

    def __init__(self, content: bytes) -> None:
        self._content, self.place = content, 0

    def struct(self) -> dict[int, Any]:
        """Read the fields of a struct."""
        fields: dict[int, Any] = {}
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._number()
            fields[field] = head & 15 == 1 if head & 15 in (1, 2) else self._value(head & 15)
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (1, 2, 3):  # truth values in a list take a byte
            return self._byte()
        if kind in (4, 5, 6):
            return self._number()
        if kind in (7, 8):
            return self._skip(8 if kind == 7 else self._varint())
        if kind in (9, 10):
            head = self._byte()
            count = self._varint() if head >> 4 == 15 else head >> 4
            return [self._value(head & 15) for _ in range(min(count, _HEADER))]
        if kind == 12:
            return self.struct()
        raise IndexError(f"a field of kind {kind}")

    def _byte(self) -> int:
        self.place += 1
        return self._content[self.place - 1]

    def _skip(self, count: int) -> None:
        self.place += count

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128 or shift > 63:
                return value

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
