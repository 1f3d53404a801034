"""A trainer with an injected fault: it ignores the request to save and stop, and trains to its last step."""
