"""A simulated shop with planted, known truths: its catalogue, its users, its payments, its past and its bill."""
