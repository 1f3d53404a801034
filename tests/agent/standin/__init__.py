"""A trainer for the agent's tests: the same files, signals and process tree as the real one, and no arithmetic.

The name of the run says how it behaves; see `behaviour.py`. Modules are those that a supervisor starts.
"""
