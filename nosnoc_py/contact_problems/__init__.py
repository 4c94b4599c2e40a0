"""Contacts at one instant: the impact law, Coulomb's law, and the contact problem with several algorithms."""
