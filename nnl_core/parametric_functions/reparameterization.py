"""Weights that are divided by a norm: for ``apply_w`` of a layer."""

from __future__ import annotations

from nnl_core import functions as F
from nnl_core.graph.spec import normalize_axis
from nnl_core.graph.variable import Variable
from nnl_core.initializers import NormalInitializer, WeightNormalizationScaleInitializer
from nnl_core.parameters import Initial, get_parameter_or_create
from nnl_core.parametric_functions.common import layer_scope


def spectral_norm(
    w: Variable,
    dim: int = 0,
    itr: int = 1,
    eps: float = 1e-12,
    test: bool = False,
    u_init: Initial | None = None,
    fix_parameters: bool = True,
    name: str | None = None,
) -> Variable:
    """Divide a weight by its largest singular value (Miyato et al. 2018).

    The weight is seen as a matrix whose rows run along ``dim``: the axis of the outputs, 0 for a
    convolution and 1 for an affine layer. Power iteration finds the value, from where the last
    forward pass ended. As ``apply_w`` of a layer it makes its parameter in that layer's scope.

    Parameter ``spectral-norm/u``, not trainable: one number for each row.

    Args:
        w: the weight.
        dim: the axis of the rows.
        itr: how many iterations a forward pass makes, at least 1.
        eps: what is added to squared norms under the root.
        test: whether ``u`` stays as it is.
        u_init: first value of ``u``, by default normal.
        fix_parameters: changes nothing, as ``u`` is never trained.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        That of ``w / (u^T w v)``, with ``u`` and ``v`` held fixed.

    Examples:
        >>> w = Variable.from_numpy_array(np.diag([4.0, 2.0]))
        >>> PF.spectral_norm(w, itr=50).d.round(3)
        array([[1. , 0. ],
               [0. , 0.5]])
        >>> y = PF.affine(Variable((2, 3)), 4, apply_w=lambda w: PF.spectral_norm(w, dim=1))
        >>> nnl.get_parameters(grad_only=False)["affine/spectral-norm/u"].shape
        (4,)

    Elsewhere:
        - nnabla: `spectral_norm`
        - PyTorch: `torch.nn.utils.parametrizations.spectral_norm`
        - ONNX: none, weights are stored divided
    """
    rows = w.shape[normalize_axis(dim, w.ndim)]
    init = NormalInitializer() if u_init is None else u_init
    with layer_scope("spectral-norm", name):
        u = get_parameter_or_create("u", (rows,), init, False)
        normalized = F.spectral_norm(w, u, dim=dim, itr=itr, eps=eps, test=test)
        assert isinstance(normalized, Variable)
        return normalized


def weight_normalization(
    w: Variable,
    dim: int = 0,
    eps: float = 1e-12,
    g_init: Initial | None = None,
    fix_parameters: bool = False,
    name: str | None = None,
) -> Variable:
    """Give each output's weights a length of their own: ``g w / |w|`` (Salimans, Kingma 2016).

    ``|w| = sqrt(sum w^2 + eps)`` is that of each slice along ``dim``: the axis of the outputs, 0
    for a convolution and 1 for an affine layer. As ``apply_w`` of a layer it makes its parameter in
    that layer's scope, and starts where the layer would.

    Parameter ``wn/g``: one number for each slice, at first ``|w|``.

    Args:
        w: the weight.
        dim: the axis of the outputs.
        eps: what is added to squared lengths.
        g_init: first value of ``g``.
        fix_parameters: whether ``g`` gets no gradient.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        The derivative, for ``w`` and ``g``.

    Examples:
        >>> w = Variable.from_numpy_array(np.array([[3.0, 4.0], [0.0, 2.0]]))
        >>> PF.weight_normalization(w, g_init=np.array([1.0, 5.0])).d.round(3)
        array([[0.6, 0.8],
               [0. , 5. ]])

    Elsewhere:
        - nnabla: `weight_normalization`
        - PyTorch: `torch.nn.utils.parametrizations.weight_norm`
        - ONNX: none, weights are stored normalised
    """
    axis = normalize_axis(dim, w.ndim)
    init = WeightNormalizationScaleInitializer(w, axis, eps) if g_init is None else g_init
    with layer_scope("wn", name):
        g = get_parameter_or_create("g", (w.shape[axis],), init, True, not fix_parameters)
        return F.weight_normalization(w, g, axis, eps)
