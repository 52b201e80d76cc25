"""What holds for every operator on a GPU, too; and which of them the host computes."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core.gpu.lowering import lower_pieces
from nnl_core.graph.ir import ABSENT, Graph, Instruction
from nnl_core.graph.operator import Operator
from nnl_core.graph.spec import Spec
from nnl_core.session import current_session
from nnl_core.testing import check_operator, operators

each_operator = pytest.mark.parametrize("operator", operators("nnl"), ids=str)

ON_HOST = {
    "all_reduce",  # communicators are there
    "image_augmentation",
    "nms_detection2d_mask",
    "onnx_non_max_suppression",
    "random_choice",
    "random_erase",
    "unique",  # its result's size depends on its values
}
"""Operators that have no kernel for a GPU."""


@each_operator
def test_operator_keeps_its_promises(operator: Operator) -> None:
    check_operator(operator, "cuda")


@each_operator
def test_operator_is_computed_by_the_device_but_for_some(operator: Operator) -> None:
    device = current_session().backend("cuda").device
    on_host = False
    for sample in operator.iterate_samples(np.random.default_rng(0)):
        graph = Graph()
        absent = len(operator.parameters.inputs) - len(sample.inputs)
        inputs = [*sample.inputs, *(None for _ in range(absent))]
        attributes = operator.bind_attributes(sample.attributes)
        given = [None if a is None else narrowed(Spec.of(a)) for a in inputs]
        operands = tuple(ABSENT if spec is None else graph.add_leaf(spec) for spec in given)
        results = tuple(graph.new_value(one) for one in operator.infer_specs(given, attributes))
        graph.instructions = [Instruction(operator, operands, results, attributes)]
        graph.outputs = list(results)
        with device:
            pieces, _ = lower_pieces(graph, device)
        on_host |= any(piece.on_host for piece in pieces)
    assert on_host == (operator.__name__ in ON_HOST)


def narrowed(spec: Spec) -> Spec:
    """Return the spec with the dtype that networks compute in."""
    return spec.with_dtype(np.float32) if spec.dtype == np.float64 else spec
