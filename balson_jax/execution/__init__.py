"""Where and how fits run.

``blocks`` fits a batch by one method, some problems at a time; ``ladder`` climbs from method to method; ``assembly``
turns a sampler's estimate into a posterior; ``placement`` and ``parallel`` know devices; ``stream`` and ``storage`` are
for data larger than memory.
"""
