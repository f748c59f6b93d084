"""Paired benchmarks: ratios in one run, never timings of one machine against another's."""
