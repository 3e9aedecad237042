"""A population whose parts live on the workers of a cluster."""
