"""A trainer with a planted fault: asked to save and leave it leaves, says that it saved, and has not."""
