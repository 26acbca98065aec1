"""Public differentiable operations of TensorFlow and Keras, each with arguments in its domain.

`REAL` is checked in float64 and in float32, `COMPLEX` in complex128 and complex64, `LAYERS` in float32 with their
own weights. `EXCEPTIONS` are the ones whose own gradient is at fault, or missing, in TensorFlow 2.21.
"""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

RANDOM = np.random.default_rng(0)
LINALG, NN, IMAGE, SIGNAL, OPS = tf.linalg, tf.nn, tf.image, tf.signal, keras.ops


def normal(*shape):
    return RANDOM.normal(size=shape)


def positive(*shape):
    return RANDOM.uniform(0.2, 1.5, size=shape)


def inside(*shape):
    return RANDOM.uniform(-0.9, 0.9, size=shape)


def unit(*shape):
    return RANDOM.uniform(0.2, 0.8, size=shape)


def z(*shape):
    return normal(*shape) + 1j * normal(*shape)


REAL: dict[str, tuple] = {}


def each(module, names, *makers, prefix=""):
    """One entry for each of the names, all with arguments of the same kind."""
    for name in names.split():
        REAL[f"{prefix}{name}"] = (getattr(module, name), [maker() for maker in makers])


# --- element by element -----------------------------------------------------------------------------------------

each(
    tf.math,
    "abs sin cos tan tanh sinh cosh exp expm1 sigmoid softplus square atan asinh erf negative sign floor ceil round"
    " rint",
    lambda: normal(4),
    prefix="math.",
)
each(
    tf.math,
    "log log1p sqrt rsqrt lgamma digamma reciprocal bessel_i0 bessel_i1 bessel_i0e bessel_i1e log_sigmoid"
    " reciprocal_no_nan",
    lambda: positive(4),
    prefix="math.",
)
each(tf.math, "asin acos atanh", lambda: inside(4), prefix="math.")
each(tf.math, "erfinv ndtri", lambda: unit(4), prefix="math.")
each(
    tf.math,
    "add subtract multiply divide maximum minimum squared_difference atan2 divide_no_nan multiply_no_nan floormod"
    " truediv pow",
    lambda: positive(3, 4),
    lambda: positive(4),
    prefix="broadcast ",
)
each(tf.math, "xlogy xdivy xlog1py", lambda: positive(4), lambda: positive(4))
REAL |= {
    "acosh": (tf.math.acosh, [1.2 + positive(3)]),
    "erfcinv": (tf.math.erfcinv, [RANDOM.uniform(0.3, 1.6, size=3)]),
    "igamma": (lambda x: tf.math.igamma(tf.constant(1.5, x.dtype), x), [positive(3)]),
    "zeta": (lambda x: tf.math.zeta(tf.constant(2.5, x.dtype), x), [positive(3)]),
    "polygamma": (lambda x: tf.math.polygamma(tf.constant(1.0, x.dtype), x), [positive(3)]),
    "betainc": (lambda x: tf.math.betainc(tf.constant(1.5, x.dtype), tf.constant(2.0, x.dtype), x), [unit(3)]),
    # ordinary special points: right functions too
    "relu at 0": (NN.relu, [np.array([0.0, 1.0, -1.0])]),
    "abs at 0": (tf.abs, [np.array([0.0, 2.0])]),
    "max with ties": (tf.reduce_max, [np.array([1.0, 1.0, 0.0])]),
    "sort with ties": (tf.sort, [np.array([2.0, 1.0, 1.0])]),
    "clip at its bound": (lambda x: tf.clip_by_value(x, -1.0, 1.0), [np.array([-1.0, 0.3, 1.0])]),
    "sqrt near its edge": (tf.sqrt, [np.array([1e-6, 1.0])]),
    "where, guarded": (
        lambda x: tf.where(x > 0.0, tf.sqrt(tf.where(x > 0.0, x, 1.0)), 0.0),
        [np.array([-1.0, 4.0])],
    ),
    "tanh, saturated": (tf.tanh, [np.array([-400.0, 400.0])]),
}

# --- reductions and scans -----------------------------------------------------------------------------------------

for _name in ["sum", "mean", "prod", "max", "min", "std", "variance", "euclidean_norm", "logsumexp"]:
    _reduce = getattr(tf.math, f"reduce_{_name}")
    REAL[f"reduce_{_name}"] = (_reduce, [normal(3, 4)])
    REAL[f"reduce_{_name}, axis 1"] = (lambda x, reduce=_reduce: reduce(x, axis=1), [normal(3, 4)])
