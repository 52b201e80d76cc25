"""Recurrent layers, over whole sequences and step by step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.operator import Array
from nnl_core.graph.variable import Variable
from nnl_core.initializers import (
    ConstantInitializer,
    RandomSource,
    UniformInitializer,
    calc_uniform_lim_glorot,
)
from nnl_core.parameters import Initial, get_parameter_or_create
from nnl_core.parametric_functions.common import layer_scope
from nnl_core.parametric_functions.linear import affine

Parameters = tuple[Variable, Variable | None, Variable | None]


def rnn(
    x: Variable,
    h: Variable,
    w0_init: Initial | None = None,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    num_layers: int = 1,
    nonlinearity: str = "tanh",
    dropout: float = 0.0,
    bidirectional: bool = False,
    training: bool = True,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    fix_parameters: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Run Elman's recurrent network over sequences.

    Parameters ``rnn/weight_l0`` of shape (D, H, I + H), ``rnn/weight`` of shape (L - 1, D, H,
    D * H + H) where there are several layers, and ``rnn/bias`` of shape (L, D, H); the letters are
    those of `F.rnn`.

    Args:
        x: (T, B, I).
        h: (L, D, B, H), the first states.
        w0_init: an initializer or an array, of the first layer's weights; by default uniform
            (Glorot and Bengio, 2010), those of inputs and of states each for itself.
        w_init: the same of all other layers.
        b_init: an initializer or an array; by default 0.
        num_layers: layers; left at 1, those of ``h``.
        nonlinearity: ``"tanh"`` or ``"relu"``.
        dropout: share of a layer's results that is dropped before the next layer.
        bidirectional: whether a second direction runs from the last step to the first.
        training: whether results are dropped.
        rng: where the initial values come from; by default that of the library.
        with_bias: whether there is a bias.
        fix_parameters: whether the parameters are left out of training.
        name: a scope for the parameters; ``None`` for the current one.

    Returns:
        The last layer's states ``(T, B, D * H)`` and each layer's last ones (L, D, B, H).

    Gradient:
        That of `F.rnn`, for the inputs and the parameters.

    Examples:
        >>> y, h_n = PF.rnn(Variable((7, 8, 3)), Variable((2, 1, 8, 5)))
        >>> y.shape
        (7, 8, 5)
        >>> {name: value.shape for name, value in nnl.get_parameters().items()}
        {'rnn/weight_l0': (1, 5, 8), 'rnn/weight': (1, 1, 5, 10), 'rnn/bias': (2, 1, 5)}

    Elsewhere:
        - nnabla: `rnn`
        - PyTorch: `torch.nn.RNN`, which has two biases
        - ONNX: `RNN`
    """
    layers = h.shape[0] if num_layers == 1 else num_layers
    with layer_scope("rnn", name):
        w0, w, b = _parameters(
            x,
            h,
            (),
            (),
            (w0_init, w_init, b_init),
            layers,
            bidirectional,
            rng,
            with_bias,
            fix_parameters,
        )
        return F.rnn(x, h, w0, w, b, layers, nonlinearity, dropout, bidirectional, training)


def lstm(
    x: Variable,
    h: Variable,
    c: Variable,
    w0_init: Initial | None = None,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    num_layers: int = 1,
    dropout: float = 0.0,
    bidirectional: bool = False,
    training: bool = True,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    fix_parameters: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable, Variable]:
    """Run layers of long short-term memory over sequences.

    Parameters ``lstm/weight_l0`` of shape (D, 4, H, I + H), ``lstm/weight`` of shape (L - 1, D, 4,
    H, D * H + H) where there are several layers, and ``lstm/bias`` of shape (L, D, 4, H); letters
    and gates are those of `F.lstm`.

    Args:
        x: (T, B, I).
        h: (L, D, B, H), the first states.
        c: (L, D, B, H), the first contents of the memory.
        w0_init: an initializer or an array, of the first layer's weights; by default uniform
            (Glorot and Bengio, 2010), those of inputs and of states each for itself.
        w_init: the same of all other layers.
        b_init: an initializer or an array; by default 0.
        num_layers: layers; left at 1, those of ``h``.
        dropout: share of a layer's results that is dropped before the next layer.
        bidirectional: whether a second direction runs from the last step to the first.
        training: whether results are dropped.
        rng: where the initial values come from; by default that of the library.
        with_bias: whether there is a bias.
        fix_parameters: whether the parameters are left out of training.
        name: a scope for the parameters; ``None`` for the current one.

    Returns:
        The last layer's states ``(T, B, D * H)``, and each layer's last states and contents of the
        memory, (L, D, B, H).

    Gradient:
        That of `F.lstm`, for the inputs and the parameters.

    Examples:
        >>> x, h, c = Variable((7, 8, 3)), Variable((1, 2, 8, 5)), Variable((1, 2, 8, 5))
        >>> y, h_n, c_n = PF.lstm(x, h, c, bidirectional=True)
        >>> y.shape
        (7, 8, 10)
        >>> {name: value.shape for name, value in nnl.get_parameters().items()}
        {'lstm/weight_l0': (2, 4, 5, 8), 'lstm/bias': (1, 2, 4, 5)}

    Elsewhere:
        - nnabla: `lstm`
        - PyTorch: `torch.nn.LSTM`, which has two biases
        - ONNX: `LSTM`
    """
    layers = h.shape[0] if num_layers == 1 else num_layers
    with layer_scope("lstm", name):
        w0, w, b = _parameters(
            x,
            h,
            (4,),
            (4,),
            (w0_init, w_init, b_init),
            layers,
            bidirectional,
            rng,
            with_bias,
            fix_parameters,
        )
        return F.lstm(x, h, c, w0, w, b, layers, dropout, bidirectional, training)


