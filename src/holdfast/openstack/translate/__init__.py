"""Translator: Neutron's rows to the objects that Felix and Calico's DHCP agent read. Pure.

The truth is networking-calico: for the same rows these objects mean what its objects mean, so that a store that it
wrote is adopted without rewriting what is right. Where its output is wrong, a comment says so, and ours differs.

No row raises. A row that has no form in Calico becomes a `Bad`, which names it; the reader treats it as present (rule
9). A part of a row for which Felix would drop the whole object is left out and named: one strange rule must not take
its security group away, and a rule is never made wider than it was asked to be.
"""
