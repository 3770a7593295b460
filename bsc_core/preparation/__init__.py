"""From files to the data of an experiment, with what is made on the way: examples, negatives, added pairs."""
