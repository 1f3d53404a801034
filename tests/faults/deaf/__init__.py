"""A trainer with a planted fault: it does not hear that it should save and leave, and trains to its last step."""
