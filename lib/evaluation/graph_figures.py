"""Pictures of who feeds whom: agents of a directed acyclic graph from left to right, and their edges as a matrix.

Context
-------
The MOC paper shows its random graphs at four densities (Figure 5). What matters about such a graph is whom an agent can hear
within K hops. So one agent, the target, can be marked; the others are then coloured by their shortest distance to it.

How to read the result
----------------------
An agent stands as far to the right as the longest path that leads to it, so every edge runs to the right and agents above each
other speak at the same time. Edges bend around agents that they do not touch. Coloured edges lie on a shortest path to the
target within K hops: along these its evidence comes. In the matrix a row feeds a column; agents stand in the same order, so all
edges lie above the diagonal. Where many arcs cross, the matrix is the readable edge list. Shapes repeat what colours say.

Not covered: what travelled on the edges (`lib.evaluation.moc_figures`), graphs with cycles.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Rectangle

from lib.evaluation.looks import PALETTE, plain_text, theme
from lib.evaluation.panels import finished

__all__ = ["graph_pictures"]

Colour = str | tuple[float, float, float]
Agent = Hashable
_HOPS: tuple[tuple[Colour, str], ...] = (
    (PALETTE[0], "o"),
    (PALETTE[1], "s"),
    (PALETTE[2], "D"),
    (PALETTE[4], "^"),
    (PALETTE[8], "v"),
)
_TARGET: tuple[Colour, str] = ("0.1", "H")
_BEYOND: tuple[Colour, str] = ("0.72", "p")
_UNHEARD: tuple[Colour, str] = ("white", "o")
_PLAIN: tuple[Colour, str] = (PALETTE[0], "o")
_RADIUS = 0.24  # of an agent, in units of the distance between two levels
_BENDS = (0.0, 0.3, 0.42, 0.55, 0.7)  # height of an arc over the half of its length
_UNIT = (0.42, 0.62)  # inches between two levels: as much as fits into _WIDE, within these bounds
_WIDE = 8.4


@dataclass(frozen=True)
class _Layout:
    """Where agents stand and how edges bend.

    Parameters
    ----------
    order : agents by level, then as in the graph
    places : agent -> (x, y) in level distances
    bends : edge -> bend, above 0 upward
    """

    order: list[Agent]
    places: dict[Agent, tuple[float, float]]
    bends: dict[tuple[Agent, Agent], float]

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, right, low and high end of everything that is drawn."""
        points = [*self.places.values()]
        for (tail, head), bend in self.bends.items():
            points += [(x, y) for x, y in _curve(self.places[tail], self.places[head], bend)]
        across, up = zip(*points, strict=True)
        return min(across) - 0.45, max(across) + 0.45, min(up) - 0.45, max(up) + 0.45


