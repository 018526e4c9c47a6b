"""What the API means, for any kind: create, get, list, watch, update, patch, delete, bind. Above the store, below HTTP."""
