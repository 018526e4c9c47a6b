"""Controllers: each says what wakes which key and plans it from the mirror; one runner does the rest for all."""
