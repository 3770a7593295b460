"""Starting points of the New run page."""