def graph_pictures(
    graphs: Mapping[str, nx.DiGraph],
    *,
    target: Agent | Mapping[str, Agent] | None = None,
    k: int = 2,
    names: Mapping[Agent, str] | None = None,
    matrix: bool = True,
) -> Figure:
    """Draw graphs of agents, one row each: the graph, and beside it the matrix of its edges (paper, Figure 5).

    Parameters
    ----------
    graphs : title -> graph with an edge from who feeds to who reads, e.g. from `lib.moc.dag.Dag.graph`; from a frame of edges with
        ``networkx.from_pandas_edgelist(edges, create_using=networkx.DiGraph)``
    target : agent that reads, one for all graphs or one a title; None marks nobody
    k : hops that it looks back, at most 5
    names : agent -> role, written beside the rows of the matrix
    matrix : whether to draw the matrices

    Raises
    ------
    ValueError
        For a graph with a cycle or without agents, a target that it lacks, or k out of range.
    """
    if not 1 <= k <= len(_HOPS):
        raise ValueError(f"k: from 1 to {len(_HOPS)} hops can be told apart, not {k}")
    if not graphs:
        raise ValueError("graphs: at least one is needed")
    marked = {title: target.get(title) if isinstance(target, Mapping) else target for title in graphs}
    layouts = {title: _layout(title, graph) for title, graph in graphs.items()}
    hops = {title: _hops(title, graph, marked[title]) for title, graph in graphs.items()}
    boxes = [layout.box for layout in layouts.values()]
    wide = max(right - left for left, right, _, _ in boxes)
    tall = [max(high - low, 1.6) for _, _, low, high in boxes]
    cells = max(len(graph) for graph in graphs.values())
    unit = min(max(_WIDE / wide, _UNIT[0]), _UNIT[1])
    side = max(1.5, 0.175 * cells)  # inches of a matrix
    labels = 0.075 * max([len(_row_name(agent, names)) for graph in graphs.values() for agent in graph]) + 0.2
    heights = [max(unit * one, side + 0.25 if matrix else 0.0) + 0.3 for one in tall]
    widths = [unit * wide, *([side + labels] if matrix else [])]
    used = {kind for title, graph in graphs.items() for kind in _kinds(graph, marked[title], hops[title], k).values()}
    legend = [] if target is None else _legend(used, k)
    with theme():
        figure, axes = plt.subplots(
            len(graphs),
            len(widths),
            figsize=(max(2.6, sum(widths) + 0.2, 1.25 * len(legend)), sum(heights) + (0.35 if legend else 0.1)),
            squeeze=False,
            width_ratios=widths,
            height_ratios=heights,
            layout="constrained",
        )
        for row, (title, graph) in zip(axes, graphs.items(), strict=True):
            kinds = _kinds(graph, marked[title], hops[title], k)
            paths = _paths(graph, hops[title], k)
            _draw_graph(row[0], graph, layouts[title], kinds, paths, unit)
            count = graph.number_of_edges()
            row[0].set_title(f"{plain_text(title)}  ({count} edge{'' if count == 1 else 's'})")
            if matrix:
                _draw_matrix(row[1], graph, layouts[title].order, paths, names)
        if legend:
            figure.legend(handles=legend, loc="outside lower center", ncols=len(legend))
    return finished(figure)


# --------------------------------------------------------------------------------------------------------------------- layout


def _layout(title: str, graph: nx.DiGraph) -> _Layout:
    """Place agents by their longest path, and bend edges around agents and away from each other."""
    if not len(graph):
        raise ValueError(f"graph {title!r}: has no agent")
    if not nx.is_directed_acyclic_graph(graph):
        cycle = " -> ".join(str(tail) for tail, _ in nx.find_cycle(graph))
        raise ValueError(f"graph {title!r}: {cycle} is a cycle; such a graph has no order of speaking")
    index = {agent: place for place, agent in enumerate(graph)}
    level: dict[Agent, int] = {}
    for agent in nx.lexicographical_topological_sort(graph, key=index.__getitem__):
        level[agent] = max((level[tail] + 1 for tail in graph.predecessors(agent)), default=0)
    columns: dict[int, list[Agent]] = {}
    for agent in sorted(graph, key=lambda one: (level[one], index[one])):
        columns.setdefault(level[agent], []).append(agent)
    places: dict[Agent, tuple[float, float]] = {}
    for depth, column in sorted(columns.items()):
        # An agent stands near the mean height of those it hears, which keeps edges short and few crossings.
        heights = {
            agent: float(np.mean([places[tail][1] for tail in graph.predecessors(agent)])) if depth else 0.0
            for agent in column
        }
        stacked = sorted(column, key=lambda one: (-round(heights[one], 9), index[one]))
        for place, agent in enumerate(stacked):
            places[agent] = (float(depth), (len(stacked) - 1) / 2 - place)
    order = sorted(graph, key=lambda one: (level[one], -places[one][1]))
    return _Layout(order, places, _bends(graph, places, order))


