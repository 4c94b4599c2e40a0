"""Contacts at one instant: the law of impacts, Coulomb's law, and one contact problem with several algorithms."""
