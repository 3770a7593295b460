"""What users do with runs: launch, stop, resume, delete, merge, change the queue."""
