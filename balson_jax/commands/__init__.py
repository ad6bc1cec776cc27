"""Commands of the command line that have files of their own: ``balson fit``, ``check`` and ``compare``."""
