"""The loss lab's component: Python beside it, JavaScript within it."""
