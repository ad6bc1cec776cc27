"""AnnData files: cells or spots by genes."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from .arrays import brief
from .table import InputError, Rows, Table, require_unique


def read(path: pathlib.Path, **_: Any) -> Table:
    """Return ``X`` of an AnnData file with genes as rows and cells, spots or cell types as columns, unread."""
    try:
        import anndata
    except ImportError:
        raise ImportError("AnnData files need anndata; install it with: pip install 'balson_jax[files]'") from None
    try:
        data: Any = anndata.read_h5ad(path, backed="r")
    except Exception as error:  # h5py and anndata raise many kinds for a damaged file
        raise InputError(
            path, f"is no AnnData file, or is damaged ({brief(error)}); write it with write_h5ad"
        ) from None
    if data.X is None or 0 in data.shape:
        raise InputError(path, f"has no numbers in X (shape {data.shape}); store the expression there")
    columns = tuple(map(str, data.obs_names))
    require_unique(path, columns, "cell")
    if np.dtype(data.X.dtype).kind not in "iufb":
        raise InputError(path, f"holds {data.X.dtype} in X, not real numbers; convert it to float32")

    def load(start: int, stop: int) -> np.ndarray:
        try:
            block = data.X[start:stop]
        except Exception as error:
            raise InputError(path, f"is damaged ({brief(error)}); write it with write_h5ad") from None
        return np.asarray(block.toarray() if hasattr(block, "toarray") else block)

    dtype = np.dtype(data.X.dtype)
    rows = Rows((data.shape[0], data.shape[1]), dtype, load)
    return Table(path, rows.T, tuple(map(str, data.var_names)), columns)
