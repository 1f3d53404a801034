"""A trainer with an injected fault: on a request to save and stop, it stops and reports that it saved, although it did
not."""
