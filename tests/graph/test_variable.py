"""Variables: graph structure, execution, gradients and what nnabla's users expect of them."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.errors import (
    ClearedError,
    GraphError,
    OperatorError,
    ShapeError,
    StaleValueError,
)


def leaf(values, need_grad=True):
    return Variable.from_numpy_array(np.array(values, np.float64), need_grad=need_grad)


# Execution ---------------------------------------------------------------------------------------


def test_the_graph_is_static_and_runs_again_on_new_data():
    x = leaf([1.0, 2.0])
    y = x * 3 + 1
    y.forward()
    np.testing.assert_array_equal(y.d, [4, 7])
    x.d = [10, 20]
    np.testing.assert_array_equal(y.d, [4, 7])
    y.forward()
    np.testing.assert_array_equal(y.d, [31, 61])


def test_reading_before_any_forward_computes():
    x = leaf([2.0])
    np.testing.assert_array_equal((x * x).d, [4])


def test_dynamic_execution_computes_at_once_and_agrees():
    x = leaf([1.0, -2.0, 3.0])
    static = x * x - x / 2
    with nnl.auto_forward():
        dynamic = x * x - x / 2
        assert dynamic.data.has_value
    np.testing.assert_array_equal(dynamic.d, static.d)


def test_intermediates_stay_readable_after_forward():
    x = leaf([3.0])
    h = x * 2
    y = h + 1
    y.forward()
    np.testing.assert_array_equal(h.d, [6])


def test_clear_buffer_releases_intermediates_and_says_so_by_name():
    x = leaf([3.0])
    h = (x * 2).apply(name="hidden")
    y = h + 1
    y.forward(clear_buffer=True)
    np.testing.assert_array_equal(y.d, [7])
    with pytest.raises(ClearedError, match="hidden"):
        _ = h.d


def test_persistent_intermediates_survive_clear_buffer():
    x = leaf([3.0])
    h = (x * 2).apply(persistent=True)
    y = h + 1
    y.forward(clear_buffer=True)
    np.testing.assert_array_equal(h.d, [6])


def test_clear_no_need_grad_keeps_what_backward_reads():
    x = leaf([3.0])
    h = x + 1
    square = h * h
    y = square + 2
    y.forward(clear_no_need_grad=True)
    y.backward()
    np.testing.assert_array_equal(x.g, [8])
    with pytest.raises(ClearedError):
        _ = square.d


def test_backward_with_clear_buffer_releases_intermediates():
    x = leaf([3.0])
    h = x * x
    y = h * 2
    y.forward(clear_no_need_grad=True)
    y.backward(clear_buffer=True)
    np.testing.assert_array_equal(x.g, [12])
    with pytest.raises(ClearedError):
        _ = h.d


def test_forward_all_computes_shared_parts_once():
    calls = []
    x = leaf([1.0])
    shared = x * 2
    a, b = shared + 1, shared + 2
    nnl.forward_all([a, b])
    np.testing.assert_array_equal([a.d[0], b.d[0]], [3, 4])
    a.visit(lambda node: calls.append(node.operator.name))
    assert calls == ["nnl::mul_scalar", "nnl::add_scalar"]


def test_hooks_see_each_node_in_order():
    x = leaf([1.0])
    y = (x * 2 + 1) / x
    before, after = [], []
    y.forward(
        function_pre_hook=lambda node: before.append(node.operator.__name__),
        function_post_hook=lambda node: after.append(node.operator.__name__),
    )
    assert before == after == ["mul_scalar", "add_scalar", "div"]
    back = []
    y.backward(function_pre_hook=lambda node: back.append(node.operator.__name__))
    assert back == ["div", "add_scalar", "mul_scalar"]


# Gradients ---------------------------------------------------------------------------------------


def test_leaf_gradients_accumulate_until_zeroed():
    x = leaf([2.0])
    y = x * x
    y.forward()
    y.backward()
    y.backward()
    np.testing.assert_array_equal(x.g, [8])
    x.grad.zero()
    y.backward()
    np.testing.assert_array_equal(x.g, [4])


def test_intermediate_gradients_are_overwritten():
    x = leaf([2.0])
    h = x * 3
    y = h * h
    y.forward()
    y.backward()
    y.backward()
    np.testing.assert_array_equal(h.g, [12])


def test_repeated_use_accumulates():
    x = leaf([3.0])
    y = x * x * x + x
    y.forward()
    y.backward()
    np.testing.assert_array_equal(x.g, [28])


def test_backward_starts_from_a_given_gradient():
    x = leaf([1.0, 2.0])
    y = x * 2
    y.forward()
    y.backward(np.array([10.0, 100.0]))
    np.testing.assert_array_equal(x.g, [20, 200])


def test_backward_of_none_starts_from_the_gradient_already_there():
    x = leaf([1.0, 2.0])
    y = x * 2
    y.forward()
    y.g = [5, 7]
    y.backward(None)
    np.testing.assert_array_equal(x.g, [10, 14])


def test_backward_computes_forward_first_where_nobody_did():
    x = leaf([3.0])
    (x * x).backward()
    np.testing.assert_array_equal(x.g, [6])


def test_a_leaf_without_need_grad_gets_none():
    x, w = leaf([2.0], need_grad=False), leaf([3.0])
    y = x * w
    y.forward()
    y.backward()
    np.testing.assert_array_equal(w.g, [2])
    np.testing.assert_array_equal(x.g, [0])


def test_need_grad_false_on_an_intermediate_stops_the_gradient():
    x = leaf([2.0])
    h = x * 2
    h.need_grad = False
    y = h * x
    y.forward()
    y.backward()
    np.testing.assert_array_equal(x.g, [4])


def test_need_grad_may_be_switched_after_the_graph_was_run():
    x, w = leaf([2.0]), leaf([3.0], need_grad=False)
    y = x * w
    y.forward()
    y.backward()
    w.need_grad = True
    y.backward()
    np.testing.assert_array_equal(w.g, [2])


def test_outputs_inherit_need_grad():
    x, c = leaf([1.0]), leaf([1.0], need_grad=False)
    assert (x + c).need_grad and not (c + c).need_grad


def test_no_grad_makes_nodes_that_stop_gradients():
    x = leaf([2.0])
    with nnl.no_grad():
        h = x * 5
    y = h * x
    y.forward()
    y.backward()
    np.testing.assert_array_equal(x.g, [10])


def test_backward_without_any_gradient_to_compute_is_an_error():
    y = leaf([1.0], need_grad=False) * 2
    with pytest.raises(GraphError, match="need_grad"):
        y.backward()


def test_what_reaches_a_variable_only_through_whole_numbers_has_gradient_zero():
    x = leaf([3.0, 1.0])
    values, places = F.sort(x, with_index=True)
    weighted = F.sum(places * np.array([0.5, 2.0]))
    nnl.forward_all([values, places, weighted])
    for output, weights in ((places, [0.5, 2.0]), (weighted, 1)):
        output.backward(weights)
        np.testing.assert_array_equal(x.g, [0, 0])
    values.backward([0.5, 2.0])
    np.testing.assert_array_equal(x.g, [2, 0.5])


def test_backward_through_what_no_grad_cut_off_is_an_error():
    with nnl.no_grad():
        h = leaf([2.0]) * 5
    with pytest.raises(GraphError, match="need_grad"):
        (h * 2).backward()


def test_whole_numbers_of_what_needs_no_gradient_have_none():
    with pytest.raises(GraphError, match="need_grad"):
        F.shape(leaf([1.0], need_grad=False)).backward([0.5])


def test_an_unlinked_variable_shares_data_without_history():
    x = leaf([2.0])
    h = x * 3
    h.forward()
    u = h.get_unlinked_variable(need_grad=True)
    assert u.parent is None
    y = u * u
    y.forward()
    y.backward()
    np.testing.assert_array_equal(h.g, [12])
    np.testing.assert_array_equal(x.g, [0])


# Writes between forward and backward --------------------------------------------------------------


@pytest.mark.parametrize("write", [lambda v: setattr(v, "d", [9.0]), lambda v: v.d.fill(9)])
def test_overwriting_a_saved_value_makes_backward_an_error_that_names_it(write):
    x = leaf([2.0]).apply(name="input")
    y = x * x
    y.forward()
    write(x)
    with pytest.raises(StaleValueError, match="input"):
        y.backward()
    np.testing.assert_array_equal(x.g, [0])


def test_overwriting_a_value_that_the_gradient_does_not_need_is_allowed():
    x = leaf([2.0])
    y = x + 1
    y.forward()
    x.d = [5.0]
    y.backward()
    np.testing.assert_array_equal(x.g, [1])


def test_overwriting_an_intermediate_is_noticed():
    x = leaf([2.0])
    h = x * 2
    y = h * h
    y.forward()
    h.d = [100.0]
    with pytest.raises(StaleValueError):
        y.backward()


def test_stale_values_are_noticed_in_dynamic_mode_too():
    with nnl.auto_forward():
        x = leaf([2.0])
        y = x * x
        x.d = [3.0]
        with pytest.raises(StaleValueError):
            y.backward()


# Structure ---------------------------------------------------------------------------------------


def test_rewiring_moves_consumers_to_another_history():
    x, z = leaf([2.0]), leaf([5.0])
    h = x * 1
    y = h + 1
    y.forward()
    h.rewire_on(z * 10)
    y.forward()
    np.testing.assert_array_equal(y.d, [51])
    y.backward()
    np.testing.assert_array_equal(z.g, [10])
    np.testing.assert_array_equal(x.g, [0])


def test_rewiring_into_a_cycle_is_refused():
    x = leaf([2.0])
    h = x * 1
    y = h + 1
    with pytest.raises(GraphError, match="depends on it"):
        h.rewire_on(y)


def test_rewiring_needs_equal_shapes():
    with pytest.raises(ShapeError, match="rewire"):
        (leaf([1.0]) * 1).rewire_on(leaf([1.0, 2.0]))


def test_a_leaf_may_change_shape_and_the_graph_follows():
    x = Variable((2, 3), need_grad=True)
    y = x * 2
    y.forward()
    x.reset_shape((4, 3), force=True)
    x.d = 1
    y.forward()
    assert y.shape == (4, 3) and y.d.sum() == 24
    y.backward()
    assert x.g.shape == (4, 3)


def test_changing_the_number_of_elements_needs_force():
    with pytest.raises(ShapeError, match="force=True"):
        Variable((2,)).reset_shape((3,))


def test_reset_shape_with_as_many_elements_keeps_them():
    x = Variable((2, 2))
    x.d = [[1, 2], [3, 4]]
    x.reset_shape((4,))
    np.testing.assert_array_equal(x.d, [1, 2, 3, 4])


def test_apply_refuses_what_is_not_an_attribute():
    with pytest.raises(GraphError, match="colour"):
        Variable(()).apply(colour="red")


def test_visit_goes_from_inputs_to_outputs():
    x = leaf([1.0])
    y = (x + 1) * x
    names = []
    y.visit(lambda node: names.append(node.operator.__name__))
    assert names == ["add_scalar", "mul"]
    assert y.visit_check(lambda node: node.operator.__name__ == "mul")


def test_clear_all_graph_links_drops_history_and_keeps_values():
    x = leaf([1.0])
    h = x + 1
    y = h * 2
    y.forward()
    y.clear_all_graph_links()
    assert y.parent is None and h.parent is None
    np.testing.assert_array_equal(y.d, [4])


def test_an_output_is_always_the_same_variable():
    y = leaf([1.0]) + 1
    assert y.parent.outputs[0] is y


def test_the_truth_of_several_elements_is_an_error():
    with pytest.raises(GraphError, match="ambiguous"):
        bool(leaf([1.0, 2.0]))


def test_a_shape_error_names_operator_and_shapes():
    with pytest.raises(ShapeError, match=r"add.*\(2,\).*\(3,\)"):
        _ = leaf([1.0, 2.0]) + leaf([1.0, 2.0, 3.0])


def test_numbers_do_not_widen_and_arrays_are_operands():
    x = Variable((2,))
    assert (x * 2.5).dtype == np.float32 and (3 - x).dtype == np.float32
    assert (np.float32(2) * x).dtype == np.float32
    y = np.ones(2, np.float32) + x
    assert isinstance(y, Variable) and y.dtype == np.float32


def test_an_integer_with_a_float_number_is_float():
    n = Variable((2,), dtype="int64")
    assert (n + 1).dtype == np.int64 and (n + 0.5).dtype == np.float32
    assert (n / 2).dtype == np.float32


def test_integer_and_floating_operands_compute_in_the_floating_dtype():
    n, x = Variable((2,), dtype="int64"), Variable((2,), dtype="float32")
    assert (n * x).dtype == np.float32


def test_gradients_of_broadcast_operands_have_the_operands_shapes():
    a, b = leaf(np.ones((3, 1, 2))), leaf(np.ones((4, 1)))
    y = a * b
    y.forward()
    y.backward()
    np.testing.assert_array_equal(a.g, np.full((3, 1, 2), 4))
    np.testing.assert_array_equal(b.g, np.full((4, 1), 6))


@pytest.mark.parametrize(
    "use",
    [
        lambda a, b: F.concatenate([a, b], axis=0),
        lambda a, b: F.stack((a, b)),
        lambda a, b: F.add_n([a, b]),
        lambda a, b: F.sum([[a], [b]]),
        lambda a, b: a * [b, b],
    ],
)
def test_a_list_of_variables_is_refused_as_it_would_lose_their_gradients(use):
    a, b = (Variable((2, 3), need_grad=True) for _ in range(2))
    with pytest.raises(OperatorError, match="one by one"):
        use(a, b)


@pytest.mark.parametrize(
    ("shape", "found"),
    [(3, "3"), ((None, 3), r"\(None, 3\)"), (np.ones((2, 3)), "ndarray")],
)
def test_what_is_no_shape_is_named(shape, found):
    with pytest.raises(ShapeError, match=f"whole numbers, such as .*not {found}"):
        Variable(shape)


def test_a_variable_of_many_elements_is_no_number():
    with pytest.raises(ShapeError, match=r"shape \(2, 3\) is not one number"):
        float(Variable((2, 3)))
