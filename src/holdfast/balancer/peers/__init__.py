"""Agreement between balancers: reports and table digests."""
