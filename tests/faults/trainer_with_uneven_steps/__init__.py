"""A trainer whose steps are slow and uneven: each rank waits for its data in each step, sometimes for many times as long as usual."""
