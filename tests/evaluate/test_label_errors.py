"""Which labels look wrong, and which pictures are there twice."""

import math

import numpy as np
import pytest

from pictures import COLOURS, blotch
from prolip.evaluate import near_copies as near
from prolip.evaluate.label_errors import find_label_errors, label_posterior


@pytest.fixture
def clouds():
    """Three classes of points around axes, and probabilities that lean to the nearest axis."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(3), 12)
    x = 3 * np.eye(3)[truth] + rng.normal(0, 0.4, (36, 3))
    p = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    return x, truth, p


def test_the_posterior_is_that_of_a_plain_loop(clouds):
    x, y, p = clouds
    centred = x - x.mean(axis=0)
    found = label_posterior(p, x, y)
    for i in (0, 13, 35):
        votes = [0.0, 0.0, 0.0]
        for j in range(len(y)):
            if j != i:
                cosine = centred[i] @ centred[j] / np.linalg.norm(centred[i]) / np.linalg.norm(centred[j])
                votes[y[j]] += math.exp(10 * cosine)
        joint = [a * v for a, v in zip(p[i], votes, strict=True)]
        assert np.allclose(found[i], np.array(joint) / sum(joint), rtol=1e-4)


def test_swapped_labels_come_first_with_what_they_probably_are(clouds):
    x, truth, p = clouds
    y = truth.copy()
    y[[5, 20]] = [2, 0]
    doubts = find_label_errors(p, x, y)
    assert {one.index for one in doubts[:2]} == {5, 20}
    assert {one.index: one.suggestion for one in doubts[:2]} == {5: 0, 20: 1}
    assert doubts[0].quality <= doubts[1].quality < 0.01
    assert find_label_errors(p, x, truth) == []


def test_where_features_leave_it_open_pixels_decide():
    angles = np.radians([0, 40, 80, 180, 220, 260])  # neighbours have cosines of 0.77
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    first, second = (near.signature(blotch(COLOURS["red"], seed)) for seed in (1, 2))
    looks = [first, first, second, second, second, first]
    looked = []

    def pixels(i):
        looked.append(i)
        return looks[i]

    found = [(pair.first, pair.second) for pair in near.near_copies(x, pixels)]
    assert found == [(0, 1), (3, 4)]
    assert sorted(looked) == [0, 1, 2, 3, 4, 5]  # each once


def test_near_copies_of_a_class_are_one_group():
    angles = np.radians([0, 10, 45, 90, 120, 150, 180, 185])  # cosines: 0.98, 0.82, 0.71, 0.87, ...
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    x = np.concatenate([x, -x])  # centred
    y = np.repeat([0, 1], 8)
    y[7] = 1
    first, second = (near.signature(blotch(COLOURS["red"], seed)) for seed in (1, 2))
    groups = near.near_copy_groups(x, y, lambda i: np.zeros((1, 1)))
    assert [(groups[:8] == groups[i]).sum() for i in range(8)] == [2, 2, 1, 4, 4, 4, 4, 1]
    alike = near.near_copy_groups(x, y, lambda i: first)
    assert alike[0] == alike[1] == alike[2] != alike[3]
    other = near.near_copy_groups(x, y, lambda i: second if i == 2 else first)
    np.testing.assert_array_equal(other == other[0], groups == groups[0])


def test_groupings_are_joined():
    joined = near.merge(np.array([0, 0, 1, 2, 3]), np.array([5, 6, 6, 7, 8]))
    assert joined[0] == joined[1] == joined[2]
    assert len(set(joined.tolist())) == 3


def test_near_copies_have_no_vote(clouds):
    x, y, p = clouds
    y = y.copy()
    y[:6] = 2  # a burst with the same wrong label
    groups = np.concatenate([np.zeros(6, int), np.arange(1, 31)])
    found = {one.index for one in find_label_errors(p, x, y, groups)}
    assert set(range(6)) <= found


def test_pairs_are_those_of_a_plain_loop_in_blocks_of_any_size(monkeypatch):
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(12, 6)), 4, axis=0) + rng.normal(0, 0.3, (48, 6))
    directions = x - x.mean(axis=0)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    plain = [(directions[i] @ directions[j], i, j) for i in range(48) for j in range(i + 1, 48)]
    plain = sorted((pair for pair in plain if pair[0] >= near.CANDIDATE_COSINE), reverse=True)
    sure = [pair[1:] for pair in plain if pair[0] >= near.SURE_COSINE]
    undecided = [pair[1:] for pair in plain[len(sure) :]]
    assert len(sure) > 20
    assert len(undecided) > 20
    for rows, most in ((7, 15), (1024, 15), (7, 20_000)):
        monkeypatch.setattr(near, "COSINE_ROWS", rows)
        monkeypatch.setattr(near, "MAX_CANDIDATES", most)
        found = near.near_copies(x, lambda i: np.full((1, 1), 1.0))
        assert [(pair.first, pair.second) for pair in found] == sure + undecided[:most]


@pytest.mark.parametrize("spread", [0, 0.01])
def test_many_copies_are_one_group_by_few_pairs(spread):
    rng = np.random.default_rng(0)
    classes = rng.permutation(np.repeat([0, 1], 300))
    x = np.eye(8)[classes] + rng.normal(0, spread, (600, 8))
    found = near.near_copies(x, lambda i: np.zeros((1, 1)))
    assert len(found) <= near.MAX_PAIRS_PER_IMAGE * 600
    members = sorted(np.flatnonzero(classes == k).tolist() for k in (0, 1))
    assert sorted(near.connected(found)) == members


def test_copies_hang_together_in_groups():
    pairs = [near.Pair(0, 3, 1.0), near.Pair(5, 6, 1.0), near.Pair(3, 9, 0.95), near.Pair(0, 9, 0.92)]
    assert near.connected(pairs) == [[0, 3, 9], [5, 6]]
    assert near.connected([near.Pair(0, 1, 1), near.Pair(2, 3, 1), near.Pair(1, 2, 1)]) == [[0, 1, 2, 3]]
