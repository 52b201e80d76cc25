"""oneDNN through its C interface: descriptors of arrays, and primitives."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import weakref
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from nnl_native.onednn_library import PrimitiveError as PrimitiveError
from nnl_native.onednn_library import address as address
from nnl_native.onednn_library import checked, engine, library, stream
from nnl_native.onednn_library import find_library as find_library
from nnl_native.onednn_library import problem as problem

# Numbers of the C interface, which all versions 3 share.
SOURCE, DESTINATION, WEIGHT, BIAS, SCRATCHPAD = 1, 17, 33, 41, 80
SOURCE_GRADIENT, DESTINATION_GRADIENT, WEIGHT_GRADIENT, BIAS_GRADIENT = 129, 145, 161, 169
_POST_OP, _SECOND_SOURCE = 32768, 2
_FORWARD, _DIRECT = 64, 1
_IMPLEMENTATION, _SCRATCHPAD_DESCRIPTOR, _ARGUMENT_DESCRIPTOR = 8, 136, 255
_ANY, _USER_SCRATCHPAD = 1, 1
_DTYPES = {"float16": 1, "bfloat16": 2, "float32": 3, "int32": 4, "int8": 5, "uint8": 6}
ELEMENTWISE = {
    "relu": 32, "tanh": 33, "elu": 34, "square": 35, "abs": 36, "sqrt": 37, "linear": 38,
    "softplus": 39, "hard_sigmoid": 40, "sigmoid": 41, "exp": 42, "gelu_tanh": 43, "swish": 44,
    "log": 45, "clip": 46, "gelu": 49, "mish": 51, "hard_swish": 52,
}  # fmt: skip
"""Functions of one number that may follow a primitive; those with parameters take alpha, beta."""
BINARY = {"add": 0x1FFF0, "mul": 0x1FFF1, "max": 0x1FFF2, "min": 0x1FFF3, "sub": 0x1FFF5}
"""Functions of the result and of another array that may follow a primitive."""


# Descriptors -------------------------------------------------------------------------------------


def _lengths(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(values))(*values)


class Descriptor:
    """Where the elements of an array are: shape, element type, strides or blocks.

    Two are equal where the library says so. ``pointer`` is the C object, which lives as long as
    this one; ``nbytes`` counts the padding of blocks too.
    """

    __slots__ = ("__weakref__", "dtype", "nbytes", "pointer", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: str, pointer: int) -> None:
        self.shape = shape
        self.dtype = dtype
        self.pointer = pointer
        self.nbytes = int(library().dnnl_memory_desc_get_size(pointer))
        destroy = library().dnnl_memory_desc_destroy
        weakref.finalize(self, destroy, pointer).atexit = False

    @classmethod
    def strided(
        cls, shape: Sequence[int], strides: Sequence[int], dtype: str = "float32"
    ) -> Descriptor:
        """Describe an array by the distance between neighbours along each axis, in elements."""
        made = ctypes.c_void_p()
        status = library().dnnl_memory_desc_create_with_strides(
            ctypes.byref(made), len(shape), _lengths(shape), _number(dtype), _lengths(strides)
        )
        checked(status, f"array of shape {tuple(shape)} with strides {tuple(strides)}")
        return cls(tuple(shape), dtype, made.value or 0)

    @classmethod
    def any(cls, shape: Sequence[int], dtype: str = "float32") -> Descriptor:
        """Leave to a primitive where the elements are; it says so in its ``descriptors``."""
        made = ctypes.c_void_p()
        status = library().dnnl_memory_desc_create_with_tag(
            ctypes.byref(made), len(shape), _lengths(shape), _number(dtype), _ANY
        )
        checked(status, f"array of shape {tuple(shape)}")
        return cls(tuple(shape), dtype, made.value or 0)

    @classmethod
    def copied(cls, pointer: int, shape: tuple[int, ...], dtype: str) -> Descriptor:
        """Copy a C object that belongs to something else."""
        made = ctypes.c_void_p()
        checked(library().dnnl_memory_desc_clone(ctypes.byref(made), pointer), "descriptor")
        return cls(shape, dtype, made.value or 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descriptor) and (
            self.pointer == other.pointer
            or bool(library().dnnl_memory_desc_equal(self.pointer, other.pointer))
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self.nbytes))

    def __repr__(self) -> str:
        return f"<{self.dtype}{self.shape}, {self.nbytes} bytes>"


def _number(dtype: str) -> int:
    if dtype not in _DTYPES:
        raise PrimitiveError(f"oneDNN computes with {', '.join(_DTYPES)}, not with {dtype}")
    return _DTYPES[dtype]


# What may follow a primitive ---------------------------------------------------------------------


class Elementwise(NamedTuple):
    """Apply a function of `ELEMENTWISE` to the result; leaky ReLU is relu with a slope alpha."""

    function: str
    alpha: float = 0.0
    beta: float = 0.0


class Accumulate(NamedTuple):
    """Add ``scale`` times what the destination holds."""

    scale: float = 1.0


class Combine(NamedTuple):
    """Combine the result with another array by a function of `BINARY`; lengths 1 broadcast.

    The array is given as argument ``combined(position among the post-ops)``.
    """

    function: str
    other: Descriptor


PostOp: TypeAlias = Elementwise | Accumulate | Combine


def combined(position: int) -> int:
    """Return the argument number of the array that the post-op at this position takes."""
    return _POST_OP * (position + 1) | _SECOND_SOURCE


@contextlib.contextmanager
def _attributes(post_ops: Sequence[PostOp]) -> Iterator[ctypes.c_void_p]:
    """Make the attributes of a primitive: scratch memory is the caller's, and the post-ops."""
    c = library()
    attributes, chain = ctypes.c_void_p(), ctypes.c_void_p()
    checked(c.dnnl_primitive_attr_create(ctypes.byref(attributes)), "attributes")
    checked(c.dnnl_post_ops_create(ctypes.byref(chain)), "post-ops")
    try:
        c.dnnl_primitive_attr_set_scratchpad_mode(attributes, _USER_SCRATCHPAD)
        for one in post_ops:
            match one:
                case Elementwise(function, alpha, beta):
                    status = c.dnnl_post_ops_append_eltwise(
                        chain, ELEMENTWISE[function], alpha, beta
                    )
                case Accumulate(scale):
                    status = c.dnnl_post_ops_append_sum(chain, scale, 0, 0)
                case Combine(function, other):
                    status = c.dnnl_post_ops_append_binary(chain, BINARY[function], other.pointer)
            checked(status, f"post-op {one}")
        checked(c.dnnl_primitive_attr_set_post_ops(attributes, chain), "post-ops")
        yield attributes
    finally:
        c.dnnl_post_ops_destroy(chain)
        c.dnnl_primitive_attr_destroy(attributes)


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Plan for a number of threads; whoever runs the primitive sets the same."""
    before = library().omp_get_max_threads()
    library().omp_set_num_threads(count)
    try:
        yield
    finally:
        library().omp_set_num_threads(before)


# Primitives --------------------------------------------------------------------------------------


class Primitive:
    """A computation ready to be run; ``pointer`` is the C object, which lives as long as this one.

    ``descriptors`` says where the elements of each argument are, by its number. `SCRATCHPAD` is an
    argument like the others: ``scratchpad`` describes it (``nbytes`` may be 0).
    """

    __slots__ = ("__weakref__", "descriptors", "implementation", "pointer", "scratchpad")

    def __init__(
        self, description: ctypes.c_void_p, arguments: dict[int, Descriptor], what: str
    ) -> None:
        c = library()
        made = ctypes.c_void_p()
        checked(c.dnnl_primitive_create(ctypes.byref(made), description), what)
        self.pointer = made.value or 0
        weakref.finalize(self, c.dnnl_primitive_destroy, self.pointer).atexit = False
        query = c.dnnl_primitive_desc_query_md
        self.descriptors = {
            number: given
            if number > _POST_OP  # which the library does not say again
            else Descriptor.copied(
                query(description, _ARGUMENT_DESCRIPTOR, number), given.shape, given.dtype
            )
            for number, given in arguments.items()
        }
        self.scratchpad = Descriptor.copied(
            query(description, _SCRATCHPAD_DESCRIPTOR, 0), (), "uint8"
        )
        name = ctypes.c_char_p()
        c.dnnl_primitive_desc_query(description, _IMPLEMENTATION, 0, ctypes.byref(name))
        self.implementation = (name.value or b"").decode()


def _primitive(
    function: str,
    what: str,
    given: Sequence[object],
    arguments: dict[int, Descriptor | None],
    threads: int,
    post_ops: Sequence[PostOp] = (),
) -> Primitive:
    """Describe and make a primitive; ``given`` is what the C function takes before attributes."""
    present = {number: one for number, one in arguments.items() if one is not None}
    present |= {
        combined(position): one.other
        for position, one in enumerate(post_ops)
        if isinstance(one, Combine)
    }
    what = f"{what} of {', '.join(str(one.shape) for one in present.values())}"
    description = ctypes.c_void_p()
    plain = [one.pointer if isinstance(one, Descriptor) else one for one in given]
    with _threads(threads), _attributes(post_ops) as attributes:
        make = getattr(library(), f"dnnl_{function}_primitive_desc_create")
        checked(make(ctypes.byref(description), *plain, attributes), what)
        try:
            return Primitive(description, present, what)
        finally:
            library().dnnl_primitive_desc_destroy(description)


class Geometry(NamedTuple):
    """How a convolution's window goes over each spatial axis; dilation 1 leaves no gaps."""

    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def _arguments(self) -> list[object]:
        gaps = [dilation - 1 for dilation in self.dilation]
        return [_lengths(one) for one in (self.stride, gaps, self.before, self.after)]


