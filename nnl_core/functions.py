"""``F``: the functions that users call, under nnabla's names. One line per family of operators."""

from __future__ import annotations

from nnl_core.operators.activation import *
from nnl_core.operators.arithmetic import *
from nnl_core.operators.array import *
from nnl_core.operators.attention import *
from nnl_core.operators.clipping import *
from nnl_core.operators.convolution import *
from nnl_core.operators.cross_entropy import *
from nnl_core.operators.diagonal import *
from nnl_core.operators.einsum import *
from nnl_core.operators.flat import *
from nnl_core.operators.fused_convolution import *
from nnl_core.operators.gathering import *
from nnl_core.operators.gradient_clipping import *
from nnl_core.operators.indexing import *
from nnl_core.operators.joining import *
from nnl_core.operators.linear import *
from nnl_core.operators.logical import *
from nnl_core.operators.loss import *
from nnl_core.operators.masking import *
from nnl_core.operators.math import *
from nnl_core.operators.matrices import *
from nnl_core.operators.normalization import *
from nnl_core.operators.norms import *
from nnl_core.operators.padding import *
from nnl_core.operators.pooling import *
from nnl_core.operators.rectifiers import *
from nnl_core.operators.reduction import *
from nnl_core.operators.scan import *
from nnl_core.operators.scattering import *
from nnl_core.operators.searching import *
from nnl_core.operators.softmax import *
from nnl_core.operators.sorting import *
from nnl_core.operators.spread import *
from nnl_core.operators.stochastic import *