each(tf.math, "cumsum cumprod cumulative_logsumexp", lambda: positive(5))

# --- linear algebra -----------------------------------------------------------------------------------------------

SQUARE = normal(3, 3) + 3 * np.eye(3)
SYMMETRIC = SQUARE @ SQUARE.T
each(LINALG, "inv det expm trace diag_part adjoint", lambda: 0.3 * SQUARE, prefix="linalg.")
each(LINALG, "logdet cholesky sqrtm", lambda: SYMMETRIC, prefix="linalg.")
REAL |= {
    "matmul": (tf.matmul, [normal(2, 3), normal(3, 4)]),
    "matvec": (LINALG.matvec, [normal(2, 3), normal(3)]),
    "slogdet": (lambda a: LINALG.slogdet(a)[1], [SQUARE]),
    "solve": (LINALG.solve, [SQUARE, normal(3, 2)]),
    "triangular_solve": (
        lambda a, b: LINALG.triangular_solve(LINALG.band_part(a, -1, 0), b),
        [SQUARE, normal(3, 2)],
    ),
    "diag": (LINALG.diag, [normal(3)]),
    "norm": (tf.norm, [normal(3, 2)]),
    "qr": (lambda a: LINALG.qr(a)[1], [SQUARE]),
    "svd, values": (lambda a: LINALG.svd(a, compute_uv=False), [SQUARE]),
    "eigh, values": (lambda a: LINALG.eigh(a)[0], [SYMMETRIC]),
    "lstsq": (LINALG.lstsq, [normal(4, 2), normal(4, 1)]),
    "pinv": (LINALG.pinv, [normal(4, 2)]),
    "tensordot": (lambda a, b: tf.tensordot(a, b, 1), [normal(2, 3), normal(3, 2)]),
    "einsum": (lambda a, b: tf.einsum("ij,kj->ik", a, b), [normal(2, 3), normal(4, 3)]),
    "cross": (LINALG.cross, [normal(2, 3), normal(2, 3)]),
    "band_part": (lambda a: LINALG.band_part(a, 1, 1), [SQUARE]),
    "set_diag": (lambda a: LINALG.set_diag(a, tf.ones(3, a.dtype)), [SQUARE]),
    "global_norm": (lambda a, b: LINALG.global_norm([a, b]), [normal(3), normal(2)]),
}

# --- shapes, gather, scatter, segments ------------------------------------------------------------------------------

REAL |= {
    "reshape": (lambda x: tf.reshape(x, [6]), [normal(2, 3)]),
    "transpose": (tf.transpose, [normal(2, 3)]),
    "concat": (lambda a, b: tf.concat([a, b], 0), [normal(2, 3), normal(1, 3)]),
    "stack": (lambda a, b: tf.stack([a, b]), [normal(2), normal(2)]),
    "unstack": (tf.unstack, [normal(2, 3)]),
    "split": (lambda a: tf.split(a, 2, 1), [normal(2, 4)]),
    "gather": (lambda a: tf.gather(a, [0, 2, 0]), [normal(3, 2)]),
    "gather_nd": (lambda a: tf.gather_nd(a, [[0, 1], [2, 0]]), [normal(3, 2)]),
    "scatter_nd": (lambda u: tf.scatter_nd([[1], [3], [1]], u, [5]), [normal(3)]),
    "tensor_scatter_nd_update": (
        lambda a, u: tf.tensor_scatter_nd_update(a, [[1], [3]], u),
        [normal(5), normal(2)],
    ),
    "tensor_scatter_nd_add": (lambda a, u: tf.tensor_scatter_nd_add(a, [[1], [1]], u), [normal(5), normal(2)]),
    "unsorted_segment_sum": (lambda a: tf.math.unsorted_segment_sum(a, [1, 0, 1], 2), [normal(3, 2)]),
    "pad": (lambda a: tf.pad(a, [[1, 1], [0, 2]]), [normal(2, 3)]),
    "pad, reflect": (lambda a: tf.pad(a, [[1, 1], [1, 1]], "REFLECT"), [normal(3, 3)]),
    "tile": (lambda a: tf.tile(a, [2, 1]), [normal(2, 3)]),
    "repeat": (lambda a: tf.repeat(a, [1, 2], 0), [normal(2, 3)]),
    "slice": (lambda a: a[1:, ::2], [normal(3, 4)]),
    "reverse": (lambda a: tf.reverse(a, [0]), [normal(3)]),
    "roll": (lambda a: tf.roll(a, 1, 0), [normal(3)]),
    "where": (lambda a, b: tf.where(a > b, a, 2.0 * b), [normal(3), normal(3)]),
    "sort": (tf.sort, [normal(5)]),
    "top_k": (lambda a: tf.math.top_k(a, 2)[0], [normal(5)]),
    "clip_by_norm": (lambda a: tf.clip_by_norm(a, 1.0), [normal(5)]),
    "broadcast_to": (lambda a: tf.broadcast_to(a, [3, 4]), [normal(4)]),
    "expand_dims": (lambda a: tf.expand_dims(a, 0), [normal(4)]),
    "boolean_mask": (lambda a: tf.boolean_mask(a, [True, False, True]), [normal(3, 2)]),
    "dynamic_partition": (lambda a: tf.dynamic_partition(a, [0, 1, 0], 2), [normal(3)]),
    "dynamic_stitch": (lambda a, b: tf.dynamic_stitch([[0, 2], [1]], [a, b]), [normal(2), normal(1)]),
    "meshgrid": (tf.meshgrid, [normal(2), normal(3)]),
    "space_to_depth": (lambda a: NN.space_to_depth(a, 2), [normal(1, 4, 4, 1)]),
    "depth_to_space": (lambda a: NN.depth_to_space(a, 2), [normal(1, 2, 2, 4)]),
    "ragged": (lambda a: tf.RaggedTensor.from_row_lengths(a, [2, 1]).to_tensor(), [normal(3)]),
    "embedding_lookup": (lambda t: NN.embedding_lookup(t, [1, 1, 0]), [normal(3, 2)]),
    "cond": (lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x * x, lambda: x), [positive(2)]),
    "while_loop": (
        lambda x: tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.sin(y) * x), [0, x])[1],
        [normal(2)],
    ),
    "recompute_grad": (tf.recompute_grad(lambda x: tf.sin(x) * x), [normal(3)]),
}
for _name in ["sum", "mean", "max", "min", "prod"]:
    _segment = getattr(tf.math, f"segment_{_name}")
    REAL[f"segment_{_name}"] = (lambda a, segment=_segment: segment(a, [0, 0, 1]), [normal(3, 2)])

