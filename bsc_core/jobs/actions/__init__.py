"""What users do with runs: launch, stop, resume, delete, change the queue."""
