"""What a hidden layer does between two matrix products, in one pass over memory.

torch's own tanh is the slowest part of a small network on CPUs without AVX-512 (0.2 against 2.4 G/s
measured), and takes a pass of its own for the bias and another for the gradient. On a GPU, and where
autograd looks on, torch's operations are used.

Shapes: P agents, L sessions, E environments, H hidden units, R rows that share a bias, X samples.
"""

import numba
import numpy as np
import torch
from torch import Tensor

# Contraction into fused multiply-adds only: no reassociation, no approximate division.
_compiled = numba.njit(cache=True, error_model="numpy", fastmath={"contract"})
_inner = numba.njit(
    error_model="numpy", fastmath={"contract"}, no_cpython_wrapper=True, no_cfunc_wrapper=True
)
_f = np.float32
# tanh(x) is ±1 to the last float32 bit but two from here on.
_LARGEST = _f(7.90531110763549805)


@_inner
def _tanh(x):  # type: ignore[no-untyped-def]
    """Rational approximation in float32: within 2.7e-7 of tanh, relative; NaN stays NaN.

    Source: the minimax coefficients that Eigen and XLA use (degree 13 over degree 6, odd over even).
    """
    x = -_LARGEST if x < -_LARGEST else (_LARGEST if x > _LARGEST else x)
    y = x * x
    p = y * _f(-2.76076847742355e-16) + _f(2.00018790482477e-13)
    p = y * p + _f(-8.60467152213735e-11)
    p = y * p + _f(5.12229709037114e-08)
    p = y * p + _f(1.48572235717979e-05)
    p = y * p + _f(6.37261928875436e-04)
    p = y * p + _f(4.89352455891786e-03)
    q = y * _f(1.19825839466702e-06) + _f(1.18534705686654e-04)
    q = y * q + _f(2.26843463243900e-03)
    q = y * q + _f(4.89352518554385e-03)
    return x * p / q


@_compiled
def _add_bend(z_REH, bias_RH, is_relu):  # type: ignore[no-untyped-def]
    for r in range(z_REH.shape[0]):
        bias_H = bias_RH[r]
        for e in range(z_REH.shape[1]):
            z_H = z_REH[r, e]
            if is_relu:
                for h in range(len(z_H)):
                    z = z_H[h] + bias_H[h]
                    z_H[h] = _f(0.0) if z < _f(0.0) else z
            else:
                for h in range(len(z_H)):
                    z_H[h] = _tanh(z_H[h] + bias_H[h])


@_compiled
def _bend_backward(gradient_REH, bent_REH, bias_RH, is_relu):  # type: ignore[no-untyped-def]
    for r in range(gradient_REH.shape[0]):
        bias_H = bias_RH[r]
        for e in range(gradient_REH.shape[1]):
            gradient_H, bent_H = gradient_REH[r, e], bent_REH[r, e]
            if is_relu:
                for h in range(len(bias_H)):
                    gradient_H[h] = gradient_H[h] if bent_H[h] > _f(0.0) else _f(0.0)
                    bias_H[h] += gradient_H[h]
            else:
                for h in range(len(bias_H)):
                    gradient_H[h] *= _f(1.0) - bent_H[h] * bent_H[h]
                    bias_H[h] += gradient_H[h]


def add_bend_(z_PLEH: Tensor, bias_PLH: Tensor, activation: str) -> Tensor:
    """Add a bias to each row of environments and bend the sum, in place.

    Args:
        z_PLEH: contiguous.
        bias_PLH: shared by the environments of a row.
        activation: tanh or relu.
    """
    if z_PLEH.is_cuda or torch.is_grad_enabled():
        z_PLEH.add_(bias_PLH[:, :, None])
        return z_PLEH.tanh_() if activation == "tanh" else z_PLEH.relu_()
    rows = z_PLEH.flatten(0, 1), bias_PLH.flatten(0, 1).contiguous()
    _add_bend(*(part.numpy() for part in rows), activation == "relu")
    return z_PLEH


def bend_backward_(gradient_PLEH: Tensor, bent_PLEH: Tensor, activation: str) -> Tensor:
    """Turn the gradient of what was bent into that of the sum before, in place.

    Args:
        gradient_PLEH: contiguous.
        bent_PLEH: contiguous.
        activation: tanh or relu.

    Returns:
        The gradient of the bias (P, L, H).
    """
    if gradient_PLEH.is_cuda:
        slope = 1.0 - bent_PLEH.square() if activation == "tanh" else bent_PLEH > 0
        return gradient_PLEH.mul_(slope).sum(2)
    bias_PLH = gradient_PLEH.new_zeros(*gradient_PLEH.shape[:2], gradient_PLEH.shape[3])
    rows = gradient_PLEH.flatten(0, 1), bent_PLEH.flatten(0, 1), bias_PLH.flatten(0, 1)
    _bend_backward(*(part.numpy() for part in rows), activation == "relu")
    return bias_PLH