# --- neural networks, images, signals -------------------------------------------------------------------------------

each(
    NN,
    "relu relu6 elu selu gelu silu leaky_relu softmax log_softmax softsign crelu",
    lambda: normal(3, 4),
    prefix="nn.",
)
PICTURE, PHOTO = normal(1, 5, 5, 2), positive(1, 6, 6, 3)
REAL |= {
    "l2_normalize": (lambda x: NN.l2_normalize(x, -1), [normal(3, 4)]),
    "conv1d": (lambda x, k: NN.conv1d(x, k, 1, "SAME"), [normal(1, 6, 2), normal(3, 2, 2)]),
    "conv2d": (lambda x, k: NN.conv2d(x, k, 2, "VALID"), [PICTURE, normal(3, 3, 2, 2)]),
    "depthwise_conv2d": (
        lambda x, k: NN.depthwise_conv2d(x, k, [1, 1, 1, 1], "SAME"),
        [PICTURE, normal(2, 2, 2, 1)],
    ),
    "conv2d_transpose": (
        lambda x, k: NN.conv2d_transpose(x, k, [1, 10, 10, 2], 2, "SAME"),
        [PICTURE, normal(3, 3, 2, 2)],
    ),
    "conv3d": (lambda x, k: NN.conv3d(x, k, [1] * 5, "SAME"), [normal(1, 3, 3, 3, 1), normal(2, 2, 2, 1, 1)]),
    "max_pool2d": (lambda x: NN.max_pool2d(x, 2, 2, "VALID"), [PICTURE]),
    "avg_pool2d": (lambda x: NN.avg_pool2d(x, 2, 2, "SAME"), [PICTURE]),
    "avg_pool1d": (lambda x: NN.avg_pool1d(x, 2, 1, "SAME"), [normal(1, 6, 2)]),
    "batch_normalization": (lambda x: NN.batch_normalization(x, *NN.moments(x, [0]), None, None, 1e-3), [normal(4, 3)]),
    "moments": (lambda x: NN.moments(x, [0]), [normal(4, 3)]),
    "softmax_cross_entropy": (
        lambda x: NN.softmax_cross_entropy_with_logits(tf.constant([[0.2, 0.8], [1.0, 0.0]], x.dtype), x),
        [normal(2, 2)],
    ),
    "sparse_softmax_cross_entropy": (
        lambda x: NN.sparse_softmax_cross_entropy_with_logits([1, 0], x),
        [normal(2, 2)],
    ),
    "sigmoid_cross_entropy": (
        lambda x: NN.sigmoid_cross_entropy_with_logits(tf.constant([0.2, 1.0], x.dtype), x),
        [normal(2)],
    ),
    "weighted_cross_entropy": (
        lambda x: NN.weighted_cross_entropy_with_logits(tf.constant([0.2, 1.0], x.dtype), x, tf.constant(2.0, x.dtype)),
        [normal(2)],
    ),
    "log_poisson_loss": (lambda x: NN.log_poisson_loss(tf.constant([1.0, 2.0], x.dtype), x), [normal(2)]),
    "l2_loss": (NN.l2_loss, [normal(3)]),
    "bias_add": (NN.bias_add, [PICTURE, normal(2)]),
    "pool": (lambda x: NN.pool(x, [2, 2], "MAX", padding="SAME"), [PICTURE]),
    "resize, bicubic": (lambda x: IMAGE.resize(x, [8, 8], "bicubic"), [PHOTO]),
    "rgb_to_grayscale": (IMAGE.rgb_to_grayscale, [PHOTO]),
    "rgb_to_yuv": (IMAGE.rgb_to_yuv, [PHOTO]),
    "flip_left_right": (IMAGE.flip_left_right, [PHOTO]),
    "rot90": (IMAGE.rot90, [PHOTO]),
    "adjust_brightness": (lambda x: IMAGE.adjust_brightness(x, 0.1), [PHOTO]),
    "adjust_gamma": (lambda x: IMAGE.adjust_gamma(x, 1.3), [PHOTO]),
    "total_variation": (IMAGE.total_variation, [PHOTO]),
    "sobel_edges": (IMAGE.sobel_edges, [PHOTO]),
    "ssim": (lambda x: IMAGE.ssim(x, x * 0.9 + 0.05, 1.0, filter_size=3), [PHOTO]),
    "psnr": (lambda x: IMAGE.psnr(x, x * 0.9, 1.0), [PHOTO]),
    "central_crop": (lambda x: IMAGE.central_crop(x, 0.5), [PHOTO]),
    "per_image_standardization": (IMAGE.per_image_standardization, [PHOTO]),
    "image_gradients": (IMAGE.image_gradients, [PHOTO]),
    "extract_patches": (
        lambda x: IMAGE.extract_patches(x, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID"),
        [PHOTO],
    ),
    "crop_and_resize": (lambda x: IMAGE.crop_and_resize(x, [[0.1, 0.1, 0.8, 0.8]], [0], [3, 3]), [PHOTO]),
    "rfft, real": (lambda x: tf.math.real(SIGNAL.rfft(x)), [normal(6)]),
    "rfft, size": (lambda x: tf.abs(SIGNAL.rfft(x)), [normal(6)]),
    "irfft": (lambda x: SIGNAL.irfft(tf.complex(x, x)), [normal(4)]),
    "dct": (SIGNAL.dct, [normal(6)]),
    "idct": (SIGNAL.idct, [normal(6)]),
    "stft, power": (lambda x: tf.abs(SIGNAL.stft(x, 4, 2)) ** 2, [normal(8)]),
    "mdct": (lambda x: SIGNAL.mdct(x, 4), [normal(8)]),
    "frame": (lambda x: SIGNAL.frame(x, 3, 2), [normal(7)]),
    "overlap_and_add": (lambda x: SIGNAL.overlap_and_add(x, 2), [normal(3, 4)]),
}

# --- Keras --------------------------------------------------------------------------------------------------------

each(
    OPS,
    "relu sigmoid silu softplus gelu elu selu hard_sigmoid hard_silu leaky_relu log_sigmoid relu6 soft_shrink"
    " hard_shrink tanh_shrink squareplus celu glu sparse_plus hard_tanh logsumexp norm sinc cumsum cumprod std var"
    " average",
    lambda: normal(4) + 0.05,
    prefix="keras.ops.",
)
REAL |= {
    "keras.ops.einsum": (lambda a, b: OPS.einsum("ij,jk", a, b), [normal(2, 3), normal(3, 2)]),
    "keras.ops.outer": (OPS.outer, [normal(2), normal(3)]),
    "keras.ops.logaddexp": (OPS.logaddexp, [normal(3), normal(3)]),
    "keras.ops.hypot": (OPS.hypot, [normal(3), normal(3)]),
    "keras.ops.median": (OPS.median, [normal(5)]),
    "keras.ops.quantile": (lambda x: OPS.quantile(x, 0.3), [normal(5)]),
    "keras.ops.tril": (OPS.tril, [normal(3, 3)]),
    "keras.ops.linspace": (lambda a, b: OPS.linspace(a, b, 4), [normal(), normal()]),
    "keras.ops.normalize": (OPS.normalize, [normal(2, 4)]),
    "keras.ops.softmax": (OPS.softmax, [normal(2, 4)]),
    "keras.ops.segment_sum": (lambda x: OPS.segment_sum(x, np.array([0, 0, 1])), [normal(3)]),
    "keras.ops.slogdet": (lambda a: OPS.slogdet(a)[1], [SQUARE]),
}
for _name in [
    "mean_squared_error",
    "mean_absolute_error",
    "huber",
    "log_cosh",
    "poisson",
    "kl_divergence",
    "cosine_similarity",
    "hinge",
    "squared_hinge",
    "categorical_crossentropy",
    "binary_crossentropy",
    "mean_squared_logarithmic_error",
    "categorical_focal_crossentropy",
    "binary_focal_crossentropy",
    "tversky",
    "dice",
]:
    _loss = getattr(keras.losses, _name)
    REAL[f"loss {_name}"] = (
        lambda p, loss=_loss: loss(tf.constant([[0.2, 0.8], [0.6, 0.4]], p.dtype), p),
        [unit(2, 2)],
    )

COMPLEX = {
    name: (getattr(tf.math, name), [z(3)])
    for name in [
        "sin",
        "cos",
        "tan",
        "exp",
        "log",
        "sinh",
        "tanh",
        "square",
        "conj",
        "abs",
        "real",
        "imag",
        "angle",
        "sigmoid",
        "negative",
        "expm1",
        "log1p",
    ]
}
COMPLEX |= {
    "multiply": (tf.multiply, [z(3), z(3)]),
    "divide": (tf.divide, [z(3), z(3)]),
    "cube": (lambda x: x * x * x, [z(3)]),
    "power": (lambda x: tf.abs(x) ** 2, [z(3)]),
    "fft": (SIGNAL.fft, [z(3)]),
    "ifft": (SIGNAL.ifft, [z(3)]),
    "fft2d": (SIGNAL.fft2d, [z(2, 3)]),
    "fft, real": (lambda x: tf.math.real(SIGNAL.fft(x)), [z(3)]),
    "matmul": (tf.matmul, [z(2, 2), z(2, 2)]),
    "inv": (LINALG.inv, [SQUARE + 1j * normal(3, 3)]),
    "solve": (LINALG.solve, [SQUARE + 1j * normal(3, 3), z(3, 1)]),
    "reduce_sum": (tf.reduce_sum, [z(3)]),
}

LAYERS = {
    "Dense": keras.layers.Dense(3, "gelu"),
    "SimpleRNN": keras.layers.SimpleRNN(3),
    "LSTM": keras.layers.LSTM(3),
    "GRU": keras.layers.GRU(3),
    "LayerNormalization": keras.layers.LayerNormalization(),
    "GroupNormalization": keras.layers.GroupNormalization(1),
    "Conv1D": keras.layers.Conv1D(2, 2),
    "MultiHeadAttention": keras.layers.MultiHeadAttention(2, 2),
}

EXCEPTIONS = {
    # no second gradient is registered for the operation's gradient
    "nn.softsign": "backward-not-differentiable",
    "local_response_normalization": "backward-not-differentiable",
    # the variance stops the gradient of the mean, which the second derivative misses
    "moments": "second-order-wrong",
    "batch_normalization": "second-order-wrong",
    # no gradient is registered at all
    "adjust_contrast": "raises",
    "adjust_saturation": "raises",
    # under XLA the conjugate is missing
    "complex sqrt": "graph-unfriendly",
    "complex rsqrt": "graph-unfriendly",
    "complex reciprocal": "graph-unfriendly",
    # the determinant stands where its conjugate is due
    "complex det": "wrong-value",
}
EXTRA = {
    "local_response_normalization": (NN.local_response_normalization, [PICTURE.astype(np.float32)]),
    "adjust_contrast": (lambda x: IMAGE.adjust_contrast(x, 0.7), [PHOTO.astype(np.float32)]),
    "adjust_saturation": (lambda x: IMAGE.adjust_saturation(x, 0.8), [PHOTO.astype(np.float32)]),
    "complex sqrt": (tf.sqrt, [z(3)]),
    "complex rsqrt": (tf.math.rsqrt, [z(3)]),
    "complex reciprocal": (tf.math.reciprocal, [z(3)]),
    "complex det": (LINALG.det, [SQUARE + 1j * normal(3, 3)]),
}
