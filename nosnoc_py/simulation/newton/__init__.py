"""One step of finite elements by Newton's method in guessed modes, events located."""
