"""Suites of environments, a module each, imported when one of their names is: `make` turns a name
into a task, `names` lists what there is."""