_remember = functools.lru_cache(maxsize=4096)


@_remember
def convolution(
    source: Descriptor,
    weight: Descriptor,
    bias: Descriptor | None,
    destination: Descriptor,
    geometry: Geometry,
    threads: int,
    post_ops: tuple[PostOp, ...] = (),
) -> Primitive:
    """Make a convolution; a weight of groups is (groups, maps, channels, *kernel)."""
    return _primitive(
        "convolution_forward",
        "convolution",
        [engine(), _FORWARD, _DIRECT, source, weight, bias, destination, *geometry._arguments],
        {SOURCE: source, WEIGHT: weight, BIAS: bias, DESTINATION: destination},
        threads,
        post_ops,
    )


@_remember
def convolution_data(
    source_gradient: Descriptor,
    weight: Descriptor,
    destination_gradient: Descriptor,
    geometry: Geometry,
    threads: int,
) -> Primitive:
    """Make the gradient of a convolution's data."""
    return _primitive(
        "convolution_backward_data",
        "gradient of a convolution's data",
        [
            *(engine(), _DIRECT, source_gradient, weight, destination_gradient),
            *(*geometry._arguments, None),
        ],
        {
            SOURCE_GRADIENT: source_gradient,
            WEIGHT: weight,
            DESTINATION_GRADIENT: destination_gradient,
        },
        threads,
    )


