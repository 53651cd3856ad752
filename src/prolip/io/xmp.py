"""Keywords in XMP packets, as photo managers write them: read, added and removed.

A keyword is an `rdf:li` in the bag of `dc:subject`. What is added is also listed in a bag of our own,
`prolip:added`, so that it can be removed again, and nothing else. A packet is edited as text, at the places
that the parser reports: everything else in it stays as it is, byte by byte.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
DC = "http://purl.org/dc/elements/1.1/"
OURS = "urn:prolip:xmp/1.0/"
LIMIT = 16 << 20  # bytes of a packet
_DEPTH = 64
_MARK = 'x:xmptk="prolip"'  # a packet that was written here
_NEW = f"""<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/" {_MARK}>
<rdf:RDF xmlns:rdf="{RDF}">
</rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>
"""


class BadPacketError(ValueError):
    """A packet that is not XMP, or has what no XMP needs."""


@dataclass(eq=False)
class Element:
    """An element of a packet: its name as (namespace, name), and where it is in the bytes."""

    name: tuple[str, str]
    prefix: str
    start: int
    attributes: dict[str, str]
    parent: Element | None
    children: list[Element] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    inner_end: int = 0  # where its end tag begins; of `<a/>`, its start
    end: int = 0

    @property
    def text(self) -> str:
        """The text between the tags, without that of inner elements."""
        return "".join(self.texts)

    def close(self, packet: bytes, place: int) -> None:
        """Note where the element ends, of which the parser has reported the end tag."""
        self.inner_end = place
        self.end = _tag_end(packet, place)

    def find(self, name: tuple[str, str]) -> list[Element]:
        """Return all elements of a name, in document order."""
        below = [found for child in self.children for found in child.find(name)]
        return [self, *below] if self.name == name else below


def keywords(packet: bytes) -> list[str]:
    """Return the keywords of a packet, without those that were added here."""
    root = _parse(packet)
    found, added = _values(root, (DC, "subject")), _values(root, (OURS, "added"))
    return [value for value in dict.fromkeys(found) if value and value not in added]


def add_keyword(packet: bytes | None, keyword: str) -> bytes:
    """Return a packet with one more keyword, unless it has it; None is a new packet."""
    packet = _NEW.encode() if packet is None else packet
    root = _parse(packet)
    if keyword in _values(root, (DC, "subject")):
        return packet
    rdf = next(iter(root.find((RDF, "RDF"))), root)
    if rdf.inner_end == rdf.start:
        raise BadPacketError("it has no RDF to add a keyword to")
    item = f"<{rdf.prefix}li>{escape(keyword)}</{rdf.prefix}li>"
    bag = f"<{rdf.prefix}Bag>{item}</{rdf.prefix}Bag>"
    record = f"<prolip:added>{bag}</prolip:added>"
    spaces = f'xmlns:prolip="{OURS}"'
    edits: list[tuple[int, int, str]] = []
    if subjects := root.find((DC, "subject")):
        bags = [child for child in subjects[0].children if child.name in ((RDF, "Bag"), (RDF, "Seq"))]
        if not bags:
            raise BadPacketError("its dc:subject has no bag")
        if bags[0].inner_end == bags[0].start:  # <rdf:Bag/>
            edits.append((bags[0].start, bags[0].end, bag))
        else:
            edits.append((bags[0].inner_end, bags[0].inner_end, item))
    else:
        record = f"<dc:subject>{bag}</dc:subject>{record}"
        spaces += f' xmlns:dc="{DC}"'
    about = next((each.attributes.get(f"{RDF} about", "") for each in root.find((RDF, "Description"))), "")
    name = f"{rdf.prefix}Description"
    block = f"<{name} {rdf.prefix}about={quoteattr(about)} {spaces}>{record}</{name}>"
    return _edited(packet, [*edits, (rdf.inner_end, rdf.inner_end, block)])


def remove_added(packet: bytes) -> bytes | None:
    """Return a packet without the keywords that were added here; None if nothing else was ever in it."""
    root = _parse(packet)
    removed: list[Element] = []
    for record in root.find((OURS, "added")):
        for value in _values(record, (OURS, "added")):
            same = [li for li in _items(root, (DC, "subject")) if li.text == value and li not in removed]
            removed += same[-1:]
        removed.append(record)
    for element in list(removed):  # and what is empty then, outwards
        while (outer := element.parent) is not None and outer.name != (RDF, "RDF"):
            properties = [name for name in outer.attributes if name != f"{RDF} about"]
            if properties or any(child not in removed for child in outer.children):
                break
            removed.append(outer)
            element = outer
    outermost = {each for each in removed if each.parent not in removed}
    left = _edited(packet, [(each.start, each.end, "") for each in outermost])
    empty = all(each in removed for each in root.find((RDF, "Description")))
    return None if empty and _MARK.encode() in packet else left


def _values(root: Element, name: tuple[str, str]) -> list[str]:
    return [item.text for item in _items(root, name)]


def _items(root: Element, name: tuple[str, str]) -> list[Element]:
    return [item for each in root.find(name) for item in each.find((RDF, "li"))]


def _edited(packet: bytes, edits: list[tuple[int, int, str]]) -> bytes:
    """Replace spans of bytes by text."""
    for start, end, text in sorted(edits, reverse=True):
        packet = packet[:start] + text.encode() + packet[end:]
    return packet


def _parse(packet: bytes) -> Element:
    """Parse an untrusted packet: limited in size and depth, without a document type, in UTF-8."""
    if len(packet) > LIMIT:
        raise BadPacketError(f"it has more than {LIMIT >> 20} MB")
    packet = packet.rstrip(b"\0")
    parser = expat.ParserCreate("UTF-8", " ")
    root = Element(("", ""), "", 0, {}, None)
    open_elements = [root]

    def start(name: str, attributes: dict[str, str]) -> None:
        space, local, prefix = (*name.split(" "), "", "")[:3] if " " in name else ("", name, "")
        named = {" ".join(key.split(" ")[:2]): value for key, value in attributes.items()}
        if len(open_elements) > _DEPTH:
            raise BadPacketError(f"its elements are nested more than {_DEPTH} deep")
        outer, tag = open_elements[-1], f"{prefix}:" if prefix else ""
        outer.children.append(Element((space, local), tag, parser.CurrentByteIndex, named, outer))
        open_elements.append(outer.children[-1])

    def end(_: str) -> None:
        open_elements.pop().close(packet, parser.CurrentByteIndex)

    def text(data: str) -> None:
        open_elements[-1].texts.append(data)

    def refuse(*_: object) -> None:
        raise BadPacketError("it has a document type, which XMP has not")

    settings = {
        "namespace_prefixes": True,
        "StartElementHandler": start,
        "EndElementHandler": end,
        "CharacterDataHandler": text,
        "StartDoctypeDeclHandler": refuse,
    }
    for name, value in settings.items():
        setattr(parser, name, value)
    try:
        packet.decode("utf-8")
        parser.Parse(packet, True)
    except (expat.ExpatError, UnicodeDecodeError) as error:
        raise BadPacketError(f"it is not XML in UTF-8: {error}") from error
    return root


def _tag_end(packet: bytes, start: int) -> int:
    """Return where a tag ends; attributes may have a > in their values."""
    found = re.compile(rb"""<(?:[^>"']|"[^"]*"|'[^']*')*>""").match(packet, start)
    if found is None:
        raise BadPacketError("a tag has no end")
    return found.end()
