"""Benchmarks behind the published numbers: `python -m bench NAME [options] [--json]`; `python -m bench` lists them.

A benchmark is one file in `bench/suite/`: the file's name is the benchmark's name, and the first line of its docstring
its description in the list. It defines

- `Options`, a msgspec struct: every field is an option, with a default that finishes within 60 s on 2 cores;
- `Figures`, a msgspec struct: every field is a key of the JSON line, named as what it measures with its unit;
- `BENCHMARK = Benchmark(Options, measure)`, where `measure(options)` returns `Figures`, or raises `Unmeasurable` with
  one sentence if this machine lacks something.

`gauges` measures CPU, memory and a blocked loop; `parts` runs in a process of its own what must not be measured;
`server` starts an etcd in memory; `fleet` generates the stored objects. Nothing here imports the tests.
"""
