"""A trainer whose steps take half a second, most of which they wait, like those of a rank whose GPU computes."""
