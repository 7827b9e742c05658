"""What is asked, in its normal form: axes, broadcasting and shapes; pure functions that know no array library."""
