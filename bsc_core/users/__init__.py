"""Users of a shared app: their accounts, what they may read, and their quotas."""
