"""What a rule has agents predict, how far ahead its targets look, and what it reads: `etude
inspect`."""
