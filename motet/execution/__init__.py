"""How local steps are carried out: traced once, simplified, and replayed."""
