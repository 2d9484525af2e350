"""How the time of an admission pass grows with the number of packets.

Context
-------
A scheduler decides while packets wait, so its own time is part of what they cost. Algorithm 1 asks before every packet
how large the batch would be with it, in exact bytes.

Intuition
---------
Serialising the batch anew for every candidate answers that with O(n^2) records. A record's bytes do not depend on its
company, so they can be measured once; then a pass is one sort and n additions. Three ways are timed on the same packets,
scores and cap:

- sizes given: what `lib.bandmas.admit_static` does with sizes that were measured before;
- sizes measured: the same pass, the one serialisation of the stream included;
- re-serialised: the batch serialised anew for every candidate.

How to read the result
----------------------
With both axes logarithmic the first two lines rise with slope 1, the third with slope 2. `same` says that a way came to
exactly the admission of the re-serialised one, or of the first way where that one was left out.

Not covered: the time of scoring, adaptive admission, and memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from lib.bandmas.admission import Admission, admit_static, rank, wire_cap, wire_sizes
from lib.evaluation.saving import save_table
from lib.messages.message import FIELD_WORDS, FIELDS, Message
from lib.messages.packets import Packet, packetize_task
from lib.messages.wire import batch_bytes
from lib.seeds import generator

COUNTS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
GIVEN, MEASURED, ANEW = "sizes given", "sizes measured", "re-serialised"
_WORDS = ("river", "1,888", "of", "Étang", "mountain", "the", "[S2]", "rises", "north", "in", "Lake", "old")


def admission_packets(count: int) -> list[Packet]:
    """Return `count` packets of one task, with seeded words up to the readers' word limits."""
    draw = generator("bench-admission", count)

    def text(limit: int) -> str:
        return " ".join(draw.choice(_WORDS, size=int(draw.integers(3, limit + 1))))

    messages = []
    for slot in range(-(-count // len(FIELDS))):
        claim, evidence, uncertainty, request = (text(FIELD_WORDS[name]) for name in FIELDS)
        named = (f"reader_{slot}", "answerer", f"D{slot}")
        messages.append(Message("task", slot, slot, *named, claim, evidence, uncertainty, request))
    return packetize_task(messages)[:count]


def admit_anew(packets: Sequence[Packet], scores: np.ndarray, cap_bytes: int) -> Admission:
    """Admit as Algorithm 1 is written: serialise S and p for every candidate p."""
    held: list[Packet] = []
    for packet in rank(packets, scores):
        if batch_bytes([*held, packet]) <= cap_bytes:
            held.append(packet)
    ordered = sorted(packets, key=lambda packet: packet.packet_id)
    sent = {packet.packet_id for packet in held}
    return Admission(
        admitted=tuple(packet for packet in ordered if packet.packet_id in sent),
        skipped=tuple(packet for packet in ordered if packet.packet_id not in sent),
        bytes=batch_bytes(held),
        cap_bytes=cap_bytes,
        full_bytes=batch_bytes(packets),
    )


def admission_curve(
    counts: Sequence[int] = COUNTS, *, anew_up_to: int = 1000, beta: float = 0.5, rounds: int = 5
) -> pd.DataFrame:
    """Time the three ways to admit, for each number of packets.

    Parameters
    ----------
    counts : numbers of packets
    anew_up_to : largest number that is also admitted by serialising anew. It takes minutes at 10,000
    beta : cap, as a share of the full bytes
    rounds : timed passes, interleaved over the ways; re-serialising is timed once above 1 s

    Returns
    -------
    DataFrame, one row a number and way: ``packets``, ``way``, ``milliseconds`` (median over rounds), ``least``, ``most``,
    ``microseconds_per_packet``, ``admitted`` (packets), ``bytes``, ``same``; null where a way was left out

    Raises
    ------
    ValueError
        For a number of packets or rounds below 1.
    """
    if not counts or min(rounds, *counts) < 1:
        raise ValueError(f"counts and rounds must be 1 or more, not {list(counts)} and {rounds}")
    return pd.concat([_timed(count, count <= anew_up_to, beta, rounds) for count in counts], ignore_index=True)


def _timed(count: int, anew: bool, beta: float, rounds: int) -> pd.DataFrame:
    packets = admission_packets(count)
    scores = generator("bench-admission-scores", count).uniform(-1, 1, count)
    sizes = wire_sizes(packets)
    cap = wire_cap(beta, batch_bytes(packets))
    ways: dict[str, Callable[[], Admission]] = {
        GIVEN: lambda: admit_static(packets, scores, cap, sizes=sizes),
        MEASURED: lambda: admit_static(packets, scores, cap),
        ANEW: lambda: admit_anew(packets, scores, cap),
    }
    if not anew:
        del ways[ANEW]
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    made: dict[str, Admission] = {}
    for _ in range(rounds):
        for way, work in ways.items():
            if seconds[way] and seconds[way][0] > 1:
                continue
            start = time.perf_counter()
            made[way] = work()
            seconds[way].append(time.perf_counter() - start)
    reference = made.get(ANEW, made[GIVEN])
    rows = []
    for way in (GIVEN, MEASURED, ANEW):
        row: dict[str, object] = {"packets": count, "way": way}
        if way in made:
            taken = 1000 * np.asarray(seconds[way])
            row |= {"milliseconds": float(np.median(taken)), "least": float(taken.min()), "most": float(taken.max())}
            row |= {"microseconds_per_packet": 1000 * float(np.median(taken)) / count}
            row |= {"admitted": len(made[way].admitted), "bytes": made[way].bytes, "same": made[way] == reference}
        rows.append(row)
    columns = ["packets", "way", "milliseconds", "least", "most", "microseconds_per_packet"]
    kinds = {"admitted": "Int64", "bytes": "Int64", "same": "boolean"} | dict.fromkeys(columns[2:], "float64")
    return pd.DataFrame(rows, columns=[*columns, "admitted", "bytes", "same"]).astype(kinds)


def bench_admission(folder: Path, log: Callable[[str], None]) -> int:
    """Print the curve and keep it as ``admission`` under `folder`; returns the exit code, 1 if two ways disagree."""
    table = admission_curve()
    save_table(table, folder, "admission")
    cells = table.astype(object).where(table.notna(), "-")
    log(cells.to_string(index=False, float_format=lambda value: f"{value:.3f}"))
    log(f"\nkept in {folder}")
    return 0 if table["same"].fillna(True).all() else 1
