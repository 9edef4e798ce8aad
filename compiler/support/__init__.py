"""What knows nothing of graphs: disjoint sets, divisors, how much memory is free."""
