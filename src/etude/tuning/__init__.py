"""A search for settings of training and of the rule, on seeds that nothing else is shown on."""
