"""Building blocks of all kinds: names, addresses, times, keys, codec."""
