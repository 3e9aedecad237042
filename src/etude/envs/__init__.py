"""Environments in the gymnax interface, by name."""

from etude.envs.registry import Task, available, make

__all__ = ["Task", "available", "make"]
