"""A trainer for the agent's tests, with the files, signals and process tree of the real one, but no arithmetic.

The run's name determines its behaviour; see `behaviour.py`. The modules are those that a supervisor starts.
"""
