"""Checks of user input. Concrete arrays are checked by value, traced ones only by shape and dtype.

Every message names the argument, what was found and what to do. Inside a trace values are unknown, and invalid ones are
reported by ``Posterior.status`` instead.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np


def is_concrete(value: Any) -> bool:
    """Return whether ``value`` is concrete, that is, not a tracer."""
    return not isinstance(value, jax.core.Tracer)


def is_local(value: Any) -> bool:
    """Return False if an array is known to have shards in another process, otherwise True."""
    return not is_concrete(value) or getattr(value, "is_fully_addressable", True)


def is_on_cpu(value: Any) -> bool:
    """Return whether an array's values are known and lie in the host's memory; True for ``None``."""
    if value is None or not is_concrete(value) or not is_local(value):
        return value is None
    devices = value.devices() if hasattr(value, "devices") else set()  # NumPy arrays have none
    return len(devices) <= 1 and all(device.platform == "cpu" for device in devices)


def any_array(value: Any) -> jax.Array | np.ndarray:
    """Return a JAX array as it is, and anything else as a NumPy array."""
    return value if isinstance(value, jax.Array) else np.asarray(value)


def float_array(name: str, value: Any, dtype: Any = None) -> jax.Array:
    """Return ``value`` as a real floating array (half precision becomes float32), or raise ``ValueError``."""
    try:
        value = any_array(value)
    except ValueError as error:
        raise ValueError(f"{name} is not a rectangular array of numbers: {error}") from None
    except jax.errors.TracerArrayConversionError:  # a list or tuple with tracers in it
        value = jnp.asarray(value)
    if value.dtype == object or (not jnp.issubdtype(value.dtype, jnp.number) and value.dtype != bool):
        raise ValueError(f"{name} {_not_numbers(value)}")
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        raise ValueError(f"{name} is complex ({value.dtype}); stack real and imaginary parts as rows instead")
    if dtype is None:
        dtype = value.dtype if jnp.issubdtype(value.dtype, jnp.floating) else jnp.result_type(float)
        dtype = jnp.float32 if jnp.dtype(dtype).itemsize < 4 else dtype
    return jnp.asarray(value, jax.dtypes.canonicalize_dtype(dtype))


def _not_numbers(value: jax.Array | np.ndarray) -> str:
    """Return the end of an error message: what the array holds instead of numbers, and what to pass."""
    if value.dtype != object and not np.issubdtype(value.dtype, np.character):
        return f"has dtype {value.dtype}; pass real numbers, for instance float32"
    odd = first_odd(value)
    if isinstance(odd, type):
        return f"is the class {odd.__name__}; pass an instance of it, {odd.__name__}(...)"
    if value.ndim:
        return f"holds {_shown(odd)}; pass real numbers (of a DataFrame, frame.select_dtypes('number'))"
    return f"is {_shown(odd)}; pass real numbers{', or leave it out' if odd is None else ''}"


def first_odd(values: Any) -> Any:
    """Return the first entry of an array that is no real number, or ``None``."""
    return next((item for item in np.ravel(values).tolist() if not isinstance(item, (int, float))), None)


def _shown(value: Any) -> str:
    """Return a short description of a value for error messages."""
    return repr(value) if value is None or isinstance(value, (int, float, str)) else f"a {type(value).__name__}"


def known(value: Any) -> np.ndarray | None:
    """Return an array's values, or ``None`` for a tracer or an array with shards on other hosts."""
    if not is_concrete(value) or not is_local(value):
        return None
    # Use NumPy: inside a trace jax.numpy would stage the check, and its result would be a tracer.
    return np.asarray(value)


def _refuse(name: str, value: np.ndarray, good: np.ndarray, remedy: str) -> None:
    """Raise ``ValueError`` for the first entry that is not good, if there is one."""
    if good.all():
        return
    index = np.unravel_index(int(np.argmin(good)), good.shape)
    where = "[" + ", ".join(str(int(i)) for i in index) + "]" if index else ""
    raise ValueError(f"{name}{where} is {value[index]!s}; {remedy}")


def require_finite(name: str, value: jax.Array | np.ndarray, remedy: str) -> None:
    """Raise for the first NaN or infinity of a concrete array."""
    values = known(value)
    if values is not None:
        _refuse(name, values, np.isfinite(values), remedy)


def require_positive(name: str, value: jax.Array) -> None:
    """Raise unless every entry of a concrete array is positive and finite."""
    values = known(value)
    if values is not None:
        _refuse(name, values, np.isfinite(values) & (values > 0), f"{name} must be positive and finite")


def require_nonnegative(name: str, value: jax.Array) -> None:
    """Raise unless every entry of a concrete array is finite and not negative."""
    values = known(value)
    if values is not None:
        _refuse(name, values, np.isfinite(values) & (values >= 0), f"{name} must be finite and not negative")


def require_broadcast(name: str, shape: tuple[int, ...], batch: tuple[int, ...]) -> None:
    """Raise unless an argument's batch axes broadcast with those of the problems."""
    try:
        np.broadcast_shapes(shape, batch)
    except ValueError:
        message = f"the batch axes {shape} of {name} don't broadcast with those of the problems, {batch}"
        raise ValueError(f"{message}; make them equal, or of length 1") from None


def require_share(name: str, value: Any) -> None:
    """Raise unless a concrete number lies strictly between 0 and 1."""
    number = float_array(name, value)
    if number.ndim:
        raise ValueError(f"{name} has shape {number.shape}; pass one number between 0 and 1")
    share = known(number)
    if share is not None and not 0 < share < 1:
        percent = f"; pass {share / 100:g} for {share:g} %" if 1 < share < 100 else ""
        raise ValueError(f"{name}={value} must lie between 0 and 1{percent}")


def require_at_least(name: str, value: Any, minimum: int) -> None:
    """Raise unless ``value`` is an integer of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{name} is {_shown(value)}; it must be an integer of at least {minimum}")
    if value < minimum:
        raise ValueError(f"{name}={value} must be at least {minimum}")


def require_flag(name: str, value: Any) -> None:
    """Raise unless ``value`` is ``True`` or ``False``."""
    if value is not True and value is not False:
        raise ValueError(f"{name}={value!r} must be True or False")


def require_choice(name: str, value: Any, known: tuple[str, ...]) -> None:
    """Raise unless ``value`` is one of the known names."""
    if value not in known:
        raise ValueError(f"unknown {name}={value!r}; choose one of {', '.join(known)}")


def typed_key(key: Any) -> jax.Array:
    """Return ``key`` as a typed PRNG key. Raw uint32 keys are wrapped; anything else raises ``ValueError``."""
    remedy = "make one with jax.random.key(0)"
    if not hasattr(key, "dtype"):
        raise ValueError(f"key is {_shown(key)}, not a PRNG key; {remedy}")
    key = jnp.asarray(key)
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.dtype != jnp.uint32 or key.ndim != 1:
            raise ValueError(f"key has dtype {key.dtype} and shape {key.shape}, which is not a PRNG key; {remedy}")
        key = jax.random.wrap_key_data(key)
    if key.shape != ():
        raise ValueError(f"key has shape {key.shape}; pass one key, and jax.vmap over several")
    return key