@_remember
def convolution_weight(
    source: Descriptor,
    weight_gradient: Descriptor,
    bias_gradient: Descriptor | None,
    destination_gradient: Descriptor,
    geometry: Geometry,
    threads: int,
) -> Primitive:
    """Make the gradient of a convolution's weight, and with it that of the bias where wanted."""
    return _primitive(
        "convolution_backward_weights",
        "gradient of a convolution's weight",
        [
            *(engine(), _DIRECT, source, weight_gradient, bias_gradient, destination_gradient),
            *(*geometry._arguments, None),
        ],
        {
            SOURCE: source,
            WEIGHT_GRADIENT: weight_gradient,
            BIAS_GRADIENT: bias_gradient,
            DESTINATION_GRADIENT: destination_gradient,
        },
        threads,
    )


@_remember
def matmul(
    source: Descriptor,
    weight: Descriptor,
    bias: Descriptor | None,
    destination: Descriptor,
    threads: int,
    post_ops: tuple[PostOp, ...] = (),
) -> Primitive:
    """Make a product of matrices (or of stacks of them: axes before the last two, or 1 there)."""
    return _primitive(
        "matmul",
        "matrix product",
        [engine(), source, weight, bias, destination],
        {SOURCE: source, WEIGHT: weight, BIAS: bias, DESTINATION: destination},
        threads,
        post_ops,
    )


@_remember
def reorder(
    source: Descriptor, target: Descriptor, threads: int, post_ops: tuple[PostOp, ...] = ()
) -> Primitive:
    """Make a copy from one layout to another; with `Accumulate`, what is there is added."""
    return _primitive(
        "reorder",
        "copy into another layout",
        [source, engine(), target, engine()],
        {SOURCE: source, DESTINATION: target},
        threads,
        post_ops,
    )


def execute(primitive: Primitive, pointers: dict[int, int], threads: int) -> None:
    """Run a primitive on arrays at these addresses, by argument number: slow, for tests and tools.

    The scratchpad is made here.
    """
    c = library()
    pad = ctypes.create_string_buffer(max(1, primitive.scratchpad.nbytes) + 64)
    start = -(-ctypes.addressof(pad) // 64) * 64
    given = [(number, primitive.descriptors[number], at) for number, at in pointers.items()]
    given.append((SCRATCHPAD, primitive.scratchpad, start))
    arguments = (_Argument * len(given))()
    try:
        for slot, (number, descriptor, at) in zip(arguments, given, strict=True):
            memory = ctypes.c_void_p()
            status = c.dnnl_memory_create(ctypes.byref(memory), descriptor.pointer, engine(), at)
            checked(status, f"memory of {descriptor}")
            slot.number, slot.memory = number, memory.value
        with _threads(threads):
            status = c.dnnl_primitive_execute(
                primitive.pointer, stream(), len(given), ctypes.byref(arguments)
            )
        checked(status, f"run of {primitive.implementation}")
    finally:
        for slot in arguments:
            if slot.memory:
                c.dnnl_memory_destroy(slot.memory)


class _Argument(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int), ("memory", ctypes.c_void_p)]
