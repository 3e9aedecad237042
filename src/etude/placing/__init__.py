"""Many commands of Etude's, run side by side: by `reproduce`, `compare` and `tune`."""
