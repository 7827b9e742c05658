"""Few, long systems: chunks of rows in the lanes of vectors, and a reduced system that joins them."""