def _bends(
    graph: nx.DiGraph, places: Mapping[Agent, tuple[float, float]], order: list[Agent]
) -> dict[tuple[Agent, Agent], float]:
    """Choose for each edge, short ones first, the bend with the fewest touched agents, then crossings, then the flattest."""
    rank = {agent: place for place, agent in enumerate(order)}
    edges = sorted(graph.edges, key=lambda edge: (rank[edge[1]] - rank[edge[0]], rank[edge[0]]))
    chosen: dict[tuple[Agent, Agent], float] = {}
    for tail, head in edges:
        best: tuple[float, float, float, float] | None = None
        for bend in sorted({sign * size for size in _BENDS for sign in (1, -1)}, key=lambda one: (abs(one), -one)):
            points = _curve(places[tail], places[head], bend)
            touched = sum(
                float(np.hypot(*(points - np.array(spot)).T).min()) < _RADIUS + 0.1
                for agent, spot in places.items()
                if agent not in (tail, head)
            )
            crossed = sum(
                own * bend > 0 and _interleaved(places[tail][0], places[head][0], places[a][0], places[b][0])
                for (a, b), own in chosen.items()
            )
            cost = (float(touched), float(crossed), abs(bend), -bend)
            best = min(best, cost) if best else cost
        assert best is not None, "there is always a bend"
        chosen[tail, head] = -best[3]
    return chosen


def _interleaved(a: float, b: float, c: float, d: float) -> bool:
    return a < c < b < d or c < a < d < b


def _curve(start: tuple[float, float], end: tuple[float, float], bend: float) -> np.ndarray:
    """Return (17, 2) points of the arc from start to end; bends above 0 lie above the straight line."""
    tail, head = np.array(start), np.array(end)
    across = head - tail
    control = (tail + head) / 2 + bend * np.array([-across[1], across[0]])
    at = np.linspace(0, 1, 17)[:, None]
    return (1 - at) ** 2 * tail + 2 * at * (1 - at) * control + at**2 * head


# -------------------------------------------------------------------------------------------------------------------- meaning


def _hops(title: str, graph: nx.DiGraph, target: Agent | None) -> dict[Agent, int]:
    """Return the shortest distance of every agent that reaches the target; empty without one."""
    if target is None:
        return {}
    if target not in graph:
        raise ValueError(f"graph {title!r}: target {target!r} is none of its agents {list(graph)}")
    return dict(nx.single_source_shortest_path_length(graph.reverse(copy=False), target))


def _paths(graph: nx.DiGraph, hops: Mapping[Agent, int], k: int) -> dict[tuple[Agent, Agent], int]:
    """Return the edges on shortest paths to the target within k hops, each with the hop at which it begins."""
    return {
        (tail, head): hops[tail]
        for tail, head in graph.edges
        if tail in hops and head in hops and hops[tail] == hops[head] + 1 and hops[tail] <= k
    }


def _kinds(graph: nx.DiGraph, target: Agent | None, hops: Mapping[Agent, int], k: int) -> dict[Agent, str]:
    """Return what each agent is to the target."""
    if target is None:
        return dict.fromkeys(graph, "plain")
    far = {agent: f"hop {hop}" if hop <= k else "beyond" for agent, hop in hops.items()}
    return {agent: far.get(agent, "unheard") for agent in graph} | {target: "target"}


def _look_of(kind: str) -> tuple[Colour, str]:
    if kind.startswith("hop "):
        return _HOPS[int(kind.removeprefix("hop ")) - 1]
    return {"target": _TARGET, "beyond": _BEYOND, "unheard": _UNHEARD, "plain": _PLAIN}[kind]


def _legend(used: set[str], k: int) -> list[Line2D]:
    words = {"target": "target", **{f"hop {hop}": f"hop {hop}" for hop in range(1, k + 1)}}
    words |= {"beyond": f"further than {k} hop{'' if k == 1 else 's'}", "unheard": "does not reach it"}
    handles = []
    for kind, word in words.items():
        if kind in used:
            colour, marker = _look_of(kind)
            size = 9.5 if kind == "target" else 7.5
            look: dict[str, Any] = {"markerfacecolor": colour, "markeredgecolor": "0.35", "markersize": size}
            handles.append(Line2D([], [], linestyle="", marker=marker, label=word, **look))
    return handles


# -------------------------------------------------------------------------------------------------------------------- drawing


