from __future__ import annotations

import numpy as np
import pytest

from nnl_core import PF, F
from nnl_core.errors import ModelError, ShapeError, UnknownComponentError
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Variable
from nnl_core.training import Model
from nnl_core.training.metrics import LOSSES, alike, class_labels

FIELDS = {"x": Spec((3,)), "y": Spec((), np.dtype(np.uint8))}


def classify(x):
    return PF.affine(x, 4)


def test_the_function_gets_the_fields_that_its_parameters_name(session):
    seen = {}

    def function(y, training):
        seen.update(y=y.shape, training=training)
        return y

    Model(function, session=session).build(FIELDS, 5, training=False)
    assert seen == {"y": (5,), "training": False}


def test_a_parameter_with_a_default_may_do_without_a_field(session):
    network = Model(lambda x, weight=None: x, session=session).build(FIELDS, 5, training=True)
    assert network.inputs.keys() == {"x", "y"}


def test_arguments_are_passed_by_name(session):
    model = Model(lambda x, units: PF.affine(x, units), arguments={"units": 7}, session=session)
    assert model.build(FIELDS, 2, training=True).outputs["output"].shape == (2, 7)


def test_two_models_have_parameters_of_their_own(session):
    first, second = Model(classify, session=session), Model(classify, session=session)
    for model in (first, second):
        model.build(FIELDS, 2, training=True)
    assert first.parameters.keys() == second.parameters.keys() == {"affine/W", "affine/b"}
    assert first.parameters["affine/W"] is not second.parameters["affine/W"]


def test_networks_of_a_model_share_its_parameters(session):
    model = Model(classify, session=session)
    model.build(FIELDS, 2, training=True)
    before = model.parameters["affine/W"]
    model.build(FIELDS, 3, training=False)
    assert model.parameters["affine/W"] is before


def test_integers_become_int32_and_other_numbers_float32(session):
    fields = {"x": Spec((3,), np.dtype(np.float64)), "y": Spec((), np.dtype(np.uint8))}
    network = Model(classify, session=session).build(fields, 2, training=True)
    assert network.inputs["x"].dtype == np.float32
    assert network.inputs["y"].dtype == np.int32


def test_a_dictionary_names_outputs_loss_and_metrics(session):
    def function(x, y):
        return {"code": x, "loss": F.mul_scalar(x, 2.0), "size": F.abs(x)}

    model = Model(function, metrics=["size"], session=session)
    network = model.build(FIELDS, 2, training=True)
    network.inputs["x"].d = [[1, -2, 3], [-4, 5, -6]]
    assert float(network.measured["loss"].d) == pytest.approx(-1.0)
    assert float(network.measured["size"].d) == pytest.approx(3.5)
    assert model.new_metrics(network).keys() == {"loss", "size"}


def test_without_the_target_nothing_is_measured(session):
    model = Model(classify, loss="softmax_cross_entropy", metrics=["accuracy"], session=session)
    assert model.build({"x": FIELDS["x"]}, 2, training=False).measured == {}


def broken(x):
    raise RuntimeError("out of paint")


def misshapen(x):
    return F.add(x, Variable((5, 2)))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            broken,
            r"model 'broken', line \d+: RuntimeError: out of paint \(on a batch of x \(2, 3\)",
        ),
        (misshapen, r"model 'misshapen', line \d+: .*\(2, 3\).*\(5, 2\)"),
        (lambda image: image, "takes 'image', but the data has no such field; it has x, y"),
        (lambda X: X, "takes 'X', but the data has no such field; did you mean 'x'"),
        (lambda x: None, "returned None; return a variable"),
        (lambda x: {}, "returned {}; return a variable"),
        (lambda x: {"output": 3}, "'output' is 3, not a variable"),
        (lambda x: x.d, r"returned an array of shape \(2, 3\); return a variable"),
    ],
)
def test_what_goes_wrong_in_a_function_is_one_line_that_names_it(session, function, message):
    with pytest.raises(ModelError, match=message) as caught:
        Model(function, session=session).build(FIELDS, 2, training=True)
    assert len(str(caught.value).splitlines()) == 1


def test_a_loss_that_is_no_variable_is_named(session):
    model = Model(lambda x: x, loss=lambda output, target: None, session=session)
    with pytest.raises(ModelError, match="its loss returned None; return a variable"):
        model.build(FIELDS, 2, training=True)


def test_an_output_that_does_not_go_with_the_target_names_the_shapes(session):
    model = Model(lambda x: x, loss="squared_error", session=session)
    with pytest.raises(ModelError, match=r"output has shape \(2, 3\), its target \(2,\)"):
        model.build(FIELDS, 2, training=True)


def test_an_unknown_argument_is_refused():
    with pytest.raises(ModelError, match="takes no argument 'unit'; did you mean 'units'"):
        Model(lambda x, units: x, arguments={"unit": 3})


def test_an_unknown_loss_is_refused():
    with pytest.raises(ModelError, match="unknown loss 'sqared_error'; did you mean 'squared_err"):
        Model(classify, loss="sqared_error")


def test_an_unknown_metric_is_refused(session):
    model = Model(classify, metrics=["acuracy"], session=session)
    with pytest.raises(UnknownComponentError, match="did you mean 'accuracy'"):
        model.build(FIELDS, 2, training=True)


# -------------------------------------------------------------------- losses and metrics


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_labels_get_the_class_axis_of_the_output(shape):
    assert class_labels(Variable((2, 4)), Variable(shape)).shape == (2, 1)


def test_labels_of_pixels_get_the_class_axis_in_second_place():
    assert class_labels(Variable((2, 4, 5, 6)), Variable((2, 5, 6))).shape == (2, 1, 5, 6)


@pytest.mark.parametrize(("output", "target"), [((2, 4), (2, 4)), ((2,), (2,)), ((2, 4), (3,))])
def test_targets_that_are_no_labels_are_refused(output, target):
    with pytest.raises(ShapeError, match="one label for each sample"):
        class_labels(Variable(output), Variable(target))


def test_targets_are_never_broadcast():
    assert alike(Variable((3, 1)), Variable((3,))).shape == (3, 1)
    with pytest.raises(ShapeError, match="must be alike"):
        alike(Variable((3, 1)), Variable((1, 3, 3)))


def variable(values, dtype=np.float32):
    return Variable.from_numpy_array(np.array(values, dtype))


def test_losses_give_what_their_formulas_say():
    output, target = np.array([[0.5, -1.5]]), np.array([[1.0, 1.0]])
    expected = {
        "squared_error": (output - target) ** 2,
        "absolute_error": abs(output - target),
        "sigmoid_cross_entropy": np.log1p(np.exp(-output)),
    }
    for name, values in expected.items():
        found = LOSSES[name](variable(output), variable(target)).d
        np.testing.assert_allclose(found, values, rtol=1e-6)


def test_softmax_cross_entropy_compares_with_labels():
    found = LOSSES["softmax_cross_entropy"](variable([[0.0, np.log(3)]]), variable([1], np.int32))
    assert found.d.ravel().tolist() == pytest.approx([-np.log(0.75)])
