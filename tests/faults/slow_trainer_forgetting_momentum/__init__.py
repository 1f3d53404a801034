"""A trainer with an injected fault, which forgets the optimizer's state on resume, and with slow steps."""