def gru(
    x: Variable,
    h: Variable,
    w0_init: Initial | None = None,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    num_layers: int = 1,
    dropout: float = 0.0,
    bidirectional: bool = False,
    training: bool = True,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    fix_parameters: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Run layers of gated recurrent units over sequences.

    Parameters ``gru/weight_l0`` of shape (D, 3, H, I + H), ``gru/weight`` of shape (L - 1, D, 3,
    H, D * H + H) where there are several layers, and ``gru/bias`` of shape (L, D, 4, H); letters
    and gates are those of `F.gru`.

    Args:
        x: (T, B, I).
        h: (L, D, B, H), the first states.
        w0_init: an initializer or an array, of the first layer's weights; by default uniform
            (Glorot and Bengio, 2010), those of inputs and of states each for itself.
        w_init: the same of all other layers.
        b_init: an initializer or an array; by default 0.
        num_layers: layers; left at 1, those of ``h``.
        dropout: share of a layer's results that is dropped before the next layer.
        bidirectional: whether a second direction runs from the last step to the first.
        training: whether results are dropped.
        rng: where the initial values come from; by default that of the library.
        with_bias: whether there is a bias.
        fix_parameters: whether the parameters are left out of training.
        name: a scope for the parameters; ``None`` for the current one.

    Returns:
        The last layer's states ``(T, B, D * H)`` and each layer's last ones (L, D, B, H).

    Gradient:
        That of `F.gru`, for the inputs and the parameters.

    Examples:
        >>> y, h_n = PF.gru(Variable((7, 8, 3)), Variable((1, 1, 8, 5)))
        >>> y.shape
        (7, 8, 5)
        >>> {name: value.shape for name, value in nnl.get_parameters().items()}
        {'gru/weight_l0': (1, 3, 5, 8), 'gru/bias': (1, 1, 4, 5)}

    Elsewhere:
        - nnabla: `gru`
        - PyTorch: `torch.nn.GRU`, which has a bias for each gate and product
        - ONNX: `GRU`, with `linear_before_reset = 1`
    """
    layers = h.shape[0] if num_layers == 1 else num_layers
    with layer_scope("gru", name):
        w0, w, b = _parameters(
            x,
            h,
            (3,),
            (4,),
            (w0_init, w_init, b_init),
            layers,
            bidirectional,
            rng,
            with_bias,
            fix_parameters,
        )
        return F.gru(x, h, w0, w, b, layers, dropout, bidirectional, training)


def _parameters(
    x: Variable,
    h: Variable,
    gates: tuple[int, ...],
    biases: tuple[int, ...],
    inits: tuple[Initial | None, Initial | None, Initial | None],
    layers: int,
    bidirectional: bool,
    rng: RandomSource | None,
    with_bias: bool,
    fix_parameters: bool,
) -> Parameters:
    """Return the first layer's weight, that of all others, and the bias, where there are such."""
    if x.ndim != 3 or h.ndim != 4:
        raise ShapeError(
            f"x of shape {x.shape} and h of shape {h.shape} must be (steps, batch, inputs) and "
            "(layers, directions, batch, hidden)"
        )
    directions, hidden = 2 if bidirectional else 1, h.shape[3]
    w0_init, w_init, b_init = inits

    def weight(label: str, leading: tuple[int, ...], inputs: int, init: Initial | None) -> Variable:
        rows = (*leading, directions, *gates, hidden)

        def glorot(shape: Sequence[int]) -> Array:
            columns = (inputs, hidden)
            limits = (calc_uniform_lim_glorot(n, hidden) for n in columns)
            drawn = (UniformInitializer(limit, rng) for limit in limits)
            return np.concatenate(
                [draw((*rows, n)) for draw, n in zip(drawn, columns, strict=True)], axis=-1
            )

        init = glorot if init is None else init
        shape = (*rows, inputs + hidden)
        return get_parameter_or_create(label, shape, init, True, not fix_parameters)

    first = weight("weight_l0", (), x.shape[2], w0_init)
    others = weight("weight", (layers - 1,), directions * hidden, w_init) if layers > 1 else None
    bias = None
    if with_bias:
        shape = (layers, directions, *biases, hidden)
        b_init = ConstantInitializer() if b_init is None else b_init
        bias = get_parameter_or_create("bias", shape, b_init, True, not fix_parameters)
    return first, others, bias


# Step by step ------------------------------------------------------------------------------------


def lstm_cell(
    x: Variable,
    h: Variable,
    c: Variable,
    state_size: int,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    fix_parameters: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Take one step of long short-term memory.

    With ``i, o, f, g`` the parts of an affine layer of inputs and state: ``c' = s(f) c + s(i)
    tanh(g)`` and ``h' = s(o) tanh(c')``, ``s`` being the logistic function. Parameters
    ``lstm/affine/W`` of shape (inputs + state_size, 4, state_size) and ``lstm/affine/b`` of shape
    (4, state_size); the gates are not in the order of `lstm`.

    Args:
        x: (batch, inputs).
        h: (batch, state_size), the state before.
        c: (batch, state_size), the memory before.
        state_size: elements of the state.
        w_init: an initializer or an array; by default uniform (Glorot and Bengio, 2010).
        b_init: an initializer or an array; by default 0.
        fix_parameters: whether the parameters are left out of training.
        name: a scope for the parameters; ``None`` for the current one.

    Returns:
        State and memory behind the step.

    Gradient:
        Exact, for the inputs and the parameters.

    Examples:
        >>> h, c = PF.lstm_cell(Variable((8, 3)), Variable((8, 5)), Variable((8, 5)), 5)
        >>> {name: value.shape for name, value in nnl.get_parameters().items()}
        {'lstm/affine/W': (8, 4, 5), 'lstm/affine/b': (4, 5)}

    Elsewhere:
        - nnabla: `lstm_cell`
        - PyTorch: `torch.nn.LSTMCell`, gates in the order i, f, g, o
        - ONNX: `LSTM`, of one step
    """
    with layer_scope("lstm", name):
        both = affine(
            F.concatenate(x, h, axis=1),
            (4, state_size),
            w_init=w_init,
            b_init=b_init,
            fix_parameters=fix_parameters,
        )
    i, o, f, g = F.split(both, axis=1)
    after = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
    return F.sigmoid(o) * F.tanh(after), after


class LSTMCell:
    """Long short-term memory that keeps its state from call to call.

    ``cell(x, w_init=None, b_init=None, fix_parameters=False)`` is `lstm_cell` from the state
    ``cell.h`` and the memory ``cell.c``, which it replaces; it returns the state. All calls share
    their parameters.

    Args:
        batch_size: sequences at once.
        state_size: elements of the state.
        h: the first state (batch_size, state_size); ``None`` for zeros.
        c: the first memory, of the same shape; ``None`` for zeros.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        That of `lstm_cell`, through all steps since `reset_state`.

    Examples:
        >>> cell = PF.LSTMCell(8, 5)
        >>> for step in range(3):
        ...     y = cell(Variable((8, 2)))
        >>> y.shape
        (8, 5)
        >>> cell.reset_state()
        >>> cell.h.d.max().item()
        0.0

    Elsewhere:
        - nnabla: `LSTMCell`
        - PyTorch: `torch.nn.LSTMCell`, which is given the state at each call
        - ONNX: none, `LSTM` runs over whole sequences
    """

    def __init__(
        self,
        batch_size: int,
        state_size: int,
        h: Variable | None = None,
        c: Variable | None = None,
        name: str | None = None,
    ) -> None:
        self.batch_size = batch_size
        self.state_size = state_size
        self.name = name
        self.h = self._zeros() if h is None else h
        self.c = self._zeros() if c is None else c

    def _zeros(self) -> Variable:
        return Variable((self.batch_size, self.state_size))

    def reset_state(self) -> None:
        """Make state and memory zero for the next call; what was computed stays as it is."""
        self.h, self.c = self._zeros(), self._zeros()

    def __call__(
        self,
        x: Variable,
        w_init: Initial | None = None,
        b_init: Initial | None = None,
        fix_parameters: bool = False,
    ) -> Variable:
        """Take one step, and return the new state."""
        self.h, self.c = lstm_cell(
            x, self.h, self.c, self.state_size, w_init, b_init, fix_parameters, self.name
        )
        return self.h
