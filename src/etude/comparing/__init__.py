"""Which rule learns best? Many rules × environments × seeds, with statistics: `etude compare`."""
