"""vLLM as the decoder: a bridge speaks for it, and a connector inside it takes over keys and values."""
