"""Environments that run outside JAX: simulators, and the suites they come from. Processes that only
simulate import no more than this: neither JAX nor anything else of Etude."""