def _draw_graph(
    axis: Axes,
    graph: nx.DiGraph,
    layout: _Layout,
    kinds: Mapping[Agent, str],
    paths: Mapping[tuple[Agent, Agent], int],
    unit: float,
) -> None:
    left, right, low, high = layout.box
    middle = (low + high) / 2
    axis.set_xlim(left, right)
    axis.set_ylim(min(low, middle - 0.8), max(high, middle + 0.8))
    axis.set_aspect("equal")
    axis.set_axis_off()
    reach = 72 * unit * _RADIUS  # points from an agent's middle to its rim
    thin = 0.8 if graph.number_of_edges() < 60 else 0.5
    for edge in sorted(graph.edges, key=lambda one: one in paths):
        hop = paths.get(edge)
        arrow = FancyArrowPatch(
            layout.places[edge[0]],
            layout.places[edge[1]],
            connectionstyle=f"arc3,rad={-layout.bends[edge]:.3f}",
            arrowstyle="-|>,head_length=4.5,head_width=2",
            color=_HOPS[hop - 1][0] if hop else ("0.72" if paths else "0.5"),
            linewidth=1.5 if hop else thin,
            shrinkA=reach,
            shrinkB=reach + 0.5,
            zorder=2 if hop else 1,
        )
        axis.add_patch(arrow)
    for agent, (across, up) in layout.places.items():
        colour, marker = _look_of(kinds[agent])
        area = (2 * reach) ** 2 * {"H": 1.5, "D": 0.72, "s": 0.85, "^": 1.15, "v": 1.15, "p": 1.1}.get(marker, 1.0)
        axis.scatter([across], [up], s=area, marker=marker, c=[colour], edgecolors="0.35", linewidths=0.8, zorder=3)
        axis.text(
            across,
            up - {"^": 0.05, "v": -0.05}.get(marker, 0.0),
            plain_text(agent, 6),
            ha="center",
            va="center_baseline",
            fontsize=8 if unit > 0.5 else 7,
            color=_ink(colour),
            zorder=4,
        )


def _ink(colour: Colour) -> str:
    return "white" if np.dot((0.299, 0.587, 0.114), to_rgb(colour)) < 0.5 else "0.1"


def _row_name(agent: Agent, names: Mapping[Agent, str] | None) -> str:
    own = plain_text(agent, 6)
    return f"{plain_text(names[agent], 24)}  {own}" if names and agent in names else own


def _draw_matrix(
    axis: Axes,
    graph: nx.DiGraph,
    order: list[Agent],
    paths: Mapping[tuple[Agent, Agent], int],
    names: Mapping[Agent, str] | None,
) -> None:
    rank = {agent: place for place, agent in enumerate(order)}
    n = len(order)
    for tail, head in graph.edges:
        hop = paths.get((tail, head))
        colour = _HOPS[hop - 1][0] if hop else ("0.78" if paths else "0.45")
        box = Rectangle((rank[head] - 0.5, rank[tail] - 0.5), 1, 1, facecolor=colour, edgecolor="white", linewidth=1)
        axis.add_patch(box)
    axis.plot([-0.5, n - 0.5], [-0.5, n - 0.5], color="0.85", linewidth=0.8, zorder=0)
    axis.set_xlim(-0.5, n - 0.5)
    axis.set_ylim(n - 0.5, -0.5)
    axis.set_aspect("equal")
    axis.set_xticks(range(n), [plain_text(agent, 6) for agent in order])
    axis.set_yticks(range(n), [_row_name(agent, names) for agent in order])
    axis.set_xticks(np.arange(0.5, n - 1), minor=True)
    axis.set_yticks(np.arange(0.5, n - 1), minor=True)
    axis.grid(visible=False, which="major")
    axis.grid(visible=True, which="minor", color="0.92", linewidth=0.6)
    axis.tick_params(which="both", length=0, labelsize=7.5 if n <= 12 else 6.5)
    axis.spines[["left", "bottom", "top", "right"]].set_visible(False)
    axis.set_title("row feeds column", fontsize=8, fontweight="normal", color="0.35")
