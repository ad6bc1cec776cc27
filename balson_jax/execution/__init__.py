"""Where and how fits run.

``blocks`` fits a batch by one method, some problems at a time, and ``programs`` compiles what it runs. ``ladder``
climbs from method to method by the rules of ``verdict``, and ``masked`` does so inside a trace. ``mixtures`` fits an
unknown concentration of the prior on a grid of values, and ``grids`` fits the problems of that grid. ``assembly`` turns
a sampler's estimate into a posterior. ``placement`` and ``parallel`` handle devices. ``stream``, ``stream_check``,
``names`` and ``storage`` are for data larger than memory. ``ahead`` and ``warm_up`` compile early. ``progress`` shows
how far long work has come.
"""
