"""How many samples a forward has seen."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch_collab.model.samples import SampleCounter, first_dimension


@dataclass
class Batch:
    label: str
    x: torch.Tensor


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((torch.zeros(4, 2),), {}, 4),
        ((torch.tensor(1.0), torch.zeros(3)), {}, 3),  # a scalar has no dimension 0
        ((), {"input_ids": torch.zeros(7, 5), "labels": torch.zeros(9)}, 7),
        (({"a": [None, torch.zeros(6, 1)]}, torch.zeros(2)), {}, 6),
        ((Batch("b", torch.zeros(8, 3)),), {}, 8),
        (("text", 3), {"x": torch.zeros(5)}, 5),
        ((), {}, 1),
        (([torch.zeros(8, 3), torch.zeros(8, 5)],), {}, 8),  # two inputs, or views, of a batch
        (([{"query": torch.zeros(8, 3)}, {"answer": torch.zeros(8, 5)}],), {}, 8),
        (({"x": torch.zeros(4, 2)}, [{"note": "a"}] * 2), {}, 4),
    ],
)
def test_dimension_0_of_the_first_tensor(args: tuple[object, ...], kwargs: dict[str, object], expected: int) -> None:
    assert first_dimension(args, kwargs) == expected


IMAGE = torch.zeros(3, 20, 30)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (([{"image": IMAGE, "height": 20, "file_name": "a.png"}] * 5,), {}),  # detectron2
        (([{"image": IMAGE, "boxes": torch.zeros(n, 4)} for n in range(5)],), {}),
        (([IMAGE] * 5, [{"boxes": torch.zeros(2, 4), "labels": torch.zeros(2)}] * 5), {}),  # torchvision
        (((IMAGE,) * 5, ({"boxes": torch.zeros(2, 4)},) * 5), {}),
        ((), {"images": [IMAGE] * 5, "targets": [{"boxes": torch.zeros(2, 4)}] * 5}),
    ],
)
def test_a_list_of_samples_counts_by_its_length(args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    assert first_dimension(args, kwargs) == 5


def test_forwards_add_up_until_the_step() -> None:
    counter = SampleCounter()
    counter.saw(3)
    counter.saw(4)
    assert counter.take() == 7


def test_a_step_of_which_no_forward_was_seen_weighs_something() -> None:
    counter = SampleCounter()
    assert counter.take() == 1
    counter.saw(0)  # an empty batch, or an empty tensor before it
    assert counter.take() == 1


def test_an_evaluation_with_gradients_on_does_not_count_beside_training() -> None:
    counter = SampleCounter()
    counter.saw(400, in_training_mode=False)
    counter.saw(5)
    counter.saw(400, in_training_mode=False)
    assert counter.take() == 5
    counter.saw(400, in_training_mode=False)
    counter.saw(0)
    assert counter.take() == 1


def test_training_in_eval_mode_is_counted() -> None:
    counter = SampleCounter()
    for n in (3, 4):
        counter.saw(n, in_training_mode=False)
    assert counter.take() == 7
    assert counter.take() == 1


def test_a_script_that_reports_no_samples_is_believed() -> None:
    counter = SampleCounter()
    counter.saw(3)
    counter.tell(0)
    assert counter.take() == 0


def test_reported_samples_replace_seen_ones_for_that_step_only() -> None:
    counter = SampleCounter()
    counter.saw(3)
    counter.tell(10)
    counter.tell(1)
    assert counter.take() == 11
    counter.saw(2)
    assert counter.take() == 2


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        SampleCounter().tell(-1)
