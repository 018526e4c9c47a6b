"""The HTTP client that agents and the command line use: nothing here but what they both need."""
