"""Reports: what lies in run folders as one HTML page that needs nothing else. No JAX here, and no
code that a folder names: a report opens fast, and anyone's folder can be looked at.

`folders` reads, a module per kind of folder builds the `page`, `render` writes it as HTML, `serve`
keeps it up to date.
"""
