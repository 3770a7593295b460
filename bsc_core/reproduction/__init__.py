"""Claims of the papers, the runs that test them, and their verdicts."""
