"""Limits on the decompressed size and the columns of a file. Text stays below them, and decompression bombs exceed
them."""

FREE_BYTES = 64 * 2**20
"""Output up to which any compression ratio is accepted."""
MAX_RATIO = 200
"""Decompressed bytes per stored byte, beyond `FREE_BYTES`. Text reaches 10, logs 50."""
MAX_BYTES = 16 * 2**40
MAX_COLUMNS = 10_000
"""Columns of a table, or keys of the first JSON objects, that are kept in memory."""
