"""Etude learns how to learn: agents under a learned update rule, and the rules themselves."""

from etude import envs, rules
from etude._malloc import keep_freed_memory
from etude.agent import Agent, Heads, NetworkConfig
from etude.config import TrainConfig
from etude.errors import UserError
from etude.learner import Learner, update
from etude.optim import adam
from etude.rules import Rule
from etude.trainer import Result, train
from etude.types import Rollout

keep_freed_memory()

__all__ = [
    "Agent",
    "Heads",
    "Learner",
    "NetworkConfig",
    "Result",
    "Rollout",
    "Rule",
    "TrainConfig",
    "UserError",
    "adam",
    "envs",
    "rules",
    "train",
    "update",
]
