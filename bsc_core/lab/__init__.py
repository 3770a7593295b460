"""What the loss lab and the lessons compute: small batches, their settings, toy training and the lessons' numbers."""
