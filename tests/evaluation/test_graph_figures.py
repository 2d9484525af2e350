"""Pictures of graphs: edges run to the right and around agents, hops have their colours, the matrix is the edge list."""

from __future__ import annotations

import itertools
import random
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from lib.evaluation.graph_figures import _HOPS, _RADIUS, _curve, _layout, graph_pictures
from lib.evaluation.saving import save_figure
from tests.evaluation.test_figures import HOSTILE, texts


def chained(n: int, density: float, seed: int) -> nx.DiGraph:
    """A shuffled chain through all agents with further forward edges."""
    draw = random.Random(seed)
    order = draw.sample(range(n), n)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(itertools.pairwise(order))
    graph.add_edges_from(pair for pair in itertools.combinations(order, 2) if draw.random() < density)
    return graph


def of(edges: list[tuple[int, int]], n: int) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(edges)
    return graph


def spots(axis: Axes) -> dict[str, tuple[float, float]]:
    """Where each agent's mark stands, by its number."""
    return {
        text.get_text(): tuple(marks.get_offsets()[0]) for text, marks in zip(axis.texts, axis.collections, strict=True)
    }


def looks(axis: Axes) -> dict[str, tuple[float, float, float]]:
    return {
        text.get_text(): to_rgb(marks.get_facecolor()[0])
        for text, marks in zip(axis.texts, axis.collections, strict=True)
    }


def filled(axis: Axes) -> set[tuple[str, str]]:
    """(row, column) agents of the matrix's filled cells."""
    rows = [label.get_text().split()[-1] for label in axis.get_yticklabels()]
    columns = [label.get_text() for label in axis.get_xticklabels()]
    boxes = [box for box in axis.patches if isinstance(box, Rectangle)]
    return {(rows[round(box.get_y() + 0.5)], columns[round(box.get_x() + 0.5)]) for box in boxes}


@pytest.mark.parametrize("n", [3, 7])
def test_hostile_labels_draw_without_warning_and_equally_twice(tmp_path: Path, n: int) -> None:
    def draw() -> Figure:
        return graph_pictures({HOSTILE: chained(n, 0.4, 1)}, target=1, k=2, names={0: HOSTILE, 1: "critic"})

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, two = (save_figure(draw(), tmp_path / name, "graph") for name in "ab")
    for ending in ("png", "svg"):
        assert one[ending].read_bytes() == two[ending].read_bytes()
        assert one[ending].stat().st_size > 5000
    before = plt.get_fignums()
    assert not any("$5\n" in text or "\x00" in text for text in texts(draw()))
    assert plt.get_fignums() == before


@pytest.mark.parametrize(("n", "density"), [(3, 0.3), (7, 0.5), (12, 1.0), (20, 0.3)])
def test_every_edge_is_an_arrow_to_the_right_and_a_cell(n: int, density: float) -> None:
    graph = chained(n, density, n)
    picture, matrix = graph_pictures({"team": graph}, target=n - 1).axes
    place = spots(picture)
    assert set(place) == {str(agent) for agent in graph}
    assert all(place[str(head)][0] >= place[str(tail)][0] + 1 for tail, head in graph.edges)
    arrows = [patch for patch in picture.patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == graph.number_of_edges()
    assert filled(matrix) == {(str(tail), str(head)) for tail, head in graph.edges}
    rank = [label.get_text() for label in matrix.get_xticklabels()]
    assert all(rank.index(str(tail)) < rank.index(str(head)) for tail, head in graph.edges)
    assert picture.get_title(loc="left") == f"team  ({graph.number_of_edges()} edges)"


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 9), st.floats(0, 0.7), st.integers(0, 999))
def test_agents_stand_apart_by_longest_path(n: int, density: float, seed: int) -> None:
    draw = random.Random(seed)
    graph = of([pair for pair in itertools.combinations(range(n), 2) if draw.random() < density], n)
    layout = _layout("g", graph)
    for agent, (across, _) in layout.places.items():
        assert across == max((layout.places[tail][0] + 1 for tail in graph.predecessors(agent)), default=0)
    gaps = [np.hypot(*np.subtract(*pair)) for pair in itertools.combinations(layout.places.values(), 2)]
    assert min(gaps, default=1) >= 1 - 1e-9
    assert sorted(layout.order) == list(range(n)) and set(layout.bends) == set(graph.edges)


