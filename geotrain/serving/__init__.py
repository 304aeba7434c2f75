"""Live prefill in the bubbles of a live training run: HTTP in, tokens out."""
