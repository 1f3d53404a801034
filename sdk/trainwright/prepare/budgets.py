"""How far a stored file may swell, and how wide it may be: what text is, and bombs go beyond."""

FREE_BYTES = 64 * 2**20
"""Output for which no ratio is asked."""
MOST_RATIO = 200
"""Plain bytes for each stored byte, beyond `FREE_BYTES`. Text reaches 10, logs 50."""
MOST_BYTES = 16 * 2**40
MOST_COLUMNS = 10_000
"""Columns of a table, or keys of the first JSON objects, that are held in memory."""
