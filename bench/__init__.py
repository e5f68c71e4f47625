"""What Holdfast's numbers come from: `python -m bench NAME [options] [--json]`, `python -m bench` lists the names.

A new benchmark is one file in `bench/suite/`; its name is the benchmark's, the first line of its docstring is what the
list says of it. It defines

- `Options`, a msgspec struct: every field is an option, with a default that finishes within 60 s on 2 cores;
- `Figures`, a msgspec struct: every field is a key of the JSON line, named as what it measures with its unit;
- `BENCHMARK = Benchmark(Options, measure)`, where `measure(options)` returns `Figures`, or raises `Unmeasurable` with
  one sentence where this machine lacks something.

`gauges` measures CPU, memory and a blocked loop, `parts` runs what must not be measured along in a process of its own,
`server` starts an etcd in memory, `fleet` makes up what is stored. Nothing here imports the tests.
"""
