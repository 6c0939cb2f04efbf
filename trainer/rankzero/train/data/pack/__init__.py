"""``rankzero pack``: a folder of images, a list of images, JSON lines, text or tokens become shards. No torch here."""
