"""Published tables as recipes: settings, published cells, and the rule that compares them."""