@pytest.mark.parametrize(("n", "density", "seed"), [(7, 0.5, 42), (7, 1.0, 1), (20, 0.3, 7), (20, 1.0, 3)])
def test_edges_touch_no_agent_that_they_do_not_join(n: int, density: float, seed: int) -> None:
    layout = _layout("g", chained(n, density, seed))
    for (tail, head), bend in layout.bends.items():
        points = _curve(layout.places[tail], layout.places[head], bend)
        for agent, place in layout.places.items():
            if agent not in (tail, head):
                assert np.hypot(*(points - np.array(place)).T).min() > _RADIUS
    assert any(bend > 0 for bend in layout.bends.values()) and any(bend < 0 for bend in layout.bends.values())


def test_agents_have_the_colour_of_their_hop() -> None:
    # 0 -> 1 -> 2 -> 4 and 3 -> 4; 5 hears 4; 6 alone
    graph = of([(0, 1), (1, 2), (2, 4), (3, 4), (4, 5)], 7)
    figure = graph_pictures({"g": graph}, target=4, k=2)
    picture, matrix = figure.axes
    colours = looks(picture)
    first, second = (to_rgb(_HOPS[hop][0]) for hop in (0, 1))
    assert colours["2"] == colours["3"] == first and colours["1"] == second
    assert colours["5"] == colours["6"] == (1, 1, 1)
    assert len({colours[agent] for agent in "0124"}) == 4, "beyond, two hops and the target all differ"
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert named == ["target", "hop 1", "hop 2", "further than 2 hops", "does not reach it"]
    boxes = {
        (round(box.get_y() + 0.5), round(box.get_x() + 0.5)): to_rgb(box.get_facecolor()) for box in matrix.patches
    }
    rank = [label.get_text() for label in matrix.get_xticklabels()]
    assert boxes[rank.index("2"), rank.index("4")] == first and boxes[rank.index("1"), rank.index("2")] == second
    assert boxes[rank.index("0"), rank.index("1")] not in (first, second), "beyond K"
    wide = graph_pictures({"g": graph}, target=4, k=3)
    assert looks(wide.axes[0])["0"] == to_rgb(_HOPS[2][0])


def test_only_edges_on_shortest_paths_are_coloured() -> None:
    # 0 is heard directly by 2, so its edge to 1 brings nothing that is nearer
    matrix = graph_pictures({"g": of([(0, 1), (1, 2), (0, 2)], 3)}, target=2, k=2).axes[1]
    colours = {
        (round(box.get_y() + 0.5), round(box.get_x() + 0.5)): to_rgb(box.get_facecolor()) for box in matrix.patches
    }
    first = to_rgb(_HOPS[0][0])
    assert colours[0, 2] == colours[1, 2] == first and colours[0, 1] != first


def test_numbers_can_be_read_on_their_marks() -> None:
    weights = np.array([0.299, 0.587, 0.114])
    axis = graph_pictures({"g": of([(i, i + 1) for i in range(7)], 9)}, target=7, k=5).axes[0]
    for text, ground in zip(axis.texts, looks(axis).values(), strict=True):
        assert abs(weights @ ground - weights @ to_rgb(text.get_color())) > 0.3


def test_without_a_target_all_look_alike_and_there_is_no_legend() -> None:
    figure = graph_pictures({"a": chained(5, 0.5, 1), "b": of([(0, 1)], 2)}, matrix=False)
    assert len(figure.axes) == 2 and not figure.legends
    assert len(set(looks(figure.axes[0]).values())) == 1
    assert figure.axes[1].get_title(loc="left") == "b  (1 edge)"


def test_targets_by_title_and_names_beside_the_matrix() -> None:
    figure = graph_pictures({"a": of([(0, 1)], 2), "b": of([(1, 0)], 2)}, target={"a": 1, "b": 0}, names={0: "critic"})
    first, matrix, second, _ = figure.axes
    assert looks(first)["1"] == looks(second)["0"] != looks(first)["0"]
    assert [label.get_text() for label in matrix.get_yticklabels()] == ["critic  0", "1"]


def test_one_agent_and_isolated_agents_are_drawn() -> None:
    figure = graph_pictures({"one": of([], 1), "apart": of([(0, 2)], 4)})
    assert len(figure.axes) == 4 and set(spots(figure.axes[2])) == {"0", "1", "2", "3"}


@pytest.mark.parametrize(
    ("graphs", "settings_", "message"),
    [
        ({"g": of([(0, 1), (1, 0)], 2)}, {}, "graph 'g': .* is a cycle"),
        ({"g": nx.DiGraph()}, {}, "graph 'g': has no agent"),
        ({"g": of([(0, 1)], 2)}, {"target": 7}, "target 7 is none of its agents"),
        ({"g": of([(0, 1)], 2)}, {"k": 6}, "from 1 to 5 hops"),
        ({}, {}, "at least one"),
    ],
)
def test_what_cannot_be_drawn_is_named(graphs: dict[str, nx.DiGraph], settings_: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        graph_pictures(graphs, **settings_)
