"""The algorithms as one reads them: one text each, a row at a time, over the operations of any library (``ops``)."""
