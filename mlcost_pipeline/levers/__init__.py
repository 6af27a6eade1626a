"""Seven questions about spending less, in the order in which they are worth asking; one module a question."""
