"""``python -m balson_jax`` is the ``balson`` command."""

from .cli import main

main()
