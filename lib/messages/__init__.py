"""What is said: messages of four fields, the packets they are cut into, and the exact bytes they cost on the wire."""

from __future__ import annotations

from lib.messages.corpus import Corpus, CorpusError, freeze, load_corpus, save_corpus
from lib.messages.message import Message, MessageError, canonical_text
from lib.messages.packets import Packet, packetize, packetize_task, reassemble
from lib.messages.wire import WireAccount, WireError, batch_bytes, decode_batch, encode_batch, packet_bytes

__all__ = [
    "Corpus",
    "CorpusError",
    "Message",
    "MessageError",
    "Packet",
    "WireAccount",
    "WireError",
    "batch_bytes",
    "canonical_text",
    "decode_batch",
    "encode_batch",
    "freeze",
    "load_corpus",
    "packet_bytes",
    "packetize",
    "packetize_task",
    "reassemble",
    "save_corpus",
]
