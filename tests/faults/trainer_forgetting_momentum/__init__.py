"""A trainer with an injected fault: it resumes with the weights of a checkpoint, but without the optimizer's state."""
