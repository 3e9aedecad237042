"""Learning to adapt: policies that, dropped into a new task, find out what matters."""
