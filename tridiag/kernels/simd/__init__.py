"""The language of inner loops, with no solver in it; raw memory."""
