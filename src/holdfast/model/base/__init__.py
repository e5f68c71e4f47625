"""Building blocks of every kind: names, addresses, times, keys, codecs."""
